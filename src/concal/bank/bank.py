"""The object users hold: one version of a bank, and the updates that make the next."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from concal.bank import update as updates
from concal.bank.codec import decode_model
from concal.bank.commit import author, commit, now, successor
from concal.bank.draft import answered_items, read_spec, spec_bytes
from concal.bank.files import sha256
from concal.bank.folder import FolderReader, FolderWriter
from concal.bank.manifest import FORMAT, Release, Snapshot
from concal.bank.parquet import write_bytes
from concal.bank.persons import persons_of
from concal.bank.results import read_consensus, read_link, read_summary
from concal.bank.store import Store, Transaction, create_store
from concal.bank.tables import read_calibration, read_item_draws
from concal.bank.update import Calibrator, Progress, Update
from concal.bank.upkeep import Pruned, Verification, prune, verify
from concal.bank.views import history_table, item_table, link_table, period_table, wanted_items, wide_items
from concal.calibrate.result import Calibration
from concal.combine.draws import item_draws
from concal.combine.periods import combine
from concal.combine.predict import predict_items
from concal.combine.result import Consensus
from concal.combine.summary import PeriodSummary
from concal.data.design import apply_design
from concal.data.findings import Findings
from concal.data.items import read_items
from concal.data.linkage import Linkage, linkage
from concal.data.period import GroupData, PeriodData
from concal.data.read import Table
from concal.errors import BankError, DataError, first_few
from concal.link.result import Link
from concal.names import check_safe_name
from concal.spec import ConsensusSpec, Spec

if TYPE_CHECKING:
    import xarray


class Bank:
    """An item bank on disk, pinned to one version.

    Reading always sees that version, whatever others commit meanwhile; an update made through this object moves it to
    the version it committed, `refresh` to the newest.

    Parameters
    ----------
    path
        The bank's folder.

    Examples
    --------
    >>> bank = concal.Bank("bank")  # doctest: +SKIP
    >>> bank.items()  # doctest: +SKIP
    """

    def __init__(self, path: str | Path) -> None:
        self._store = Store(Path(path))
        self._snapshot = self._store.head()

    @classmethod
    def create(cls, path: str | Path, spec: Spec) -> Bank:
        """A new bank without periods."""

        def first(store: Store, transaction: Transaction) -> Snapshot:
            return Snapshot(
                format=FORMAT,
                bank=secrets.token_hex(8),
                number=0,
                id=transaction.id,
                parent=None,
                concal=_version(),
                written=now(),
                author=author(),
                action="create",
                spec=write_bytes(store.root / "bank.toml", "bank.toml", spec_bytes(spec)),
                reference=None,
            )

        create_store(Path(path), first)
        return cls(path)

    def at(self, version: int | str) -> Bank:
        """The bank as it was: by version number, or by the name of a release."""
        old = object.__new__(Bank)
        old._store = self._store
        by_number = isinstance(version, int)
        old._snapshot = self._store.snapshot(int(version)) if by_number else self._store.release(str(version))
        return old

    def refresh(self) -> Bank:
        """Move to the newest version; returns the bank itself."""
        self._snapshot = self._store.head()
        return self

    # what it is

    @property
    def path(self) -> Path:
        """The bank's folder."""
        return self._store.root

    @property
    def version(self) -> int:
        """Number of the version this object sees."""
        return self._snapshot.number

    @property
    def snapshot(self) -> Snapshot:
        """The manifest of that version."""
        return self._snapshot

    @property
    def spec(self) -> Spec:
        """The programme's specification."""
        return read_spec(self._store, self._snapshot.spec)

    @property
    def consensus_spec(self) -> ConsensusSpec:
        """How the consensus of this version was made."""
        return ConsensusSpec.model_validate({**self.spec.consensus.model_dump(), **self._snapshot.options})

    @property
    def reference(self) -> str | None:
        """The period that sets the metric."""
        return self._snapshot.reference

    @property
    def period_names(self) -> tuple[str, ...]:
        """Periods in the order they were added."""
        return self._snapshot.ordered_periods()

    def __repr__(self) -> str:
        return f"Bank({str(self.path)!r}, version {self.version}, {len(self.period_names)} periods)"

    def _reader(self, period: str) -> FolderReader:
        if period not in self._snapshot.periods:
            raise BankError(f"there is no period {period!r}; periods: {first_few(self.period_names) or 'none'}")
        return FolderReader(self._store, self._snapshot.periods[period].files)

    @property
    def _state(self) -> FolderReader:
        return FolderReader(self._store, self._snapshot.state)

    # results

    def consensus(self, method: str | None = None, *, joint: bool = True) -> Consensus:
        """The bank's posterior.

        Parameters
        ----------
        method
            Default: the stored one. Another method is computed from the stored periods.
        joint
            Also read the joint draws across items, where the method gave them.
        """
        if not self._snapshot.periods:
            raise BankError(f"bank {str(self.path)!r} has no period yet; add one with `concal add`")
        if method is None or method == self.consensus_spec.method:
            return read_consensus(self._state, joint=joint)
        spec = self.consensus_spec.model_copy(update={"method": method})
        return combine(self._inputs(spec), method=method, spec=spec)

    def _inputs(self, spec: ConsensusSpec) -> list[Any]:
        """What `combine` reads: summaries, or draws and links where the method goes back to draws."""
        if spec.method == "analytic" or not spec.tilt:
            return list(self.summaries().values())
        return [(self.calibration(name), self.link(name)) for name in self.period_names]

    def calibration(self, period: str) -> Calibration:
        """Draws of a period on its own metric, with diagnostics."""
        return read_calibration(self._reader(period))

    def link(self, period: str) -> Link:
        """The link of a period to the reference metric."""
        return read_link(self._reader(period))

    def summary(self, period: str) -> PeriodSummary:
        """What a period contributes to the consensus."""
        return read_summary(self._reader(period))

    def summaries(self) -> dict[str, PeriodSummary]:
        """Summaries of all periods, in the order they were added."""
        return {name: self.summary(name) for name in self.period_names}

    # tables

    def items(self, ids: Iterable[str] | None = None) -> pl.DataFrame:
        """Item parameters: item_id, group, dimension, model, parameter, mean, sd, source, n_responses, n_periods.

        `source` says where a number comes from: "consensus", "fallback" (the population model, because the responses
        do not identify the item) or "predicted" (nobody answered it).
        """
        if not self._snapshot.periods:
            return wanted_items(item_table([]), ids)
        return wanted_items(item_table(self.consensus(joint=False).groups.values()), ids)

    def parameters(self) -> pl.DataFrame:
        """One row per item with natural parameters (a, d, c, ...) and the means and SDs of xi."""
        return wide_items(self.consensus(joint=False))

    def periods(self) -> pl.DataFrame:
        """One row per period."""
        return period_table(self._snapshot)

    def links(self) -> pl.DataFrame:
        """One row per period and dimension."""
        return link_table({name: self.link(name) for name in self.period_names})

    def anchors(self, period: str) -> pl.DataFrame:
        """Candidate anchors of a period: kept, or dropped by what."""
        return self.link(period).anchors

    def drift(self, fdr: float | None = None) -> pl.DataFrame:
        """Items whose period posterior departs from the consensus of their other periods, worst first."""
        from concal.combine.drift import find_drift

        spec = self.consensus_spec
        table: pl.DataFrame = find_drift(list(self.summaries().values()), fdr=fdr or spec.drift_fdr)
        return table

    def history(self) -> pl.DataFrame:
        """One row per version up to this one."""
        numbers = [n for n in self._store.numbers() if n <= self.version]
        return history_table((self._store.snapshot(n) for n in numbers), self._store.releases())

    def show(self) -> dict[str, Any]:
        """The bank in a few words, as plain data."""
        snapshot, spec = self._snapshot, self.spec
        found: dict[str, Any] = {
            "name": spec.bank.name,
            "path": str(self.path),
            "version": snapshot.number,
            "written": snapshot.written,
            "last_action": snapshot.action,
            "reference": snapshot.reference,
            "dimensions": list(spec.bank.dimensions),
            "groups": {name: g.model for name, g in spec.groups.items()},
            "periods": list(self.period_names),
            "releases": {r.name: r.snapshot for r in self._store.releases().values()},
            "evaluations": sorted(snapshot.evaluations),
        }
        if snapshot.periods:
            consensus = self.consensus(joint=False)
            sources = [str(s) for g in consensus.groups.values() for s in g.source]
            found["items"] = {kind: sources.count(kind) for kind in ("consensus", "fallback", "predicted")}
            found["method"] = consensus.method
            found["warnings"] = list(consensus.warnings)
        return found

    # draws and predictions

    def draws(self, ids: Iterable[str], *, draws: int | None = None) -> xarray.Dataset:
        """Consensus draws of some items on the reference metric, with dimensions (chain, draw, item, parameter).

        Parameters of other response models are NaN. The same bank and item give the same draws.
        """
        from concal.bank.exchange.arviz import item_dataset

        asked = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
        consensus, spec = self.consensus(joint=False), self.consensus_spec
        found = item_draws(consensus, asked, draws=draws or spec.draws, seed=spec.seed)
        return item_dataset(consensus, found)

    def period_draws(self, period: str, ids: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
        """Draws of some items in one period, on its own metric: (chain, draw, parameter) by item."""
        return dict(read_item_draws(self._reader(period), list(ids)))

    def predict(self, items: Table) -> pl.DataFrame:
        """Parameters for items nobody has answered, from their features; columns as in `items`.

        Parameters
        ----------
        items
            Path or data frame: item_id, group, feature columns.
        """
        spec, designs, consensus = self.spec, self.design_states(), self.consensus(joint=False)
        found = Findings("items")
        table = read_items(items, spec, found)
        found.stop_if_bad()
        groups = []
        for name in table["group"].unique(maintain_order=True).to_list():
            rows = table.filter(pl.col("group") == name)
            if name not in consensus.groups or name not in designs:
                raise DataError(f"group {name!r} has no responses in any period, so nothing is known about its items")
            X, _ = apply_design(
                spec.groups[name].features, rows, name, designs[name], unseen_level=spec.data.unseen_level, warnings=[]
            )
            groups.append(predict_items(consensus, name, rows["item_id"].to_list(), X))
        return item_table(groups)

    # what checks need to know

    def person_ids(self) -> pl.Series:
        """Examinees of all periods."""
        found = [persons_of(self._reader(name)) for name in self.period_names]
        return pl.concat(found).unique().sort() if found else pl.Series("person_id", [], dtype=pl.String)

    def design_states(self) -> dict[str, Any]:
        """How features are coded, by group."""
        return self._state.json("designs") if "designs" in self._state else {}

    def answered_items(self) -> dict[str, dict[str, list[str]]]:
        """Items with responses: period -> dimension -> ids, the reference first."""
        first = [self.reference] if self.reference is not None else []
        return {n: answered_items(self._reader(n)) for n in dict.fromkeys([*first, *self.period_names])}

    def linkage(self) -> Linkage | None:
        """Which periods share how many items, and how each reaches the reference; None without periods."""
        if self.reference is None:
            return None
        return linkage(self.answered_items(), self.reference, self.spec.linking.min_anchors)

    def period_data(self, period: str) -> PeriodData:
        """A period's responses as they were calibrated (needs a period added with its responses kept)."""
        reader = self._reader(period)
        if "responses" not in reader:
            raise BankError(
                f"period {period!r} was added without its responses (--no-keep-responses, or draws of another engine)"
            )
        content = reader.json("calibration")
        table, rows = reader.frame("calibration_items", ["item_id", "group", "X"]), reader.frame("responses")
        groups = {}
        for name in content["order"]:
            plain = content["groups"][name]["plain"]
            own, answers = table.filter(pl.col("group") == name), rows.filter(pl.col("group") == name)
            groups[name] = GroupData(
                name=name,
                dimension=plain["dimension"],
                model=decode_model(plain["model"]),
                item_ids=tuple(own["item_id"].to_list()),
                features=tuple(plain["features"]),
                X=np.array(own["X"].to_list(), dtype=np.float64).reshape(own.height, len(plain["features"])),
                person=answers["person"].to_numpy(),
                item=answers["item"].to_numpy(),
                score=answers["score"].to_numpy(),
            )
        persons = persons_of(reader)
        return PeriodData(
            period=period,
            dimensions=tuple(content["plain"]["dimensions"]),
            person_ids=persons,
            groups=groups,
            populations=(period,),
            population=np.zeros(persons.len(), dtype=np.int32),
        )

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
    ) -> Update:
        """Add a period: check, calibrate, link, combine, commit. Nothing changes before the commit.

        A run that was interrupted goes on where it was when called again with the same data.

        Parameters
        ----------
        period
            Its name.
        responses, items
            Paths or data frames, see `concal.check_period`.
        spec
            A changed specification, kept from this version on.
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
        """
        done = updates.add(
            self._store,
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
        )
        return self._moved(done)

    def add_calibration(
        self,
        calibration: Calibration,
        *,
        replace: bool = False,
        reason: str = "",
        progress: Progress | None = None,
    ) -> Update:
        """Add a period from draws (another engine's, or `concal.calibrate`'s): link, combine, commit."""
        from concal.bank.exchange.draws import check_calibration

        check_calibration(calibration, self.spec)
        return self._moved(
            updates.add_calibration(self._store, calibration, replace=replace, reason=reason, progress=progress)
        )

    def retract(self, period: str, *, reason: str = "") -> Update:
        """Take a period out; periods that were linked through it are linked anew."""
        return self._moved(updates.retract(self._store, period, reason=reason))

    def combine(self, *, method: str | None = None, reason: str = "", **options: Any) -> Update:
        """Combine again under other options (half_life, tilt, ...), which stay for later updates."""
        given = {**({"method": method} if method is not None else {}), **options}
        unknown = sorted(set(given) - set(ConsensusSpec.model_fields))
        if unknown:
            raise BankError(f"unknown options {first_few(unknown)}; there are {', '.join(ConsensusSpec.model_fields)}")
        Spec.parse({**self.spec.model_dump(), "consensus": {**self.consensus_spec.model_dump(), **given}})
        return self._moved(updates.recombine(self._store, given, reason=reason))

    def rereference(self, period: str, *, reason: str = "") -> Update:
        """Put everything on another period's metric: mapped through its link, nothing is refitted."""
        return self._moved(updates.rereference(self._store, period, reason=reason))

    def _moved(self, done: Update) -> Update:
        self._snapshot = self._store.snapshot(done.version)
        return done

    # evaluations

    def add_evaluation(
        self, name: str, payload: Mapping[str, Any], tables: Mapping[str, pl.DataFrame] | None = None
    ) -> int:
        """Keep the result of an evaluation (not a period) in the bank; returns the new version."""
        check_safe_name(name, "evaluation")

        def build(head: Snapshot, transaction: Transaction) -> Snapshot:
            writer = FolderWriter(transaction, f"evaluation-{name}"[:60])
            writer.json("payload", payload)
            for key, table in (tables or {}).items():
                writer.frame(f"table_{key}", table)
            kept = {**head.evaluations, name: writer.files}
            return successor(self._store, head, transaction, f"evaluate {name}", "", evaluations=kept)

        self._snapshot = commit(self._store, build)
        return self.version

    def evaluations(self) -> tuple[str, ...]:
        """Names of the evaluations there are."""
        return tuple(sorted(self._snapshot.evaluations))

    def evaluation(self, name: str) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        """An evaluation's payload and tables."""
        if name not in self._snapshot.evaluations:
            raise BankError(f"there is no evaluation {name!r}; there are: {first_few(self.evaluations()) or 'none'}")
        reader = FolderReader(self._store, self._snapshot.evaluations[name])
        keys = [key for key in reader.files if key.startswith("table_")]
        return reader.json("payload"), {key.removeprefix("table_"): reader.frame(key) for key in keys}

    # releases and upkeep

    def release(self, name: str, *, note: str = "") -> Release:
        """Freeze this version under a name; a release is never rewritten."""
        check_safe_name(name, "release")
        release = Release(
            format=FORMAT,
            name=name,
            snapshot=self.version,
            sha256=sha256(self._store.read_bytes_of_snapshot(self.version)),
            written=now(),
            author=author(),
            note=note,
        )
        self._store.add_release(release)
        return release

    def releases(self) -> dict[str, int]:
        """Releases and the versions they froze."""
        return {name: release.snapshot for name, release in self._store.releases().items()}

    def export(self, to: str | Path, *, format: str | None = None, period: str | None = None) -> Path:
        """Write the items of this version for other software; see `concal.bank.exchange.export.FORMATS`."""
        from concal.bank.exchange.export import export

        return export(self, Path(to), format=format, period=period)

    def verify(self) -> Verification:
        """Read every byte of every version and compare it with its hash."""
        return verify(self._store)

    def prune(self, *, keep: int | None = None, grace_days: float = 7.0, dry_run: bool = False) -> Pruned:
        """Remove files no version or release needs; see `concal.bank.upkeep.prune`."""
        return prune(self._store, keep=keep, grace_days=grace_days, dry_run=dry_run)


def _version() -> str:
    from concal import __version__

    return __version__
