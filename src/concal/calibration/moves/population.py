r"""Gibbs steps for what governs the units: beta and Sigma of each item group, the ability distributions.

The priors are in `concal.calibration.priors`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.calibration import priors
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout, Layout
from concal.calibration.matrices import by_lane, lanes_last
from concal.calibration.moves.correlation import walk_correlation
from concal.calibration.moves.units import AbilitySums
from concal.calibration.priors import BetaPrior, sigma_given_mixing
from concal.calibration.standardise import Standardisation
from concal.calibration.state import GroupState, State, pinned

Array = npt.NDArray[np.float64]


def draw_beta(g: GroupLayout, s: GroupState, tau: float, rng: np.random.Generator) -> None:
    r"""Beta given items and Sigma, and its conditional mean.

    In units of the prior SDs the precision Sigma^-1 (x) X'X + I falls apart in the eigenbases of X'X and Sigma^-1, so
    200 features cost what two cost.
    """
    free, sigma = g.free, own_block(g, s.sigma)
    s.beta_mean, s.beta = s.beta.copy(), s.beta.copy()  # what is the group's, `concal.calibration.moves.shared` moves
    s.beta_mean[:, free], s.beta[:, free] = regress(g.design, s.xi[:, free], sigma, g.beta_prior(tau)[free], rng)
    s.mean = g.predicted(s.beta)


def regress(
    design: Standardisation, items: Array, sigma: Array, prior: BetaPrior, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Mean and draw of coefficients (features, p, LANES) of items (items, p, LANES).

    `sigma` (LANES, p, p) is the items' covariance around them.
    """
    k, p = design.X.shape[1], items.shape[1]
    root = np.sqrt(prior.precision)
    centred = items - prior.mean[:, None]
    rotated = design.vectors.T @ (design.X.T @ centred.reshape(items.shape[0], -1))
    values, Q = np.linalg.eigh(np.linalg.inv(sigma * np.outer(root, root)))  # (LANES, p), (LANES, p, p)
    target = (np.moveaxis(rotated.reshape(k, p, LANES), 2, 0) * root) @ Q  # (LANES, k, p)
    precision = design.singular[None, :, None] * values[:, None, :] + 1.0
    mean = values[:, None, :] * target / precision
    drawn = mean + rng.standard_normal(mean.shape) / np.sqrt(precision)
    back = np.swapaxes(Q, 1, 2) / root
    found = [np.ascontiguousarray(np.moveaxis(design.vectors @ (at @ back), 0, 2)) for at in (mean, drawn)]
    for beta in found:
        beta[0] += prior.mean[:, None]
    return found[0], found[1]


def draw_sigma(g: GroupLayout, s: GroupState, rng: np.random.Generator) -> None:
    """Sigma given items, beta and the half-t scales: IW(df, psi)."""
    s.sigma = among(g, inverse_wishart(*sigma_given_items(g, s), rng))


def sigma_given_items(g: GroupLayout, s: GroupState) -> tuple[float, Array]:
    """Degrees of freedom and scales (LANES, q, q) of Sigma's conditional, over the items' own coordinates."""
    residual = by_lane((s.xi - s.mean)[:, g.free])
    df, rates = sigma_given_mixing(s.sd_mixing[g.free].T)
    return df + g.n_items, np.swapaxes(residual, 1, 2) @ residual + rates


def own_block(g: GroupLayout, sigma: Array) -> Array:
    """The part of Sigma (p, p, LANES), or of its inverse, that speaks of the items' own coordinates, lane by lane."""
    return by_lane(sigma[g.free[:, None], g.free])


def among(g: GroupLayout, block: Array) -> Array:
    """Sigma (p, p, LANES) of all coordinates from that of the items' own, lane by lane."""
    sigma = pinned(np.zeros((LANES, g.p, g.p)), g.model)
    sigma[:, g.free[:, None], g.free] = block
    return lanes_last(sigma)


def draw_abilities(layout: Layout, state: State, sums: AbilitySums, rng: np.random.Generator) -> None:
    """R of the first population, (mu, R) of the others, given the sums over their examinees."""
    D = layout.D
    if D > 1:
        R = walk_correlation(by_lane(state.R[0]), by_lane(sums.second[0]), int(layout.population_sizes[0]), rng)
        state.R[0] = lanes_last(R)
    for m in range(1, len(layout.populations)):
        draw_spread(layout, state, sums, m, rng)
        draw_mean(layout, state, sums, m, rng)


def spread_given_mean(layout: Layout, state: State, sums: AbilitySums, m: int) -> tuple[float, Array]:
    """Degrees of freedom and scales (LANES, D, D) of R of a further population given its mean."""
    D, n = layout.D, float(layout.population_sizes[m])
    first, mu = sums.first[m].T, state.mu[m].T  # (LANES, D)
    cross = first[:, :, None] * mu[:, None, :]
    scatter = by_lane(sums.second[m]) - cross - np.swapaxes(cross, 1, 2) + n * mu[:, :, None] * mu[:, None, :]
    return D + 2.0 + n, scatter + np.eye(D)


def mean_given_spread(layout: Layout, state: State, sums: AbilitySums, m: int) -> tuple[Array, Array]:
    """Mean (LANES, D) and precision (LANES, D, D) of mu of a further population given R."""
    inverse = np.linalg.inv(by_lane(state.R[m]))
    precision = float(layout.population_sizes[m]) * inverse + np.eye(layout.D) / priors.MU_VARIANCE
    return np.linalg.solve(precision, inverse @ sums.first[m].T[:, :, None])[:, :, 0], precision


def draw_spread(layout: Layout, state: State, sums: AbilitySums, m: int, rng: np.random.Generator) -> None:
    """R of a further population given its mean."""
    state.R[m] = lanes_last(inverse_wishart(*spread_given_mean(layout, state, sums, m), rng))


def draw_mean(layout: Layout, state: State, sums: AbilitySums, m: int, rng: np.random.Generator) -> None:
    """Mean of a further population given R."""
    mean, precision = mean_given_spread(layout, state, sums, m)
    chol = np.linalg.cholesky(precision)
    noise = np.linalg.solve(np.swapaxes(chol, 1, 2), rng.standard_normal((LANES, layout.D, 1)))[:, :, 0]
    state.mu[m] = (mean + noise).T


def inverse_wishart(df: float, psi: Array, rng: np.random.Generator) -> Array:
    """IW(df, psi) draws, batched over the first axis of psi (Bartlett's decomposition of the inverse)."""
    n, p, _ = psi.shape
    A = np.zeros((n, p, p))
    lower = np.tril_indices(p, -1)
    A[:, lower[0], lower[1]] = rng.standard_normal((n, lower[0].size))
    A[:, np.arange(p), np.arange(p)] = np.sqrt(rng.chisquare(df - np.arange(p), size=(n, p)))
    # psi = C C'; W = C^-T A A' C^-1 is Wishart(df, psi^-1), so its inverse is (C A^-T)(C A^-T)'
    factor = np.swapaxes(np.linalg.solve(A, np.swapaxes(np.linalg.cholesky(psi), 1, 2)), 1, 2)
    drawn: Array = factor @ np.swapaxes(factor, 1, 2)
    return drawn
