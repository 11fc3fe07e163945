"""Changes that add no period: retract, combine again, another reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from concal.bank.building.next_version import Change, Contribution
from concal.bank.building.spec import changed
from concal.bank.store.manifest import Snapshot
from concal.bank.store.transaction import Transaction
from concal.errors import BankError, first_few
from concal.spec import Spec


def retract(period: str) -> Contribution:
    """Take a period out; see `Bank.retract`."""

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        known_period(head, period)
        left = {name: entry for name, entry in head.periods.items() if name != period}
        return Change(f"retract {period}", spec, left)

    return contribute


def recombine(options: Mapping[str, Any]) -> Contribution:
    """Combine under other options; see `Bank.combine`."""
    shown = ", ".join(f"{k}={v}" for k, v in options.items())

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        if not head.periods:
            raise BankError("the bank has no period yet; add one first")
        return Change(f"combine {shown}".strip(), changed(spec, "consensus", **options), head.periods)

    return contribute


def rereference(period: str) -> Contribution:
    """Make another period the reference; see `Bank.rereference`."""

    def contribute(head: Snapshot, spec: Spec, _: Transaction) -> Change:
        known_period(head, period)
        return Change(f"rereference {period}", changed(spec, "bank", reference=period), head.periods)

    return contribute


def known_period(head: Snapshot, period: str) -> None:
    """Refuse a period that is not there."""
    if period not in head.periods:
        raise BankError(f"there is no period {period!r}; periods: {first_few(head.ordered_periods()) or 'none'}")
