"""A backlog of periods: checked in order, calibrated and linked side by side, then added in order.

Calibrating ahead only fills the shelves on which `concal.bank.update.add` looks for finished tables: a period is added
as always, and what is on no shelf is calibrated there and then. So the command can be interrupted at any time and
repeated, and gives what adding the periods one after the other gives, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from concal.bank.building.link_periods import Made
from concal.bank.building.periods import Periods
from concal.bank.building.progress import Clock, Progress, Update
from concal.bank.building.spec import read_spec
from concal.bank.jobs.calibrating import Task
from concal.bank.jobs.cluster import Cluster, calibrate, link_there, reached
from concal.bank.store.store import Store
from concal.bank.update.check import check_data, refuse_known
from concal.bank.update.request import Request
from concal.calibration.period import calibrate_period
from concal.data.check import CheckedPeriod
from concal.data.deal import with_shards
from concal.data.read import read_table
from concal.errors import BankError, DataError, counted, first_few

Add = Callable[[Request, Cluster | None, Made], Update]
"""Adds a period; with a client of the cluster, and the links that were made ahead, by their keys."""


class Row(NamedTuple):
    """One line of the manifest."""

    period: str
    responses: Path
    items: Path


def read_backlog(manifest: str | Path) -> list[Row]:
    """The periods of a manifest (period, responses, items), in its order; paths are relative to it."""
    table = read_table(manifest, columns=("period", "responses", "items"), text_only=True, what="manifest")
    here = Path(manifest).parent
    lines = table.select("period", "responses", "items").rows()
    rows = [Row(str(period), here / str(responses), here / str(items)) for period, responses, items in lines]
    twice = table["period"].filter(table["period"].is_duplicated()).unique().to_list()
    if twice:
        raise DataError(f"manifest: {counted(len(twice), 'period')} named twice: {first_few(twice)}; a line per period")
    lost = [str(path) for row in rows for path in (row.responses, row.items) if not path.is_file()]
    if lost:
        raise DataError(
            f"manifest: {counted(len(lost), 'file')} not found: {first_few(lost)}; paths are relative to it"
        )
    if not rows:
        raise DataError("manifest: there is no line; give period, responses, items for each period to add")
    return rows


def backfill(
    store: Store, asked: list[Request], add: Add, *, cluster: Cluster | None, progress: Progress | None
) -> list[Update]:
    """Add the periods that are not in the bank yet; see `Bank.backfill`."""
    clock = Clock(progress)
    head = store.head()
    spec = read_spec(store, head.spec)
    left = [one for one in asked if one.period not in head.periods]
    for one in left:
        refuse_known(head, one.period, replace=False)
    if not left:
        return []
    if cluster is not None and spec.calibration.prior == "bank":
        raise BankError(
            'with [calibration] prior = "bank" a period waits for the ones before it, so a backlog cannot be '
            "calibrated side by side; run this without a scheduler, or take that option away"
        )
    with reached(cluster, store) as client:
        links = {} if client is None else _work_ahead(store, left, client, clock)
        return [add(one, client, links) for one in left]


def _work_ahead(store: Store, asked: list[Request], client: Any, clock: Clock) -> Made:
    """Calibrate and link the periods on the cluster; their tables wait on the shelves."""
    head = store.head()
    spec, periods = read_spec(store, head.spec), Periods.of(store, head)
    checked: dict[str, CheckedPeriod] = {}
    for one in asked:
        with clock.stage("check", f"period {one.period}"):
            checked[one.period] = check_data(periods, head.reference, one, spec, ahead=checked)
    tasks: dict[str, Task] = {}
    try:
        for one in asked:
            data = checked[one.period].data
            used = one.limited(with_shards(data, spec, None))
            if used.calibration.shards == 1:  # others side by side within the period, when its turn comes
                tasks[one.period] = Task.of(store, data, used, used.calibration.seed, calibrate_period)
        labelled = {f"calibrate {period}": task for period, task in tasks.items()}
        calibrate(store, labelled, calibrate_period, clock, client)
    finally:
        for task in tasks.values():
            task.shelf.release()
    return link_there(client, store, head, spec, {p: task.shelf.folder.name for p, task in tasks.items()}, clock)
