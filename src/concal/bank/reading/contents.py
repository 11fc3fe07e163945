"""What a version holds: its spec, its consensus, what was stored with its periods, evaluations, releases."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import polars as pl

from concal.bank.building.coding import items_of_tables, merged_coding
from concal.bank.building.evidence import evidence_of
from concal.bank.building.periods import Periods
from concal.bank.building.spec import changed, read_spec
from concal.bank.building.uncounted import with_uncounted
from concal.bank.evaluation import Evaluation, from_content
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import Snapshot
from concal.bank.store.store import Store
from concal.bank.tables.responses import read_persons
from concal.bank.tables.results import read_consensus, read_totals
from concal.calibration.result import Calibration
from concal.consensus.combine import consensus_of
from concal.consensus.factors.period import PeriodFactors, Placed
from concal.consensus.result import Consensus, GroupConsensus
from concal.data.linkage import Linkage, linkage
from concal.data.period import PeriodData
from concal.errors import BankError, first_few
from concal.linking.result import Link
from concal.spec import ConsensusSpec, Spec


class Contents:
    """A version of a bank as it is stored; nothing here writes to the bank."""

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self._store, self._snapshot = store, snapshot

    # what it is

    @property
    def path(self) -> Path | str:
        """The bank's folder, or its address on object storage."""
        return self._store.place

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
        return self.spec.consensus

    @property
    def reference(self) -> str | None:
        """The period that sets the metric."""
        return self._snapshot.reference

    @property
    def period_names(self) -> tuple[str, ...]:
        """Periods in the order they were added."""
        return self._snapshot.ordered_periods()

    def _facts(self) -> dict[str, object]:
        spec = self.spec
        return {
            "path": self.path,
            "version": f"{self.version} ({self._snapshot.action})",
            "periods": ", ".join(self.period_names) or "none yet",
            "reference": self.reference,
            "dimensions": ", ".join(spec.bank.dimensions),
            "groups": ", ".join(f"{name} ({g.model})" for name, g in spec.groups.items()),
            "method": spec.consensus.method,
        }

    @property
    def _periods(self) -> Periods:
        return Periods.of(self._store, self._snapshot)

    @property
    def _state(self) -> FolderReader:
        return FolderReader(self._store, self._snapshot.state)

    # results

    def consensus(self, method: str | None = None, *, joint: bool = True) -> Consensus:
        """The bank's posterior.

        Parameters
        ----------
        method
            Default: the stored one. Another method is computed from the stored periods at the links there are, so it
            must be one that takes the same rule for anchors.
        joint
            Also read the joint draws across items, where the method gave them.
        """
        if not self._snapshot.periods:
            raise BankError(f"bank {str(self.path)!r} has no period yet; add one with `concal add`")
        if method is None or method == self.consensus_spec.method:
            return read_consensus(self._state, joint=joint)
        spec, periods = changed(self.spec, "consensus", method=method), self._periods
        if spec.linking_in_force != self.spec.linking_in_force:
            raise BankError(
                f"method {method!r} drops anchors by the rule purify = {spec.linking_in_force.purify!r}, but the links "
                f"of this version were made by {self.spec.linking_in_force.purify!r}; link the periods again on a copy "
                f"of the bank, with combine(method={method!r}) (concal combine COPY --method {method}), or name one "
                "rule for all methods in bank.toml (linking.purify)"
            )
        evidence = evidence_of(periods, lambda: read_totals(self._state))
        return with_uncounted(consensus_of(evidence, spec.consensus, items=items_of_tables(periods)), periods)

    def _groups(self) -> tuple[GroupConsensus, ...]:
        """The item groups of the consensus; none before the first period."""
        return tuple(self.consensus(joint=False).groups.values()) if self.period_names else ()

    def _links(self) -> pl.DataFrame:
        """Where the consensus has the periods (`Consensus.links`); nowhere before the first."""
        return self.consensus(joint=False).links if self.period_names else pl.DataFrame()

    def calibration(self, period: str, *, draws: bool = True) -> Calibration:
        """Draws of a period on its own metric, with diagnostics; `draws=False` reads everything but items' draws."""
        return self._periods[period].calibration(draws=draws)

    def link(self, period: str) -> Link:
        """The link of a period to the reference metric, found from its anchors."""
        return self._periods[period].link()

    def factors(self, period: str) -> PeriodFactors:
        """What a period's responses said about its items, on its own metric."""
        return self._periods[period].factors()

    def placed(self) -> list[Placed]:
        """Factors and links of all periods, in the order they were added."""
        return [period.placed() for period in self._periods.values()]

    # what was stored with the periods

    def unconverged(self) -> dict[str, str]:
        """Items whose chains had not converged, with the periods in which they had not."""
        found: dict[str, list[str]] = {}
        for name, period in self._periods.items():
            for item in period.unconverged():
                found.setdefault(item, []).append(name)
        return {item: ", ".join(periods) for item, periods in found.items()}

    def max_scores(self) -> dict[str, float]:
        """What scores of items are out of, where an item table said so; the newest one counts."""
        found: dict[str, float] = {}
        for period in self._periods.values():
            table = period.listed("max_score")
            if "max_score" in table.columns:
                declared = table.select("item_id", pl.col("max_score").cast(pl.Float64)).drop_nulls()
                found |= dict(declared.rows())
        return found

    def meanings(self, period: str, items: Container[str]) -> dict[str, str]:
        """Which of the bank's `items` ids mean in a period, where they were split; its data decide about own ids."""
        stored = self._periods[period]
        own = stored.reader.frame("answered", ["item_id"])["item_id"].to_list()
        found = {**stored.acts.meanings(period, items), **{i: stored.adjustment.known_as(i) for i in own}}
        return {old: new for old, new in found.items() if old != new}

    def period_files(self, period: str) -> FolderReader:
        """What is stored with a period's calibration."""
        return self._periods[period].reader

    def person_ids(self) -> pl.Series:
        """Examinees of all periods."""
        found = [read_persons(period.reader) for period in self._periods.values()]
        return pl.concat(found).unique().sort() if found else pl.Series("person_id", [], dtype=pl.String)

    def design_states(self) -> dict[str, Any]:
        """How the next period should code its features, by group: as the first period that has them."""
        return merged_coding(self._periods)

    def answered_items(self) -> dict[str, dict[str, list[str]]]:
        """Items with responses: period -> dimension -> ids, the reference first."""
        first = [self.reference] if self.reference is not None else []
        return {name: self._periods[name].answered() for name in dict.fromkeys([*first, *self.period_names])}

    def linkage(self) -> Linkage | None:
        """Which periods share how many items, and how each reaches the reference; None without periods."""
        if self.reference is None:
            return None
        return linkage(self.answered_items(), self.reference, self.spec.linking.min_anchors)

    def period_data(self, period: str) -> PeriodData:
        """A period's responses as they were calibrated (needs a period added with its responses kept)."""
        return self._periods[period].data()

    # evaluations and releases

    def evaluations(self) -> tuple[str, ...]:
        """Names of the evaluations there are."""
        return tuple(sorted(self._snapshot.evaluations))

    def evaluation(self, name: str = "pooled") -> Evaluation:
        """An evaluation the bank keeps: what `concal evaluate` and `concal.evaluate_bank` gave."""
        if name not in self._snapshot.evaluations:
            there = first_few(self.evaluations())
            raise BankError(
                f"there is no evaluation {name!r}; "
                + (
                    f"there are {there}"
                    if there
                    else "none was made yet: `concal evaluate` compares with the pooled fit"
                )
            )
        reader = FolderReader(self._store, self._snapshot.evaluations[name])
        keys = [key for key in reader.files if key.startswith("table_")]
        return from_content(reader.json("payload"), {key.removeprefix("table_"): reader.frame(key) for key in keys})

    def releases(self) -> dict[str, int]:
        """Releases and the versions they froze."""
        return {name: release.snapshot for name, release in self._store.releases().items()}
