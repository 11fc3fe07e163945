r"""Where a prediction is computed: which scores an examinee may get, and at which abilities each of them.

Scores with a probability of their own are taken one by one, at the nodes of the ability's N(m, s). Scores in between
are as good as normal in their logit T given the ability (`ResponseModel.logit_moments`), so with T's regression on the
ability, slope b and variance v left over,

.. math:: T \sim N(M, v + b^2 s^2), \qquad
          \theta \mid T \sim N\Big(m + \frac{b s^2 (T - M)}{v + b^2 s^2},\; \frac{v s^2}{v + b^2 s^2}\Big) .

That is where the grid of scores and the abilities' nodes are put, and no more: the model's own density is computed
there, and a node counts by how much likelier the ability is than there. So a score that tells the ability to a
hundredth is caught with as many nodes as one that tells nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
FEW, FEW_WEIGHTS = np.polynomial.hermite_e.hermegauss(3)
FEW_WEIGHTS = FEW_WEIGHTS / FEW_WEIGHTS.sum()
_FAR = np.array([5.5, 7.0, 9.5, 13.0, 18.0, 24.0, 30.0, 36.0])
LOGITS = np.concatenate([-_FAR[::-1], np.linspace(-4.5, 4.5, 21), _FAR])
"""Grid of scores between the atoms; far out it is coarse, for densities that pile up at 0 and 1. Its end is the
score nearest to 1 that a number in double precision can tell from it, and it goes as far out at 0."""
FARTHEST = 2.0
"""Where the regression is taken once more: a parabola through three abilities is right up to 1.7 of their SDs."""


class Scores(NamedTuple):
    """Scores a response in a cell of examinees may have, as given, and the width each stands for (1 for an atom).

    Both (cells, scores).
    """

    score: Array
    width: Array


class Regression(NamedTuple):
    """Of the logit of a score between the atoms on x = (ability - m) / s.

    `mean`, `variance` (cells,): the mean, and the variance left over, averaged over x; `level`, `log_variance`
    (cells, 3): coefficients of 1, x and x^2 - 1, so `level[:, 1]` is the slope.
    """

    mean: Array
    variance: Array
    level: Array
    log_variance: Array


def possible_scores(model: ResponseModel, xi: Array, mean: Array, sd: Array) -> Scores:
    """The atoms of a model, then the grid if it has scores in between; xi (cells, p), abilities N(mean, sd)."""
    atoms = np.tile(np.array(model.atoms, dtype=np.float64), (mean.size, 1))
    if not model.levels:
        return Scores(atoms, np.ones(atoms.shape))
    logit = _logits(_regression(model, xi, mean, sd))
    share = special.expit(logit)
    width = model.max_score * share * special.expit(-logit) * np.gradient(logit, axis=1)
    return Scores(np.hstack([atoms, model.max_score * share]), np.hstack([np.ones(atoms.shape), width]))


def _logits(found: Regression) -> Array:
    """The grid; around the predicted scores and in units of their SD where that is below one.

    A density whose logit has an SD above one may have an edge at 0 or 1 about one wide: there the grid stays.
    """
    spread = np.sqrt(found.variance + found.level[:, 1] ** 2)[:, None]
    narrow = spread < 1.0
    logit = np.where(narrow, found.mean[:, None], 0.0) + np.where(narrow, spread, 1.0) * LOGITS
    return np.clip(logit, LOGITS[0], LOGITS[-1])


def ability_nodes(
    model: ResponseModel, score: Array, cell: Index, xi: Array, mean: Array, sd: Array
) -> tuple[Array, Array]:
    """Abilities (n, nodes) at which scores (n,) in their cells are computed, and the logarithms of their weights."""
    m, s = mean[cell], sd[cell]
    if not model.levels:
        return m[:, None] + s[:, None] * NODES, np.broadcast_to(np.log(WEIGHTS), (score.size, NODES.size))
    x, spread = _given(model, score, cell, _regression(model, xi, mean, sd))
    at = x[:, None] + spread[:, None] * NODES
    weight = np.log(WEIGHTS) + 0.5 * (NODES**2 - at**2) + np.log(spread)[:, None]
    return m[:, None] + s[:, None] * at, weight


def _given(model: ResponseModel, score: Array, cell: Index, found: Regression) -> tuple[Array, Array]:
    """Mean and SD of x given the scores (n,): 0 and 1 at an atom; regressed once more where the first mean is."""
    between = ~np.isin(score, model.atoms)
    logit = special.logit(np.where(between, score / model.max_score, 0.5))
    b = found.level[cell, 1]
    x = np.clip(b * (logit - found.mean[cell]) / (found.variance[cell] + b**2), -FARTHEST, FARTHEST)
    level, log_variance = found.level[cell], found.log_variance[cell]
    b = b + 2.0 * level[:, 2] * x
    left = np.exp(_at(log_variance, x))
    total = left + b**2
    x = b * (logit - _at(level, x) + b * x) / total
    return np.where(between, x, 0.0), np.where(between, np.sqrt(left / total), 1.0)


def _at(coefficients: Array, x: Array) -> Array:
    return coefficients[:, 0] + coefficients[:, 1] * x + coefficients[:, 2] * (x**2 - 1.0)


def _regression(model: ResponseModel, xi: Array, mean: Array, sd: Array) -> Regression:
    level, variance = model.logit_moments(mean[:, None] + sd[:, None] * FEW, xi[:, None, :])
    basis = np.stack([np.ones_like(FEW), FEW, 0.5 * (FEW**2 - 1.0)], axis=1) * FEW_WEIGHTS[:, None]
    in_x = level @ basis
    return Regression(in_x[:, 0], variance @ FEW_WEIGHTS, in_x, np.log(variance) @ basis)
