r"""A response table as a quadratic at a given place: its statistical linearisation.

With points phi_i spread as the item's posterior is, and the table's gradients g_i at them,

.. math:: Q = -Cov(g, \phi)\, Var(\phi)^{-1}, \qquad h = E\,g + Q\,E\,\phi .
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.kernels import LANES
from concal.consensus.factors.remainder import Tables, table_slopes
from concal.consensus.gaussian import all_positive, inverse, raise_eigenvalues, solve_in_place
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]


def cubature(mean: Array, covariance: Array) -> Array:
    """Points mean +- sqrt(p) times the columns of a root of the covariance, (2 p, items, p)."""
    p = mean.shape[1]
    root = np.sqrt(p) * np.moveaxis(np.linalg.cholesky(covariance), 2, 0)
    return np.concatenate([mean + root, mean - root])


def linearise(model: ResponseModel, tables: Tables, xi: Array) -> tuple[Array, Array, Array]:
    """Q (tables, p, p) and h (tables, p) over points xi (points, tables, p); and what they miss, (tables, points).

    Entries of vectors and matrices come first while numbers are made, so that every operation is one over all tables.
    """
    k = xi.shape[0]
    value, gradient = _at_points(model, tables, xi)
    phi, g = (np.moveaxis(part, 2, 0) for part in (metric.phi_of(xi), metric.gradient_in_phi(gradient, xi)))
    centre, level = phi.mean(axis=1), g.mean(axis=1)
    z, y = phi - centre[:, None], g - level[:, None]
    spread = np.einsum("ukn,vkn->uvn", z, z) / k
    slope = np.einsum("ukn,vkn->uvn", z, y) / -k
    solve_in_place(spread.copy(), slope)
    slope = 0.5 * (slope + np.swapaxes(slope, 0, 1))
    low = np.flatnonzero(~all_positive(np.moveaxis(slope, 2, 0)))
    if low.size:
        unit = inverse(np.moveaxis(spread[..., low], 2, 0))
        slope[..., low] = np.moveaxis(raise_eigenvalues(np.moveaxis(slope[..., low], 2, 0), unit, 0.0), 0, 2)
    shift = level + np.einsum("uvn,vn->un", slope, centre)
    pull = shift[:, None] - 0.5 * np.einsum("uvn,vkn->ukn", slope, phi)
    quadratic = (phi * pull).sum(axis=0)
    return np.moveaxis(slope, 2, 0), shift.T, (value - quadratic).T


def _at_points(model: ResponseModel, tables: Tables, xi: Array) -> tuple[Array, Array]:
    """Log-likelihood of tables (points, tables) and its gradient in xi, at xi (points, tables, p)."""
    k, n, p = xi.shape
    value, gradient = np.empty((k, n)), np.moveaxis(np.empty((p, k, n)), 0, 2)
    x = np.empty((n, p, LANES))
    for first in range(0, k, LANES):
        part = xi[first : first + LANES]
        own = slice(len(part))
        x[..., own], x[..., len(part) :] = np.moveaxis(part, 0, 2), part[-1][..., None]
        ll, slopes = table_slopes(model, tables, x)
        value[first : first + LANES], gradient[first : first + LANES] = (
            ll[:, own].T,
            np.moveaxis(slopes[..., own], 2, 0),
        )
    return value, gradient
