r"""How an item of one period, or of one group of examinees, differs from that of the others, as the responses tell it.

Each side's factor, quadratic in slope and intercept, is its likelihood, and gives an estimate of its own,

.. math:: \hat\xi = \arg\max\; \exp\big(-\tfrac12\phi(\xi)'Q\,\phi(\xi) + h'\phi(\xi)\big)\; N(\xi; \mu, W),

with the inverse curvature there as its covariance; the difference of two sides has the sum of theirs. W is fixed:
`WIDE` times what items of the response model are typically spread by (`PopulationPrior.sd`), so 5 in d and 1.5 in
log a. It keeps numbers finite where a side says next to nothing, and both sides have the same mu, the item's consensus;
a difference known to .3 in log a is shrunk by 2 %. The spread of a bank's own items does not enter: where all its
slopes are alike, a slope that changed is exactly what must be seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.calibration.fit.by_group import WIDE
from concal.consensus.drift.consequence import score_change
from concal.consensus.drift.gather import Gathered
from concal.consensus.factors.wobble import positive_part
from concal.consensus.gaussian import inverse, solve_positive, times
from concal.consensus.result import GroupConsensus
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
ROUNDS = 50
"""Most steps; half a dozen do for factors of 200 responses, 15 for those of five that say a slope is negative."""
CLOSE = 1e-3
"""A step this short, in standard errors, is the last."""
LEAST_DAMPING = 1e-6  # of the curvature, that a step is shortened by
AT_ONCE = 8192


class Estimates(NamedTuple):
    """Items xi as one side has them, (n, p), and the covariances, (n, p, p)."""

    xi: Array
    covariance: Array


def differences(
    known: GroupConsensus, found: Gathered, weight: Array, moved: Flags, at: npt.NDArray[np.intp]
) -> pl.DataFrame:
    """How far factors lie from the others of their items; null where all others moved.

    Parameters
    ----------
    known : GroupConsensus
    found : Gathered
    weight : (factors,)
        How much each counts among the others.
    moved : (factors,)
        Factors that say nothing about where their item was.
    at : factors to compare
    """
    faded_Q, faded_h = weight[:, None, None] * found.Q, weight[:, None] * found.h
    Q, h, there = of_the_others(faded_Q, faded_h, found.item, len(known.item_ids), moved)
    centre = known.mean[found.item[at]]
    own = own_estimates(known.model, found.Q[at], found.h[at], centre)
    rest = own_estimates(known.model, Q[at], h[at], centre)
    sd = np.sqrt(np.diagonal(own.covariance + rest.covariance, axis1=1, axis2=2))
    level, size = score_change(known.model, rest.xi, own.xi, found.A[at], found.B[at])
    shift = own.xi - rest.xi
    columns = {
        "score_shift": level,
        "score_size": size,
        "d_shift": shift[:, 0],
        "d_shift_sd": sd[:, 0],
        "log_a_shift": shift[:, 1],
        "log_a_shift_sd": sd[:, 1],
    }
    return pl.DataFrame({name: np.where(there[at], v, np.nan) for name, v in columns.items()}).fill_nan(None)


def own_estimates(model: ResponseModel, Q: Array, h: Array, centre: Array) -> Estimates:
    """Items as factors (Q, h) alone have them, under the wide prior around `centre`, (n, p) in xi.

    Newton's steps, less what curves the objective downwards, shortened until they improve. A direction in which an
    estimated quadratic curves upwards, which no likelihood does, counts as flat.
    """
    xi, covariance = np.empty_like(centre), np.empty_like(Q)
    for lo in range(0, centre.shape[0], AT_ONCE):
        some = slice(lo, lo + AT_ONCE)
        xi[some], covariance[some] = _estimate(model, positive_part(Q[some]), Q[some], h[some], centre[some])
    return Estimates(xi, covariance)


def _estimate(model: ResponseModel, curving: Array, Q: Array, h: Array, centre: Array) -> tuple[Array, Array]:
    precision = np.diag(1.0 / (WIDE * np.array(model.prior.sd)) ** 2)
    h = h + times(curving - Q, metric.phi_of(centre))  # the gradient at the centre stays
    xi, damping, left = centre.copy(), np.full(centre.shape[0], LEAST_DAMPING), np.arange(centre.shape[0])
    value, slope, curvature = _objective(curving, h, centre, precision, xi)
    for _ in range(ROUNDS):
        down = slope[left]
        damped = curvature[left] * (1.0 + damping[left, None, None] * np.eye(xi.shape[1]))
        told = down - (xi[left] - centre[left]) @ precision  # by the responses: d2 phi / d(log a)2 is d phi / d log a
        damped[:, 1, 1] += np.maximum(told[:, 1], 0.0)
        step = -solve_positive(damped, down[..., None])[..., 0]
        ahead = _objective(curving[left], h[left], centre[left], precision, xi[left] + step)
        better = ahead[0] <= value[left]
        taken = left[better]
        xi[taken] += step[better]
        value[taken], slope[taken], curvature[taken] = (part[better] for part in ahead)
        damping[left] = np.where(better, np.maximum(0.1 * damping[left], LEAST_DAMPING), 10.0 * damping[left])
        left = left[np.abs((step * down).sum(axis=1)) > CLOSE**2]
        if not left.size:
            break
    return xi, inverse(curvature)


def _objective(Q: Array, h: Array, centre: Array, precision: Array, xi: Array) -> tuple[Array, Array, Array]:
    """Minus the log density at xi, its gradient and its Gauss-Newton curvature."""
    with np.errstate(over="ignore", invalid="ignore"):  # far too long a step is no better than the last
        phi, away = metric.phi_of(xi), xi - centre
        pull, held = times(Q, phi), away @ precision
        value = 0.5 * (phi * pull).sum(axis=1) - (h * phi).sum(axis=1) + 0.5 * (away * held).sum(axis=1)
        J = _slopes_of_phi(phi)
        slope = times(np.swapaxes(J, 1, 2), pull - h) + held
        return value, slope, np.swapaxes(J, 1, 2) @ Q @ J + precision


def _slopes_of_phi(phi: Array) -> Array:
    """J = d phi / d xi, (n, p, p): phi = (-a d, a, ...), xi = (d, log a, ...)."""
    n, p = phi.shape
    J = np.broadcast_to(np.eye(p), (n, p, p)).copy()
    J[:, 0, 0], J[:, 0, 1], J[:, 1, 1] = -phi[:, 1], phi[:, 0], phi[:, 1]
    return J


def of_the_others(
    Q: Array, h: Array, item: npt.NDArray[np.integer], n_items: int, moved: Flags
) -> tuple[Array, Array, Flags]:
    """For every factor the sum of its item's other factors that did not move, and whether there is one."""
    kept = np.where(moved, 0.0, 1.0)
    Q, h = kept[:, None, None] * Q, kept[:, None] * h
    total, shift, count = np.zeros((n_items, *Q.shape[1:])), np.zeros((n_items, h.shape[1])), np.zeros(n_items)
    np.add.at(total, item, Q)
    np.add.at(shift, item, h)
    np.add.at(count, item, kept)
    return total[item] - Q, shift[item] - h, np.asarray(count[item] - kept > 0.5)
