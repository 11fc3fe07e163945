"""Changes that add no period: retract, combine again, another reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from concal.bank.commit import commit, successor
from concal.bank.draft import Draft
from concal.bank.manifest import Snapshot
from concal.bank.placement import choose_reference
from concal.bank.progress import Clock, Progress, Update
from concal.bank.relink import dependents, map_links, relink
from concal.bank.store import Store, Transaction
from concal.combine.result import Consensus
from concal.errors import BankError, first_few


def _known_period(head: Snapshot, period: str) -> None:
    if period not in head.periods:
        raise BankError(f"there is no period {period!r}; periods: {first_few(head.ordered_periods()) or 'none'}")


def retract(store: Store, period: str, *, reason: str = "", progress: Progress | None = None) -> Update:
    """Take a period out; see `Bank.retract`."""
    result: dict[str, Any] = {"consensus": None, "relinked": ()}
    clock = Clock(progress)

    def build(head: Snapshot, transaction: Transaction) -> Snapshot:
        _known_period(head, period)
        draft = Draft(store, head, transaction)
        affected = dependents(draft, period) if period != head.reference else ()
        del draft.periods[period]
        draft.reference = choose_reference(draft)
        if not draft.periods:
            draft.keep(None, None)
        else:
            moved = tuple(draft.periods) if draft.reference != head.reference else affected
            fresh = relink(draft, moved) if moved else ()
            result["consensus"] = _combine(draft, fresh, clock)
            result["relinked"] = fresh
        return successor(store, head, transaction, f"retract {period}", reason, **draft.changes())

    snapshot = commit(store, build)
    return _plain_update(snapshot, period, result)


def recombine(
    store: Store, options: Mapping[str, Any], *, reason: str = "", progress: Progress | None = None
) -> Update:
    """Combine again under other options; see `Bank.combine`."""
    result: dict[str, Any] = {}
    clock = Clock(progress)

    def build(head: Snapshot, transaction: Transaction) -> Snapshot:
        if not head.periods:
            raise BankError("the bank has no period yet; add one first")
        draft = Draft(store, head, transaction)
        draft.options |= dict(options)
        draft.consensus_spec  # noqa: B018 (validates the options before any work)
        result["consensus"] = _combine(draft, tuple(draft.periods), clock)
        shown = ", ".join(f"{k}={v}" for k, v in options.items())
        return successor(store, head, transaction, f"combine {shown}".strip(), reason, **draft.changes())

    return _plain_update(commit(store, build), None, result)


def rereference(store: Store, period: str, *, reason: str = "", progress: Progress | None = None) -> Update:
    """Make another period the reference; see `Bank.rereference`."""
    result: dict[str, Any] = {}
    clock = Clock(progress)

    def build(head: Snapshot, transaction: Transaction) -> Snapshot:
        _known_period(head, period)
        draft = Draft(store, head, transaction)
        bank = draft.spec.bank.model_copy(update={"reference": period})
        options = dict(draft.options)
        draft.set_spec(draft.spec.model_copy(update={"bank": bank}))
        draft.options = options
        if period != head.reference:
            map_links(draft, period)
        draft.reference = period
        result["consensus"] = _combine(draft, tuple(draft.periods), clock)
        return successor(store, head, transaction, f"rereference {period}", reason, **draft.changes())

    return _plain_update(commit(store, build), period, result)


def _combine(draft: Draft, fresh: tuple[str, ...], clock: Clock) -> Consensus:
    with clock.stage("combine"):
        return draft.combine(draft.sum(), fresh, clock)


def _plain_update(snapshot: Snapshot, period: str | None, result: Mapping[str, Any]) -> Update:
    consensus = result["consensus"]
    return Update(
        snapshot.number,
        snapshot.action,
        period,
        consensus.warnings if consensus is not None else (),
        consensus,
        relinked=result.get("relinked", ()),
    )
