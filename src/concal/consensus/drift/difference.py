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
from concal.consensus.drift.gather import Gathered
from concal.consensus.gaussian import inverse_positive, positive_part, solve_in_place, sum_by, times
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
NODES = np.linspace(-3.0, 3.0, 25)
"""Of the examinees' abilities, over which a change of the expected score is averaged."""


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


def score_change(model: ResponseModel, before: Array, after: Array, A: Array, B: Array) -> tuple[Array, Array]:
    r"""Average and root-mean-square change of the expected score, from items to items in xi, over the examinees.

    A period's own metric is that of its examinees, N(0, 1); on the reference metric they are :math:`N(B, A^2)`.
    """
    weight = np.exp(-0.5 * NODES**2)
    weight /= weight.sum()
    level, size = np.empty(before.shape[0]), np.empty(before.shape[0])
    for start in range(0, before.shape[0], AT_ONCE):
        part = slice(start, start + AT_ONCE)
        theta = metric.move_theta(NODES, A[part, None], B[part, None])
        change = model.expected_score(theta, after[part, None]) - model.expected_score(theta, before[part, None])
        level[part], size[part] = change @ weight, np.sqrt(change**2 @ weight)
    return level, size


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


class _Problems(NamedTuple):
    """Factors and wide priors of some items, entries of matrices and vectors first: (p, p, n), (p, n), (p, n), (p,)."""

    Q: Array
    h: Array
    centre: Array
    precision: Array

    def some(self, which: Flags) -> _Problems:
        """Those of some of the items."""
        return _Problems(self.Q[..., which], self.h[:, which], self.centre[:, which], self.precision)


class _At(NamedTuple):
    """Minus the log density at items xi (p, n), its gradient (p, n) and its Gauss-Newton curvature (p, p, n)."""

    xi: Array
    value: Array
    slope: Array
    curvature: Array

    def some(self, which: Flags) -> _At:
        """Those of some of the items."""
        return _At(*(part[..., which] for part in self))

    def where(self, better: Flags, ahead: _At) -> _At:
        """`ahead` where it is better."""
        return _At(*(np.where(better, new, old) for new, old in zip(ahead, self, strict=True)))


def _estimate(model: ResponseModel, curving: Array, Q: Array, h: Array, centre: Array) -> tuple[Array, Array]:
    h = h + times(curving - Q, metric.phi_of(centre))  # the gradient at the centre stays
    precision = 1.0 / (WIDE * np.array(model.prior.sd)) ** 2
    Q, h, centre = (np.moveaxis(part, 0, -1).copy() for part in (curving, h, centre))
    problems = _Problems(Q, h, centre, precision)
    at, damping, left = _look(problems, problems.centre), np.full(h.shape[1], LEAST_DAMPING), np.arange(h.shape[1])
    xi, curvature = np.empty_like(at.xi), np.empty_like(at.curvature)
    for _ in range(ROUNDS):
        at, better, decrement = _step(problems, at, damping)
        damping = np.where(better, np.maximum(0.1 * damping, LEAST_DAMPING), 10.0 * damping)
        xi[:, left], curvature[..., left] = at.xi, at.curvature
        far = decrement > CLOSE**2
        if not far.any():
            break
        if not far.all():
            problems, at, damping, left = problems.some(far), at.some(far), damping[far], left[far]
    return np.moveaxis(xi, -1, 0), inverse_positive(np.moveaxis(curvature, -1, 0))


def _step(problems: _Problems, at: _At, damping: Array) -> tuple[_At, Flags, Array]:
    """Where a damped step leads, which items it improved, and the length of the step in standard errors, squared."""
    damped = at.curvature.copy()
    np.einsum("iin->in", damped)[:] *= 1.0 + damping
    away = at.xi - problems.centre
    said = at.slope[1] - problems.precision[1] * away[1]  # by the responses: d2 phi / d(log a)2 is d phi / d log a
    damped[1, 1] += np.maximum(said, 0.0)
    step = -at.slope[:, None]
    solve_in_place(damped, step)
    ahead = _look(problems, at.xi + step[:, 0])
    better = ahead.value <= at.value
    return at.where(better, ahead), better, np.abs((step[:, 0] * at.slope).sum(axis=0))


def _look(problems: _Problems, xi: Array) -> _At:
    """With phi = (c, a, e): d phi / d d = (-a, 0, 0), d phi / d log a = (c, a, 0)."""
    Q, h, centre, precision = problems
    with np.errstate(over="ignore", invalid="ignore"):  # far too long a step is no better than the last
        phi, away = metric.phi_of(xi.T).T, xi - centre
        c, a = phi[0], phi[1]
        pull = sum(Q[:, k] * phi[k] for k in range(phi.shape[0]))
        held = precision[:, None] * away
        value = (phi * (0.5 * pull - h)).sum(axis=0) + 0.5 * (away * held).sum(axis=0)
        slope = pull - h
        slope[1] = c * slope[0] + a * slope[1]
        slope[0] *= -a
        curvature = Q.copy()
        curvature[1] = c * Q[0] + a * Q[1]
        curvature[0] = -a * Q[0]
        curvature[:, 1] = c * curvature[:, 0] + a * curvature[:, 1]
        curvature[:, 0] *= -a
        np.einsum("iin->in", curvature)[:] += precision[:, None]
    return _At(xi, value, slope + held, curvature)


def of_the_others(
    Q: Array, h: Array, item: npt.NDArray[np.integer], n_items: int, moved: Flags
) -> tuple[Array, Array, Flags]:
    """For every factor the sum of its item's other factors that did not move, and whether there is one."""
    kept = np.where(moved, 0.0, 1.0)
    Q, h = kept[:, None, None] * Q, kept[:, None] * h
    total, shift, count = (sum_by(item, values, n_items) for values in (Q, h, kept))
    return total[item] - Q, shift[item] - h, np.asarray(count[item] - kept > 0.5)
