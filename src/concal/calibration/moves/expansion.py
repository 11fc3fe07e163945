r"""Joint moves of origin and unit: theta -> s theta + t with every item and population parameter along.

The likelihood does not change under theta -> s theta + t, d -> s d + t, log a -> log a - log s (with beta, Sigma and
the free ability distributions following), only the priors do. Gibbs steps cross this ridge in tiny steps; drawing t
and log s directly from their conditional density along the orbit (a generalised Gibbs step with the group's invariant
measure) costs nothing, because it needs only sums.

Along the shift the density is Gaussian, with J(t) the prior terms of the first population and the hyperpriors. Along
lambda = log s it is

.. math:: c\lambda - \tfrac12 A_2 e^{2\lambda} - A_1 e^{\lambda} - C e^{-2\lambda}
          - \tfrac12 \sum_g \tau_g (b_g - \lambda)^2 ,

which is drawn by an independence Metropolis step around its mode (`concal.calibration.moves.climb`). Guided groups add
nothing: their priors live on another metric (`concal.calibration.moves.link`), and the link to it, with a flat prior in
(log A, B), follows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration import priors
from concal.calibration.family import Family
from concal.calibration.kernels import LANES
from concal.calibration.layout import Layout
from concal.calibration.matrices import by_lane, inverse, lanes_last
from concal.calibration.moves.climb import climb, draw_around, log_around
from concal.calibration.moves.strata import unit_rate
from concal.calibration.moves.units import AbilitySums
from concal.calibration.priors import population_power, unit_power
from concal.calibration.state import State

Array = npt.NDArray[np.float64]


def expand(
    layout: Layout, state: State, sums: AbilitySums, tau: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw (s, t) for every dimension and move items and populations; returns scale, shift (D, LANES) for theta."""
    D = layout.D
    first, second = sums.first[0].copy(), sums.second[0].copy()
    n, P = float(layout.population_sizes[0]), inverse(state.R[0])
    scale, shift = np.ones((D, LANES)), np.zeros((D, LANES))
    for dim in range(D):
        t = _draw_shift(layout, state, dim, P, first, tau, rng)
        second[dim] += t * first
        second[:, dim] += t * first
        second[dim, dim] += n * t * t
        first[dim] += n * t
        log_s = _draw_log_scale(layout, state, dim, P, second, tau, rng)
        s = np.exp(log_s)
        first[dim] *= s
        second[dim] *= s
        second[:, dim] *= s
        _move(layout, state, dim, t, s)
        scale[dim], shift[dim] = s, s * t
    return scale, shift


def shift_conditional(
    layout: Layout, state: State, dim: int, P: Array, first: Array, tau: float
) -> tuple[Array, Array]:
    """Precision and pull of the shift t, (LANES,) each: its log density is -precision t^2 / 2 - pull t."""
    precision = float(layout.population_sizes[0]) * P[dim, dim]
    pull = (P[dim] * first).sum(axis=0)
    for family in _governed(layout, dim):
        prior = family.groups[0].beta_prior(tau).precision[0]
        precision = precision + prior
        pull = pull + prior * state.groups[family.lead].beta[0, 0]
    for m in range(1, len(layout.populations)):
        precision = precision + 1.0 / priors.MU_VARIANCE
        pull = pull + state.mu[m, dim] / priors.MU_VARIANCE
    return precision, pull


def _draw_shift(
    layout: Layout, state: State, dim: int, P: Array, first: Array, tau: float, rng: np.random.Generator
) -> Array:
    precision, pull = shift_conditional(layout, state, dim, P, first, tau)
    return -pull / precision + rng.standard_normal(LANES) / np.sqrt(precision)


@dataclass(frozen=True)
class ScaleDensity:
    """Density of lambda = log s along the orbit, see above: c, A_2, A_1, C (LANES,), b (groups, LANES), tau_g."""

    linear: Array
    square: Array
    cross: Array
    against: Array
    b: Array
    tau: Array

    def log_density(self, x: Array) -> Array:
        """At lambda = x (LANES,), up to a constant."""
        e = np.exp(x)
        bend: Array = self.linear * x - 0.5 * self.square * e * e - self.cross * e - self.against / (e * e)
        return bend - 0.5 * self.tau @ (self.b - x) ** 2

    def slope_and_curvature(self, x: Array) -> tuple[Array, Array]:
        """Its first two derivatives, the second kept below zero."""
        e, b, tau = np.exp(x), self.b, self.tau
        square, cross, against = self.square, self.cross, self.against
        slope = self.linear - square * e * e - cross * e + 2.0 * against / (e * e) + tau @ (b - x)
        curve = -2.0 * square * e * e - cross * e - 4.0 * against / (e * e) - tau.sum()
        return slope, np.minimum(curve, -1e-6)


def scale_density(layout: Layout, state: State, dim: int, P: Array, second: Array, tau: float) -> ScaleDensity:
    """What the priors of abilities, groups and further populations say along a change of unit."""
    linear = np.full(LANES, float(layout.population_sizes[0]))
    square = P[dim, dim] * second[dim, dim]
    cross = (P[dim] * second[dim]).sum(axis=0) - square
    against = np.zeros(LANES)
    intercepts, precisions = [], []
    for family in _governed(layout, dim):
        s = state.groups[family.lead]
        linear = linear + unit_power(family.groups[0].design.X.shape[1], family.n_spread)
        prior = family.groups[0].beta_prior(tau)
        square = square + prior.precision[0] * (s.beta[:, 0] ** 2).sum(axis=0)
        against = against + unit_rate(family, [state.groups[k] for k in family.members])
        intercepts.append(s.beta[0, 1] - prior.mean[1])
        precisions.append(prior.precision[1])
    for m in range(1, len(layout.populations)):
        linear = linear + population_power(layout.D)
        square = square + state.mu[m, dim] ** 2 / priors.MU_VARIANCE
        against = against + 0.5 * inverse(state.R[m])[dim, dim]
    b = np.array(intercepts).reshape(-1, LANES)
    return ScaleDensity(linear, square, cross, against, b, np.array(precisions))


def _draw_log_scale(
    layout: Layout, state: State, dim: int, P: Array, second: Array, tau: float, rng: np.random.Generator
) -> Array:
    along = scale_density(layout, state, dim, P, second, tau)

    def newton(x: Array) -> Array:
        slope, curve = along.slope_and_curvature(x)
        return -slope / curve

    mode, found = climb(np.zeros(LANES), newton)
    root = np.sqrt(-along.slope_and_curvature(mode)[1])
    noise = draw_around(1, rng)
    drawn = mode + noise[0] / root
    ratio = along.log_density(drawn) - along.log_density(np.zeros(LANES))
    ratio = ratio + log_around(-mode[None] * root) - log_around(noise)
    return np.where((np.log(rng.random(LANES)) < ratio) & found, drawn, 0.0)


def _governed(layout: Layout, dim: int) -> list[Family]:
    """Families of a dimension whose items follow their population."""
    return [f for f in layout.families if f.groups[0].dim == dim and f.groups[0].guide is None]


def _move(layout: Layout, state: State, dim: int, t: Array, s: Array) -> None:
    """Items, population models and free ability distributions to s (x + t): a shift, then a change of unit."""
    for A, B in ((np.ones(LANES), t), (s, np.zeros(LANES))):
        for g, group in zip(layout.groups, state.groups, strict=True):
            if g.dim != dim:
                continue
            for items in (group.xi, group.mean):
                view = np.moveaxis(items, 1, 2)
                view[...] = metric.move_items(view, A, B)
            for beta in (group.beta, group.beta_mean):
                view = np.moveaxis(beta, 2, 0)
                view[...] = metric.move_beta(view, A, B)
            group.sigma = lanes_last(metric.move_item_covariance(by_lane(group.sigma), A))
        state.mu[1:, dim] = metric.move_theta(state.mu[1:, dim], A, B)
    # the link starts from the new metric: composed with the inverse, on the scale of log A it is kept on
    state.link[dim, 1] -= np.exp(state.link[dim, 0]) * t
    state.link[dim, 0] -= np.log(s)
    for m in range(1, len(layout.populations)):
        state.R[m, dim] *= s
        state.R[m, :, dim] *= s
