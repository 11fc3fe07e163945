r"""What a response was predicted to be, before it was seen: its distribution and the gradient of that in the item.

The ability of an examinee, as the other responses tell it, is N(m, s); so

.. math:: p(y) = \int p(y \mid \theta, \xi)\,N(\theta; m, s)\,d\theta, \qquad
          \nabla_\xi \log p(y) = E\big[\nabla_\xi \log p(y \mid \theta, \xi) \mid y\big] .

Scores and abilities at which this is computed: `concal.calibration.fit.nodes`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from concal.calibration.fit.nodes import ability_nodes, possible_scores
from concal.response import ResponseModel
from concal.response.base import n_extra_outputs
from concal.response.registry import kernels

Array = npt.NDArray[np.float64]
_AT_A_TIME = 20_000  # scores whose terms are computed together: some 30 arrays of 0.8 MB


class Prediction(NamedTuple):
    """Predicted distributions of responses in cells of examinees.

    `score` (cells, scores): divided by the largest; `probability` (cells, scores); `gradient` (cells, scores, p) of
    the log probability in xi; `mean`, `variance` (cells,) of the score; `slope` (cells,): d mean / d ability.
    """

    score: Array
    probability: Array
    gradient: Array
    mean: Array
    variance: Array
    slope: Array


def predict_responses(model: ResponseModel, xi: Array, mean: Array, sd: Array) -> Prediction:
    """Distribution of a response to items xi (cells, p) by examinees with abilities N(mean, sd), (cells,) each."""
    scores = possible_scores(model, xi, mean, sd)
    (n, m), p = scores.score.shape, xi.shape[1]
    every = np.repeat(np.arange(n), m)
    log_p, gradient = _averaged(model, scores.score.ravel(), every, xi, mean, sd)
    probability = np.exp(log_p).reshape(n, m) * scores.width
    probability /= probability.sum(axis=1, keepdims=True)
    gradient = gradient.reshape(n, m, p)
    gradient -= np.einsum("nm,nmp->np", probability, gradient)[:, None, :]  # exactly zero on average, on any grid
    score = scores.score / model.max_score
    expected = np.einsum("nm,nm->n", probability, score)
    variance = np.einsum("nm,nm->n", probability, (score - expected[:, None]) ** 2)
    slope = -np.einsum("nm,nm,nm->n", probability, gradient[:, :, 0], score)  # ability and location enter as theta - d
    return Prediction(score, probability, gradient, expected, variance, slope)


def total_gradient(
    model: ResponseModel, score: Array, place: npt.NDArray[np.intp], xi: Array, mean: Array, sd: Array, at: Prediction
) -> Array:
    """Sum of the observed responses' gradients in every cell, (cells, p); `place` is the cell of each score."""
    atoms, n = np.array(model.atoms, dtype=np.float64), mean.size
    atom = np.minimum(np.searchsorted(atoms, score), max(atoms.size - 1, 0))
    exact = score == atoms[atom] if atoms.size else np.zeros(score.size, dtype=bool)
    counts = np.bincount(place[exact] * atoms.size + atom[exact], minlength=n * atoms.size).reshape(n, atoms.size)
    total = np.einsum("na,nap->np", counts, at.gradient[:, : atoms.size])
    between = np.flatnonzero(~exact)
    if between.size:
        cell = place[between]
        _, gradient = _averaged(model, score[between], cell, xi, mean, sd)
        for k in range(xi.shape[1]):
            total[:, k] += np.bincount(cell, gradient[:, k], n)
    return total


def _averaged(
    model: ResponseModel, score: Array, cell: npt.NDArray[np.intp], xi: Array, mean: Array, sd: Array
) -> tuple[Array, Array]:
    """log p of scores (n,) in their cells, averaged over the ability, and its gradient in xi (n, p)."""
    log_p, gradient = np.empty(score.size), np.empty((score.size, xi.shape[1]))
    for lo in range(0, score.size, _AT_A_TIME):
        some = slice(lo, lo + _AT_A_TIME)
        log_p[some], gradient[some] = _average_some(model, score[some], cell[some], xi, mean, sd)
    return log_p, gradient


def _average_some(
    model: ResponseModel, score: Array, cell: npt.NDArray[np.intp], xi: Array, mean: Array, sd: Array
) -> tuple[Array, Array]:
    extras = len(model.extras)
    first, last = (int(cell.min()), int(cell.max()) + 1) if cell.size else (0, 0)
    cell, xi, mean, sd = cell - first, xi[first:last], mean[first:last], sd[first:last]
    theta, log_weight = ability_nodes(model, score, cell, xi, mean, sd)
    n, q = theta.shape
    rows = model.kernel_parameters(xi)
    par = np.repeat(rows[cell].T, q, axis=1)
    eta = par[0] * (theta.ravel() - par[1])
    psi = np.zeros((n_extra_outputs(extras), n * q))
    code = np.repeat(model.encode_score(score), q)
    log_likelihood, g, _ = kernels(model.tag).extra_terms(model.tag, code, eta, par, psi)
    log_joint = log_weight + np.reshape(log_likelihood, (n, q))
    log_p = special.logsumexp(log_joint, axis=1)
    share = np.exp(log_joint - log_p[:, None])

    def average(values: Array) -> Array:
        return np.einsum("nq,nq->n", share, values.reshape(n, q))

    gradient = np.empty((n, 2 + extras))
    gradient[:, 0], gradient[:, 1] = -rows[cell, 0] * average(g), average(g * eta)
    if extras:
        in_psi = np.stack([average(psi[k]) for k in range(extras)], axis=1)
        gradient[:, 2:] = np.einsum("nkl,nk->nl", model.extras_jacobian(xi)[cell], in_psi)
    return log_p, gradient
