r"""A response table as a quadratic at a given place: its statistical linearisation.

With points phi_i spread as the item's posterior is, and the table's gradients g_i at them,

.. math:: Q = -Cov(g, \phi)\, Var(\phi)^{-1}, \qquad h = E\,g + Q\,E\,\phi .
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.kernels import LANES
from concal.consensus.factors.remainder import Tables, table_terms
from concal.consensus.gaussian import all_positive, inverse, raise_eigenvalues, solve_positive, symmetric, times
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]


def cubature(mean: Array, covariance: Array) -> Array:
    """Points mean +- sqrt(p) times the columns of a root of the covariance, (items, 2 p, p)."""
    p = mean.shape[1]
    root = np.sqrt(p) * np.swapaxes(np.linalg.cholesky(covariance), 1, 2)
    return np.concatenate([mean[:, None] + root, mean[:, None] - root], axis=1)


def linearise(model: ResponseModel, tables: Tables, xi: Array) -> tuple[Array, Array, Array]:
    """Q (tables, p, p) and h (tables, p) over points xi (tables, points, p); and what they miss at each point."""
    k = xi.shape[1]
    phi, gradient, value = metric.phi_of(xi), np.empty_like(xi), np.empty(xi.shape[:2])
    for first in range(0, k, LANES):
        part = xi[:, first : first + LANES]
        short = LANES - part.shape[1]
        x = np.ascontiguousarray(np.moveaxis(np.pad(part, [(0, 0), (0, short), (0, 0)], mode="edge"), 1, 2))
        ll, slopes = table_terms(model, tables, x)
        value[:, first : first + LANES] = ll[:, : LANES - short]
        gradient[:, first : first + LANES] = np.moveaxis(slopes, 2, 1)[:, : LANES - short]
    centre, level = phi.mean(axis=1), gradient.mean(axis=1)
    z, y = phi - centre[:, None], gradient - level[:, None]
    spread = np.swapaxes(z, 1, 2) @ z / k
    slope = symmetric(-solve_positive(spread, np.swapaxes(z, 1, 2) @ y / k))
    low = ~all_positive(slope)
    slope[low] = raise_eigenvalues(slope[low], inverse(spread[low]), 0.0)
    shift = level + times(slope, centre)
    quadratic = (phi * (shift[:, None] - 0.5 * (phi @ slope))).sum(axis=2)
    return slope, shift, value - quadratic
