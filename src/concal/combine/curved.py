r"""The shape of a period's posterior of an item beyond its Gaussian: curvature and skewness.

In a response model :math:`\eta = a (\theta - d)` the information about d grows with a. So a posterior of an item is not
Gaussian in (d, log a), even with hundreds of responses: the spread of d given log a shrinks as log a grows,

.. math:: d \mid \log a \sim N\big(\mu_d + b\,(\log a - \mu_a),\ v\, e^{-2\kappa (\log a - \mu_a)}\big),

with a curvature :math:`\kappa` between .6 and .9 in what we measured (2pl, gpcm, ordered_beta). Where an item had a
prior of its own that counts beside the responses, only the likelihood's share :math:`\omega` of that precision grows,
:math:`v^{-1} (1 - \omega + \omega e^{2\kappa(\log a - \mu_a)/\omega})`. Where periods disagree
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

MOST = (1.5, 3.0, 1.5)
"""Kappa and the two skewnesses, in units of what `settle` expects of them, that a likelihood can have. Draws can show
more: while Sigma itself is uncertain an item's posterior is a mixture, skewed away from its prediction. That is not the
likelihood's doing, and the joint method allows for it elsewhere."""

NODES, REACH = 17, 4.8
"""Quadrature in equal steps of 0.6 SD: a Gaussian's variance comes out right to five digits, cut off at 4.8 SD."""


def curvature(x: Array) -> Array:
    r"""Shape of draws x (items, p, draws): kappa, skewness of log a, skewness of d given log a; (items, 3).

    With z the standardised log a and r the standardised residual of d given log a,
    :math:`E[r^2 z] = -2 \kappa\, \mathrm{SD}(\log a)` to first order.
    """
    tiny = np.finfo(float).tiny
    d, log_a = x[:, 0] - x[:, 0].mean(axis=1)[:, None], x[:, 1] - x[:, 1].mean(axis=1)[:, None]
    sd = np.sqrt(np.maximum((log_a**2).mean(axis=1), tiny))
    z = log_a / sd[:, None]
    r = d - (d * z).mean(axis=1)[:, None] * z
    r /= np.sqrt(np.maximum((r * r).mean(axis=1), tiny))[:, None]
    bend = -0.5 * (r * r * z).mean(axis=1)
    inside = np.clip(bend, -LARGEST_BEND, LARGEST_BEND)
    even = r * np.exp(inside[:, None] * np.clip(z, -3.0, 3.0))
    even -= even.mean(axis=1)[:, None]
    spread = np.maximum((even**2).mean(axis=1), tiny) ** 1.5
    return np.column_stack([bend / sd, (z**3).mean(axis=1), (even**3).mean(axis=1) / spread])


def settle(shape: Array, ess: Array, mean: Array, covariance: Array, Q: Array) -> Array:
    r"""Shapes freed of most of their Monte Carlo noise, by what a group's items have in common.

    A Gaussian prior has no shape: what there is comes from the likelihood, whose third derivatives are about as large
    as its second. With s_d and s_a the shares of the likelihood in the precisions of d and log a, an item's kappa is
    about c s_d, its skewness of log a about c s_a SD(log a), its skewness of d about c s_d a SD(d). Each item's value
    is drawn to its group's line as far as its noise asks (empirical Bayes): with b what multiplies c, v the noise,

    .. math:: \hat x = c b + \frac{\tau^2 b^2}{\tau^2 b^2 + v} (x - c b) .

    Parameters
    ----------
    shape : (items, 3)
        From `curvature`.
    ess : (items,)
        Effective number of draws.
    mean, covariance, Q : (items, p), (items, p, p), (items, p, p)
        Of the items' posteriors, and the precision of their likelihood factors.
    """
    variance = np.diagonal(covariance, axis1=1, axis2=2)[:, :2]
    share = np.clip(np.diagonal(Q, axis1=1, axis2=2)[:, :2] * variance, 0.0, 1.0)
    sd_d, sd_a = np.sqrt(variance).T
    base = np.stack([share[:, 0], share[:, 1] * sd_a, share[:, 0] * np.exp(mean[:, 1]) * sd_d], axis=1)
    noise = np.stack([0.5 / sd_a**2, np.full_like(sd_a, 6.0), np.full_like(sd_a, 6.0)], axis=1) / ess[:, None]
    settled = np.stack([_towards_line(*columns) for columns in zip(shape.T, base.T, noise.T, strict=True)], axis=1)
    largest = np.stack([LARGEST_BEND / sd_a, *2 * [np.full_like(sd_a, LARGEST_SKEWNESS)]], axis=1)
    largest = np.minimum(largest, base * MOST)
    return np.asarray(np.clip(settled, -largest, largest))


def _towards_line(x: Array, b: Array, v: Array) -> Array:
    """Posterior means of values x = N(c b, tau^2 b^2) seen with noise v; c and tau^2 by moments."""
    tau2 = 0.0
    for _ in range(3):
        weight = 1.0 / (v + tau2 * b * b)
        c = float((weight * b * x).sum() / max(float((weight * b * b).sum()), 1e-300))
        excess = (x - c * b) ** 2 - v
        tau2 = max(0.0, float((weight**2 * b * b * excess).sum() / max(float((weight**2 * b**4).sum()), 1e-300)))
    line = c * b
    return np.asarray(line + tau2 * b * b / (tau2 * b * b + v) * (x - line))


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
def curved_moments(start, mean, precision, shape, G, g, out_mean, out_covariance, ok):
    r"""Mean and covariance of the Gaussian (G, g) times one or more curved / Gaussian densities, item by item.

    Parameters
    ----------
    start : (items + 1,)
        Densities of item j are start[j] .. start[j + 1].
    mean, precision : (densities, p), (densities, p, p)
        Their Gaussians: periods' posteriors of the item.
    shape : (densities, 4)
        As `settle` gives it, and omega, the likelihood's share in the precision of d given log a.
    G, g : (items, p, p), (items, p)
        Precision, and precision times mean, of the Gaussian that is multiplied.
    ok : (items,) bool
        Set to False where the product does not bound, or lies where the grid does not reach.

    Notes
    -----
    With l = log a, y the other coordinates and K(l) the sum of curved minus Gaussian precisions of y given l, the
    product at l is Gaussian in y with precision G_yy + K(l), but for the skewness of d, which is integrated on a grid;
    the extras follow d by regression.
    """
    n, p = out_mean.shape
    q = p - 1
    most = 1
    for j in range(n):
        most = max(most, start[j + 1] - start[j])
    at = np.empty(q, np.int64)  # coordinates of y in xi: d, then the extras
    for a in range(q):
        at[a] = a if a == 0 else a + 1
    C, L = np.empty((p, p)), np.zeros((p, p))
    given, root = np.empty((q, q)), np.zeros((q, q))
    M, V, pull = np.empty((q, q)), np.empty((q, q)), np.empty(q)
    K, eta, slope = np.empty((q, q)), np.empty(q), np.empty((most, q))
    given_inverse = np.empty((most, q, q))
    # of every density: SD of log a, standardisation of log a; SD of d given log a, standardisation of d, its place
    sd_l, own_l, own_d, place = np.empty(most), np.empty((most, 2)), np.empty((most, 2)), np.empty((most, 4))
    level, weight = np.empty(NODES), np.empty(NODES)
    ys, Vs = np.empty((NODES, q)), np.empty((NODES, q, q))
    for j in range(n):
        ok[j] = False
        first, count = start[j], start[j + 1] - start[j]
        bounded = True
        for k in range(count):
            if not np.isfinite(invert(precision[first + k], C, L)):
                bounded = False
                break
            variance = C[1, 1]
            bend, rest = shape[first + k, 0] ** 2 * variance, 1.0 / shape[first + k, 3]
            for a in range(q):  # covariance of (e^{kappa (l - mean)} residual of d, residuals of the extras)
                slope[k, a] = C[at[a], 1] / variance
                for b in range(q):
                    times = (a == 0) + (b == 0)
                    residual = C[at[a], at[b]] - C[at[a], 1] * C[at[b], 1] / variance
                    # E[s^(-times / 2)] over log a, to second order
                    given[a, b] = residual * np.exp(-0.5 * bend * times * (times + 2.0 - 2.0 * rest))
            if not np.isfinite(invert(given, given_inverse[k], root)):
                bounded = False
                break
            sd_l[k], place[k, 2] = np.sqrt(variance), np.sqrt(given[0, 0])
            own_l[k, 0], own_l[k, 1] = _standardise(shape[first + k, 1])
            own_d[k, 0], own_d[k, 1] = _standardise(shape[first + k, 2])
        if not bounded or not np.isfinite(invert(G[j], C, L)):
            continue
        centre = 0.0
        for b in range(p):
            centre += C[1, b] * g[j, b]
        reach = REACH * np.sqrt(C[1, 1])
        for t in range(NODES):
            l = centre + reach * (2.0 * t / (NODES - 1) - 1.0)
            value = -0.5 * G[j, 1, 1] * l * l + g[j, 1] * l
            for a in range(q):
                pull[a] = g[j, at[a]] - G[j, at[a], 1] * l
                for b in range(q):
                    M[a, b] = G[j, at[a], at[b]]
            skewed = False
            for k in range(count):
                m = first + k
                from_mean = l - mean[m, 1]
                part = shape[m, 3]
                square = 1.0 - part + part * np.exp(2.0 * shape[m, 0] / part * from_mean)
                stretch = np.sqrt(square)
                value += 0.5 * np.log(square)
                value += _log_ratio(from_mean / sd_l[k], shape[m, 1], own_l[k, 0], own_l[k, 1])
                for a in range(q):
                    eta[a] = mean[m, at[a]] + slope[k, a] * from_mean
                for a in range(q):
                    for b in range(q):
                        scale = (stretch if a == 0 else 1.0) * (stretch if b == 0 else 1.0)
                        K[a, b] = scale * given_inverse[k, a, b] - precision[m, at[a], at[b]]
                        M[a, b] += K[a, b]
                        pull[a] += K[a, b] * eta[b]
                        value -= 0.5 * eta[a] * K[a, b] * eta[b]
                place[k, 0], place[k, 1], place[k, 3] = eta[0], stretch / place[k, 2], shape[m, 2]
                skewed = skewed or shape[m, 2] != 0.0
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
            if skewed:
                value += _skew_location(ys[t], V, place[:count], own_d[:count])
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
def _log_skewness(d, place, own):
    """Sum over densities of the log skewness of d, standardised as (d - place[0]) place[1], skewness place[3]."""
    total = 0.0
    for k in range(place.shape[0]):
        total += _log_ratio((d - place[k, 0]) * place[k, 1], place[k, 3], own[k, 0], own[k, 1])
    return total


@njit(cache=True, nogil=True)
def _skew_location(y, V, place, own):
    """Multiply N(y, V) by the skewnesses of its first coordinate; moments in place.

    Returns the log of the integral.
    """
    q = y.shape[0]
    variance = V[0, 0]
    step = np.sqrt(variance)
    total, first, second = 0.0, 0.0, 0.0
    base = _log_skewness(y[0], place, own)
    normal = 0.0
    for t in range(NODES):
        z = REACH * (2.0 * t / (NODES - 1) - 1.0)
        density = np.exp(-0.5 * z * z)
        w = density * np.exp(_log_skewness(y[0] + step * z, place, own) - base)
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
