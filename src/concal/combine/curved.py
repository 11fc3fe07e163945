r"""The shape of a period's posterior of an item beyond its Gaussian: curvature and skewness.

In a response model :math:`\eta = a (\theta - d)` the information about d grows with a. So a posterior of an item is not
Gaussian in (d, log a), even with hundreds of responses: the spread of d given log a shrinks as log a grows,

.. math:: d \mid \log a \sim N\big(\mu_d + b\,(\log a - \mu_a),\ v\, e^{-2\kappa (\log a - \mu_a)}\big),

with a curvature :math:`\kappa` between .6 and .9 in what we measured (2pl, gpcm, ordered_beta). Where periods disagree
about d this matters: a flatter item explains the disagreement, so the pooled posterior moves log a down, which a
product of Gaussians cannot do. With few responses log a, and d given log a, are skewed as well. A skewed standard
density is

.. math:: f(z) \propto \phi(z)\, e^{\gamma H(z)}, \qquad H(z) = (z^3 - 3 z) / 6,

with H linear beyond :math:`|z| = 2`, moved and scaled to mean 0 and variance 1. The *curved density* of an item has
these three properties and the mean and covariance of the period's Gaussian. Times any other Gaussian its moments are
an integral over log a and d alone: given both, everything else is Gaussian.
"""

# Compiled functions carry no annotations; their Python callers do.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from concal.combine.marginal import invert

Array = npt.NDArray[np.float64]
CUT = 2.0
LARGEST_SKEWNESS = 1.0
LARGEST_BEND = 0.6
"""Of kappa times the SD of log a: beyond it third moments say more about tails than about kappa."""

NODES, REACH = 17, 4.8
"""Quadrature in equal steps of 0.6 SD: a Gaussian's variance comes out right to five digits, cut off at 4.8 SD."""


def curvature(x: Array, ess: Array) -> Array:
    r"""Shape of draws x (items, p, draws): kappa, skewness of log a, skewness of d given log a; (items, 3).

    With z the standardised log a and r the standardised residual of d given log a,
    :math:`E[r^2 z] = -2 \kappa\, \mathrm{SD}(\log a)` to first order. A skewness g is shrunk by
    :math:`g^2 / (g^2 + 6 / n)`, n = `ess` effective draws: what noise alone would give has mean square 6 / n.
    """
    tiny = np.finfo(float).tiny
    d, log_a = x[:, 0] - x[:, 0].mean(axis=1)[:, None], x[:, 1] - x[:, 1].mean(axis=1)[:, None]
    sd = np.sqrt(np.maximum((log_a**2).mean(axis=1), tiny))
    z = log_a / sd[:, None]
    r = d - (d * z).mean(axis=1)[:, None] * z
    r /= np.sqrt(np.maximum((r * r).mean(axis=1), tiny))[:, None]
    bend = np.clip(-0.5 * (r * r * z).mean(axis=1), -LARGEST_BEND, LARGEST_BEND)
    even = r * np.exp(bend[:, None] * np.clip(z, -3.0, 3.0))
    even -= even.mean(axis=1)[:, None]
    skewness = np.stack(
        [(z**3).mean(axis=1), (even**3).mean(axis=1) / np.maximum((even**2).mean(axis=1), tiny) ** 1.5], axis=1
    )
    noise = 6.0 / np.maximum(ess, 1.0)[:, None]
    skewness *= skewness**2 / (skewness**2 + noise)
    return np.column_stack([bend / sd, np.clip(skewness, -LARGEST_SKEWNESS, LARGEST_SKEWNESS)])


@njit(cache=True, nogil=True)
def _tilt(z, gamma):
    """Gamma H(z)."""
    inner = min(max(z, -CUT), CUT)
    return gamma * ((inner**3 - 3.0 * inner) / 6.0 + (z - inner) * (CUT * CUT - 1.0) / 2.0)


@njit(cache=True, nogil=True)
def _standardise(gamma):
    """Mean and SD of the density proportional to phi(z) exp(gamma H(z))."""
    if gamma == 0.0:
        return 0.0, 1.0
    total, first, second = 0.0, 0.0, 0.0
    for t in range(2 * NODES):
        z = 1.4 * REACH * (2.0 * t / (2 * NODES - 1) - 1.0)
        w = np.exp(-0.5 * z * z + _tilt(z, gamma))
        total += w
        first += w * z
        second += w * z * z
    mean = first / total
    return mean, np.sqrt(second / total - mean * mean)


@njit(cache=True, nogil=True)
def _log_ratio(z, gamma, mean, sd):
    """Log of the skewed over the standard normal density at z, up to a constant."""
    if gamma == 0.0:
        return 0.0
    own = mean + sd * z
    return 0.5 * z * z - 0.5 * own * own + _tilt(own, gamma)


@njit(cache=True, nogil=True)
def curved_moments(mean, precision, shape, G, g, out_mean, out_covariance, ok):
    r"""Mean and covariance of the Gaussian (G, g) times curved / Gaussian density, item by item.

    Parameters
    ----------
    mean, precision : (items, p), (items, p, p)
        The period's Gaussian posterior.
    shape : (items, 3)
        As `curvature` gives it.
    G, g : (items, p, p), (items, p)
        Precision, and precision times mean, of the Gaussian that is multiplied.
    ok : (items,) bool
        Set to False where the product does not bound, or lies where the grid does not reach.

    Notes
    -----
    With l = log a, y the other coordinates and K(l) the curved minus the Gaussian precision of y given l, the product
    at l is Gaussian in y with precision G_yy + K(l), but for the skewness of d, which is integrated on a grid; the
    extras follow d by regression.
    """
    n, p = mean.shape
    q = p - 1
    at = np.empty(q, np.int64)  # coordinates of y in xi: d, then the extras
    for a in range(q):
        at[a] = a if a == 0 else a + 1
    C, L = np.empty((p, p)), np.zeros((p, p))
    given, given_inverse, root = np.empty((q, q)), np.empty((q, q)), np.zeros((q, q))
    K, M, V = np.empty((q, q)), np.empty((q, q)), np.empty((q, q))
    slope, eta, pull = np.empty(q), np.empty(q), np.empty(q)
    level, weight = np.empty(NODES), np.empty(NODES)
    ys, Vs = np.empty((NODES, q)), np.empty((NODES, q, q))
    for j in range(n):
        ok[j] = False
        kappa = shape[j, 0]
        if not np.isfinite(invert(precision[j], C, L)):
            continue
        variance = C[1, 1]
        bend = kappa * kappa * variance
        for a in range(q):  # covariance of (e^{kappa (l - mean)} residual of d, residuals of the extras)
            slope[a] = C[at[a], 1] / variance
            for b in range(q):
                times = (a == 0) + (b == 0)
                residual = C[at[a], at[b]] - C[at[a], 1] * C[at[b], 1] / variance
                given[a, b] = residual * np.exp(-0.5 * bend * times * times)
        if not np.isfinite(invert(given, given_inverse, root)) or not np.isfinite(invert(G[j], C, L)):
            continue
        centre = 0.0
        for b in range(p):
            centre += C[1, b] * g[j, b]
        reach = REACH * np.sqrt(C[1, 1])
        mean_l, sd_l = _standardise(shape[j, 1])
        mean_d, sd_d = _standardise(shape[j, 2])
        bounded = True
        for t in range(NODES):
            l = centre + reach * (2.0 * t / (NODES - 1) - 1.0)
            from_mean = l - mean[j, 1]
            stretch = np.exp(kappa * from_mean)
            value = kappa * from_mean - 0.5 * G[j, 1, 1] * l * l + g[j, 1] * l
            value += _log_ratio(from_mean / np.sqrt(variance), shape[j, 1], mean_l, sd_l)
            for a in range(q):
                eta[a] = mean[j, at[a]] + slope[a] * from_mean
                pull[a] = g[j, at[a]] - G[j, at[a], 1] * l
            for a in range(q):
                for b in range(q):
                    scale = (stretch if a == 0 else 1.0) * (stretch if b == 0 else 1.0)
                    K[a, b] = scale * given_inverse[a, b] - precision[j, at[a], at[b]]
                    M[a, b] = G[j, at[a], at[b]] + K[a, b]
                    pull[a] += K[a, b] * eta[b]
                    value -= 0.5 * eta[a] * K[a, b] * eta[b]
            log_det = invert(M, V, root)
            if not np.isfinite(log_det):
                bounded = False
                break
            value -= 0.5 * log_det
            for a in range(q):
                ys[t, a] = 0.0
                for b in range(q):
                    ys[t, a] += V[a, b] * pull[b]
                value += 0.5 * ys[t, a] * pull[a]
            if shape[j, 2] != 0.0:
                value += _skew_location(ys[t], V, eta[0], stretch / np.sqrt(given[0, 0]), shape[j, 2], mean_d, sd_d)
            Vs[t] = V
            weight[t], level[t] = value, l
        if not bounded:
            continue
        top = weight.max()
        if weight[0] > top - 4.0 or weight[NODES - 1] > top - 4.0:
            continue
        _collect(weight, top, level, ys, Vs, at, out_mean[j], out_covariance[j])
        ok[j] = True


@njit(cache=True, nogil=True)
def _skew_location(y, V, eta, scale, gamma, mean, sd):
    """Multiply N(y, V) by the skewness of its first coordinate, standardised as (d - eta) scale; moments in place.

    Returns the log of the integral.
    """
    q = y.shape[0]
    variance = V[0, 0]
    step = np.sqrt(variance)
    total, first, second = 0.0, 0.0, 0.0
    base = _log_ratio((y[0] - eta) * scale, gamma, mean, sd)
    normal = 0.0
    for t in range(NODES):
        z = REACH * (2.0 * t / (NODES - 1) - 1.0)
        density = np.exp(-0.5 * z * z)
        w = density * np.exp(_log_ratio((y[0] + step * z - eta) * scale, gamma, mean, sd) - base)
        normal += density
        total += w
        first += w * z
        second += w * z * z
    shift = first / total
    change = second / total - shift * shift - 1.0
    for a in range(1, q):
        y[a] += V[a, 0] / step * shift
        for b in range(1, q):
            V[a, b] += V[a, 0] * V[b, 0] / variance * change
    y[0] += step * shift
    for a in range(1, q):
        V[a, 0] *= 1.0 + change
        V[0, a] = V[a, 0]
    V[0, 0] = variance * (1.0 + change)
    return base + np.log(total / normal)


@njit(cache=True, nogil=True)
def _collect(weight, top, level, ys, Vs, at, mean, covariance):
    """Moments of a mixture over log a, back in xi's order."""
    p, q = mean.shape[0], ys.shape[1]
    total = 0.0
    for t in range(NODES):
        weight[t] = np.exp(weight[t] - top)
        total += weight[t]
    for a in range(p):
        mean[a] = 0.0
        for b in range(p):
            covariance[a, b] = 0.0
    for t in range(NODES):
        weight[t] /= total
        mean[1] += weight[t] * level[t]
        for a in range(q):
            mean[at[a]] += weight[t] * ys[t, a]
    for t in range(NODES):
        l = level[t] - mean[1]
        covariance[1, 1] += weight[t] * l * l
        for a in range(q):
            y = ys[t, a] - mean[at[a]]
            covariance[1, at[a]] += weight[t] * l * y
            for b in range(q):
                covariance[at[a], at[b]] += weight[t] * (Vs[t, a, b] + y * (ys[t, b] - mean[at[b]]))
    for a in range(q):
        covariance[at[a], 1] = covariance[1, at[a]]
