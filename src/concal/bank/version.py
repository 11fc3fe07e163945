"""One version of a bank, read-only: results, tables, draws, predictions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from concal.bank.codec import decode_model
from concal.bank.draft import answered_items, read_spec
from concal.bank.folder import FolderReader
from concal.bank.manifest import Snapshot
from concal.bank.persons import persons_of
from concal.bank.results import read_consensus, read_link, read_summary
from concal.bank.store import Store
from concal.bank.tables import read_calibration, read_item_draws
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
from concal.spec import ConsensusSpec, Spec

if TYPE_CHECKING:
    import xarray

    from concal.bank.exchange.export import Exported
    from concal.combine.drift import Drift


class Version:
    """A bank as it was at one version; nothing here writes to the bank."""

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self._store, self._snapshot = store, snapshot

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
        return combine(list(self.summaries().values()), method=method, spec=spec)

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
        return self.drift_result(fdr).items

    def drift_result(self, fdr: float | None = None) -> Drift:
        """Drift of items and of periods; see `concal.combine.drift.Drift`."""
        from concal.combine.drift import find_drift

        spec, summaries = self.consensus_spec, list(self.summaries().values())
        return find_drift(summaries, self.consensus(joint=False), fdr=fdr or spec.drift_fdr, half_life=spec.half_life)

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

    # evaluations and releases

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

    def releases(self) -> dict[str, int]:
        """Releases and the versions they froze."""
        return {name: release.snapshot for name, release in self._store.releases().items()}

    def export(self, to: str | Path, *, format: str | None = None, period: str | None = None) -> Exported:
        """Write the items of this version for other software; see `concal.bank.exchange.export.FORMATS`."""
        from concal.bank.exchange.export import export

        return export(self, Path(to), format=format, period=period)
