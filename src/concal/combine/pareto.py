"""Tail shape of importance weights (Pareto k) and weighted moments of one item's draws, compiled."""

# Compiled functions carry no annotations; their Python callers do.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def pareto_k(log_weight):
    """Shape of a generalised Pareto tail fitted to the largest weights; above 0.7 their averages cannot be trusted.

    The estimator is the posterior mean of Zhang and Stephens (2009) with a weak prior towards 0.5, on the largest
    min(S / 5, 3 sqrt(S)) weights.
    """
    s = log_weight.shape[0]
    n = int(min(0.2 * s, 3.0 * np.sqrt(s)))
    if n < 5:
        return np.inf
    ordered = np.sort(log_weight)
    top = ordered[s - 1]
    cut = np.exp(ordered[s - n - 1] - top)
    x = np.exp(ordered[s - n :] - top) - cut
    if x[n - 1] <= 0.0 or x[0] < 0.0:
        return -np.inf  # equal weights
    grid = 30 + int(np.sqrt(n))
    quarter = max(x[int(n / 4.0 + 0.5) - 1], 1e-300)
    b, score = np.empty(grid), np.empty(grid)
    for i in range(grid):
        b[i] = 1.0 / x[n - 1] + (1.0 - np.sqrt(grid / (i + 0.5))) / (3.0 * quarter)
        k = 0.0
        for j in range(n):
            k += np.log1p(-b[i] * x[j])
        k /= n
        score[i] = n * (np.log(-b[i] / k) - k - 1.0) if b[i] != 0.0 and -b[i] / k > 0 else -np.inf
    best = score.max()
    total, mean = 0.0, 0.0
    for i in range(grid):
        w = np.exp(score[i] - best)
        total += w
        mean += w * b[i]
    mean /= total
    k = 0.0
    for j in range(n):
        k += np.log1p(-mean * x[j])
    k /= n
    return (n * k + 10.0 * 0.5) / (n + 10.0)


@njit(cache=True, nogil=True)
def tilt_pass(x, to_mean, to_precision, from_mean, from_precision, mean, covariance, size, shape):
    """Reweight each item's draws x (items, p, S) from one Gaussian prior to another; weighted moments come back.

    Weights are N(x; to) / N(x; from). `size` receives the effective number of weighted draws, `shape` Pareto k.
    """
    n, p, s = x.shape
    log_weight = np.empty(s)
    d, e = np.empty(p), np.empty(p)
    for j in range(n):
        top = -np.inf
        for i in range(s):
            value = 0.0
            for a in range(p):
                d[a] = x[j, a, i] - to_mean[j, a]
                e[a] = x[j, a, i] - from_mean[j, a]
            for a in range(p):
                for b in range(p):
                    value += 0.5 * (from_precision[j, a, b] * e[a] * e[b] - to_precision[j, a, b] * d[a] * d[b])
            log_weight[i] = value
            top = max(top, value)
        shape[j] = pareto_k(log_weight)
        total, squares = 0.0, 0.0
        for a in range(p):
            mean[j, a] = 0.0
        for i in range(s):
            w = np.exp(log_weight[i] - top)
            log_weight[i] = w
            total += w
            squares += w * w
            for a in range(p):
                mean[j, a] += w * x[j, a, i]
        for a in range(p):
            mean[j, a] /= total
        size[j] = total * total / squares
        for a in range(p):
            for b in range(a + 1):
                value = 0.0
                for i in range(s):
                    value += log_weight[i] * (x[j, a, i] - mean[j, a]) * (x[j, b, i] - mean[j, b])
                value /= total * (1.0 - squares / (total * total))
                covariance[j, a, b] = value
                covariance[j, b, a] = value


@njit(cache=True, nogil=True)
def gaussian_twin(x, scores, out):
    """Draws that are Gaussian with the same mean and covariance and, as far as possible, the same values as x.

    Each item's draws (p, S) are whitened, every coordinate is replaced by the normal score of its rank, and the
    result is given back the mean and covariance of x exactly. What tilting does to the twin is known; comparing x
    with its twin cancels most of the Monte Carlo noise.

    Parameters
    ----------
    scores : (S,) normal scores, increasing
    """
    n, p, s = x.shape
    mean, spread, root = np.empty(p), np.empty((p, p)), np.zeros((p, p))
    z, again = np.empty((p, s)), np.zeros((p, p))
    for j in range(n):
        _moments(x[j], mean, spread)
        _root(spread, root)
        for i in range(s):
            for a in range(p):
                value = x[j, a, i] - mean[a]
                for b in range(a):
                    value -= root[a, b] * z[b, i]
                z[a, i] = value / root[a, a]
        for a in range(p):
            order = np.argsort(z[a])
            for i in range(s):
                z[a, order[i]] = scores[i]
        _moments(z, mean, spread)
        _root(spread, again)
        for a in range(p):
            shift = 0.0
            for i in range(s):
                shift += x[j, a, i]
            out[j, a, :] = shift / s
        for i in range(s):
            for a in range(p):
                value = z[a, i] - mean[a]
                for b in range(a):
                    value -= again[a, b] * z[b, i]
                z[a, i] = value / again[a, a]
            for a in range(p):
                for b in range(a + 1):
                    out[j, a, i] += root[a, b] * z[b, i]


@njit(cache=True, nogil=True)
def _moments(x, mean, spread):
    p, s = x.shape
    for a in range(p):
        mean[a] = 0.0
        for i in range(s):
            mean[a] += x[a, i]
        mean[a] /= s
    for a in range(p):
        for b in range(a + 1):
            value = 0.0
            for i in range(s):
                value += (x[a, i] - mean[a]) * (x[b, i] - mean[b])
            spread[a, b] = value / (s - 1)
            spread[b, a] = spread[a, b]


@njit(cache=True, nogil=True)
def _root(spread, root):
    p = spread.shape[0]
    for a in range(p):
        for b in range(a + 1):
            value = spread[a, b]
            for k in range(b):
                value -= root[a, k] * root[b, k]
            root[a, b] = np.sqrt(max(value, 1e-300)) if a == b else value / root[b, b]
