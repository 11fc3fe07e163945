"""The object users hold: the newest version of a bank, and the updates that make the next."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from concal.bank.building.link_periods import Made
from concal.bank.building.next_version import Contribution, make_next_version
from concal.bank.building.progress import Clock, Progress, Update
from concal.bank.building.spec import changed, write_spec
from concal.bank.evaluation import Evaluation
from concal.bank.jobs.calibrating import Calibrator
from concal.bank.jobs.cluster import Cluster, reached
from concal.bank.store.commit import author, commit, now, stamp, successor
from concal.bank.store.files import sha256
from concal.bank.store.folder import FolderWriter
from concal.bank.store.manifest import FORMAT, Release, Snapshot
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction, add_release, create_store
from concal.bank.store.upkeep import Pruned, Verification, prune, verify
from concal.bank.update import add, change, decide
from concal.bank.update.backfill import backfill, read_backlog
from concal.bank.update.check import check
from concal.bank.update.reporting import Rules, set_reporting
from concal.bank.update.request import Request
from concal.bank.version import Version
from concal.calibration.result import Calibration
from concal.data.check import CheckedPeriod
from concal.data.read import Table
from concal.errors import BankError, first_few
from concal.names import check_safe_name
from concal.spec import ConsensusSpec, Spec


class Bank(Version):
    """An item bank in a folder or on object storage, pinned to one version.

    Reading always sees that version, whatever others commit meanwhile; an update made through this object moves it to
    the version it committed, `refresh` to the newest.

    Parameters
    ----------
    path
        The bank's folder, or its address on object storage (``s3://bucket/prefix``, ``gs://``, ``az://``).

    Examples
    --------
    >>> bank = concal.Bank("bank")  # doctest: +SKIP
    >>> bank.items()  # doctest: +SKIP
    """

    def __init__(self, path: str | Path) -> None:
        store = Store.open(path)
        super().__init__(store, store.head())

    @classmethod
    def create(cls, path: str | Path, spec: Spec) -> Bank:
        """A new bank without periods."""

        def first(transaction: Transaction) -> Snapshot:
            return Snapshot(
                bank=secrets.token_hex(8),
                number=0,
                id=transaction.id,
                parent=None,
                spec=write_spec(spec, transaction),
                **stamp("create"),
            )

        create_store(path, first)
        return cls(path)

    def at(self, version: int | str) -> Version:
        """The bank as it was, to read: by version number, or by the name of a release."""
        if isinstance(version, int):
            return Version(self._store, self._store.snapshot(version))
        return Version(self._store, self._store.release(version))

    def refresh(self) -> Bank:
        """Move to the newest version; returns the bank itself."""
        self._snapshot = self._store.head()
        return self

    # updates

    def add(
        self,
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
        cluster: Cluster | None = None,
        shards: int | None = None,
        accept_unconverged: bool = False,
        max_sweeps: int | None = None,
    ) -> Update:
        """Add a period: check, calibrate, link, combine, commit. Nothing changes before the commit.

        A run that was interrupted, or stopped before its targets held, goes on where it was when called again with the
        same data.

        Parameters
        ----------
        period
            Its name.
        responses, items
            Paths or data frames, see `concal.check_period`.
        spec
            A changed specification: what it changes relative to `Bank.spec` holds from this version on.
        wide
            Responses have one column per item.
        replace
            Put this in the place of a period the bank has, as one commit.
        keep_responses
            Keep the responses in the bank, for `concal evaluate`.
        seed
            Default: the spec's.
        reason
            Kept in the history.
        resume
            False: calibrate from the start even if a checkpoint is there.
        progress
            Called with (stage, share done, message).
        calibrator
            What calibrates instead of concal's engine.
        cluster
            Address of a Dask scheduler, or a `distributed.Client`: calibrate there. The numbers are the same.
        shards
            Deal the examinees to so many shards, calibrate each alone and put them together; default: the spec's.
        accept_unconverged
            Take a period whose chains missed their targets, and mark it and its items; default: a `ConvergenceError`.
        max_sweeps
            Another limit than ``calibration.max_sweeps``, for this run.
        """
        asked = Request(
            self.spec,
            period,
            responses,
            items,
            spec=spec,
            wide=wide,
            replace=replace,
            keep_responses=keep_responses,
            seed=seed,
            reason=reason,
            resume=resume,
            progress=progress,
            calibrator=calibrator,
            shards=shards,
            accept_unconverged=accept_unconverged,
            max_sweeps=max_sweeps,
        )
        with reached(cluster, self._store) as client:
            return self._add(asked, client)

    def _add(self, asked: Request, client: Cluster | None, links: Made | None = None) -> Update:
        return self._moved(add.add(self._store, asked, client, links))

    def check(
        self,
        period: str,
        responses: Table,
        items: Table,
        *,
        spec: Spec | None = None,
        wide: bool = False,
        replace: bool = False,
        shards: int | None = None,
    ) -> CheckedPeriod:
        """Everything `add` would ask before it samples; what passes here is sampled there. Changes nothing."""
        asked = Request(self.spec, period, responses, items, spec=spec, wide=wide, replace=replace, shards=shards)
        return check(self._store, self._store.head(), asked, whole_plan=True)[1]

    def backfill(
        self,
        manifest: str | Path,
        *,
        keep_responses: bool = True,
        reason: str = "",
        progress: Progress | None = None,
        accept_unconverged: bool = False,
        max_sweeps: int | None = None,
        cluster: Cluster | None = None,
    ) -> list[Update]:
        """Add a backlog of periods in order; with a cluster they are calibrated side by side first.

        What is in the bank already is left alone, so a call that was interrupted can be repeated.

        Parameters
        ----------
        manifest
            CSV with a line per period: period, responses, items (paths relative to the manifest).
        keep_responses, reason, progress, accept_unconverged, max_sweeps, cluster
            As in `add`.
        """
        asked = [
            Request(
                self.spec,
                *row,
                keep_responses=keep_responses,
                reason=reason,
                progress=progress,
                accept_unconverged=accept_unconverged,
                max_sweeps=max_sweeps,
            )
            for row in read_backlog(manifest)
        ]
        return backfill(self._store, asked, self._add, cluster=cluster, progress=progress)

    def add_calibration(
        self,
        calibration: Calibration,
        *,
        design_states: Mapping[str, Any] | None = None,
        items: Table | None = None,
        replace: bool = False,
        reason: str = "",
        progress: Progress | None = None,
        accept_unconverged: bool = False,
    ) -> Update:
        """Add a period from draws: link, combine, commit.

        Parameters
        ----------
        calibration
            From `concal.calibrate`, `concal.bank.exchange.draws.calibration_from_draws` or `legacy_calibration`.
        design_states
            How its features are coded, as those functions return it.
        items
            The period's item table; items nobody has answered are predicted.
        replace, reason, progress, accept_unconverged
            As in `add`.
        """
        asked = Request(
            self.spec,
            calibration.period,
            items=items,
            replace=replace,
            reason=reason,
            progress=progress,
            accept_unconverged=accept_unconverged,
        )
        return self._moved(add.add_calibration(self._store, asked, calibration, design_states or {}))

    def add_draws(
        self,
        period: str,
        draws: Any,
        *,
        items: Table | None = None,
        replace: bool = False,
        reason: str = "",
        progress: Progress | None = None,
        accept_unconverged: bool = False,
    ) -> Update:
        """Add a period from another engine's draws as ArviZ has them (netCDF or Zarr file, Dataset, DataTree).

        Names and shapes are those of `concal.bank.exchange.draws`; `items` is the item table, needed for features.
        """
        from concal.bank.exchange.arviz import read_arviz

        calibration, states = read_arviz(draws, period, self.spec, items=items, design_states=self.design_states())
        return self.add_calibration(
            calibration,
            design_states=states,
            items=items,
            replace=replace,
            reason=reason,
            progress=progress,
            accept_unconverged=accept_unconverged,
        )

    def retract(self, period: str, *, reason: str = "", progress: Progress | None = None) -> Update:
        """Take a period out; periods that were linked through it are linked anew.

        Examinees who were left out of another period because this one had them do not come back: their responses are
        not in the bank. A warning names such periods, which `add` with `replace` puts right; it stays while it is true.
        """
        return self._change(change.retract(period), period, reason, progress)

    def combine(
        self, *, method: str | None = None, reason: str = "", progress: Progress | None = None, **options: Any
    ) -> Update:
        """Combine under other options of the spec's consensus section, which stay; half_life=None takes it away."""
        given = {**({"method": method} if method is not None else {}), **options}
        unknown = sorted(set(given) - set(ConsensusSpec.model_fields))
        if unknown:
            raise BankError(f"unknown options {first_few(unknown)}; there are {', '.join(ConsensusSpec.model_fields)}")
        changed(self.spec, "consensus", **given)  # a bad value is refused before any work
        return self._change(change.recombine(given), None, reason, progress)

    def rereference(self, period: str, *, reason: str = "", progress: Progress | None = None) -> Update:
        """Put everything on another period's metric: all periods are linked to it, nothing is calibrated again."""
        return self._change(change.rereference(period), period, reason, progress)

    def set_reporting(self, rules: Rules, *, reason: str = "") -> Update:
        """Change how theta is reported from this version on; items stay as they are, and releases keep their rules.

        Parameters
        ----------
        rules
            By name of a dimension or composite: ``{"reading": {"slope": 20, "intercept": 100}}``, a
            `concal.spec.ReportedScore`, or None to report it no more. Scores that are not named stay.
        reason
            Kept in the history.
        """
        return self._moved(set_reporting(self._store, rules, reason=reason))

    # acts on single items

    def exclude(
        self,
        item: str,
        period: str,
        *,
        person_group: str | None = None,
        reason: str = "",
        progress: Progress | None = None,
    ) -> Update:
        """What a period says about an item does not count from this version on; `include` undoes it.

        The item is no anchor of that period either, so its link follows. Refused for an item's last period.

        Parameters
        ----------
        person_group
            Only this group of examinees does not count: the item is what the period's other groups say, and stays an
            anchor. See `docs/guides/dif.md`.
        reason, progress
            As in `add`.
        """
        act = decide.exclude(item, period, person_group=person_group, reason=reason)
        return self._change(act, period, reason, progress)

    def include(
        self,
        item: str,
        period: str,
        *,
        person_group: str | None = None,
        reason: str = "",
        progress: Progress | None = None,
    ) -> Update:
        """Let a period's factor of an item count again, or one group of examinees in it: the opposite of `exclude`."""
        return self._change(decide.include(item, period, person_group=person_group), period, reason, progress)

    def split(
        self,
        item: str,
        periods: str | Sequence[str],
        *,
        new_id: str | None = None,
        onwards: bool | None = None,
        reason: str = "",
        progress: Progress | None = None,
    ) -> Update:
        """In these periods the item is another one, under an id of its own; `join` undoes it.

        Parameters
        ----------
        item
            As the bank calls it.
        periods
            One or several; all of an item's periods cannot be split off.
        new_id
            Default: ``item@period`` with the first of the periods.
        onwards
            Also in every period after the first of these, those that will be added later included. Default: when one
            period is given.
        reason, progress
            As in `add`.
        """
        asked = [periods] if isinstance(periods, str) else list(dict.fromkeys(periods))
        goes_on = len(asked) == 1 if onwards is None else onwards
        act = decide.split(item, asked, new_id=new_id, onwards=goes_on, reason=reason)
        return self._change(act, None, reason, progress)

    def join(self, new_id: str, *, reason: str = "", progress: Progress | None = None) -> Update:
        """Put an item that was split off back: the opposite of `split`."""
        return self._change(decide.join(new_id), None, reason, progress)

    def _change(self, contribute: Contribution, period: str | None, reason: str, progress: Progress | None) -> Update:
        """Commit what brings no period; `period` is the one it is about."""
        clock = Clock(progress)
        made = make_next_version(self._store, contribute, reason=reason, clock=clock)
        return self._moved(made.update(clock, period))

    def _moved(self, done: Update) -> Update:
        self._snapshot = self._store.snapshot(done.version)
        return done

    # evaluations

    def add_evaluation(self, evaluation: Evaluation) -> int:
        """Keep the result of an evaluation (not a period) in the bank, under its name; returns the new version."""
        name = check_safe_name(evaluation.name, "evaluation")

        def build(head: Snapshot, transaction: Transaction) -> Snapshot:
            writer = FolderWriter(transaction, f"evaluation-{name}"[:60])
            writer.json("payload", evaluation.content())
            for key, table in evaluation.frames().items():
                writer.frame(f"table_{key}", table)
            kept = {**head.evaluations, name: writer.files}
            return successor(self._store, head, transaction, f"evaluate {name}", "", evaluations=kept)

        self._snapshot = commit(self._store, build)
        return self.version

    # releases and upkeep

    def release(self, name: str, *, note: str = "") -> Release:
        """Freeze this version under a name; a release is never rewritten."""
        check_safe_name(name, "release")
        if not self.period_names:
            raise BankError(
                f"bank {str(self.path)!r} has no period yet, so there is nothing to release; add one with `concal add`"
            )
        release = Release(
            format=FORMAT,
            name=name,
            snapshot=self.version,
            sha256=sha256(self._store.read_bytes_of_snapshot(self.version)),
            written=now(),
            author=author(),
            note=note,
        )
        add_release(self._store, release)
        return release

    def verify(self) -> Verification:
        """Read every byte of every version and compare it with its hash."""
        return verify(self._store)

    def prune(self, *, keep: int | None = None, grace_days: float = 7.0, dry_run: bool = False) -> Pruned:
        """Remove files no version or release needs; see `concal.bank.store.upkeep.prune`."""
        return prune(self._store, keep=keep, grace_days=grace_days, dry_run=dry_run)
