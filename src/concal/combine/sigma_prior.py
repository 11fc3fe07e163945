r"""Weak prior of a group's Sigma in log-Cholesky coordinates.

Standard deviations are half-t (4 degrees of freedom, the response model's scale), the correlation matrix is LKJ(2).
With L the Cholesky factor and :math:`s_i^2 = \sum_k L_{ik}^2`, in the coordinates (log of the
diagonal, plain lower triangle)

.. math:: \log\pi = \sum_i \log t(s_i) + (\eta - 1)\Big(2\sum_i\log L_{ii} - 2\sum_i\log s_i\Big) - p\sum_i\log s_i
          + \sum_i (p - i + 2)\log L_{ii},

the last two sums being the change of variables (i counted from 1).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.combine.gaussian import cholesky_factor

Array = npt.NDArray[np.float64]
DEGREES = 4.0
SHAPE = 2.0


def log_prior(coordinates: Array, scale: Array) -> tuple[float, Array]:
    """Log density (up to a constant) and its gradient."""
    p = scale.shape[0]
    rows, columns = np.tril_indices(p)
    L = cholesky_factor(coordinates, p)
    variance = (L**2).sum(axis=1)
    log_diagonal = np.log(np.diag(L))
    power = p - np.arange(1, p + 1) + 2.0
    tail = variance / (DEGREES * scale**2)
    value = (
        -0.5 * (DEGREES + 1.0) * np.log1p(tail).sum()
        + float((2.0 * (SHAPE - 1.0) + power) @ log_diagonal)
        - (SHAPE - 1.0 + 0.5 * p) * np.log(variance).sum()
    )
    by_variance = -0.5 * (DEGREES + 1.0) / (DEGREES * scale**2 + variance) - (SHAPE - 1.0 + 0.5 * p) / variance
    gradient = 2.0 * by_variance[rows] * L[rows, columns]
    diagonal = rows == columns
    gradient[diagonal] *= np.diag(L)
    gradient[diagonal] += 2.0 * (SHAPE - 1.0) + power
    return float(value), gradient


def log_prior_curvature(coordinates: Array, scale: Array, step: float = 1e-5) -> Array:
    """Second derivatives, from central differences of the analytic gradient (a handful of coordinates)."""
    k = coordinates.shape[0]
    out = np.empty((k, k))
    for i in range(k):
        shift = np.zeros(k)
        shift[i] = step
        out[i] = (log_prior(coordinates + shift, scale)[1] - log_prior(coordinates - shift, scale)[1]) / (2 * step)
    return np.asarray(0.5 * (out + out.T))
