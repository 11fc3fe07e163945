r"""Discrepancies between responses and their predictions that do not depend on where in its posterior the item is.

Three kinds of sums over an item's responses of terms h that have mean zero under the model, with e the score minus its
expectation and v its variance: in every ability bin e; over all responses e^2 - v (infit) and e^2/v less its
expectation (outfit; one response counts for at most `MOST`, or a single surprise would decide).

The item was fitted to the same responses, which is what makes plain posterior predictive p-values too large. So what
the item's parameters could have imitated is taken out: with s the gradient of the log-likelihood in xi and Gamma the
covariances of single terms, summed,

.. math:: u = h - \Gamma_{hs}\Gamma_{ss}^-\,s, \qquad
          \mathrm{Var}\,u = \Gamma_{hh} - \Gamma_{hs}\Gamma_{ss}^-\Gamma_{sh} .

To first order a change of xi changes u by nothing (Neyman's orthogonal scores).

One thing the parameters cannot imitate although their gradients could: slopes are positive, and no curve of the model
falls. An item whose key is reversed ends flat, and scores fall with the ability all the same. So the residuals' trend
along the ability, with nothing taken out of it, is a discrepancy too (`Trend`), for one-sided p-values at a draw.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration.fit.cells import Cells
from concal.calibration.fit.predict import Prediction, predict_responses, total_gradient
from concal.calibration.totals import total_in, total_of_runs
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
MOST = 9.0
"""Largest squared standardised residual in outfit."""
LEAST_VARIANCE = 1e-4


class Trend(NamedTuple):
    """Sum over an item's responses of e times their place on the ability scale, counted from where it tells nothing
    about the mean score; its predicted variance `W` and third moment, (items,) each. All zero with equal slopes.
    """

    u: Array
    W: Array
    third: Array


class Discrepancies(NamedTuple):
    """Of items: ability bins, infit and outfit, k in all.

    `raw`, `u` (items, k): before and after taking out what the parameters imitate; `total` (items, k): variances of
    `raw`; `W` (items, k, k): of `u`; `expected` (items, 2): of the squares in infit and outfit; `free` (cells, scores,
    k): what a single response with each score adds to u; `trend`.
    """

    raw: Array
    u: Array
    total: Array
    W: Array
    expected: Array
    free: Array
    trend: Trend


def discrepancies(
    model: ResponseModel, xi: Array, score: Array, cells: Cells, bins: int
) -> tuple[Discrepancies, Prediction]:
    """Of the items xi (items, p), with the scores (responses,) of the cells' examinees; and the predictions."""
    n_items, own = xi.shape[0], xi[cells.item]
    predicted = predict_responses(model, own, cells.theta, cells.sd)
    gradient = total_gradient(model, score, cells.place, own, cells.theta, cells.sd, predicted)
    terms, usual = _terms(predicted, cells, bins)
    raw = total_of_runs(cells.item, _observed(predicted, cells, score / model.max_score, usual, bins), n_items)
    free = [k for k in range(xi.shape[1]) if k not in model.shared]  # a slope of the whole group imitates no item
    weight, s = cells.n[:, None] * predicted.probability, predicted.gradient[:, :, free]
    hh, hs, ss = (
        total_of_runs(cells.item, np.einsum("ny,nyi,nyj->nij", weight, left, right, optimize=True), n_items)
        for left, right in ((terms, terms), (terms, s), (s, s))
    )
    K = hs @ _pseudo_inverse(ss)
    u = raw - np.einsum("jip,jp->ji", K, total_of_runs(cells.item, gradient[:, free], n_items))
    return Discrepancies(
        raw,
        u,
        np.diagonal(hh, axis1=1, axis2=2).copy(),
        hh - K @ np.swapaxes(hs, 1, 2),
        total_of_runs(cells.item, np.stack([cells.n * predicted.variance, cells.n * usual], axis=1), n_items),
        terms - np.einsum("nip,nyp->nyi", K[cells.item], s),
        Trend(*np.zeros((3, n_items))) if model.shared else _trend(predicted, cells, score / model.max_score, n_items),
    ), predicted


def _trend(predicted: Prediction, cells: Cells, share: Array, n_items: int) -> Trend:
    variance = cells.n * predicted.variance
    known = total_in(cells.item, variance, n_items)
    centre = total_in(cells.item, variance * cells.theta, n_items) / np.where(known > 0, known, 1.0)
    place = cells.theta - centre[cells.item]
    observed = total_in(cells.place, share - predicted.mean[cells.place], cells.n.size)
    third = np.einsum("ny,ny->n", predicted.probability, (predicted.score - predicted.mean[:, None]) ** 3)
    return Trend(
        total_in(cells.item, place * observed, n_items),
        total_in(cells.item, place**2 * variance, n_items),
        total_in(cells.item, place**3 * cells.n * third, n_items),
    )


def _terms(predicted: Prediction, cells: Cells, bins: int) -> tuple[Array, Array]:
    """What each possible score would add, (cells, scores, bins + 2), and the expected square in outfit, (cells,)."""
    e = predicted.score - predicted.mean[:, None]
    square = _outfit(e, predicted.variance[:, None])
    usual = np.einsum("ny,ny->n", predicted.probability, square)
    terms = np.zeros((*e.shape, bins + 2))
    terms[np.arange(cells.n.size), :, cells.bin] = e
    terms[:, :, bins] = e**2 - predicted.variance[:, None]
    terms[:, :, bins + 1] = square - usual[:, None]
    return terms, usual


def _observed(predicted: Prediction, cells: Cells, share: Array, usual: Array, bins: int) -> Array:
    """What the observed scores did add, (cells, bins + 2)."""
    n, at = cells.n.size, cells.place
    e = share - predicted.mean[at]
    out = np.zeros((n, bins + 2))
    out[np.arange(n), cells.bin] = total_in(at, e, n)
    out[:, bins] = total_in(at, e**2 - predicted.variance[at], n)
    out[:, bins + 1] = total_in(at, _outfit(e, predicted.variance[at]) - usual[at], n)
    return out


def _outfit(e: Array, variance: Array) -> Array:
    return np.minimum(e**2 / np.maximum(variance, LEAST_VARIANCE), MOST)


def residuals(model: ResponseModel, cells: Cells, predicted: Prediction, score: Array, mean: Array) -> Array:
    """(y - E) / SD of every response, E followed along its slope from the middle of the cell."""
    at = cells.place
    expected = predicted.mean[at] + predicted.slope[at] * (mean - cells.theta[at])
    return (score / model.max_score - expected) / np.sqrt(np.maximum(predicted.variance, LEAST_VARIANCE))[at]


def _pseudo_inverse(information: Array) -> Array:
    """Of information matrices (items, p, p), in units of their diagonals."""
    unit = np.sqrt(np.diagonal(information, axis1=1, axis2=2))
    unit = np.where(unit > 0, unit, 1.0)
    scaled = information / unit[:, :, None] / unit[:, None, :]
    inverse: Array = np.linalg.pinv(scaled, rcond=1e-8, hermitian=True) / unit[:, :, None] / unit[:, None, :]
    return inverse
