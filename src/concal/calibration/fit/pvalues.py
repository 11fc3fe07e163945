r"""p-values from moments, and several of them made one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.stats import gamma, norm

Array = npt.NDArray[np.float64]
STRAIGHT = 1e-3  # skewness below which a normal distribution is taken


def of_positive(value: Array, mean: Array, variance: Array) -> Array:
    """P(X >= value) for X gamma distributed with this mean and variance; one where the mean is zero."""
    known = (mean > 0) & (variance > 0)
    m, v = np.where(known, mean, 1.0), np.where(known, variance, 1.0)
    return np.where(known, gamma.sf(value, m**2 / v, scale=v / m), 1.0)


def lower_tail(z: Array, skewness: Array) -> Array:
    """P(Z <= z) for a standardised sum: a shifted gamma (Pearson's third type) with this skewness."""
    curved = np.abs(skewness) > STRAIGHT
    shape = 4.0 / np.where(curved, skewness, 1.0) ** 2
    x = np.maximum(shape + np.where(skewness < 0, -z, z) * np.sqrt(shape), 0.0)
    return np.where(curved, np.where(skewness < 0, gamma.sf(x, shape), gamma.cdf(x, shape)), norm.cdf(z))


def of_skewed(z: Array, skewness: Array) -> Array:
    """Two-sided p-value of a standardised sum with this skewness."""
    return np.minimum(2.0 * np.minimum(lower_tail(z, skewness), lower_tail(-z, -skewness)), 1.0)


def cauchy_score(p: Array) -> Array:
    r"""tan((1/2 - p) pi), kept finite at both ends: weighted means of these make one p-value of several.

    By the Cauchy rule, which needs no independence: :math:`p = \tfrac12 - \tfrac1\pi\arctan\sum_i w_i t_i`.
    """
    small = np.maximum(p, 1e-300)
    inside = np.tan((0.5 - np.clip(p, 1e-10, 1.0 - 1e-10)) * np.pi)
    return np.where(p < 1e-10, 1.0 / (np.pi * small), inside)


def from_cauchy(score: Array) -> Array:
    """The p-value of a weighted mean of `cauchy_score`."""
    return np.where(score > 1e8, 1.0 / (np.pi * np.maximum(score, 1.0)), 0.5 - np.arctan(score) / np.pi)


def benjamini_hochberg(p_value: Array) -> Array:
    """Adjusted p-values: the smallest false discovery rate at which each test is listed."""
    n = p_value.shape[0]
    order = np.argsort(p_value, kind="stable")
    ranked = p_value[order] * n / np.arange(1, n + 1)
    adjusted = np.minimum.accumulate(ranked[::-1])[::-1]
    out = np.empty(n)
    out[order] = np.minimum(adjusted, 1.0)
    return out
