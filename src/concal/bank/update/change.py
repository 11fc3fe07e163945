"""Changes that add no period: retract, combine again, another reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from concal.bank.building.next_version import Change, Contribution, make_next_version
from concal.bank.building.progress import Clock, Progress, Update
from concal.bank.building.spec import with_consensus, with_reference
from concal.bank.store.manifest import Snapshot
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction
from concal.errors import BankError, first_few
from concal.spec import Spec


def retract(store: Store, period: str, *, reason: str = "", progress: Progress | None = None) -> Update:
    """Take a period out; see `Bank.retract`."""

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        known_period(head, period)
        left = {name: entry for name, entry in head.periods.items() if name != period}
        return Change(f"retract {period}", spec, left)

    return update(store, contribute, period, reason, progress)


def recombine(
    store: Store, options: Mapping[str, Any], *, reason: str = "", progress: Progress | None = None
) -> Update:
    """Combine under other options; see `Bank.combine`."""
    shown = ", ".join(f"{k}={v}" for k, v in options.items())

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        if not head.periods:
            raise BankError("the bank has no period yet; add one first")
        return Change(f"combine {shown}".strip(), with_consensus(spec, options), head.periods)

    return update(store, contribute, None, reason, progress)


def rereference(store: Store, period: str, *, reason: str = "", progress: Progress | None = None) -> Update:
    """Make another period the reference; see `Bank.rereference`."""

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        known_period(head, period)
        return Change(f"rereference {period}", with_reference(spec, period), head.periods)

    return update(store, contribute, period, reason, progress)


def known_period(head: Snapshot, period: str) -> None:
    """Refuse a period that is not there."""
    if period not in head.periods:
        raise BankError(f"there is no period {period!r}; periods: {first_few(head.ordered_periods()) or 'none'}")


def update(
    store: Store, contribute: Contribution, period: str | None, reason: str, progress: Progress | None
) -> Update:
    """Commit a contribution that brings no period."""
    clock = Clock(progress)
    made = make_next_version(store, contribute, reason=reason, clock=clock)
    return Update(
        version=made.snapshot.number,
        action=made.snapshot.action,
        period=period,
        warnings=(
            *(alarm.text for alarm in made.alarms),
            *made.said,
            *(made.consensus.warnings if made.consensus else ()),
        ),
        consensus=made.consensus,
        relinked=made.relinked,
        costs=dict(clock.costs),
    )
