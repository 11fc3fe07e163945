"""The one way to the next version.

A version is a function of its periods (their folders, in order), its spec and what was decided about single items (its
acts). An update contributes a change to these; reference, links, totals, unanswered items and consensus follow here,
always in the same way. When another writer was faster, all of it is done again on the new head.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from concal.bank.acts import Acts, in_words
from concal.bank.building.coding import items_of_tables
from concal.bank.building.evidence import evidence_of, next_totals, totals_key
from concal.bank.building.link_periods import Made, link_periods
from concal.bank.building.new_period import NewPeriod
from concal.bank.building.periods import Periods
from concal.bank.building.progress import Clock, Update
from concal.bank.building.spec import read_spec, refuse_other_dimensions, refuse_other_groups, write_spec
from concal.bank.building.uncounted import with_uncounted
from concal.bank.store.commit import commit, successor
from concal.bank.store.folder import FolderWriter
from concal.bank.store.manifest import Act, FileEntry, PeriodEntry, Snapshot
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction
from concal.bank.tables.results import write_consensus, write_totals
from concal.calibration.workers import one_blas_thread
from concal.consensus.combine import consensus_of
from concal.consensus.drift.alarms import Alarm, raise_alarms
from concal.consensus.result import Consensus
from concal.linking.result import Link
from concal.spec import Spec


@dataclass(frozen=True)
class Change:
    """What an update makes of a head.

    Attributes
    ----------
    action : str
        For the history.
    spec : Spec
        Of the next version.
    periods : dict of name -> PeriodEntry
        Of the next version.
    acts : tuple of Act or None
        Of the next version; None: the head's.
    """

    action: str
    spec: Spec
    periods: Mapping[str, PeriodEntry]
    acts: tuple[Act, ...] | None = None


Contribution = Callable[[Snapshot, Spec, Transaction], Change]
"""Called with the head, its spec and the commit in the making, perhaps several times."""


@dataclass(frozen=True)
class NextVersion:
    """What was committed; `consensus` is None when no period is left, `link` is that of a new period.

    `alarms` are those of a method that looks at all periods; the others do not read the past to raise them. `said` is
    what the update brought about that nobody asked for.
    """

    snapshot: Snapshot
    consensus: Consensus | None
    relinked: tuple[str, ...]
    link: Link | None
    alarms: tuple[Alarm, ...] = ()
    said: tuple[str, ...] = ()

    def update(self, clock: Clock, period: str | None, said: Iterable[str] = (), **found: Any) -> Update:
        """The same for whoever asked for it: about a period, with what was said and found of that on the way."""
        raised = (alarm.text for alarm in self.alarms)
        consensus = self.consensus.warnings if self.consensus else ()
        return Update(
            version=self.snapshot.number,
            action=self.snapshot.action,
            period=period,
            warnings=tuple(dict.fromkeys((*raised, *self.said, *said, *consensus))),
            consensus=self.consensus,
            link=self.link,
            relinked=self.relinked,
            costs=dict(clock.costs),
            **found,
        )


@one_blas_thread
def make_next_version(
    store: Store,
    contribute: Contribution,
    *,
    reason: str,
    clock: Clock,
    new: NewPeriod | None = None,
    links: Made | None = None,
) -> NextVersion:
    """Commit a contribution and everything that follows from it; `links` are those that were made ahead."""
    made: Made = dict(links or {})
    done: list[NextVersion] = []

    def build(head: Snapshot, transaction: Transaction) -> Snapshot:
        spec = read_spec(store, head.spec)
        change = contribute(head, spec, transaction)
        stay = {name for name, entry in change.periods.items() if head.periods.get(name) == entry}
        refuse_other_dimensions(spec, change.spec, bool(stay))
        periods = Periods(transaction.view, change.periods)
        asked = periods.only(change.periods if spec.groups != change.spec.groups else change.periods.keys() - stay)
        refuse_other_groups(change.spec, {name: period.models() for name, period in asked.items()})
        done[:] = [_build(head, change, transaction, reason, clock, new, made)]
        return done[0].snapshot

    with clock.measured("commit"):
        commit(store, build)
    clock.tell("commit", 1.0)
    return done[0]


def _build(
    head: Snapshot,
    change: Change,
    transaction: Transaction,
    reason: str,
    clock: Clock,
    new: NewPeriod | None,
    made: Made,
) -> NextVersion:
    """The next version in full, its files written, the manifest not yet linked."""
    start = time.perf_counter()
    spec, store = change.spec, transaction.store
    order = sorted(change.periods, key=lambda name: change.periods[name].position)
    memory = {} if new is None else {new.name: (new.calibration, new.factors)}
    acts = head.acts if change.acts is None else change.acts
    entries = {name: change.periods[name] for name in order}
    periods = Periods(transaction.view, entries, Acts(acts, tuple(order)), memory)
    reference = spec.bank.reference if spec.bank.reference in periods else next(iter(order), None)
    consensus: Consensus | None = None
    state: dict[str, FileEntry] = {}
    key, anew, raised = "", tuple[str, ...](), tuple[Alarm, ...]()
    if reference is not None:
        with clock.stage("link"):
            periods, anew = link_periods(periods, reference, spec, transaction, made)
        with clock.stage("combine"):
            key = totals_key(periods, reference, spec.consensus.half_life)
            consensus, state, raised = _combine(periods, reference, spec, head, transaction, clock)
    clock.tell("commit", 0.0)
    entries = dict(periods.entries)
    if new is not None:
        entries[new.name] = _timed(entries[new.name], time.perf_counter() - start)
    draft = successor(
        store,
        head,
        transaction,
        change.action,
        reason,
        spec=head.spec if spec == read_spec(store, head.spec) else write_spec(spec, transaction),
        reference=reference,
        periods=entries,
        acts=acts,
        state=state,
        totals_key=key,
    )
    others = tuple(name for name in anew if new is None or name != new.name)
    link = periods[new.name].link() if new is not None else None
    said = _resting(head, draft, consensus)
    if spec.bank.reference == read_spec(store, head.spec).bank.reference:  # nobody asked for another
        said = (*_other_metric(head.reference, draft), *said)
    return NextVersion(draft, consensus, others, link, raised, said)


def _combine(
    periods: Periods, reference: str, spec: Spec, head: Snapshot, transaction: Transaction, clock: Clock
) -> tuple[Consensus, dict[str, FileEntry], tuple[Alarm, ...]]:
    totals = next_totals(periods, reference, spec.consensus.half_life, head)
    evidence = evidence_of(periods, lambda: totals)
    consensus = consensus_of(
        evidence,
        spec.consensus,
        items=items_of_tables(periods),
        progress=lambda share, message: clock.tell("combine", share, message),
    )
    consensus = with_uncounted(consensus, periods)
    writer = FolderWriter(transaction, "consensus")
    write_consensus(writer, consensus)
    write_totals(writer, totals)
    raised = tuple[Alarm, ...]()
    if spec.consensus.method == "joint":  # it has read all periods
        raised = raise_alarms(evidence.placed(), consensus, spec.consensus)
    return consensus, writer.files, raised


def _resting(head: Snapshot, draft: Snapshot, consensus: Consensus | None) -> tuple[str, ...]:
    """Acts that do nothing any more, because a period they name is gone and none is left that they change."""
    gone, order = head.periods.keys() - draft.periods.keys(), draft.ordered_periods()
    there = {item for g in consensus.groups.values() for item in g.item_ids} if consensus else set[str]()
    return tuple(
        f"{in_words(act)}: rests, because no period it changes is left; it holds again when "
        f"{'a period with the item' if act.onwards else 'a period of that name'} comes "
        f"(`concal {act.kind} --undo` forgets it)"
        for act in draft.acts
        if gone.intersection(act.periods)
        and (Acts(order=order).idle(act) or (act.kind == "split" and act.new_id not in there))
    )


def _other_metric(before: str | None, draft: Snapshot) -> tuple[str, ...]:
    """What to say where another period sets the metric because one went or came."""
    now = draft.reference
    if before is None or now is None or now == before:
        return ()
    why = f"{before!r} is gone" if before not in draft.periods else f"bank.reference names {now!r}"
    return (
        f"the reference is {now!r} now and was {before!r}: {why}; every number is on the metric of {now!r}, so scores "
        f"and releases of earlier versions are on another (`concal rereference` takes another period)",
    )


def _timed(entry: PeriodEntry, seconds: float) -> PeriodEntry:
    """The entry with what the update cost beside calibrating: link, combine, files."""
    return entry.model_copy(update={"info": {**entry.info, "update_seconds": round(seconds, 4)}})
