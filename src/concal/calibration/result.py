"""What the calibration of one period returns: draws on the period's own metric, and how far to trust them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.calibration.fit.period_fit import PeriodFit
from concal.response import ResponseModel
from concal.shown import doubts, shown

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupDraws:
    r"""Posterior of one item group: its items xi_j and its population model :math:`\xi_j \sim N(X_j\beta, \Sigma)`.

    Attributes
    ----------
    name, dimension : str
    model : ResponseModel
    item_ids : tuple of str
        In the order of every item axis below.
    features : tuple of str
        Names of the design columns, the intercept first.
    X : (items, features) float64
        Design matrix in the user's units.
    xi : (chain, draw, item, parameter) float32
        Parameters in the order of ``model.parameters``.
    beta : (chain, draw, feature, parameter) float64
    sigma : (chain, draw, parameter, parameter) float64
    beta_mean : (chain, draw, feature, parameter) float64 or None
        Conditional mean of beta given that draw's items and Sigma; with the conditional precision
        Sigma^-1 (x) X'X + tau I it gives Rao-Blackwell moments. None for draws of another engine.
    coding : str
        Fingerprint of how the features are coded; equal names coded differently are different features.
    lacking : tuple of str
        Columns of the formula that no item had in this period; what they feed is not among the features.
    moments : (items, 2 p + 2 p^2) float64 or None
        Averages over all sampled sweeps of the items in slope and intercept and of the gradients of their
        log-likelihood, see `concal.calibration.moments`. None for draws of another engine.
    bin_mean, bin_sd : (items, bins) float64 or None
    cell_score, cell_count : (items, bins, cells) float64 or None
        Response tables, see `concal.calibration.tables`. None for draws of another engine.
    guide_mean, guide_covariance : (items, parameters), (items, parameters, parameters) float64, or None
        Priors the items had instead of the population model, on the bank's metric; beta and Sigma then only describe
        the items (see `concal.calibration.moves.link`).
    guide_link : (chain, draw, 2) float64 or None
        (log A, B) from the period's own metric to the bank's, theta_bank = A theta + B.
    n_responses : (items,) int64
    rhat, ess_bulk, ess_tail : (items, parameters) float64
    population_rhat, population_ess : dict of str -> float
        By readable names such as ``beta[length,d]`` and ``sigma[d,log_a]``.
    """

    name: str
    dimension: str
    model: ResponseModel
    item_ids: tuple[str, ...]
    features: tuple[str, ...]
    X: Array
    xi: npt.NDArray[np.float32]
    beta: Array
    sigma: Array
    n_responses: npt.NDArray[np.int64]
    rhat: Array
    ess_bulk: Array
    ess_tail: Array
    beta_mean: Array | None = None
    coding: str = ""
    lacking: tuple[str, ...] = ()
    moments: Array | None = None
    bin_mean: Array | None = None
    bin_sd: Array | None = None
    cell_score: Array | None = None
    cell_count: Array | None = None
    guide_mean: Array | None = None
    guide_covariance: Array | None = None
    guide_link: Array | None = None
    population_rhat: Mapping[str, float] = field(default_factory=dict)
    population_ess: Mapping[str, float] = field(default_factory=dict)

    PER_ITEM: ClassVar[tuple[str, ...]] = (
        *("X", "n_responses", "rhat", "ess_bulk", "ess_tail", "guide_mean", "guide_covariance"),
        *("moments", "bin_mean", "bin_sd", "cell_score", "cell_count"),
    )

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.item_ids)

    @property
    def n_draws(self) -> int:
        """Kept draws over all chains."""
        return int(self.xi.shape[0] * self.xi.shape[1])

    @property
    def worst_rhat(self) -> Array:
        """Largest R-hat over each item's coordinates, (items,)."""
        return np.asarray(self.rhat.max(axis=1))

    @property
    def last(self) -> Array:
        """The items' last draw of the first chain, (items, parameters) float64."""
        return np.asarray(self.xi[0, -1], dtype=np.float64)

    def flat(self, name: str) -> Array:
        """`xi`, `beta`, `sigma`, `beta_mean` or `guide_link` as float64 with chains joined: (chain * draw, ...)."""
        values = getattr(self, name)
        return np.asarray(values, dtype=np.float64).reshape(-1, *values.shape[2:])


@dataclass(frozen=True)
class Abilities:
    """Abilities of the period's examinees, on the period's own metric.

    Attributes
    ----------
    person_ids : polars Series of str
    mean, sd : (persons, dimensions) float64
        Posterior mean and SD of each examinee.
    n_responses : (persons, dimensions) int64
    draw_mean, draw_sd : (chain, draw, dimension) float64
        Mean and SD over the examinees, draw by draw: the period's ability distribution with its uncertainty.
    correlation : (chain, draw, dimension, dimension) float64
        R, the correlation of theta in the population.
    populations : tuple of str
        Populations of examinees, the first sets the metric: the groups of examinees, or the periods of a pooled fit.
    population : (persons,) int32 or None
        The population of each examinee.
    population_mean, population_sd : (chain, draw, population, dimension) float64 or None
        `draw_mean` and `draw_sd` for every population.
    """

    person_ids: pl.Series
    mean: Array
    sd: Array
    n_responses: npt.NDArray[np.int64]
    draw_mean: Array
    draw_sd: Array
    correlation: Array
    populations: tuple[str, ...] = ()
    population: npt.NDArray[np.int32] | None = None
    population_mean: Array | None = None
    population_sd: Array | None = None


def mixture_moments(mean: Array, sd: Array, sizes: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """Mean and SD over all examinees from those of their populations, (..., population, dimension) each."""
    share = (sizes / sizes.sum())[:, None]
    whole = (share * mean).sum(axis=-2)
    return whole, np.sqrt((share * (sd**2 + (mean - whole[..., None, :]) ** 2)).sum(axis=-2))


@dataclass(frozen=True)
class Convergence:
    """What the run reached.

    `converged` is False when a target was missed; `warnings` then says which and by how much. `mean_error` and
    `sd_error` are Monte Carlo errors of what is delivered (`concal.calibration.delivered`); of other engines, those of
    means and SDs of their draws.
    """

    converged: bool
    sweeps: int
    warmup: int
    thin: int
    seconds: float
    max_rhat_population: float
    min_ess_population: float
    share_items_rhat: float  # share of items with R-hat below the item target
    warnings: tuple[str, ...] = ()
    mean_error: float = float("nan")
    sd_error: float = float("nan")


@shown
@dataclass(frozen=True)
class Calibration:
    """The calibration of one period, alone.

    Attributes
    ----------
    period : str
    dimensions : tuple of str
    groups : dict of group name -> GroupDraws
    abilities : Abilities or None
        None when another engine's draws came without abilities.
    convergence : Convergence
    tau : float
        Precision of the hyperprior of beta on the scale of the items' typical spread, in the units of
        `GroupDraws.X`'s standardised columns; see `beta_prior_precision`.
    beta_prior_precision : dict of group name -> (features, features) float64
        Precision of the hyperprior of each column of beta in the user's units, on the same scale.
    seed : int
    engine : str
    fit : PeriodFit or None
        Do the items fit; None for draws of another engine, which come without responses.
    """

    period: str
    dimensions: tuple[str, ...]
    groups: Mapping[str, GroupDraws]
    abilities: Abilities | None
    convergence: Convergence
    tau: float
    beta_prior_precision: Mapping[str, Array]
    seed: int
    engine: str = "concal"
    fit: PeriodFit | None = None

    def group_of(self) -> dict[str, str]:
        """Item id -> group name."""
        return {item: group.name for group in self.groups.values() for item in group.item_ids}

    @property
    def n_draws(self) -> int:
        """Kept draws over all chains."""
        return next(iter(self.groups.values())).n_draws

    def _facts(self) -> dict[str, object]:
        reached = self.convergence
        n = self.abilities.person_ids.len() if self.abilities is not None else None
        return {
            "period": self.period,
            "items": ", ".join(f"{g.n_items:,} {name} ({g.model.kind})" for name, g in self.groups.items()),
            "examinees": f"{n:,}" if n is not None else "not known",
            "responses": f"{sum(int(g.n_responses.sum()) for g in self.groups.values()):,}",
            "draws": f"{self.n_draws:,} of {self.engine}, seed {self.seed}",
            "converged": f"{'yes' if reached.converged else 'no'}: R-hat of the population at most "
            f"{reached.max_rhat_population:.3f}, ESS at least {reached.min_ess_population:.0f}",
            "warnings": doubts(reached.warnings),
        }
