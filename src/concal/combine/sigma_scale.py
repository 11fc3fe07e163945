r"""Coordinates of Sigma for the joint posterior, and its weak prior in them.

With the Cholesky factor L the coordinates are :math:`\psi_i = \log L_{ii}` and :math:`\kappa_{ij} = L_{ij} / L_{ii}`
(i > j), row by row. Scaling a row leaves kappa alone, so the density has no spike where a variance goes to zero (it has
one in plain log-Cholesky coordinates). The prior is the calibration engine's: standard deviations are half-t (2 degrees
of freedom, the response model's scale), the correlation matrix is uniform, LKJ(eta = 1): with
:math:`s_i = L_{ii}\sqrt{1 + \sum_j\kappa_{ij}^2}`

.. math:: \log\pi = \sum_i \Big[\log t(s_i) + \psi_i - (\eta - 1 + p / 2)\log(1 + \textstyle\sum_j\kappa_{ij}^2)\Big].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.calibrate.triangle import lower

Array = npt.NDArray[np.float64]
DEGREES = 2.0
SHAPE = 1.0


def sigma_root(coordinates: Array, p: int) -> Array:
    """Lower factor L of Sigma, (..., p, p)."""
    rows, columns = lower(p)
    root = np.zeros((*coordinates.shape[:-1], p, p))
    root[..., rows, columns] = coordinates
    i = np.arange(p)
    diagonal = np.exp(root[..., i, i])
    root[..., i, i] = 1.0
    return np.asarray(root * diagonal[..., :, None])


def sigma_coordinates(sigma: Array) -> Array:
    """Coordinates of a covariance (p, p)."""
    root = np.linalg.cholesky(sigma)
    rows, columns = lower(sigma.shape[0])
    diagonal = np.diag(root)
    scaled = root / diagonal[:, None]
    scaled[np.diag_indices_from(scaled)] = np.log(diagonal)
    return np.asarray(scaled[rows, columns])


def root_directions(root: Array) -> tuple[Array, npt.NDArray[np.intp]]:
    """DL for every coordinate, (k, p, p), and the position of each coordinate's own row on the diagonal."""
    p = root.shape[0]
    rows, columns = lower(p)
    out = np.zeros((rows.size, p, p))
    out[np.arange(rows.size), rows, columns] = root[rows, rows]
    on_diagonal = np.flatnonzero(rows == columns)
    out[on_diagonal, np.arange(p)] = root  # scaling a row moves all of it
    return out, on_diagonal[rows]


def log_prior(coordinates: Array, scale: Array) -> tuple[float, Array]:
    """Log density (up to a constant) and its gradient."""
    p = scale.shape[0]
    rows, columns = lower(p)
    diagonal = rows == columns
    kappa2 = np.bincount(rows, weights=np.where(diagonal, 0.0, coordinates**2), minlength=p)
    psi = coordinates[diagonal]
    variance = np.exp(2.0 * psi) * (1.0 + kappa2)
    power = 2.0 * (SHAPE - 1.0) + p
    tail = variance / (DEGREES * scale**2)
    value = (-0.5 * (DEGREES + 1.0) * np.log1p(tail) + psi - 0.5 * power * np.log1p(kappa2)).sum()
    by_log_sd = -(DEGREES + 1.0) * tail / (1.0 + tail)
    gradient = (by_log_sd[rows] - power) * coordinates / (1.0 + kappa2[rows])
    gradient[diagonal] = 1.0 + by_log_sd
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
