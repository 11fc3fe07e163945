"""The main job: check -> calibrate -> link -> combine -> commit, as one update."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from concal.bank.catalogue import new_catalogue
from concal.bank.commit import commit, now, successor
from concal.bank.draft import Draft, answered_items, read_spec
from concal.bank.folder import FolderReader, FolderWriter
from concal.bank.manifest import FileEntry, PeriodEntry, Snapshot
from concal.bank.persons import persons_of, returning
from concal.bank.relink import dependents, map_links, relink
from concal.bank.shelf import Shelf, fingerprint
from concal.bank.store import Store, Transaction
from concal.bank.tables import read_calibration, write_calibration
from concal.calibrate.result import Calibration, Convergence
from concal.combine.result import Consensus
from concal.data.check import CheckedPeriod, check_period
from concal.data.linkage import CONSENSUS
from concal.data.period import PeriodData
from concal.data.read import Table, read_responses
from concal.errors import BankError, ConcalError, first_few
from concal.link.result import Link
from concal.names import check_safe_name
from concal.spec import Spec

STAGES = ("check", "calibrate", "link", "combine", "commit")
Coding = tuple[Mapping[str, Any], pl.DataFrame]  # design states, items known but not answered
Progress = Callable[[str, float, str], None]
"""Called with the stage, the share of it that is done, and a message."""


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


@dataclass(frozen=True)
class Update:
    """What happened, as data.

    Attributes
    ----------
    version : int
        The bank's version after the update.
    action : str
    period : str or None
    warnings : tuple of str
        Of all stages.
    tables : dict of str -> polars DataFrame
        What the check found (exposure, groups, items, persons).
    convergence : Convergence or None
    link : Link or None
        The period's link to the reference.
    relinked : tuple of str
        Other periods that were linked anew.
    consensus : Consensus or None
        None when no period is left.
    seconds : dict of stage -> float
    """

    version: int
    action: str
    period: str | None
    warnings: tuple[str, ...]
    consensus: Consensus | None
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    convergence: Convergence | None = None
    link: Link | None = None
    relinked: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


class _Clock:
    """Times the stages and tells the progress callback."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def stage(self, name: str, message: str = "") -> Any:
        """One stage."""
        self.tell(name, 0.0, message)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self.tell(name, 1.0, message)

    def tell(self, stage: str, share: float, message: str = "") -> None:
        """Report."""
        if self._progress is not None:
            self._progress(stage, share, message)

    def engine(self, report: Any) -> None:
        """What the engine reports while it samples (`concal.calibrate.sampler.Progress`)."""
        sweep, expected = getattr(report, "sweep", 0), getattr(report, "expected_sweeps", 0)
        remaining = getattr(report, "remaining", None)
        message = f"{getattr(report, 'phase', '')}, sweep {sweep}" + (
            f", about {remaining:.0f} s left" if remaining is not None else ""
        )
        self.tell("calibrate", min(sweep / expected, 1.0) if expected else 0.0, message)


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
    clock = _Clock(progress)
    head = store.head()
    refuse_known(head, period, replace)
    used = spec or read_spec(store, head.spec)
    with clock.stage("check", f"period {period}"):
        checked = check(store, head, period, responses, items, used, wide=wide)
        reader = FolderReader(store, head.state)
        catalogue = new_catalogue(reader.frame("catalogue"), items, checked.data, used)
    seed = used.calibration.seed if seed is None else seed
    run = calibrator or _engine()
    identity = fingerprint(checked.data, used, seed, getattr(run, "__qualname__", type(run).__name__))
    shelf = Shelf(store, period, identity)
    try:
        with clock.stage("calibrate"):
            done = shelf.finished() if resume else None
            if done is None:
                calibration = run(
                    checked.data,
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
                files = done[0]
                calibration = read_calibration(shelf.reader(files))
        entry = _entry(calibration, checked)
        place = _Placement(period, calibration, entry, shelf, files, replace, spec, reason, checked)
        update = place.commit(store, head, (checked.design_states, catalogue), clock)
    except BaseException:
        shelf.release()
        raise
    shelf.clear()
    return update


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


def _entry(calibration: Calibration, checked: CheckedPeriod | None) -> dict[str, Any]:
    convergence = calibration.convergence
    n_persons = calibration.abilities.person_ids.len() if calibration.abilities is not None else None
    return {
        "n_items": sum(g.n_items for g in calibration.groups.values()),
        "n_responses": int(sum(int(g.n_responses.sum()) for g in calibration.groups.values())),
        "n_persons": checked.data.person_ids.len() if checked is not None else n_persons,
        "n_draws": calibration.n_draws,
        "engine": calibration.engine,
        "seed": calibration.seed,
        "converged": convergence.converged,
        "seconds": _finite(convergence.seconds),
        "added": now(),
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class _Placement:
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

    def commit(self, store: Store, seen: Snapshot, coding: Coding | None, clock: _Clock) -> Update:
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
                result["consensus"] = draft.combine(totals, fresh)
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
    import secrets

    clock = _Clock(progress)
    head = store.head()
    refuse_known(head, calibration.period, replace)
    shelf = Shelf(store, calibration.period, secrets.token_hex(16))
    try:
        writer = shelf.start()
        write_calibration(writer, calibration)
        if calibration.abilities is not None:
            writer.frame("persons", pl.DataFrame({"person_id": calibration.abilities.person_ids.cast(pl.String)}))
        place = _Placement(
            calibration.period, calibration, _entry(calibration, None), shelf, writer.files, replace, None, reason, None
        )
        known = FolderReader(store, head.state)
        coding = (designs, known.frame("catalogue")) if designs else None
        update = place.commit(store, head, coding, clock)
    except BaseException:
        shelf.clear()
        raise
    shelf.clear()
    return update


def _known_period(head: Snapshot, period: str) -> None:
    if period not in head.periods:
        raise BankError(f"there is no period {period!r}; periods: {first_few(head.ordered_periods()) or 'none'}")


def retract(store: Store, period: str, *, reason: str = "") -> Update:
    """Take a period out; see `Bank.retract`."""
    result: dict[str, Any] = {"consensus": None, "relinked": ()}

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
            result["consensus"] = draft.combine(draft.sum(), fresh)
            result["relinked"] = fresh
        return successor(store, head, transaction, f"retract {period}", reason, **draft.changes())

    snapshot = commit(store, build)
    return _plain_update(snapshot, period, result)


def recombine(store: Store, options: Mapping[str, Any], *, reason: str = "") -> Update:
    """Combine again under other options; see `Bank.combine`."""
    result: dict[str, Any] = {}

    def build(head: Snapshot, transaction: Transaction) -> Snapshot:
        if not head.periods:
            raise BankError("the bank has no period yet; add one first")
        draft = Draft(store, head, transaction)
        draft.options |= dict(options)
        draft.consensus_spec  # noqa: B018 (validates the options before any work)
        result["consensus"] = draft.combine(draft.sum(), tuple(draft.periods))
        shown = ", ".join(f"{k}={v}" for k, v in options.items())
        return successor(store, head, transaction, f"combine {shown}".strip(), reason, **draft.changes())

    return _plain_update(commit(store, build), None, result)


def rereference(store: Store, period: str, *, reason: str = "") -> Update:
    """Make another period the reference; see `Bank.rereference`."""
    result: dict[str, Any] = {}

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
        result["consensus"] = draft.combine(draft.sum(), tuple(draft.periods))
        return successor(store, head, transaction, f"rereference {period}", reason, **draft.changes())

    return _plain_update(commit(store, build), period, result)


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
