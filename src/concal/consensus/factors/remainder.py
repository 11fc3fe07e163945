r"""What a response table lacks, as a quadratic in phi.

The table's likelihood :math:`l_T` has the right shape; abilities known with error, an item that helped to estimate
them, and uncertainty that items share put it in a slightly wrong place with a slightly wrong curvature. The remainder
is fitted as the Gaussian factor is: with the regression of the table's gradient on phi over the posterior draws,
:math:`\nabla l_T \approx g_T - Q_T(\phi - \bar\phi)`,

.. math:: dQ = (Q - Q_T)_+, \qquad dh = E\,l - g_T + dQ\,\bar\phi .

Negative eigenvalues of dQ are set to zero: a remainder that grows without bound would overrule the table far away,
where only the table knows (with 3pl items that fails badly).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration import kernels
from concal.calibration.kernels import LANES
from concal.calibration.result import GroupDraws
from concal.calibration.tables import ResponseTable
from concal.consensus.factors.period import GroupFactors
from concal.consensus.gaussian import inverse, raise_eigenvalues, symmetric, times
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
DRAWS = 50 * LANES
"""Draws the table's gradient is regressed over. The table is a smooth function of phi, so the regression has only its
curvature for noise: for 2pl, gpcm and ordered_beta places from half as many are .01 posterior SD from those of four
times as many; 3pl is noisier."""


def fit_remainder(
    group: GroupDraws, table: ResponseTable, Q: Array, gradient: Array, mean: Array, covariance: Array
) -> tuple[Array, Array]:
    """dQ (items, p, p) and dh (items, p), from the Gaussian's slope Q and mean gradient at `mean`."""
    table_gradient, table_Q = table_regression(group, table, mean)
    dQ = raise_eigenvalues(symmetric(Q - table_Q), inverse(covariance), 0.0)
    return dQ, gradient - table_gradient + times(dQ, mean)


def table_regression(group: GroupDraws, table: ResponseTable, at: Array) -> tuple[Array, Array]:
    """The table's gradient at phi = `at` and its negative slope, by regression over some of the draws."""
    tables, s = kernel_tables(table), group.n_draws
    which = np.arange(DRAWS) * s // DRAWS if s >= DRAWS else np.arange(DRAWS) % s
    xi = np.asarray(group.xi.reshape(s, *group.xi.shape[2:])[which], dtype=np.float64)
    n, p = group.n_items, xi.shape[-1]
    first, total = np.zeros((n, p)), np.zeros((n, p))
    square, cross = np.zeros((n, p, p)), np.zeros((n, p, p))
    for start in range(0, DRAWS, LANES):
        x = np.ascontiguousarray(np.moveaxis(xi[start : start + LANES], 0, 2))  # (items, p, LANES)
        _, l = table_terms(group.model, tables, x)
        z = np.moveaxis(metric.phi_of(np.moveaxis(x, 1, 2)), 2, 1) - at[:, :, None]
        first += z.sum(axis=2)
        total += l.sum(axis=2)
        square += z @ z.transpose(0, 2, 1)
        cross += z @ l.transpose(0, 2, 1)
    first, total = first / DRAWS, total / DRAWS
    square = square / DRAWS - first[:, :, None] * first[:, None, :]
    cross = cross / DRAWS - first[:, :, None] * total[:, None, :]
    slope = symmetric(np.asarray(-np.linalg.solve(square, cross), dtype=np.float64))
    return total + times(slope, first), slope


class Tables(NamedTuple):
    """Response tables as the kernels read them.

    `bins` (tables,) int32 are those in use, 0 where there is no table; the rest is a `ResponseTable` in float32.
    """

    bins: npt.NDArray[np.int32]
    bin_mean: Float32
    bin_sd: Float32
    cell_score: Float32
    cell_count: Float32

    def rows(self, which: npt.NDArray[np.integer]) -> Tables:
        """Some of them."""
        return Tables(*(column[which] for column in self))


def table_of(group: GroupDraws | GroupFactors) -> ResponseTable | None:
    """The response tables of a group's items; None: draws of another engine, there are none."""
    fields = [getattr(group, name) for name in ResponseTable._fields]
    return None if any(values is None for values in fields) else ResponseTable(*fields)


def kernel_tables(table: ResponseTable) -> Tables:
    """Tables of items (items, bins, ...) as the kernels read them."""
    return Tables(used_bins(table.cell_count), *(v.astype(np.float32) for v in table))


def used_bins(cell_count: Array) -> npt.NDArray[np.int32]:
    """How many bins of each table hold responses; they come first."""
    return np.asarray((cell_count.sum(axis=2) > 0).sum(axis=1), dtype=np.int32)


def table_terms(model: ResponseModel, tables: Tables, x: Array) -> tuple[Array, Array]:
    """Log-likelihood of tables (tables, LANES) and its gradient in phi (tables, p, LANES), at x (tables, p, LANES)."""
    value, gradient = table_slopes(model, tables, x)
    return value, np.moveaxis(metric.gradient_in_phi(np.moveaxis(gradient, 1, 2), np.moveaxis(x, 1, 2)), 2, 1)


def table_slopes(model: ResponseModel, tables: Tables, x: Array) -> tuple[Array, Array]:
    """The same with the gradient in xi."""
    n, p = x.shape[:2]
    items = np.moveaxis(x, 1, 2)
    par = np.ascontiguousarray(np.moveaxis(model.kernel_parameters(items), 2, 1), dtype=np.float32)
    acc = np.empty((n, 1 + p + p * (p + 1) // 2, LANES))
    if model.extras:
        jacobian = np.ascontiguousarray(np.moveaxis(model.extras_jacobian(items), 1, 3))
        kernels.table_pass_extras(model.tag, *tables, par, jacobian, acc, 0, n)
    else:
        kernels.table_pass(model.tag, *tables, par, acc, 0, n)
    return acc[:, 0], acc[:, 1 : 1 + p]
