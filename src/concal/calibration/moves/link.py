r"""Guided calibration: items have priors of their own, from what the bank knew before the period.

The prior of item j is N(m_j, S_j) on the bank's metric, theta_bank = A theta + B, with (A, B) free, one pair per
dimension, so that examinees keep setting the period's own metric. On that metric the prior is

.. math:: \Big(\tfrac{m_d - B}{A},\ m_{\log a} + \log A,\ \ldots\Big), \qquad \text{precision}\ J S_j^{-1} J,\quad
          J = diag(A, 1, \ldots).

Given the items, with lambda = log A and n guided items in the dimension, (lambda, B) has the log density

.. math:: n\lambda - \tfrac12 \sum_j r_j' S_j^{-1} r_j, \qquad
          r_j = (A d_j + B,\ \log a_j - \lambda,\ \ldots)' - m_j ,

which sums over items reduce to a function of two numbers. It is drawn by an independence Metropolis step from the
Gaussian at its mode.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout, Layout
from concal.calibration.moves.climb import climb, draw_around, log_around
from concal.calibration.state import GroupState, State

Array = npt.NDArray[np.float64]


def prior_mean(g: GroupLayout, link: Array) -> Array:
    """The prior means on the period's metric, (items, p, LANES), under link (2, LANES) = (log A, B)."""
    assert g.guide is not None
    mean = np.repeat(g.guide.mean[:, :, None], LANES, axis=2)
    mean[:, 0] = metric.own_theta(mean[:, 0], np.exp(link[0]), link[1])
    mean[:, 1] += link[0]  # log A is what the engine keeps: no way there and back through A
    return mean


def prior_precision(g: GroupLayout, link: Array) -> Array:
    """J S^-1 J for every item and lane, (items, p, p, LANES)."""
    precision = np.repeat(g.guide_precision[:, :, :, None], LANES, axis=3)
    # from the bank's metric to the period's covariances shrink by A, so precisions grow by it
    return np.moveaxis(metric.move_item_covariance(np.moveaxis(precision, 3, 1), np.exp(link[0])), 1, 3)


def draw_links(layout: Layout, state: State, rng: np.random.Generator) -> None:
    """Draw (log A, B) of every guided dimension given the items, and move the prior means along."""
    for dim in layout.guided_dimensions:
        members = [(g, s) for g, s in zip(layout.groups, state.groups, strict=True) if g.dim == dim and g.guide]
        state.link[dim] = _draw_link(members, state.link[dim], rng)
        for g, s in members:
            s.mean = prior_mean(g, state.link[dim])


def _draw_link(members: list[tuple[GroupLayout, GroupState]], link: Array, rng: np.random.Generator) -> Array:
    n = float(sum(g.n_items for g, _ in members))
    G = np.sum([_quadratic(g, s.xi) for g, s in members], axis=0)

    def newton(x: Array) -> Array:
        slope, curvature = _derivatives(x, G, n)
        return _solve(curvature, slope)

    mode, found = climb(link, newton)
    _, (c00, c01, c11) = _derivatives(mode, G, n)
    # Cholesky of the curvature; its inverse transpose spreads the noise
    l00 = np.sqrt(c00)
    l10 = c01 / l00
    l11 = np.sqrt(c11 - l10**2)
    noise = draw_around(2, rng)
    second = noise[1] / l11
    drawn = mode + np.stack([(noise[0] - l10 * second) / l00, second])

    def proposal(x: Array) -> Array:
        u, v = x - mode
        return log_around(np.stack([l00 * u + l10 * v, l11 * v]))

    ratio = log_density(drawn, G, n) - log_density(link, G, n) - proposal(drawn) + proposal(link)
    return np.where((np.log(rng.random(LANES)) < ratio) & found, drawn, link)


def log_density(x: Array, G: Array, n: float) -> Array:
    """Log density of x (2, LANES) = (log A, B) given n guided items with the sums G."""
    z = _coefficients(x)
    return np.asarray(n * x[0] - 0.5 * np.einsum("al,abl,bl->l", z, G, z))


def _quadratic(g: GroupLayout, xi: Array) -> Array:
    """Sums over items of b' S^-1 b, (4, 4, LANES), with r = A b_0 + B b_1 + lambda b_2 + b_3."""
    assert g.guide is not None
    P, d = g.guide_precision, xi[:, 0]
    rest = xi - g.guide.mean[:, :, None]
    rest[:, 0] = -g.guide.mean[:, 0, None]
    pulled = np.einsum("nij,njl->nil", P, rest)
    P00, P01, P11 = P[:, 0, 0], P[:, 0, 1], P[:, 1, 1]
    G = np.zeros((4, 4, LANES))
    G[0, 0] = P00 @ d**2
    G[0, 1] = G[1, 0] = P00 @ d
    G[1, 1] = P00.sum()
    G[0, 2] = G[2, 0] = -(P01 @ d)
    G[1, 2] = G[2, 1] = -P01.sum()
    G[2, 2] = P11.sum()
    G[0, 3] = G[3, 0] = (d * pulled[:, 0]).sum(axis=0)
    G[1, 3] = G[3, 1] = pulled[:, 0].sum(axis=0)
    G[2, 3] = G[3, 2] = -pulled[:, 1].sum(axis=0)
    return G


def _coefficients(x: Array) -> Array:
    """(A, B, lambda, 1) of x (2, LANES) = (lambda, B)."""
    return np.stack([np.exp(x[0]), x[1], x[0], np.ones(LANES)])


def _derivatives(x: Array, G: Array, n: float) -> tuple[Array, tuple[Array, Array, Array]]:
    """Gradient (2, LANES) of the log density, and its negative second derivatives, kept positive definite."""
    A = np.exp(x[0])
    pulled = np.einsum("abl,bl->al", G, _coefficients(x))
    slope = np.stack([n - A * pulled[0] - pulled[2], -pulled[1]])
    by_lambda = A * G[:, 0] + G[:, 2]  # derivative of G z by lambda
    c00 = A * pulled[0] + A * by_lambda[0] + by_lambda[2]
    c01, c11 = by_lambda[1], G[1, 1]
    return slope, (np.maximum(c00, c01**2 / c11 + 1e-3 * n), c01, c11)


def _solve(curvature: tuple[Array, Array, Array], slope: Array) -> Array:
    c00, c01, c11 = curvature
    determinant = c00 * c11 - c01**2
    return np.stack([c11 * slope[0] - c01 * slope[1], c00 * slope[1] - c01 * slope[0]]) / determinant
