"""The main job: check -> calibrate -> link -> combine -> commit, as one update."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from concal.bank.acts import Acts
from concal.bank.building.link_periods import Made
from concal.bank.building.new_period import NewPeriod, finished_tables, keep_calibration, new_period
from concal.bank.building.next_version import Change, make_next_version
from concal.bank.building.periods import Periods
from concal.bank.building.progress import Clock, Update
from concal.bank.jobs.calibrating import Task, calibrator_of, until_done
from concal.bank.jobs.cluster import calibrate, link_there
from concal.bank.jobs.shards import ShardedRun
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import PeriodEntry, Snapshot
from concal.bank.store.shelf import Shelf
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction
from concal.bank.tables.results import read_consensus
from concal.bank.update.check import check, guided, people_twice, refuse_known, refuse_overlap
from concal.bank.update.request import Request
from concal.calibration.known import guide_period
from concal.calibration.result import Calibration
from concal.calibration.verdict import refuse_unconverged
from concal.consensus.result import GroupConsensus
from concal.data.period import PeriodData
from concal.spec import Spec


def add(store: Store, asked: Request, client: Any = None, links: Made | None = None) -> Update:
    """Add one period; see `Bank.add`. `client` is of a cluster that was reached, `links` were made ahead."""
    run, clock = calibrator_of(asked.calibrator, client), Clock(asked.progress)
    head = store.head()
    with clock.stage("check", f"period {asked.period}"):
        used, checked = check(store, head, asked)
    seed = used.calibration.seed if asked.seed is None else asked.seed
    data = checked.data
    if guided(used, head):
        data = guide_period(data, _known(store, head, data))
    limited = asked.limited(used)
    task = Task.of(store, data, limited, seed, run)
    shelf, sharded = task.shelf, None
    if used.calibration.shards > 1:
        run = sharded = ShardedRun(store, run, clock, client)
        client = None
    with until_done(shelf):
        with clock.stage("calibrate"):
            files = finished_tables(shelf, limited.calibration) if asked.resume else None
            if files is None:
                label = "calibrate" if client is None else f"calibrate {asked.period}"
                files = calibrate(store, {label: task}, run, clock, client, resume=asked.resume)[label]
                if client is not None:
                    links = link_there(client, store, head, limited, {asked.period: shelf.folder.name}, clock)
            new = new_period(
                shelf,
                files,
                used,
                checked.design_states,
                items=asked.items,
                persons=data.person_ids,
                returning=checked.returning,
                data=data if asked.keep_responses else None,
            )
            if not asked.accept_unconverged:
                refuse_unconverged(new.calibration, limited.calibration)
        shards = [] if sharded is None else sharded.identities(data, used, seed)
        said, tables = checked.warnings, checked.tables
        del checked, data, task  # linking and combining need the memory, not the responses
        update = _commit(store, head, new, asked, clock, said, tables, links)
        for identity in shards:
            with until_done(Shelf(store, asked.period, identity)):
                pass  # nobody needs it any more
    return update


def add_calibration(store: Store, asked: Request, calibration: Calibration, states: Mapping[str, Any]) -> Update:
    """Add a period that another engine calibrated; see `Bank.add_calibration`."""
    head = store.head()
    refuse_known(head, asked.period, asked.replace)
    if not asked.accept_unconverged:
        refuse_unconverged(calibration, asked.seen.calibration)
    persons = None if calibration.abilities is None else calibration.abilities.person_ids
    if persons is not None:
        others = Periods.of(store, head).only(name for name in head.periods if name != asked.period)
        twice, reached = people_twice(others, asked.period, persons), calibration.convergence
        calibration = replace(calibration, convergence=replace(reached, warnings=(*twice, *reached.warnings)))
    shelf = Shelf(store, asked.period, secrets.token_hex(16))
    try:
        files = keep_calibration(shelf, calibration, asked.seen)
        new = new_period(shelf, files, asked.seen, states, items=asked.items, persons=persons)
        return _commit(store, head, new, asked, Clock(asked.progress))
    finally:
        shelf.clear()


def _commit(
    store: Store,
    start: Snapshot,
    new: NewPeriod,
    asked: Request,
    clock: Clock,
    said: tuple[str, ...] = (),
    tables: Mapping[str, pl.DataFrame] | None = None,
    links: Made | None = None,
) -> Update:
    """Put a calibrated period into the bank; `start` is the head it was checked against, with `said` and `tables`."""

    def contribute(head: Snapshot, head_spec: Spec, transaction: Transaction) -> Change:
        refuse_known(head, new.name, asked.replace)
        refuse_overlap(store, start, head, new)
        old = head.periods.get(new.name)
        position = old.position if old else 1 + max((e.position for e in head.periods.values()), default=-1)
        files = new.shelf.adopt(transaction, new.name, new.files)
        entry = PeriodEntry(position=position, files=files, info=new.info)
        verb = "replace" if old else "add"
        acts = Acts.of(head).with_period(new.name).acts
        return Change(f"{verb} {new.name}", asked.spec_on(head_spec), {**head.periods, new.name: entry}, acts)

    made = make_next_version(store, contribute, reason=asked.reason, clock=clock, new=new, links=links)
    assert made.link is not None
    convergence = new.calibration.convergence
    said = (*said, *convergence.warnings, *made.link.warnings)
    return made.update(clock, new.name, said, tables=tables or {}, convergence=convergence)


def _known(store: Store, head: Snapshot, data: PeriodData) -> dict[str, GroupConsensus]:
    """What the bank knows, by group, under the ids of the period; a replaced one goes on telling its populations."""
    known = dict(read_consensus(FolderReader(store, head.state), joint=False).groups)
    if data.period in head.periods:
        old = Periods.of(store, head)[data.period].factors().groups
        known = {name: group for name, group in known.items() if name not in old or old[name].guided}
    ids = [item for group in data.groups.values() for item in group.item_ids]
    by = Acts.of(head).with_period(data.period).adjustment(data.period, ids)
    return {name: replace(g, item_ids=tuple(by.stored(i) or "" for i in g.item_ids)) for name, g in known.items()}
