"""Estimates of some examinees at one level of item uncertainty, with the parts of their variance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from concal.calibration.workers import Workers
from concal.score.grid import Grid, as_blocks, common_grid
from concal.score.items import ScoringItems
from concal.score.kernels.nodes import peaks
from concal.score.metric import draw_metrics, regressors
from concal.score.modes import Estimates, Likelihood, likelihood_estimates, map_estimates
from concal.score.over_draws import Variances, over_draws, variance
from concal.score.posterior import PERSONS, Target
from concal.score.prior import Priors
from concal.score.rows import Answered, LikelihoodRows
from concal.score.soft import SoftTables
from concal.score.stages import Posteriors

Array = npt.NDArray[np.float64]
Method = Literal["eap", "map", "ml", "wle"]
Level = Literal["mean", "soft", "draws"]
ML_GRID = np.linspace(-6.0, 6.0, 48)


@dataclass(frozen=True)
class Estimator:
    """How to estimate.

    Attributes
    ----------
    items : ScoringItems
    priors : Priors
        Of all examinees; `group` is not used here.
    method, level
    draws : (draws,) int64
        Which draws of the items, for the level "draws".
    workers : Workers
    """

    items: ScoringItems
    priors: Priors
    method: Method
    level: Level
    draws: npt.NDArray[np.int64]
    workers: Workers

    @cached_property
    def grid(self) -> Grid:
        """The common grid, wide enough for the priors of every draw."""
        p = self.priors
        if p.draw_mean is None or p.draw_covariance is None or self.level != "draws":
            return common_grid(p.mean, p.covariance)
        D = p.mean.shape[1]
        one = common_grid(p.draw_mean[self.draws].reshape(-1, D), p.draw_covariance[self.draws].reshape(-1, D, D))
        return Grid.of_nodes(np.repeat(one.nodes[:1], p.mean.shape[0], axis=0))

    @cached_property
    def metrics(self) -> list[Array]:
        """Orthonormal regressors of the draws' metric, by prior."""
        found = draw_metrics(self.items, self.draws)
        G = self.priors.mean.shape[0]
        links = self.priors.links
        none = np.zeros((found.shape[0], 0))
        return [regressors(found, none if links is None else links[self.draws, g]) for g in range(G)]

    def estimate(self, answered: Answered, group: npt.NDArray[np.int32]) -> Variances:
        """Estimates of some examinees; `group` says which prior each has."""
        sets = self._sets(answered, group)
        if self.level == "draws":
            return over_draws(sets, group, self.metrics if self.items.joint else None, self.draws.size, self.workers)
        found = next(sets)
        if self.level == "soft":
            return Variances(found.theta, found.covariance)
        return Variances(found.theta, found.covariance, variance(found.covariance))

    def _sets(self, answered: Answered, group: npt.NDArray[np.int32]) -> Iterator[Estimates]:
        """Estimates at one item set after the other: the means, the averages, or every draw."""
        return self._integrals(answered, group) if self.method == "eap" else self._modes(answered, group)

    def targets(self, group: npt.NDArray[np.int32]) -> Iterator[Target]:
        """Posteriors to integrate, one for every item set."""
        p = self.priors
        if self.level == "mean":
            yield Target(group, p.mean, p.covariance, lambda rows, nodes: rows.mean_table(nodes, self.workers))
        elif self.level == "soft":
            yield Target(group, p.mean, p.covariance, self._soft.rows_at)
        else:
            for s in self.draws:
                yield self.target_of_draw(int(s), group)

    @cached_property
    def _soft(self) -> SoftTables:
        return SoftTables(self.grid, int(self.items.first_atom[-1]), self.workers)

    def target_of_draw(self, s: int, group: npt.NDArray[np.int32]) -> Target:
        """The posterior at one draw of items and links."""
        p = self.priors
        mean = p.mean if p.draw_mean is None else p.draw_mean[s]
        covariance = p.covariance if p.draw_covariance is None else p.draw_covariance[s]

        def rows_at(rows: LikelihoodRows, nodes: Array) -> Array:
            return rows.table(nodes, self.items.draw(s, rows.items), self.workers)

        return Target(group, mean, covariance, rows_at)

    def _integrals(self, answered: Answered, group: npt.NDArray[np.int32]) -> Iterator[Estimates]:
        rows = LikelihoodRows.of(self.items, answered)
        posteriors = Posteriors(self.items, rows, answered, self.grid, self.workers)
        for target in self.targets(group):
            found = posteriors.at(target, last=self.level != "draws")
            yield Estimates(found.mean, found.covariance)

    def _modes(self, answered: Answered, group: npt.NDArray[np.int32]) -> Iterator[Estimates]:
        likelihood = Likelihood(self.items, answered, self.workers)
        start = self._likelihood_peaks(answered)
        wanted, p = likelihood.wanted(), self.priors
        means = [g.mean[own] for g, own in zip(self.items.groups, wanted, strict=True)]
        sets: Iterator[tuple[int | None, list[Array]]] = iter([(None, means)])
        if self.level == "draws":
            sets = ((int(s), self.items.draw(int(s), wanted)) for s in self.draws)
        for s, xi in sets:
            if self.method != "map":
                yield likelihood_estimates(likelihood, xi, start, weighted=self.method == "wle")
                continue
            moving = s is not None and p.draw_mean is not None and p.draw_covariance is not None
            mean = p.draw_mean[s] if moving else p.mean  # type: ignore[index]
            covariance = p.draw_covariance[s] if moving else p.covariance  # type: ignore[index]
            yield map_estimates(likelihood, xi, np.zeros(start.shape) + mean[group], mean[group], covariance[group])

    def _likelihood_peaks(self, answered: Answered) -> Array:
        """Where each examinee's likelihood is largest on a coarse grid, with items at their means."""
        n, D = answered.n_persons, len(self.items.dimensions)
        rows = LikelihoodRows.of(self.items, answered)
        table = as_blocks(rows.mean_table(np.broadcast_to(ML_GRID, (D, ML_GRID.size)).copy(), self.workers))
        mode = np.empty((n, D), np.int64)

        def work(lo: int) -> None:
            peaks(table, rows.dim, rows.rows, answered.start, mode, lo, min(lo + PERSONS, n))

        self.workers.map(work, range(0, n, PERSONS))
        return np.asarray(ML_GRID[mode])
