r"""What each group of examinees says about an item, on the period's own metric: a quadratic, and a response table.

The predicted distributions of the group's responses (`concal.calibration.fit.predict`) give the gradient l and the
information Q of their likelihood, carried to :math:`\phi` (`concal.metric`):

.. math:: \log f_g(\phi) = -\tfrac12\phi'Q\phi + h'\phi, \qquad h = l + Q\,\phi .

They are taken at the item's posterior mean. Of an item that some group has far from there, every group's are taken
where that group has the item, which scoring steps find: a quadratic is right near the place it was taken at, and one
group's own place against another's common one would be no comparison.

Groups that answer an item alike have factors that agree; `concal.consensus.drift` compares them as it compares periods.
A quadratic holds near the item that all groups together have. Where a group is left out of it
(`concal.consensus.factors.without_groups`) the item moves away from there, so the shape of what the other groups say
is kept too: a response table (`concal.calibration.tables`) of each group's examinees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from concal import metric
from concal.calibration.fit.cells import FINE, Responses, make_cells
from concal.calibration.fit.predict import predict_responses, total_gradient
from concal.calibration.tables import BINS, ResponseTable, table_of_responses
from concal.calibration.totals import total_of_runs
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
TABLE_BINS = BINS * FINE
"""Of a group's response table, which stands for its likelihood far from where its quadratic was taken. 2pl and gpcm
items that differ for another group by .8 in d or .6 in log a were within .13 posterior SD (RMS) of a calibration
without that group's responses with 20 bins, within .38 with 5."""
FAR = 0.001
"""p-value of a group's distance from the common place below which own places are looked for. The second-order error
of a quadratic grows with the square of the distance; where nothing differs it is small, and the place less noisy."""
ROUNDS = 4
CLOSE = 0.1
"""A step this short, in standard errors, is the last."""
LONGEST = 1.0
"""Longest step, in typical spreads of the items."""
WIDE = 5.0
"""SDs of the prior that keeps a group's own place finite, in typical spreads of the items: 5 in d, 1.5 in log a."""


class GroupEvidence(NamedTuple):
    """Factors of items by group of examinees: `Q` (items, groups, p, p), `h` (items, groups, p) and responses `n`.

    `place` (items, groups, p): xi at which the quadratics were taken. `table` are the groups' response tables, (items,
    groups, ...).
    """

    Q: Array
    h: Array
    n: npt.NDArray[np.int64]
    place: Array
    table: ResponseTable


def group_evidence(model: ResponseModel, xi: Array, answers: Responses, group: Index, n_groups: int) -> GroupEvidence:
    """Factors of all items of an item group.

    Parameters
    ----------
    xi : (items, p)
        Posterior means.
    group : (responses,)
        The examinee's group.
    """
    responses = [answers.some(group == g) for g in range(n_groups)]
    told = [_told(model, xi, some) for some in responses]
    far = np.any([_far(model, *found) for found in told], axis=0)
    at = [_own_place(model, xi, some, *found, far) for some, found in zip(responses, told, strict=True)]
    factors = [_factor(*found) for found in at]
    Q, h = (np.stack(parts, axis=1) for parts in zip(*factors, strict=True))
    n = np.stack([np.bincount(some.item, minlength=xi.shape[0]) for some in responses], axis=1)
    tables = [_table(model, xi.shape[0], some) for some in responses]
    return GroupEvidence(Q, h, n, np.stack([found[0] for found in at], axis=1), _side_by_side(tables))


def _table(model: ResponseModel, n_items: int, some: Responses) -> ResponseTable:
    """Of one group, (items, bins, ...)."""
    encoded = model.encode_score(some.score)
    return table_of_responses(model, n_items, some.item, encoded, some.mean, some.sd, TABLE_BINS)


def _side_by_side(tables: Sequence[ResponseTable]) -> ResponseTable:
    """Tables of several groups, (items, groups, ...)."""
    return ResponseTable(*(np.stack(column, axis=1) for column in zip(*tables, strict=True)))


def _far(model: ResponseModel, information: Array, gradient: Array) -> Flags:
    """Items whose common place is not where the group has them."""
    step = _step(model, information, gradient, np.zeros_like(gradient))
    distance = np.einsum("ja,jab,jb->j", step, information, step)
    return np.asarray(distance > chi2.isf(FAR, step.shape[1]))


def _own_place(
    model: ResponseModel, xi: Array, responses: Responses, information: Array, gradient: Array, far: Flags
) -> tuple[Array, Array, Array]:
    """Step by step to where the group has the items that are `far`; the items there, information and gradient."""
    at, I, l, left = xi.copy(), information, gradient, np.flatnonzero(far)
    longest = LONGEST * np.array(model.prior.sd)
    for _ in range(ROUNDS):
        step = _step(model, I[left], l[left], at[left] - xi[left])
        moves = np.einsum("ja,jab,jb->j", step, I[left], step) > CLOSE**2
        left, step = left[moves], step[moves]
        if not left.size:
            break
        at[left] += np.clip(step, -longest, longest)
        own = responses.some(np.isin(responses.item, left))
        I[left], l[left] = _told(model, at[left], own._replace(item=np.searchsorted(left, own.item)))
    return at, I, l


def _factor(at: Array, information: Array, gradient: Array) -> tuple[Array, Array]:
    """Q and h from information and gradient in xi at these places."""
    half = metric.gradient_in_phi(information, at[:, None, :])
    Q = metric.gradient_in_phi(np.swapaxes(half, 1, 2), at[:, None, :])
    return Q, metric.gradient_in_phi(gradient, at) + np.einsum("jab,jb->ja", Q, metric.phi_of(at))


def _step(model: ResponseModel, information: Array, gradient: Array, away: Array) -> Array:
    """Scoring step of items, (items, p), under the wide prior around the common place they are `away` from."""
    precision = 1.0 / (WIDE * np.array(model.prior.sd)) ** 2
    down = gradient - away * precision
    return np.asarray(np.linalg.solve(information + np.diag(precision), down[..., None])[..., 0])


def _told(model: ResponseModel, xi: Array, responses: Responses) -> tuple[Array, Array]:
    """Information (items, p, p) and gradient (items, p) of the responses' likelihood in xi."""
    cells = make_cells(model, xi, responses, BINS)
    at = xi[cells.item]
    predicted = predict_responses(model, at, cells.theta, cells.sd)
    gradient = total_gradient(model, responses.score, cells.place, at, cells.theta, cells.sd, predicted)
    weight, s = cells.n[:, None] * predicted.probability, predicted.gradient
    information = total_of_runs(cells.item, np.einsum("ny,nyp,nyq->npq", weight, s, s, optimize=True), xi.shape[0])
    return information, total_of_runs(cells.item, gradient, xi.shape[0])
