"""The main job: check -> calibrate -> link -> combine -> commit, as one update."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace as changed
from typing import Any

import polars as pl

from concal.bank.acts import Acts
from concal.bank.building.link_periods import Made
from concal.bank.building.new_period import NewPeriod, finished_tables, keep_calibration, new_period
from concal.bank.building.next_version import Change, make_next_version
from concal.bank.building.periods import Periods
from concal.bank.building.progress import Clock, Progress, Update
from concal.bank.building.spec import merge_specs, with_sweeps
from concal.bank.jobs.calibrating import Calibrator, calibrate_on_shelf, calibrator_of
from concal.bank.jobs.cluster import Cluster, Task, calibrate_there, connected, link_there
from concal.bank.jobs.shards import ShardedRun
from concal.bank.jobs.travel import TravellingCheckpoint
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import FileEntry, PeriodEntry, Snapshot
from concal.bank.store.shelf import Shelf
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction
from concal.bank.tables.results import read_consensus
from concal.bank.update.check import check, guided, people_twice, refuse_known, refuse_overlap
from concal.calibration.fingerprint import fingerprint
from concal.calibration.known import guide_period
from concal.calibration.result import Calibration
from concal.calibration.verdict import refuse_unconverged
from concal.consensus.result import GroupConsensus
from concal.data.period import PeriodData
from concal.data.read import Table
from concal.spec import Spec


def add(
    store: Store,
    seen: Spec,
    period: str,
    responses: Table,
    items: Table,
    *,
    spec: Spec | None,
    wide: bool,
    replace: bool,
    keep_responses: bool,
    seed: int | None,
    reason: str,
    resume: bool,
    progress: Progress | None,
    calibrator: Calibrator | None,
    accept_unconverged: bool,
    max_sweeps: int | None,
    cluster: Cluster | None = None,
    shards: int | None = None,
    links: Made | None = None,
) -> Update:
    """Add one period; see `Bank.add`. `seen` is the spec that `spec` was made from, `links` were made ahead."""
    run, clock = calibrator_of(calibrator, cluster), Clock(progress)
    head = store.head()
    with clock.stage("check", f"period {period}"):
        used, checked = check(
            store, head, seen, period, responses, items, spec=spec, wide=wide, replace=replace, shards=shards
        )
    seed = used.calibration.seed if seed is None else seed
    data = checked.data
    if guided(used, head):
        data = guide_period(data, _known(store, head, data))
    shelf = Shelf(store, period, fingerprint(data, used, seed, run))
    if used.calibration.shards > 1:
        run, cluster = ShardedRun(store, run, clock, cluster), None
    limited = with_sweeps(used, max_sweeps)
    try:
        with clock.stage("calibrate"):
            files = finished_tables(shelf, limited.calibration) if resume else None
            if files is None and cluster is not None:
                files, links = _calibrate_elsewhere(store, head, shelf, data, limited, seed, cluster, clock, resume)
            elif files is None:
                files = calibrate_on_shelf(store, shelf, run, data, limited, seed, progress=clock.engine, resume=resume)
            kept = data if keep_responses else None
            new = new_period(
                shelf,
                files,
                used,
                checked.design_states,
                items=items,
                persons=data.person_ids,
                returning=checked.returning,
                data=kept,
            )
            if not accept_unconverged:
                refuse_unconverged(new.calibration, limited.calibration)
        shards_of = run.identities(data, used, seed) if isinstance(run, ShardedRun) else []
        said = checked.warnings, checked.tables
        del checked, data, kept  # linking and combining need the memory, not the responses
        update = _commit(store, head, new, seen, spec, replace, reason, clock, *said, links=links)
    except BaseException:
        shelf.release()
        raise
    if isinstance(run, ShardedRun):
        run.clear(period, shards_of)
    TravellingCheckpoint(store, shelf.folder).clear()
    shelf.clear()
    return update


def _calibrate_elsewhere(
    store: Store,
    head: Snapshot,
    shelf: Shelf,
    data: PeriodData,
    spec: Spec,
    seed: int,
    cluster: Cluster,
    clock: Clock,
    resume: bool,
) -> tuple[dict[str, FileEntry], Made]:
    """Calibrate and link on a cluster."""
    label = f"calibrate {data.period}"
    with connected(cluster, store) as client:
        files = calibrate_there(client, store, {label: Task(shelf, data, spec, seed)}, clock, resume=resume)
        links = link_there(client, store, head, spec, {data.period: shelf.folder.name}, clock)
    return files[label], links


def add_calibration(
    store: Store,
    seen: Spec,
    calibration: Calibration,
    states: Mapping[str, Any],
    items: Table | None,
    *,
    replace: bool,
    reason: str,
    progress: Progress | None,
    accept_unconverged: bool,
) -> Update:
    """Add a period that another engine calibrated; see `Bank.add_calibration`."""
    head = store.head()
    refuse_known(head, calibration.period, replace)
    if not accept_unconverged:
        refuse_unconverged(calibration, seen.calibration)
    persons = None if calibration.abilities is None else calibration.abilities.person_ids
    if persons is not None:
        others = Periods.of(store, head).only(name for name in head.periods if name != calibration.period)
        twice, reached = people_twice(others, calibration.period, persons), calibration.convergence
        calibration = changed(calibration, convergence=changed(reached, warnings=(*twice, *reached.warnings)))
    shelf = Shelf(store, calibration.period, secrets.token_hex(16))
    try:
        files = keep_calibration(shelf, calibration, seen)
        new = new_period(shelf, files, seen, states, items=items, persons=persons)
        return _commit(store, head, new, seen, None, replace, reason, Clock(progress))
    finally:
        shelf.clear()


def _commit(
    store: Store,
    start: Snapshot,
    new: NewPeriod,
    seen: Spec,
    spec: Spec | None,
    replace: bool,
    reason: str,
    clock: Clock,
    doubts: tuple[str, ...] = (),
    tables: Mapping[str, pl.DataFrame] | None = None,
    *,
    links: Made | None = None,
) -> Update:
    """Put a calibrated period into the bank; `start` is the head it was checked against, with `doubts` and `tables`."""

    def contribute(head: Snapshot, head_spec: Spec, transaction: Transaction) -> Change:
        refuse_known(head, new.name, replace)
        refuse_overlap(store, start, head, new)
        old = head.periods.get(new.name)
        position = old.position if old else 1 + max((e.position for e in head.periods.values()), default=-1)
        files = new.shelf.adopt(transaction, new.name, new.files)
        entry = PeriodEntry(position=position, files=files, info=new.info)
        verb = "replace" if old else "add"
        merged = merge_specs(seen, spec, head_spec)
        acts = Acts(head.acts, head.ordered_periods()).with_period(new.name).acts
        return Change(f"{verb} {new.name}", merged, {**head.periods, new.name: entry}, acts)

    made = make_next_version(store, contribute, reason=reason, clock=clock, new=new, links=links)
    assert made.link is not None
    assert made.consensus is not None
    convergence = new.calibration.convergence
    raised = tuple(alarm.text for alarm in made.alarms)
    warnings = (
        *raised,
        *made.said,
        *doubts,
        *convergence.warnings,
        *made.link.warnings,
        *made.consensus.warnings,
    )
    return Update(
        version=made.snapshot.number,
        action=made.snapshot.action,
        period=new.name,
        warnings=tuple(dict.fromkeys(warnings)),
        consensus=made.consensus,
        tables=tables or {},
        convergence=convergence,
        link=made.link,
        relinked=made.relinked,
        costs=dict(clock.costs),
    )


def _known(store: Store, head: Snapshot, data: PeriodData) -> dict[str, GroupConsensus]:
    """What the bank knows, by group, under the ids of the period; a replaced one goes on telling its populations."""
    known = dict(read_consensus(FolderReader(store, head.state), joint=False).groups)
    if data.period in head.periods:
        old = Periods.of(store, head).factors(data.period).groups
        known = {name: group for name, group in known.items() if name not in old or old[name].guided}
    ids = [item for group in data.groups.values() for item in group.item_ids]
    by = Acts(head.acts, head.ordered_periods()).with_period(data.period).adjustment(data.period, ids)
    return {name: changed(g, item_ids=tuple(by.stored(i) or "" for i in g.item_ids)) for name, g in known.items()}
