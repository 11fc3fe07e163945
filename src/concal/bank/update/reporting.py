"""How theta is reported: a change of the spec's reporting section alone, as a version of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from concal.bank.building.progress import Update
from concal.bank.building.spec import read_spec, write_spec
from concal.bank.store.commit import commit, successor
from concal.bank.store.manifest import Snapshot
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction
from concal.errors import BankError, first_few
from concal.spec import ReportedScore, Spec

Rules = Mapping[str, ReportedScore | Mapping[str, Any] | None]
"""Reported scores by name; None takes one away."""


def set_reporting(store: Store, rules: Rules, *, reason: str = "") -> Update:
    """Commit another reporting section; see `Bank.set_reporting`. Items, links and draws are those of the head."""

    def build(head: Snapshot, transaction: Transaction) -> Snapshot:
        known = read_spec(store, head.spec)
        spec = with_reporting(known, rules)
        if spec == known:
            raise BankError("scores are reported like this already; `concal reporting BANK` shows how")
        action = f"reporting {', '.join(rules)}"
        return successor(store, head, transaction, action, reason, spec=write_spec(spec, transaction))

    done = commit(store, build)
    return Update(version=done.number, action=done.action, period=None, warnings=(), consensus=None)


def with_reporting(spec: Spec, rules: Rules) -> Spec:
    """The spec with some reported scores changed, added or taken away; the others stay as they are."""
    kept = {name: rule.model_dump(exclude_none=True) for name, rule in spec.reporting.items()}
    lost = [name for name, rule in rules.items() if rule is None and name not in kept]
    if lost:
        raise BankError(f"there is no reported score {first_few(lost)}; there are: {first_few(list(kept)) or 'none'}")
    for name, rule in rules.items():
        if rule is None:
            del kept[name]
        else:
            kept[name] = rule.model_dump(exclude_none=True) if isinstance(rule, ReportedScore) else dict(rule)
    return Spec.parse({**spec.model_dump(exclude_none=True), "reporting": kept}, "the reporting section")
