"""The main job: check -> calibrate -> link -> combine -> commit, as one update."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from concal.bank.catalogue import new_catalogue
from concal.bank.draft import answered_items, read_spec
from concal.bank.files import disk_errors
from concal.bank.folder import FolderReader, FolderWriter
from concal.bank.manifest import Snapshot
from concal.bank.persons import returning
from concal.bank.placement import Placement, period_info, refuse_known
from concal.bank.progress import Clock, Progress, Update
from concal.bank.results import read_consensus, read_summary
from concal.bank.shelf import Shelf, fingerprint
from concal.bank.store import Store
from concal.bank.tables import read_calibration, write_calibration
from concal.calibrate.known import guide_period
from concal.calibrate.result import Calibration
from concal.combine.result import GroupConsensus
from concal.data.check import CheckedPeriod, check_period
from concal.data.period import PeriodData
from concal.data.read import Table, read_responses
from concal.errors import ConcalError
from concal.spec import Spec


class Calibrator(Protocol):
    """What calibrates a period: `concal.calibrate.period.calibrate_period`, or anything with its signature."""

    def __call__(
        self,
        data: PeriodData,
        spec: Spec,
        *,
        period: str,
        seed: int,
        checkpoint: Path | None,
        progress: Callable[..., None] | None,
        resume: bool,
    ) -> Calibration:
        """Draws of the period on its own metric."""


def check(
    store: Store, head: Snapshot, period: str, responses: Table, items: Table, spec: Spec, *, wide: bool = False
) -> CheckedPeriod:
    """Check a period against what the bank knows: features, examinees, items."""
    reader = FolderReader(store, head.state)
    others = [name for name in head.ordered_periods() if name != period]
    readers = {name: FolderReader(store, head.periods[name].files) for name in others}
    earlier = None
    if others:
        persons = read_responses(responses, wide=wide).rows["person_id"].drop_nulls().unique()
        earlier = returning(persons, readers.values())
    designs = reader.json("designs") if "designs" in reader else None

    def checked(known: list[str]) -> CheckedPeriod:
        return check_period(
            responses,
            items,
            spec,
            period=period,
            design_states=designs,
            earlier_persons=earlier,
            earlier_items={name: answered_items(readers[name]) for name in known} or None,
            wide=wide,
        )

    reference = head.reference if head.reference in readers else next(iter(readers), None)
    first = [reference] if reference is not None else []
    rest = [name for name in others if name not in first]
    if not rest:
        return checked(first)
    try:  # enough items in common with the reference: the other periods need not be read
        return checked(first)
    except ConcalError:
        return checked([*first, *rest])


def add(
    store: Store,
    period: str,
    responses: Table,
    items: Table,
    *,
    spec: Spec | None = None,
    wide: bool = False,
    replace: bool = False,
    keep_responses: bool = True,
    seed: int | None = None,
    reason: str = "",
    resume: bool = True,
    progress: Progress | None = None,
    calibrator: Calibrator | None = None,
) -> Update:
    """Add one period; see `Bank.add`."""
    clock = Clock(progress)
    head = store.head()
    refuse_known(head, period, replace)
    used = spec or read_spec(store, head.spec)
    with clock.stage("check", f"period {period}"):
        checked = check(store, head, period, responses, items, used, wide=wide)
        reader = FolderReader(store, head.state)
        catalogue = new_catalogue(reader.frame("catalogue"), items, checked.data, used)
    seed = used.calibration.seed if seed is None else seed
    run = calibrator or _engine()
    data = checked.data
    if used.calibration.prior == "bank" and head.periods:
        data = guide_period(data, _known(store, head, period))
    identity = fingerprint(data, used, seed, getattr(run, "__qualname__", type(run).__name__))
    shelf = Shelf(store, period, identity)
    try:
        with clock.stage("calibrate"):
            done = shelf.finished() if resume else None
            if done is None:
                with disk_errors(f"calibrating period {period!r}"):
                    calibration = run(
                        data,
                        used,
                        period=period,
                        seed=seed,
                        checkpoint=shelf.checkpoint,
                        progress=clock.engine,
                        resume=resume,
                    )
                writer = shelf.start()
                write_calibration(writer, calibration)
                _write_data(writer, checked.data, keep_responses)
                shelf.finish(writer, {})
                files = writer.files
            else:
                files = {k: v for k, v in done[0].items() if keep_responses or k != "responses"}
                calibration = read_calibration(shelf.reader(files))
        entry = period_info(calibration, checked)
        place = Placement(period, calibration, entry, shelf, files, replace, spec, reason, checked)
        update = place.commit(store, head, (checked.design_states, catalogue), clock)
    except BaseException:
        shelf.release()
        raise
    shelf.clear()
    return update


def _known(store: Store, head: Snapshot, period: str) -> dict[str, GroupConsensus]:
    """What the bank knows, by group; a replaced period that told a group's population goes on telling it."""
    known = dict(read_consensus(FolderReader(store, head.state), joint=False).groups)
    if period in head.periods:
        old = read_summary(FolderReader(store, head.periods[period].files)).groups
        known = {name: group for name, group in known.items() if name not in old or old[name].guided}
    return known


def _engine() -> Calibrator:
    from concal.calibrate.period import calibrate_period

    run: Calibrator = calibrate_period
    return run


def _write_data(writer: FolderWriter, data: PeriodData, keep_responses: bool) -> None:
    """Who took part; and, unless switched off, the responses as they were used."""
    writer.frame("persons", pl.DataFrame({"person_id": data.person_ids.cast(pl.String)}))
    if keep_responses:
        frames = [
            pl.DataFrame(
                {
                    "group": [name] * g.score.shape[0],
                    "person": np.asarray(g.person, dtype=np.int32),
                    "item": np.asarray(g.item, dtype=np.int32),
                    "score": np.asarray(g.score, dtype=np.float64),
                },
                schema_overrides={"group": pl.String},
            )
            for name, g in data.groups.items()
        ]
        writer.frame("responses", pl.concat(frames))


def add_calibration(
    store: Store,
    calibration: Calibration,
    designs: Mapping[str, Any] | None = None,
    *,
    replace: bool = False,
    reason: str = "",
    progress: Progress | None = None,
) -> Update:
    """Add a period that another engine calibrated; see `Bank.add_calibration`."""
    clock = Clock(progress)
    head = store.head()
    refuse_known(head, calibration.period, replace)
    shelf = Shelf(store, calibration.period, secrets.token_hex(16))
    try:
        writer = shelf.start()
        write_calibration(writer, calibration)
        if calibration.abilities is not None:
            writer.frame("persons", pl.DataFrame({"person_id": calibration.abilities.person_ids.cast(pl.String)}))
        place = Placement(
            calibration.period,
            calibration,
            period_info(calibration, None),
            shelf,
            writer.files,
            replace,
            None,
            reason,
            None,
        )
        known = FolderReader(store, head.state)
        coding = (designs, known.frame("catalogue")) if designs else None
        update = place.commit(store, head, coding, clock)
    except BaseException:
        shelf.clear()
        raise
    shelf.clear()
    return update
