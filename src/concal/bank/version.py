"""One version of a bank, read-only: results, tables, draws, predictions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from concal.bank.evaluation import Evaluation, from_content
from concal.bank.exchange.scores import ScoreRequest
from concal.bank.scoring import scoring_bank
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import Snapshot
from concal.bank.store.store import Store
from concal.bank.tables.abilities import ABILITY_COLUMNS, ability_table
from concal.bank.tables.fit import bin_table, item_fit_table, pair_table
from concal.bank.tables.responses import read_persons
from concal.bank.tables.results import read_consensus, read_totals
from concal.bank.tables.views import (
    act_table,
    history_table,
    item_table,
    link_table,
    period_table,
    wanted_items,
    wide_items,
)
from concal.bank.update.acts import Acts, in_words
from concal.bank.update.coding import design_rows, merged_coding, unanswered_items
from concal.bank.update.evidence import evidence_of
from concal.bank.update.periods import Periods
from concal.bank.update.spec import read_spec, with_consensus
from concal.calibrate.fit.period_fit import PeriodFit
from concal.calibrate.result import Calibration
from concal.combine.combine import consensus_of
from concal.combine.draws import item_draws
from concal.combine.drift.gather import in_force
from concal.combine.factors.period import PeriodFactors, Placed
from concal.combine.predict import predict_items
from concal.combine.result import Consensus
from concal.data.findings import Findings
from concal.data.items import read_items
from concal.data.linkage import Linkage, linkage
from concal.data.period import PeriodData
from concal.data.read import Table
from concal.errors import BankError, first_few
from concal.link.result import Link
from concal.score.estimate import Level, Method
from concal.score.information import Information, information
from concal.score.prior import Prior
from concal.score.responses import Unknown
from concal.score.score import ScoreOptions, ScoringBank
from concal.score.scorer import Scorer
from concal.shown import shown
from concal.spec import ConsensusSpec, Spec

if TYPE_CHECKING:
    import xarray

    from concal.bank.exchange.export import Exported
    from concal.combine.drift.alarms import Alarm
    from concal.combine.drift.drift import Drift


@shown
class Version:
    """A bank as it was at one version; nothing here writes to the bank."""

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
            Default: the stored one. Another method is computed from the stored periods.
        joint
            Also read the joint draws across items, where the method gave them.
        """
        if not self._snapshot.periods:
            raise BankError(f"bank {str(self.path)!r} has no period yet; add one with `concal add`")
        if method is None or method == self.consensus_spec.method:
            return read_consensus(self._state, joint=joint)
        spec, periods = with_consensus(self.spec, {"method": method}).consensus, self._periods
        return consensus_of(
            evidence_of(periods, lambda: read_totals(self._state)), spec, items=unanswered_items(periods)
        )

    def calibration(self, period: str, *, draws: bool = True) -> Calibration:
        """Draws of a period on its own metric, with diagnostics; `draws=False` reads everything but items' draws."""
        return self._periods.calibration(period, draws=draws)

    def link(self, period: str) -> Link:
        """The link of a period to the reference metric, found from its anchors."""
        return self._periods.link(period)

    def factors(self, period: str) -> PeriodFactors:
        """What a period's responses said about its items, on its own metric."""
        return self._periods.factors(period)

    def placed(self) -> list[Placed]:
        """Factors and links of all periods, in the order they were added."""
        return [self._periods.placed(name) for name in self.period_names]

    # tables

    def items(self, ids: Iterable[str] | None = None) -> pl.DataFrame:
        """Item parameters: item_id, group, dimension, model, parameter, mean, sd, source, n_responses, n_periods.

        `source` says where a number comes from: "consensus", "fallback" (the population model, because the responses
        do not identify the item) or "predicted" (nobody answered it). `unconverged` names the periods in which the
        item's chains, or those of the whole period, had not converged.
        """
        if not self._snapshot.periods:
            return wanted_items(item_table([]), ids)
        return wanted_items(item_table(self.consensus(joint=False).groups.values(), self.unconverged()), ids)

    def parameters(self) -> pl.DataFrame:
        """One row per item with natural parameters (a, d, c, ...), the SD of a, and the means and SDs of xi."""
        if not self._snapshot.periods:
            return wide_items([])
        return wide_items(self.consensus(joint=False).groups.values(), self.unconverged())

    def unconverged(self) -> dict[str, str]:
        """Items whose chains had not converged, with the periods in which they had not."""
        found: dict[str, list[str]] = {}
        for period in self.period_names:
            for item in self._periods.unconverged(period):
                found.setdefault(item, []).append(period)
        return {item: ", ".join(periods) for item, periods in found.items()}

    def periods(self) -> pl.DataFrame:
        """One row per period."""
        return period_table(self._snapshot)

    def links(self) -> pl.DataFrame:
        """One row per period and dimension: A and B as the consensus has them, and the anchors they rest on."""
        found = self.consensus(joint=False).links if self._snapshot.periods else pl.DataFrame()
        return link_table(found, {name: self.link(name) for name in self.period_names})

    def abilities(self, periods: Iterable[str] | None = None) -> pl.DataFrame:
        """Examinees on the reference metric, as the periods' calibrations saw them.

        Parameters
        ----------
        periods
            Default: all; those that came without examinees (draws of another engine) are left out.

        Returns
        -------
        polars DataFrame
            period, person_id, dimension, theta, sd and its parts sd_measurement and sd_link, n_responses.
        """
        asked = self.period_names if periods is None else [periods] if isinstance(periods, str) else list(periods)
        in_force = self.consensus(joint=False).links
        frames = [ability_table(self.calibration(name), self.link(name), in_force) for name in asked]
        return pl.concat([pl.DataFrame(schema=ABILITY_COLUMNS), *frames])

    def anchors(self, period: str) -> pl.DataFrame:
        """Candidate anchors of a period: kept, or dropped by what."""
        return self.link(period).anchors

    def drift(self, fdr: float | None = None) -> pl.DataFrame:
        """Items against their other periods, those that moved first, by consequence for scores."""
        return self.drift_result(fdr).items

    def drift_result(self, fdr: float | None = None) -> Drift:
        """Drift of items and of periods; see `concal.combine.drift.drift.Drift`."""
        from concal.combine.drift.drift import find_drift

        spec = self.consensus_spec
        consensus = self.consensus(joint=False)
        return find_drift(self.placed(), consensus, fdr=fdr or spec.drift_fdr, half_life=spec.half_life)

    def fit(self, fdr: float | None = None) -> pl.DataFrame:
        """Do the items fit? One row per item and period, those flagged first, by size; see `docs/fit.md`.

        `fdr` is the false discovery rate over all items and periods at which an item is flagged; default the spec's for
        drift.
        """
        return item_fit_table(self.period_fits(), fdr or self.consensus_spec.drift_fdr)

    def fit_bins(self) -> pl.DataFrame:
        """Observed and expected mean scores by ability, per item and period, abilities on the reference metric."""
        return bin_table(self.period_fits(), in_force(self.consensus(joint=False).links) if self.period_names else {})

    def fit_pairs(self) -> pl.DataFrame:
        """Pairs of items with dependent residuals (Q3), the most dependent first."""
        return pair_table(self.period_fits())

    def dif(self, fdr: float | None = None) -> pl.DataFrame:
        """Items that groups of examinees of equal ability do not answer alike, over all periods.

        One row per item and group of examinees, items that differ first, by consequence for scores; see
        `docs/guides/dif.md`.
        """
        from concal.combine.drift.dif import SCHEMA, find_dif

        if not self._snapshot.periods:
            return pl.DataFrame(schema=SCHEMA)
        consensus = self.consensus(joint=False)
        groups = {name: said for name in self.period_names if (said := self._periods.person_groups(name)) is not None}
        return find_dif(groups, consensus, in_force(consensus.links), fdr=fdr or self.consensus_spec.drift_fdr)

    def period_fits(self) -> dict[str, PeriodFit]:
        """Fit of the items of each period whose responses concal saw."""
        found = {name: self._periods.fit(name) for name in self.period_names}
        return {name: fit for name, fit in found.items() if fit is not None}

    def alarms(self) -> tuple[Alarm, ...]:
        """What contradicts itself in this version: consensus, drift, periods, links; see `docs/guides/drift.md`."""
        from concal.combine.drift.alarms import raise_alarms

        if not self._snapshot.periods:
            return ()
        return raise_alarms(self.placed(), self.consensus(joint=False), self.consensus_spec)

    def acts(self) -> pl.DataFrame:
        """What was decided about single items, oldest first: kind, item, periods, new_id, reason, idle."""
        return act_table(Acts(self._snapshot.acts, self.period_names))

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
            "acts": [in_words(act) for act in snapshot.acts],
        }
        if snapshot.periods:
            consensus = self.consensus(joint=False)
            sources = [str(s) for g in consensus.groups.values() for s in g.source]
            found["items"] = {kind: sources.count(kind) for kind in ("consensus", "fallback", "predicted")}
            found["method"] = consensus.method
            missed = [name for name in self.period_names if not snapshot.periods[name].info.get("converged", True)]
            doubts = [f"{len(missed)} periods have not converged: {first_few(missed)}"] if missed else []
            found["warnings"] = [*doubts, *consensus.warnings]
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
        return dict(self._periods.item_draws(period, ids))

    def predict(self, items: Table, *, long: bool = True) -> pl.DataFrame:
        """Parameters for items nobody has answered, from their features.

        Parameters
        ----------
        items
            Path or data frame: item_id, group, feature columns.
        long
            One row per parameter, columns as in `items`; False: one row per item, columns as in `parameters`.
        """
        spec, consensus = self.spec, self.consensus(joint=False)
        found = Findings("items")
        table = read_items(items, spec, found)
        found.stop_if_bad()
        groups = []
        for name in table["group"].unique(maintain_order=True).to_list():
            ids, X = design_rows(self._periods, name, table, spec.data.unseen_level)
            groups.append(predict_items(consensus, name, ids, X))
        return item_table(groups) if long else wide_items(groups)

    # people

    def scoring(self, *, joint: bool = True) -> ScoringBank:
        """What scoring needs of this version, read once; without `joint` the joint draws across items are left out."""
        return scoring_bank(self, joint=joint)

    def score(
        self,
        responses: Table,
        *,
        method: Method = "eap",
        items: Level | None = None,
        prior: str | Prior = "all",
        prior_column: str | None = None,
        draws: int = 100,
        period: str | None = None,
        unknown: Unknown = "error",
        wide: bool = False,
    ) -> pl.DataFrame:
        """Scores of examinees on the reference metric, one row each, sorted by person_id; see `docs/scoring.md`.

        Columns: person_id, n_responses, prior, items (the level of item uncertainty; for draws whether they are joint
        or independent), then per dimension D theta_D, se_D and its parts se_measurement_D, se_items_D, se_link_D (null
        where the level does not tell), n_D, flag_D ("prior": no response, the estimate is the prior's; "no responses",
        "not finite"), correlations of the posterior, and for every reported score score_NAME and se_score_NAME.

        Parameters
        ----------
        responses
            Path or data frame, as in `Bank.add`.
        method
            "eap" (posterior mean), "map" (mode), "ml" (likelihood), "wle" (Warm's weighted likelihood).
        items
            "mean" (point parameters), "soft" (every item's likelihood averaged over its posterior; with eap),
            "draws" (one item set after the other). Default: soft with eap, mean with the others.
        prior
            The ability distribution of a period (its name), of all periods ("all"), or a `concal.score.prior.Prior`.
        prior_column
            A column of the responses that names each examinee's period instead.
        draws
            How many item sets, for items = "draws".
        period
            When the responses were given: an item that was split is scored as it was in that period. Default: the
            examinee's period of `prior_column`, else as it is now.
        unknown
            Responses to items the bank does not have: "error", or "ignore" and count them (n_unknown).
        wide
            Responses have one column per item.
        """
        options = ScoreOptions(method, items, prior, draws)
        request = ScoreRequest(options, wide, prior_column, unknown, period)
        return request.table(self.scoring(joint=options.level == "draws"), responses)[0]

    def plausible_values(
        self,
        responses: Table,
        n: int = 10,
        *,
        per_draw: int = 1,
        covariates: Table | None = None,
        prior: str | Prior = "all",
        prior_column: str | None = None,
        seed: int = 20264,
        period: str | None = None,
        unknown: Unknown = "error",
        wide: bool = False,
    ) -> pl.DataFrame:
        """Plausible values, a long table: person_id, pv, item_draw, theta_D.

        Each of the n draws of items and links gives `per_draw` sets; `concal.score.pool` pools statistics over them,
        and with two or more sets per draw says how much of their variance is due to items and links.

        Parameters
        ----------
        responses, prior, prior_column, period, unknown, wide
            As in `score`.
        n, per_draw, seed
            Draws of items and links, sets at each, and the random stream.
        covariates
            Path or data frame with a row per examinee: person_id and the variables later analyses will use. They make
            the prior then: a regression of abilities on them, estimated from these responses. Without it, regressions
            on variables the prior does not contain are attenuated.
        """
        options = ScoreOptions(prior=prior, seed=seed)
        request = ScoreRequest(options, wide, prior_column, unknown, period, n, per_draw, covariates)
        return request.table(self.scoring(), responses)[0]

    def scorer(self, *, items: Literal["mean", "soft"] = "soft", prior: str | Prior = "all") -> Scorer:
        """What scores one examinee at a time, for live use: loaded once, pinned to this version, safe in threads.

        Its scores are those of `score` with the same items and prior.

        Examples
        --------
        >>> scorer = concal.Bank("bank").at("fall-2026").scorer()  # doctest: +SKIP
        >>> scorer.score({"item-17": 1, "item-18": 0}).theta  # doctest: +SKIP
        """
        return Scorer(self.scoring(joint=False), items=items, prior=prior)

    def information(
        self, ids: Iterable[str] | None = None, *, theta: Iterable[float] | None = None, draws: int = 100
    ) -> Information:
        """What items measure taken together as one test, with bands from the draws of the items.

        Parameters
        ----------
        ids
            Default: the whole bank.
        theta
            Where; default -4 to 4.
        draws
            How many draws of the items.
        """
        ready = self.scoring()
        asked = None if ids is None else [ids] if isinstance(ids, str) else list(ids)
        at = None if theta is None else list(theta)
        return information(ready.items, ready.abilities, ids=asked, theta=at, draws=draws)

    # what checks need to know

    def meanings(self, period: str) -> dict[str, str]:
        """Items of the bank that ids mean in a period, where they were split; for ids of its own its data decide."""
        adjustment = self._periods.adjustment(period)
        own = self._periods.reader(period).frame("answered", ["item_id"])["item_id"].to_list()
        found = {
            **Acts(self._snapshot.acts, self.period_names).meanings(period),
            **{i: adjustment.known_as(i) for i in own},
        }
        return {old: new for old, new in found.items() if old != new}

    def period_files(self, period: str) -> FolderReader:
        """What is stored with a period's calibration."""
        return self._periods.reader(period)

    def person_ids(self) -> pl.Series:
        """Examinees of all periods."""
        found = [read_persons(self._periods.reader(name)) for name in self.period_names]
        return pl.concat(found).unique().sort() if found else pl.Series("person_id", [], dtype=pl.String)

    def design_states(self) -> dict[str, Any]:
        """How the next period should code its features, by group: as the first period that has them."""
        return merged_coding(self._periods)

    def answered_items(self) -> dict[str, dict[str, list[str]]]:
        """Items with responses: period -> dimension -> ids, the reference first."""
        first = [self.reference] if self.reference is not None else []
        return {n: self._periods.answered(n) for n in dict.fromkeys([*first, *self.period_names])}

    def linkage(self) -> Linkage | None:
        """Which periods share how many items, and how each reaches the reference; None without periods."""
        if self.reference is None:
            return None
        return linkage(self.answered_items(), self.reference, self.spec.linking.min_anchors)

    def period_data(self, period: str) -> PeriodData:
        """A period's responses as they were calibrated (needs a period added with its responses kept)."""
        return self._periods.data(period)

    # evaluations and releases

    def evaluations(self) -> tuple[str, ...]:
        """Names of the evaluations there are."""
        return tuple(sorted(self._snapshot.evaluations))

    def evaluation(self, name: str = "pooled") -> Evaluation:
        """An evaluation the bank keeps: what `concal evaluate` and `concal.evaluate_bank` gave."""
        if name not in self._snapshot.evaluations:
            raise BankError(f"there is no evaluation {name!r}; there are: {first_few(self.evaluations()) or 'none'}")
        reader = FolderReader(self._store, self._snapshot.evaluations[name])
        keys = [key for key in reader.files if key.startswith("table_")]
        return from_content(reader.json("payload"), {key.removeprefix("table_"): reader.frame(key) for key in keys})

    def releases(self) -> dict[str, int]:
        """Releases and the versions they froze."""
        return {name: release.snapshot for name, release in self._store.releases().items()}

    def export(self, to: str | Path, *, format: str | None = None, period: str | None = None) -> Exported:
        """Write the items of this version for other software; see `concal.bank.exchange.export.FORMATS`."""
        from concal.bank.exchange.export import export

        return export(self, Path(to), format=format, period=period)
