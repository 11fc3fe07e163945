r"""An item's posterior from a Gaussian factor in phi and a Gaussian prior in xi: one quadrature.

Given log a, phi = (-a d, a, e) is linear in u = (d, e), so

.. math:: p(\xi) \propto \exp(-\tfrac12\phi'Q\phi + h'\phi)\, N(\xi; m, \Omega^{-1})

is Gaussian in u with known normalising constant. What is left is the density of log a, a function of one variable,
which is summed on a grid around its mode: its posterior is as skewed as it is, and nothing is approximated but the sum.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.consensus.gaussian import inverse, solve_in_place, symmetric, times

Array = npt.NDArray[np.float64]
NODES = 25
REACH = 6.0  # of the grid, in standard deviations at the mode; sums of smooth densities on it are exact to 1e-6
NEWTON_STEPS = 10
BLOCK = 4096


def item_posterior(Q: Array, h: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Mean (items, p) and covariance (items, p, p) of xi.

    Parameters
    ----------
    Q, h : (items, p, p), (items, p)
        Factor in phi on the metric of the prior, positive semi-definite.
    mean, covariance : (items, p), (items, p, p)
        Prior of xi.
    """
    out = np.empty_like(mean), np.empty_like(covariance)
    for start in range(0, mean.shape[0], BLOCK):
        part = slice(start, start + BLOCK)
        out[0][part], out[1][part] = _block(Q[part], h[part], mean[part], inverse(covariance[part]))
    return out


def _block(Q: Array, h: Array, m: Array, omega: Array) -> tuple[Array, Array]:
    n, p = m.shape
    rest = [0, *range(2, p)]
    x = _mode(Q, h, m, omega)
    grid = x[:, None] + _spread(Q, h, m, omega, x)[:, None] * np.linspace(-REACH, REACH, NODES)
    log_density, u, K = _given_slope(Q, h, m, omega, grid)
    weight = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    mean = np.empty((n, p))
    mean[:, 1] = (weight * grid).sum(axis=1)
    mean[:, rest] = np.einsum("nk,rnk->nr", weight, u)
    dx, du = grid - mean[:, 1:2], u - mean[:, rest].T[..., None]
    covariance = np.empty((n, p, p))
    covariance[:, 1, 1] = (weight * dx * dx).sum(axis=1)
    cross = np.einsum("nk,rnk->nr", weight * dx, du)
    covariance[:, 1, rest] = cross
    covariance[:, rest, 1] = cross
    inner = np.einsum("nk,rsnk->nrs", weight, _inverse(K))
    inner += np.einsum("rnk,snk->nrs", weight * du, du)
    covariance[np.ix_(np.arange(n), rest, rest)] = inner
    return mean, symmetric(covariance)


def _given_slope(Q: Array, h: Array, m: Array, omega: Array, x: Array) -> tuple[Array, Array, Array]:
    """At log slopes x (items, k): log marginal density, and mean and precision of u = (d, e).

    Entries of vectors and matrices come first: (p - 1, items, k) and (p - 1, p - 1, items, k).
    """
    p = m.shape[1]
    rest = [0, *range(2, p)]
    a = np.exp(x)
    T = np.ones((p - 1, *x.shape))
    T[0] = -a
    Q_uu, Q_ux, h_u = (_first(part) for part in (Q[:, rest][:, :, rest], Q[:, rest, 1], h[:, rest]))
    O_uu, O_ux = _first(omega[:, rest][:, :, rest]), _first(omega[:, rest, 1])
    K = T[:, None] * Q_uu * T[None] + O_uu
    dx = x - m[:, 1:2]
    pull = _first(times(omega[:, rest][:, :, rest], m[:, rest]))
    l = T * (h_u - a * Q_ux) + pull - O_ux * dx
    u, pivots = l.copy(), K.copy()
    solve_in_place(pivots, u)
    log_det = sum(np.log(pivots[r, r]) for r in range(p - 1))
    value = h[:, 1:2] * a - 0.5 * Q[:, 1, 1][:, None] * a * a
    value += dx * (omega[:, rest, 1] * m[:, rest]).sum(axis=1)[:, None] - 0.5 * omega[:, 1, 1][:, None] * dx * dx
    return value + 0.5 * (l * u).sum(axis=0) - 0.5 * log_det, u, K


def _inverse(K: Array) -> Array:
    """K^-1, entries first."""
    found = np.broadcast_to(np.eye(len(K))[..., None, None], K.shape).copy()
    solve_in_place(K.copy(), found)
    return found


def _first(values: Array) -> Array:
    """(items, ...) as (..., items, 1)."""
    return np.ascontiguousarray(np.moveaxis(values, 0, -1))[..., None]


def _mode(Q: Array, h: Array, m: Array, omega: Array) -> Array:
    """Mode of log a: the best of a few places, then Newton steps."""
    sd = 1.0 / np.sqrt(omega[:, 1, 1])
    places = m[:, 1:2] + sd[:, None] * np.linspace(-4.0, 4.0, 9)
    x = places[np.arange(m.shape[0]), _given_slope(Q, h, m, omega, places)[0].argmax(axis=1)]
    for _ in range(NEWTON_STEPS):
        slope, curvature = _derivatives(Q, h, m, omega, x)
        step = slope / np.maximum(curvature, omega[:, 1, 1])
        x = x + np.clip(step, -sd, sd)
        if np.abs(step).max(initial=0.0) < 1e-6:
            break
    return np.asarray(x)


def _spread(Q: Array, h: Array, m: Array, omega: Array, x: Array) -> Array:
    """Standard deviation that the curvature at the mode says."""
    _, curvature = _derivatives(Q, h, m, omega, x)
    return np.asarray(1.0 / np.sqrt(np.maximum(curvature, 0.1 * omega[:, 1, 1])))


def _derivatives(Q: Array, h: Array, m: Array, omega: Array, x: Array) -> tuple[Array, Array]:
    """Slope and negative curvature of the log density of log a, by central differences."""
    step = 1e-3
    values = _given_slope(Q, h, m, omega, x[:, None] + step * np.array([-1.0, 0.0, 1.0]))[0]
    slope = (values[:, 2] - values[:, 0]) / (2.0 * step)
    return slope, -(values[:, 2] - 2.0 * values[:, 1] + values[:, 0]) / step**2
