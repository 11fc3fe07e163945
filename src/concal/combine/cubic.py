r"""What a product of Gaussians leaves out, to third order: in closed form, and additive over periods.

The log posterior of an item in period m is a Gaussian's plus a cubic term in (d, log a). With :math:`T_m` its third
derivatives and :math:`\mu_m, V_m` the posterior's moments, so that the term changes none of them,

.. math:: \tfrac16 T_m[x - \mu_m]^3 - \tfrac12 (T_m : V_m)'(x - \mu_m) .

Under the consensus N(x, V) of the Gaussians, the cubic terms of all periods together have the mean gradient

.. math:: \delta = \tfrac12 \sum_m T_m : \big[(x - \mu_m)(x - \mu_m)' + V - V_m\big],

and move its mean by :math:`V \delta`. Multiplied out, :math:`\delta` needs three sums over the periods, so that it
costs an update nothing that grows with the past. A single period gives zero. What it does is to see disagreement: the
information about d grows with a, so where periods differ about d the item is flatter than each of them believes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.combine.gaussian import inverse, times

Array = npt.NDArray[np.float64]
LARGEST_STEP = 1.0
"""Of the mean, in posterior SDs: beyond it third order is no longer the next thing that matters."""


@dataclass(frozen=True)
class CubicSums:
    r"""Sums over the periods that saw an item; the first two coordinates, (d, log a), only.

    Attributes
    ----------
    third : (items, 2, 2, 2)
        :math:`\sum_m T_m`
    second : (items, 2, 2)
        :math:`\sum_m T_m \mu_m`
    first : (items, 2)
        :math:`\sum_m T_m : (\mu_m \mu_m' - V_m)`
    """

    third: Array
    second: Array
    first: Array


def third_derivatives(covariance: Array, shape: Array) -> Array:
    r"""T of curved densities, (items, 2, 2, 2), from their covariances (items, 2, 2) and shapes (items, 3).

    With r the residual of d given log a and v its variance, the density of `concal.combine.curved` has the third order
    terms :math:`-(\kappa / v)\, r^2 \log a`, :math:`\gamma_a (\log a / s_a)^3 / 6` and :math:`\gamma_d r^3 / 6
    v^{3/2}`.
    """
    kappa, skew_a, skew_d = shape.T
    variance_a = covariance[:, 1, 1]
    slope = covariance[:, 0, 1] / variance_a
    v = covariance[:, 0, 0] - slope * covariance[:, 0, 1]
    r = np.stack([np.ones_like(slope), -slope], axis=1)  # gradients of r and of log a in (d, log a)
    a = np.broadcast_to(np.array([0.0, 1.0]), r.shape)
    rra = _outer(r, r, a) + _outer(r, a, r) + _outer(a, r, r)
    parts = (-2.0 * kappa / v, rra), (skew_a / variance_a**1.5, _outer(a, a, a)), (skew_d / v**1.5, _outer(r, r, r))
    return np.asarray(sum(scale[:, None, None, None] * tensor for scale, tensor in parts))


def cubic_terms(mu: Array, Lambda: Array, shape: Array | None) -> CubicSums:
    """One period's terms, from the posterior's mean (items, p), precision and shape (None: Gaussian)."""
    n = mu.shape[0]
    if shape is None:
        return CubicSums(np.zeros((n, 2, 2, 2)), np.zeros((n, 2, 2)), np.zeros((n, 2)))
    mu, V = mu[:, :2], inverse(Lambda)[:, :2, :2]
    T = third_derivatives(V, shape)
    return CubicSums(T, _with_vector(T, mu), _with_matrix(T, _square(mu) - V))


def corrected_mean(mean: Array, covariance: Array, sums: CubicSums) -> Array:
    r"""The consensus mean (items, p) moved by :math:`V\delta`, by at most `LARGEST_STEP` SDs."""
    x = mean[:, :2]
    gradient = _with_matrix(sums.third, _square(x) + covariance[:, :2, :2]) - 2.0 * times(sums.second, x) + sums.first
    gradient *= 0.5
    step = times(covariance[:, :, :2], gradient)
    size = np.sqrt(np.maximum((gradient * step[:, :2]).sum(axis=1), 0.0))
    return np.asarray(mean + step * np.minimum(1.0, LARGEST_STEP / np.maximum(size, LARGEST_STEP))[:, None])


def _outer(x: Array, y: Array, z: Array) -> Array:
    return np.asarray(x[:, :, None, None] * y[:, None, :, None] * z[:, None, None, :])


def _square(x: Array) -> Array:
    return np.asarray(x[:, :, None] * x[:, None, :])


def _with_vector(T: Array, x: Array) -> Array:
    return np.asarray((T * x[:, None, None, :]).sum(axis=3))


def _with_matrix(T: Array, x: Array) -> Array:
    return np.asarray((T * x[:, None]).sum(axis=(2, 3)))
