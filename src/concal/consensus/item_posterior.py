r"""An item's posterior from a Gaussian factor in phi and a Gaussian prior in xi: one quadrature.

Given log a, phi = (-a d, a, e) is linear in u = (d, e), so

.. math:: p(\xi) \propto \exp(-\tfrac12\phi'Q\phi + h'\phi)\, N(\xi; m, \Omega^{-1})

is Gaussian in u with known normalising constant. What is left is the density of log a, a function of one variable. It
may be a peak with a shoulder a hundred times as wide: the slope that the responses say, and the prior's slopes near
zero, of which they say nothing more. So it is summed on nodes that lie close at its mode and ever wider apart from it,

.. math:: \log a = \text{mode} + s \sinh t, \qquad t \text{ equally spaced},

from end to end of what counts, and on twice as many until every other node says the same. Against 40,001 nodes, with
prior SDs of log a from .05 to 5 and from no response to 100,000, means are within 2e-4 SD and SDs within 4e-4 of
themselves; 1e-5 where that SD is below 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.consensus.gaussian import inverse, solve_in_place, solve_positive, symmetric, times

Array = npt.NDArray[np.float64]
REACH = 8.0  # SDs of the prior beyond its mean and the mode; a Gaussian has 1e-15 of its mass there
FALLEN = 25.0  # of the log density, with 3 log cosh t for a place's share of the variance, from where nothing counts
COARSE, NODES, MOST_NODES = 13, 33, 2049  # to find the ends, to sum, and at most; few items of a usual bank need more
AGREE = 5e-4
"""SDs by which mean and SD may differ on every other node. On all nodes they are far nearer: with the spacing the error
falls exponentially."""
NEWTON_STEPS = 12
BLOCK = 2048


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
        out[0][part], out[1][part] = _block(Q[part], h[part], mean[part], covariance[part])
    return out


class _Given(NamedTuple):
    """Factor and prior of some items, the prior's covariance inverted."""

    Q: Array
    h: Array
    m: Array
    omega: Array

    def rows(self, which: npt.NDArray[np.intp]) -> _Given:
        """Those of some of the items."""
        return _Given(*(part[which] for part in self))

    def density(self, x: Array) -> Array:
        """Log density of log a at (items, k), up to a constant."""
        return _given_slope(*self, x)[0]


class _Nodes(NamedTuple):
    """Where to sum: log a = mode + scale sinh t, t between `first` and `last`; all (items,)."""

    mode: Array
    scale: Array
    first: Array
    last: Array

    def rows(self, which: npt.NDArray[np.intp]) -> _Nodes:
        """Those of some of the items."""
        return _Nodes(*(part[which] for part in self))

    def places(self, n: int) -> tuple[Array, Array]:
        """The log slopes (items, n) and cosh t, which is their distance up to a constant."""
        t = self.first[:, None] + (self.last - self.first)[:, None] * np.linspace(0.0, 1.0, n)
        e = np.exp(t)
        return self.mode[:, None] + self.scale[:, None] * (0.5 * (e - 1.0 / e)), 0.5 * (e + 1.0 / e)


def _block(Q: Array, h: Array, m: Array, covariance: Array) -> tuple[Array, Array]:
    given = _Given(Q, h, m, inverse(covariance))
    nodes = _lay_out(given, np.sqrt(covariance[:, 1, 1]))
    mean, found = np.empty_like(m), np.empty_like(covariance)
    left, n = np.arange(m.shape[0]), NODES
    while left.size:
        disagree, at_once = [], max(1, BLOCK * NODES // n)
        for part in (left[k : k + at_once] for k in range(0, left.size, at_once)):
            every = part.size == m.shape[0]
            mean[part], found[part], agree = _moments(
                given if every else given.rows(part), nodes if every else nodes.rows(part), n
            )
            disagree.append(part[~agree])
        left = np.concatenate(disagree) if n < MOST_NODES else left[:0]
        n = 2 * n - 1
    return mean, symmetric(found)


def _moments(given: _Given, nodes: _Nodes, n: int) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Mean and covariance of xi from n nodes, and whether every other node tells the same of d and log a."""
    items, p = given.m.shape
    rest = [0, *range(2, p)]
    grid, width = nodes.places(n)
    log_density, u, K = _given_slope(*given, grid)
    weight = width * np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    mean, covariance = np.empty((items, p)), np.empty((items, p, p))
    mean[:, 1] = (weight * grid).sum(axis=1)
    mean[:, rest] = np.einsum("nk,rnk->nr", weight, u)
    dx, du = grid - mean[:, 1:2], u - mean[:, rest].T[..., None]
    weighted, inner = weight * dx, _inverse(K)
    covariance[:, 1, 1] = (weighted * dx).sum(axis=1)
    cross = np.einsum("nk,rnk->nr", weighted, du)
    covariance[:, 1, rest] = cross
    covariance[:, rest, 1] = cross
    covariance[np.ix_(np.arange(items), rest, rest)] = np.einsum("nk,rsnk->nrs", weight, inner) + np.einsum(
        "rnk,snk->nrs", weight * du, du
    )
    agree = _agree(weight, dx, 0.0, covariance[:, 1, 1]) & _agree(weight, du[0], inner[0, 0], covariance[:, 0, 0])
    return mean, covariance, agree


def _agree(weight: Array, z: Array, spread: Array | float, variance: Array) -> npt.NDArray[np.bool_]:
    """Whether every other node puts deviations z, with a variance at each of them, where all nodes do."""
    half = weight[:, ::2] / weight[:, ::2].sum(axis=1, keepdims=True)
    shift = (half * z[:, ::2]).sum(axis=1)
    second = (half * (z * z + spread)[:, ::2]).sum(axis=1)
    return np.asarray((shift**2 < AGREE**2 * variance) & (np.abs(second - variance) < 2.0 * AGREE * variance))


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


def _lay_out(given: _Given, sd: Array) -> _Nodes:
    """Nodes from end to end of what counts; `sd` (items,) is the prior's of log a."""
    top = _largest(given.Q)
    mode, scale = _mode(given, sd, top)
    centre = given.m[:, 1]
    low, high = np.minimum(centre, mode) - REACH * sd, np.minimum(np.maximum(centre, mode) + REACH * sd, top)
    coarse = _Nodes(mode, scale, np.arcsinh((low - mode) / scale), np.arcsinh((high - mode) / scale))
    grid, width = coarse.places(COARSE)
    share = given.density(grid) + 3.0 * np.log(width)
    counts = share > share.max(axis=1, keepdims=True) - FALLEN
    first = np.maximum(counts.argmax(axis=1) - 1, 0)
    last = np.minimum(COARSE - counts[:, ::-1].argmax(axis=1), COARSE - 1)
    step = (coarse.last - coarse.first) / (COARSE - 1)
    return _Nodes(mode, scale, coarse.first + first * step, coarse.first + last * step)


def _largest(Q: Array) -> Array:
    """Log slopes up to which a rounding error of a^2 Q is less than 1e-3; beyond, sums would be of rounding errors."""
    information = np.diagonal(Q, axis1=1, axis2=2).max(axis=1)
    return np.minimum(0.5 * (np.log(1e13) - np.log(np.maximum(information, 1e-300))), 300.0)


def _mode(given: _Given, sd: Array, top: Array) -> tuple[Array, Array]:
    """Mode of log a, and the standard deviation that the curvature says there.

    A peak may be far narrower than the prior is wide. So the places looked at are, beside some of the prior's, the
    slopes that the factor is largest at.
    """
    rows, centre = np.arange(sd.size), given.m[:, 1]
    peaks = _peaks(given)
    places = np.concatenate([centre[:, None] + sd[:, None] * np.linspace(-4.0, 4.0, 9), peaks], axis=1)
    places = np.sort(np.minimum(places, top[:, None]), axis=1)
    value = given.density(places)
    best = value.argmax(axis=1)
    last = places.shape[1] - 1
    below = np.where(best > 0, places[rows, np.maximum(best - 1, 0)], places[:, 0] - REACH * sd)
    above = np.where(best < last, places[rows, np.minimum(best + 1, last)], places[:, -1] + REACH * sd)
    x, curvature = _climb(given, places[rows, best], below, np.minimum(above, top))
    scale = 1.0 / np.sqrt(np.maximum(curvature, 0.1 / sd**2))
    return x, scale


def _peaks(given: _Given) -> Array:
    """Log slopes where the factor is largest: anywhere, and at the prior's mean of the other parameters, (items, 2)."""
    Q, h, m, _ = given
    ridge = 1e-9 * np.diagonal(Q, axis1=1, axis2=2) + 1e-200
    anywhere = solve_positive(Q + ridge[:, :, None] * np.eye(m.shape[1]), h[:, :, None])[:, 1, 0]
    ray = np.zeros_like(m)
    ray[:, 0], ray[:, 1] = -m[:, 0], 1.0
    extras = np.concatenate([np.zeros_like(m[:, :2]), m[:, 2:]], axis=1)
    along = ((h - times(Q, extras)) * ray).sum(axis=1) / np.maximum((ray * times(Q, ray)).sum(axis=1), 1e-200)
    slope = np.stack([anywhere, along], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(slope)
    return np.where(np.isfinite(found), found, m[:, 1:2])


def _climb(given: _Given, x: Array, below: Array, above: Array) -> tuple[Array, Array]:
    """Up to a mode between two places, and the negative curvature there: Newton steps, halving where they lead out."""
    x, below, above, curvature = x.copy(), below.copy(), above.copy(), np.empty_like(x)
    left = np.arange(x.size)
    for _ in range(NEWTON_STEPS):
        at = x[left]
        slope, bend = _derivatives(given if left.size == x.size else given.rows(left), at)
        below[left], above[left] = np.where(slope > 0, at, below[left]), np.where(slope > 0, above[left], at)
        curvature[left] = bend
        to = at + slope / np.where(bend > 0, bend, np.inf)
        out = (bend <= 0) | (to < below[left]) | (to > above[left])
        to = np.where(out, 0.5 * (below[left] + above[left]), to)
        x[left] = to
        # nodes lie around the mode, so a tenth of an SD beside it is near enough
        left = left[out | (bend * (to - at) ** 2 > 0.01)]
        if not left.size:
            break
    return x, curvature


def _derivatives(given: _Given, x: Array) -> tuple[Array, Array]:
    """Slope and negative curvature of the log density of log a, by central differences."""
    step = 1e-3
    values = given.density(x[:, None] + step * np.array([-1.0, 0.0, 1.0]))
    slope = (values[:, 2] - values[:, 0]) / (2.0 * step)
    return slope, -(values[:, 2] - 2.0 * values[:, 1] + values[:, 0]) / step**2
