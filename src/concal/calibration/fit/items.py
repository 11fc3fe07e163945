r"""Item fit: what an item's examinees scored, by ability, against what was predicted, with calibrated p-values.

Examinees are ordered by what their *other* responses say of their ability, so a response and its prediction are
independent given the item. The discrepancies u (`concal.calibration.fit.discrepancies`) of the ability bins give
:math:`X^2 = u'\,\mathrm{Var}(u)^-\,u` along the directions the item's parameters cannot imitate; infit and outfit are
mean squares of residuals. Sums over few or extreme responses are not normal: the exact variance of X^2 and the exact
skewness of infit and outfit under the predicted distributions go into their p-values.

p-values are taken at a draw of the item's posterior. A draw has the same joint distribution with the responses as the
item that gave them, so what holds at the truth holds at a draw. The posterior mean is nearer to the responses than the
truth is: there X^2 of items with less than 60 responses is a tenth too small, and too few are flagged. Which draw it is
hardly matters (see `concal.calibration.fit.discrepancies`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration.fit.cells import Cells, Responses, make_cells
from concal.calibration.fit.discrepancies import Discrepancies, discrepancies, residuals
from concal.calibration.fit.predict import Prediction
from concal.calibration.fit.pvalues import cauchy_score, from_cauchy, lower_tail, of_positive, of_skewed
from concal.calibration.tables import BINS
from concal.calibration.totals import total_in
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Ints = npt.NDArray[np.int64]
BLOCK = 100  # items at a time: bounds memory
FREE = 0.1
"""Least share of a discrepancy's variance that the item's parameters must leave over for it to be tested."""
WEIGHTS = np.array([0.5, 0.25, 0.25, 0.25])
"""Of chi-square, infit, outfit and a falling curve in an item's p-value."""
FALLS = 0.001
"""p-value from which the trend of an item's curve counts as misfit, because no positive slope makes up for it."""


class ItemFit(NamedTuple):
    """Fit of a group's items in one period.

    `n_responses`, `chi_square`, `df`, `chi_square_p`, `infit`, `infit_p`, `outfit`, `outfit_p`, `falling_p`, `p_value`
    (items,): statistics at the posterior mean, p-values at a draw; NaN where there is nothing to test. By ability bin,
    (items, bins): `theta`, `n_in_bin`, `observed`, `expected` (mean scores, divided by the largest), `se` (predicted SD
    of the observed mean), `misfit` (observed minus expected, as far as the item's parameters cannot make it up) and its
    predicted `misfit_variance`.
    """

    n_responses: Ints
    chi_square: Array
    df: Ints
    chi_square_p: Array
    infit: Array
    infit_p: Array
    outfit: Array
    outfit_p: Array
    falling_p: Array
    p_value: Array
    theta: Array
    n_in_bin: Ints
    observed: Array
    expected: Array
    se: Array
    misfit: Array
    misfit_variance: Array


def item_fit(
    model: ResponseModel, xi: Array, responses: Responses, bins: int = BINS, *, draw: Array | None = None
) -> tuple[ItemFit, Array]:
    """Fit of all items of a group, and the standardised residual of every response.

    Parameters
    ----------
    xi : (items, p)
        Posterior means.
    draw : (items, p), optional
        Of the posterior, for the p-values; without it the items are taken as known.
    """
    n_items = xi.shape[0]
    start = np.searchsorted(responses.item, np.arange(n_items + 1))
    found, left = [], [np.zeros(0)]
    for lo in range(0, n_items, BLOCK):
        hi = min(lo + BLOCK, n_items)
        own = responses.some(slice(int(start[lo]), int(start[hi])))
        cells = make_cells(model, xi[lo:hi], own._replace(item=own.item - lo), bins)
        sums, predicted = discrepancies(model, xi[lo:hi], own.score, cells, bins)
        drawn = (sums, predicted)
        if draw is not None:
            drawn = discrepancies(model, draw[lo:hi], own.score, cells, bins)
        p = _p_values(cells, *drawn, bins)
        found.append(_statistics(cells, predicted, sums, p, own.score / model.max_score, bins))
        left.append(residuals(model, cells, predicted, own.score, own.mean))
    return ItemFit(*(np.concatenate(column) for column in zip(*found, strict=True))), np.concatenate(left)


def _p_values(cells: Cells, sums: Discrepancies, predicted: Prediction, bins: int) -> Array:
    """Of chi-square, infit, outfit and a falling curve, (items, 4)."""
    directions, squared, df = _chi_square(sums, bins)
    variance = _variance(directions, sums, cells, predicted.probability)
    chi_square = np.where(df > 0, of_positive(squared, df, variance), np.nan)
    return np.column_stack(
        [chi_square, *(_mean_square(sums, cells, predicted.probability, k) for k in (bins, bins + 1)), _falling(sums)]
    )


def _statistics(cells: Cells, predicted: Prediction, sums: Discrepancies, p: Array, share: Array, bins: int) -> ItemFit:
    n_items = sums.u.shape[0]
    _, squared, df = _chi_square(sums, bins)
    place, shape = cells.item * bins + cells.bin, (n_items, bins)
    count = total_in(place, cells.n, n_items * bins).reshape(shape)
    scored = total_in(cells.place, share, cells.n.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        infit, outfit = (1.0 + sums.raw[:, bins:] / sums.expected).T
        theta, observed, expected, variance = (
            total_in(place, values, n_items * bins).reshape(shape) / count
            for values in (cells.n * cells.theta, scored, cells.n * predicted.mean, cells.n * predicted.variance)
        )
        # of what the parameters could imitate nothing is left over at the best slope, unless that is below zero
        falls = (_falling(sums) <= FALLS)[:, None]
        misfit = np.where(falls, sums.raw[:, :bins], sums.u[:, :bins]) / count
        spread = np.diagonal(sums.W, axis1=1, axis2=2)[:, :bins] / count**2
        se = np.sqrt(variance / count)
    whole = np.rint(count).astype(np.int64)
    return ItemFit(
        n_responses=whole.sum(axis=1),
        chi_square=squared,
        df=df.astype(np.int64),
        chi_square_p=p[:, 0],
        infit=infit,
        infit_p=p[:, 1],
        outfit=outfit,
        outfit_p=p[:, 2],
        falling_p=p[:, 3],
        p_value=combined(p, WEIGHTS),
        theta=theta,
        n_in_bin=whole,
        observed=observed,
        expected=expected,
        se=se,
        misfit=misfit,
        misfit_variance=spread,
    )


def _chi_square(sums: Discrepancies, bins: int) -> tuple[Array, Array, Array]:
    """Directions L of what is tested, (items, bins, bins); X^2 = |L'u|^2 over the bins, and its degrees of freedom."""
    scale = np.sqrt(sums.total[:, :bins])
    scale = np.where(scale > 0, scale, np.inf)
    values, vectors = np.linalg.eigh(sums.W[:, :bins, :bins] / scale[:, :, None] / scale[:, None, :])
    kept = values > FREE
    root = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    L = vectors / scale[:, :, None] * root[:, None, :]
    squared = (np.einsum("jib,ji->jb", L, sums.u[:, :bins]) ** 2).sum(axis=1)
    return L, squared, kept.sum(axis=1).astype(np.float64)


def _variance(L: Array, sums: Discrepancies, cells: Cells, probability: Array) -> Array:
    r"""Of X^2 = |t|^2, t = L'u, a sum of independent terms.

    .. math:: Var X^2 = 2 df + \sum_i (E|t_i|^4 - 2 tr C_i^2 - tr^2 C_i),

    C_i the covariance of a term; df is the trace of their sum.
    """
    t = np.einsum("nib,nyi->nyb", L[cells.item], sums.free[:, :, : L.shape[1]])
    C = np.einsum("ny,nya,nyb->nab", probability, t, t, optimize=True)
    trace = np.trace(C, axis1=1, axis2=2)
    fourth = np.einsum("ny,ny->n", probability, (t**2).sum(axis=2) ** 2)
    excess = fourth - 2.0 * (C**2).sum(axis=(1, 2)) - trace**2
    return total_in(cells.item, cells.n * (2.0 * trace + excess), L.shape[0])


def _mean_square(sums: Discrepancies, cells: Cells, probability: Array, k: int) -> Array:
    """p-value of the mean square k; NaN where the parameters leave nothing of it."""
    left, total = sums.W[:, k, k], sums.total[:, k]
    testable = (left > FREE * total) & (total > 0)
    variance = np.where(testable, left, 1.0)
    third = np.einsum("ny,ny->n", probability, sums.free[:, :, k] ** 3)
    skewness = total_in(cells.item, cells.n * third, total.size) / variance**1.5
    return np.where(testable, of_skewed(sums.u[:, k] / np.sqrt(variance), skewness), np.nan)


def _falling(sums: Discrepancies) -> Array:
    """p-value of a score that falls with the ability, by more than the flattest curve of the model allows."""
    u, W, third = sums.trend
    testable = W > 0
    variance = np.where(testable, W, 1.0)
    return np.where(testable, lower_tail(u / np.sqrt(variance), third / variance**1.5), np.nan)


def combined(p: Array, weights: Array) -> Array:
    """One p-value of those that are there, (items, tests) -> (items,); NaN where there is none."""
    there = np.isfinite(p)
    w = np.where(there, weights, 0.0)
    total = w.sum(axis=1)
    score = (w * cauchy_score(np.where(there, p, 0.5))).sum(axis=1) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, from_cauchy(score), np.nan)
