"""A calibrated period on its way into the bank: link, combine, commit, and again on every new head."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from concal.bank.commit import commit, now, successor
from concal.bank.draft import Draft
from concal.bank.folder import FolderReader
from concal.bank.manifest import FileEntry, PeriodEntry, Snapshot
from concal.bank.persons import persons_of, returning
from concal.bank.progress import Clock, Update
from concal.bank.relink import dependents, relink
from concal.bank.shelf import Shelf
from concal.bank.store import Store, Transaction
from concal.calibrate.result import Calibration
from concal.combine.result import Consensus
from concal.data.check import CheckedPeriod
from concal.data.linkage import CONSENSUS
from concal.errors import BankError, first_few
from concal.link.result import Link
from concal.names import check_safe_name
from concal.spec import Spec

Coding = tuple[Mapping[str, Any], pl.DataFrame]
"""Design states, and the items known but not answered."""


def refuse_known(head: Snapshot, period: str, replace: bool) -> None:
    """A period is added once."""
    check_safe_name(period)
    twin = next((name for name in head.periods if name.lower() == period.lower()), None)
    if twin is not None and twin != period:
        raise BankError(f"period {period!r} differs from {twin!r} only by case; use one name")
    if twin is not None and not replace:
        raise BankError(
            f"period {period!r} is in the bank already (version {head.number}); use replace (--replace) to put this in "
            "its place, or retract it first"
        )
    if twin is None and replace:
        raise BankError(f"period {period!r} is not in the bank, so there is nothing to replace; periods: "
                        f"{first_few(head.ordered_periods()) or 'none'}")  # fmt: skip


def choose_reference(draft: Draft) -> str | None:
    """The spec's reference once it is there; else the one so far; else the first period."""
    wanted = draft.spec.bank.reference
    if wanted in draft.periods:
        return wanted
    if draft.reference in draft.periods:
        return draft.reference
    return next(iter(draft.periods), None)


def period_info(calibration: Calibration, checked: CheckedPeriod | None) -> dict[str, Any]:
    """What a table of periods shows."""
    convergence = calibration.convergence
    n_persons = calibration.abilities.person_ids.len() if calibration.abilities is not None else None
    return {
        "n_items": sum(g.n_items for g in calibration.groups.values()),
        "n_responses": int(sum(int(g.n_responses.sum()) for g in calibration.groups.values())),
        "n_persons": checked.data.person_ids.len() if checked is not None else n_persons,
        "n_draws": calibration.n_draws,
        "engine": calibration.engine,
        "seed": calibration.seed,
        "prior": "bank" if any(g.guide_mean is not None for g in calibration.groups.values()) else "population",
        "converged": convergence.converged,
        "seconds": _finite(convergence.seconds),
        "added": now(),
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class Placement:
    """A calibrated period on its way into the bank; built again on every new head."""

    period: str
    calibration: Calibration
    info: dict[str, Any]
    shelf: Shelf
    files: dict[str, FileEntry]
    replace: bool
    spec: Spec | None
    reason: str
    checked: CheckedPeriod | None
    direct_links: dict[str, Link] = field(default_factory=dict)

    def commit(self, store: Store, seen: Snapshot, coding: Coding | None, clock: Clock) -> Update:
        """Link, combine, commit; on a conflict again on the new head."""
        result: dict[str, Any] = {}

        def build(head: Snapshot, transaction: Transaction) -> Snapshot:
            refuse_known(head, self.period, self.replace)
            self._refuse_overlap(store, seen, head)
            draft = Draft(store, head, transaction, self.spec)
            if self.spec is not None:
                draft.set_spec(self.spec)
            old = draft.periods.get(self.period)
            position = old.position if old else 1 + max((e.position for e in draft.periods.values()), default=-1)
            files = self.shelf.adopt(transaction, self.period, self.files)
            entry = PeriodEntry(position=position, spec=draft.spec_entry, files=files, info=self.info)
            affected = dependents(draft, self.period) if old else ()
            draft.put_period(self.calibration, entry)
            if coding is not None:
                draft.keep_designs(*coding)
            with clock.stage("link"):
                fresh = self._link(draft, head, old is not None, affected)
            with clock.stage("combine"):
                simple = fresh == (self.period,) and old is None
                totals = draft.add_to_head(draft.summary(self.period)) if simple else draft.sum()
                result["consensus"] = draft.combine(totals, fresh, clock)
            result["link"] = draft.link(self.period)
            result["relinked"] = tuple(name for name in fresh if name != self.period)
            clock.tell("commit", 0.0)
            verb = "replace" if old else "add"
            return successor(store, head, transaction, f"{verb} {self.period}", self.reason, **draft.changes())

        start = time.perf_counter()
        spent = dict(clock.seconds)
        snapshot = commit(store, build)
        inner = sum(clock.seconds.values()) - sum(spent.values())
        clock.seconds["commit"] = time.perf_counter() - start - inner
        clock.tell("commit", 1.0)
        consensus: Consensus = result["consensus"]
        doubts = self.checked.warnings if self.checked is not None else ()
        warnings = (*doubts, *self.calibration.convergence.warnings, *result["link"].warnings, *consensus.warnings)
        return Update(
            version=snapshot.number,
            action=snapshot.action,
            period=self.period,
            warnings=tuple(dict.fromkeys(warnings)),
            consensus=consensus,
            tables=self.checked.tables if self.checked is not None else {},
            convergence=self.calibration.convergence,
            link=result["link"],
            relinked=result["relinked"],
            seconds=dict(clock.seconds),
        )

    def _link(self, draft: Draft, head: Snapshot, replaced: bool, affected: tuple[str, ...]) -> tuple[str, ...]:
        """Link the period; all periods when the reference is another now, or those that went through a replaced one."""
        draft.reference = choose_reference(draft)
        if draft.reference != head.reference or (replaced and self.period == draft.reference):
            return relink(draft, tuple(draft.periods))
        if replaced:
            return relink(draft, (self.period, *affected))
        draws = draft.periods[str(draft.reference)].files["draws"].sha256
        known = self.direct_links.get(draws)
        if known is not None:
            draft.put_link(known, self.calibration)
            return (self.period,)
        draft.link_one(self.period, head.ordered_periods(), lambda: draft.head_totals)
        found = draft.link(self.period)
        if all(len(path) <= 2 and CONSENSUS not in path for path in found.path.values()):
            self.direct_links[draws] = found  # a later head with the same reference gives the same link
        return (self.period,)

    def _refuse_overlap(self, store: Store, seen: Snapshot, head: Snapshot) -> None:
        """Examinees of periods that came in while this one was calibrated."""
        new = [n for n, e in head.periods.items() if seen.periods.get(n) != e and n != self.period]
        if not new or "persons" not in self.files:
            return
        own = persons_of(self.shelf.reader(self.files))
        back = returning(own, (FolderReader(store, head.periods[name].files) for name in new))
        if back.len():
            raise BankError(
                f"{back.len()} examinees of period {self.period!r} are also in {first_few(new)}, added while this one "
                f"was calibrated: {first_few(back.to_list())}; run the same command again"
            )
