r"""Expectations over the scores an item can give, for every response model alike.

Scores with a probability of their own (atoms) are summed over; between 0 and the largest score, where a model has
scores that are no atoms, the density is integrated over the logit of the score by the trapezoidal rule. With
:math:`l` the log-likelihood of a score, primes for derivatives in theta,

.. math:: I = E[l'^2], \qquad J = E[l'(l'^2 + l'')],

the information and the term of Warm's bias correction. A score nearer to the largest than 1e-13 cannot be written down,
so the integral ends there: beta items with a shape below about .3 (nearly all scores at an end) lose part of both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
_LOGITS = np.linspace(-30.0, 30.0, 241)
_STEP = 1e-4


def support(model: ResponseModel) -> tuple[Array, Array]:
    """Scores and the logs of their weights in an expectation."""
    atoms = np.asarray(model.atoms, dtype=np.float64)
    if not model.levels:
        return atoms, np.zeros(atoms.size)
    share = 1.0 / (1.0 + np.exp(-_LOGITS))
    width = np.log(_LOGITS[1] - _LOGITS[0]) + np.log(share) + np.log1p(-share) + np.log(model.max_score)
    return np.concatenate([atoms, model.max_score * share]), np.concatenate([np.zeros(atoms.size), width])


def bias_terms(model: ResponseModel, theta: Array, xi: Array) -> tuple[Array, Array]:
    """I and J of items xi (n, p) at theta (n,)."""
    score, log_weight = support(model)
    n, m = theta.size, score.size
    scores, items = np.tile(score, n), np.repeat(xi, m, axis=0)

    def gradient(shift: float) -> tuple[Array, Array]:
        found = model.derivatives(scores, np.repeat(theta + shift, m), items)
        return found.theta_gradient.reshape(n, m), found.log_likelihood.reshape(n, m)

    g, ll = gradient(0.0)
    curvature = (gradient(_STEP)[0] - gradient(-_STEP)[0]) / (2 * _STEP)
    weight = np.exp(ll + log_weight)
    return (weight * g * g).sum(axis=1), (weight * g * (g * g + curvature)).sum(axis=1)
