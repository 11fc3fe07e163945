"""What is doubtful in a version: drift, fit, groups of examinees, alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from concal.bank.reading.contents import Contents
from concal.bank.tables.fit import bin_table, item_fit_table, pair_table
from concal.calibration.fit.period_fit import PeriodFit
from concal.consensus.links import in_force
from concal.errors import SpecError

if TYPE_CHECKING:
    from concal.consensus.drift.alarms import Alarm
    from concal.consensus.drift.drift import Drift


def check_fdr(rate: float) -> float:
    """A false discovery rate, or a `SpecError`: at 0 nothing can be found, at 1 everything is."""
    if not 0.0 < rate < 1.0:
        raise SpecError(f"a false discovery rate must be above 0 and below 1, not {rate:g}; 0.05 is usual")
    return rate


class Diagnosis(Contents):
    """What the periods say against each other and against the model."""

    def drift(self, fdr: float | None = None) -> pl.DataFrame:
        """Items against their other periods, those that moved first, by consequence for scores."""
        return self.drift_result(fdr).items

    def drift_result(self, fdr: float | None = None) -> Drift:
        """Drift of items and of periods; see `concal.consensus.drift.drift.Drift`."""
        from concal.consensus.drift.drift import Drift, find_drift

        rate, spec = self._fdr(fdr), self.consensus_spec
        if not self._snapshot.periods:
            return Drift(pl.DataFrame(), pl.DataFrame())
        return find_drift(self.placed(), self.consensus(joint=False), fdr=rate, half_life=spec.half_life)

    def fit(self, fdr: float | None = None) -> pl.DataFrame:
        """Do the items fit? One row per item and period, those flagged first, by size; see
        `docs/guides/fit.md`.

        `fdr` is the false discovery rate over all items and periods at which an item is flagged; default the spec's for
        drift.
        """
        return item_fit_table(self.period_fits(), self._fdr(fdr))

    def fit_bins(self) -> pl.DataFrame:
        """Observed and expected mean scores by ability, per item and period, abilities on the reference metric."""
        return bin_table(self.period_fits(), in_force(self._links()))

    def fit_pairs(self) -> pl.DataFrame:
        """Pairs of items with dependent residuals (Q3), the most dependent first."""
        return pair_table(self.period_fits())

    def _fdr(self, asked: float | None) -> float:
        """The rate asked for, or the spec's."""
        return self.consensus_spec.drift_fdr if asked is None else check_fdr(asked)

    def dif(self, fdr: float | None = None) -> pl.DataFrame:
        """Items that groups of examinees of equal ability do not answer alike, over all periods.

        One row per item and group of examinees, items that differ first, by consequence for scores; see
        `docs/guides/dif.md`.
        """
        from concal.consensus.drift.dif import SCHEMA, find_dif

        rate = self._fdr(fdr)
        if not self._snapshot.periods:
            return pl.DataFrame(schema=SCHEMA)
        consensus = self.consensus(joint=False)
        found = {name: period.person_groups() for name, period in self._periods.items()}
        groups = {name: said for name, said in found.items() if said is not None}
        return find_dif(groups, consensus, in_force(consensus.links), fdr=rate)

    def period_fits(self) -> dict[str, PeriodFit]:
        """Fit of the items of each period whose responses concal saw."""
        found = {name: period.fit() for name, period in self._periods.items()}
        return {name: fit for name, fit in found.items() if fit is not None}

    def alarms(self) -> tuple[Alarm, ...]:
        """What contradicts itself in this version: consensus, drift, periods, links; see `docs/guides/drift.md`."""
        from concal.consensus.drift.alarms import raise_alarms

        if not self._snapshot.periods:
            return ()
        return raise_alarms(self.placed(), self.consensus(joint=False), self.consensus_spec)
