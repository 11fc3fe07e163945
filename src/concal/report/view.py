"""What the sections of a report read of a bank: everything once, and only what a section asks for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.bank import Bank
from concal.bank.evaluation import Evaluation
from concal.bank.version import Version
from concal.calibration.result import Calibration
from concal.consensus.drift.alarms import raise_alarms
from concal.consensus.drift.drift import Drift, find_drift
from concal.consensus.factors.period import Placed
from concal.consensus.links import links_in_force
from concal.consensus.result import Consensus
from concal.data.linkage import Linkage
from concal.errors import BankError
from concal.evaluate import targeting
from concal.evaluate.attention import attention
from concal.evaluate.digest import ability_histogram
from concal.evaluate.notice import Notice
from concal.evaluate.targeting import information_curves
from concal.linking.result import Link

Array = npt.NDArray[np.float64]
THETA: Array = np.linspace(-4.0, 4.0, 9)
"""Nodes at which curves are kept; the page draws between them on the logit scale, where curves are nearly straight."""


class View:
    """One version of a bank as its report sees it.

    Parameters
    ----------
    bank : Version
    evaluation : str
        Which evaluation to show, if the bank has it.
    since : int, str or None
        Version or release the changes are counted from. Default: the newest release before this version, or the version
        before the last change.
    """

    def __init__(self, bank: Version, evaluation: str = "pooled", since: int | str | None = None) -> None:
        if bank.reference is None:
            raise BankError(f"bank {str(bank.path)!r} has no period yet; there is nothing to report")
        self.bank = bank
        self.reference = bank.reference
        self.spec = bank.spec
        self._evaluation = evaluation
        self._since = since

    @property
    def periods(self) -> tuple[str, ...]:
        """Names, in the order they were added."""
        return self.bank.period_names

    @cached_property
    def consensus(self) -> Consensus:
        """Without joint draws."""
        return self.bank.consensus(joint=False)

    @cached_property
    def item_ids(self) -> tuple[str, ...]:
        """All items, group after group; the page names an item by its place here."""
        return tuple(item for group in self.consensus.groups.values() for item in group.item_ids)

    @cached_property
    def calibrations(self) -> dict[str, Calibration]:
        """Without draws of items."""
        return {period: self.bank.calibration(period, draws=False) for period in self.periods}

    @cached_property
    def placed(self) -> list[Placed]:
        """Factors and links of all periods."""
        return self.bank.placed()

    @cached_property
    def links(self) -> dict[str, Link]:
        """The periods' own links, from their anchors."""
        return {period: self.bank.link(period) for period in self.periods}

    @cached_property
    def in_force(self) -> dict[str, Link]:
        """The same, placed where the consensus has them."""
        return links_in_force(self.links, self.consensus.links)

    @cached_property
    def linkage(self) -> Linkage:
        """Which periods share how many items."""
        found = self.bank.linkage()
        assert found is not None
        return found

    @cached_property
    def drift(self) -> Drift:
        """Items and periods that moved."""
        spec = self.bank.consensus_spec
        return find_drift(self.placed, self.consensus, fdr=spec.drift_fdr, half_life=spec.half_life)

    @cached_property
    def ability_histogram(self) -> pl.DataFrame:
        """Examinees' posterior means by period and dimension, at the links of the consensus."""
        return ability_histogram(self.calibrations, self.in_force)

    @cached_property
    def information(self) -> dict[str, tuple[Array, Array]]:
        """By group: the items' information at `concal.evaluate.targeting.THETA`, and the SD of its logarithm."""
        groups = self.consensus.groups.items()
        return {name: information_curves(g.model, g.mean, g.covariance, targeting.THETA) for name, g in groups}

    @cached_property
    def acts(self) -> pl.DataFrame:
        """What was decided about items."""
        return self.bank.acts()

    @cached_property
    def fit(self) -> pl.DataFrame:
        """How the items fit, period by period."""
        return self.bank.fit()

    @cached_property
    def fit_pairs(self) -> pl.DataFrame:
        """Pairs of items that may depend on each other."""
        return self.bank.fit_pairs()

    @cached_property
    def dif(self) -> pl.DataFrame:
        """Items that groups of examinees answer, group by group."""
        return self.bank.dif()

    @cached_property
    def history(self) -> pl.DataFrame:
        """One row per version up to this one."""
        return self.bank.history()

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """The comparison with the pooled fit, if there is one."""
        return self.bank.evaluation(self._evaluation) if self._evaluation in self.bank.evaluations() else None

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """What needs attention."""
        return attention(
            self.calibrations,
            self.links,
            self.consensus,
            self.linkage,
            self.drift.items,
            self.evaluation,
            version=self.bank.version,
            acts=self.acts,
            fit=self.fit,
            pairs=self.fit_pairs,
            dif=self.dif,
            alarms=raise_alarms(self.placed, self.consensus, self.bank.consensus_spec, self.drift),
        )

    @cached_property
    def released_as(self) -> tuple[str, ...]:
        """Releases of this version."""
        return tuple(name for name, number in self.bank.releases().items() if number == self.bank.version)

    @cached_property
    def base(self) -> tuple[str, Version] | None:
        """In words, and as a version: what the changes are counted from; None if nothing came before."""
        if self._since is not None:
            named = f"release {self._since}" if isinstance(self._since, str) else f"version {self._since}"
            asked = Bank(self.bank.path).at(self._since)
            if not asked.period_names:
                raise BankError(f"{named} has no period, so no item of it can have changed; name a later one (--since)")
            return named, asked
        return self._release_before() or self._version_before()

    def _release_before(self) -> tuple[str, Version] | None:
        """The newest release with items."""
        earlier = {name: n for name, n in self.bank.releases().items() if n < self.bank.version}
        for name in sorted(earlier, key=lambda release: earlier[release], reverse=True):
            version = Bank(self.bank.path).at(name)
            if version.period_names:
                return f"release {name} (version {earlier[name]})", version
        return None

    def _version_before(self) -> tuple[str, Version] | None:
        steps = self.history.filter(~pl.col("action").str.starts_with("evaluate") & (pl.col("periods") > 0))
        if steps.height < 2:
            return None
        number = int(steps["version"][-2])
        try:
            return f"version {number}", Bank(self.bank.path).at(number)
        except BankError:  # an old version that was pruned
            return None
