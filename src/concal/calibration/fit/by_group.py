r"""What each group of examinees says about an item, on the period's own metric: a quadratic, and a response table.

The predicted distributions of the group's responses (`concal.calibration.fit.predict`) give the gradient l and the
information Q of their likelihood, carried to :math:`\phi` (`concal.metric`):

.. math:: \log f_g(\phi) = -\tfrac12\phi'Q\phi + h'\phi, \qquad h = l + Q\,\phi .

They are taken at the item's posterior mean. Where the group is far from there they are taken where the group has the
item, which scoring steps find: a quadratic is right near the place it was taken at.

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
from concal.calibration.fit.cells import FINE, by_item, make_cells
from concal.calibration.fit.predict import predict_responses, total_gradient
from concal.calibration.tables import BINS, ResponseTable, table_of_responses
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
TABLE_BINS = BINS * FINE
"""Of a group's response table, which stands for its likelihood far from where its quadratic was taken. 2pl and gpcm
items that differ for another group by .8 in d or .6 in log a were within .13 posterior SD (RMS) of a calibration
without that group's responses with 20 bins, within .38 with 5."""
FAR = 0.001
"""p-value of a group's distance from the common place below which its own is looked for. The second-order error of a
quadratic grows with the square of the distance; where nothing differs it is small, and the common place less noisy."""
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


def group_evidence(
    model: ResponseModel, xi: Array, item: Index, score: Array, mean: Array, sd: Array, group: Index, n_groups: int
) -> GroupEvidence:
    """Factors of all items of an item group.

    Parameters
    ----------
    xi : (items, p)
        Posterior means.
    item, score, mean, sd, group : (responses,)
        Item (ascending), score, ability without the response, and the examinee's group.
    """
    n_items, p = xi.shape
    Q, h = np.zeros((n_items, n_groups, p, p)), np.zeros((n_items, n_groups, p))
    n = np.zeros((n_items, n_groups), dtype=np.int64)
    place, tables = np.empty((n_items, n_groups, p)), []
    for g in range(n_groups):
        own = group == g
        Q[:, g], h[:, g], place[:, g] = _factors(model, xi, item[own], score[own], mean[own], sd[own])
        n[:, g] = np.bincount(item[own], minlength=n_items)
        encoded = model.encode_score(score[own])
        tables.append(table_of_responses(model, n_items, item[own], encoded, mean[own], sd[own], TABLE_BINS))
    return GroupEvidence(Q, h, n, place, _side_by_side(tables))


def _side_by_side(tables: Sequence[ResponseTable]) -> ResponseTable:
    """Tables of several groups, (items, groups, ...)."""
    return ResponseTable(*(np.stack(column, axis=1) for column in zip(*tables, strict=True)))


def _factors(
    model: ResponseModel, xi: Array, item: Index, score: Array, mean: Array, sd: Array
) -> tuple[Array, Array, Array]:
    """Q and h of one group and where they were taken: at xi, step by step nearer to the group for items far from it."""
    at, unit = xi.copy(), np.array(model.prior.sd)
    I, l = _information(model, at, item, score, mean, sd)
    step = _step(I, l, at - xi, unit)
    moving = np.einsum("ja,jab,jb->j", step, I, step) > chi2.isf(FAR, unit.size)
    for _ in range(ROUNDS):
        if not moving.any():
            break
        left = np.flatnonzero(moving)
        at[left] += np.clip(step[left], -LONGEST * unit, LONGEST * unit)
        some = moving[item]
        which = np.searchsorted(left, item[some])
        I[left], l[left] = _information(model, at[left], which, score[some], mean[some], sd[some])
        step[left] = _step(I[left], l[left], at[left] - xi[left], unit)
        moving[left] = np.einsum("ja,jab,jb->j", step[left], I[left], step[left]) > CLOSE**2
    half = metric.gradient_in_phi(I, at[:, None, :])
    Q = metric.gradient_in_phi(np.swapaxes(half, 1, 2), at[:, None, :])
    return Q, metric.gradient_in_phi(l, at) + np.einsum("jab,jb->ja", Q, metric.phi_of(at)), at


def _step(information: Array, gradient: Array, away: Array, unit: Array) -> Array:
    """Scoring step of items, (items, p), under the wide prior around the common place they are `away` from."""
    precision = 1.0 / (WIDE * unit) ** 2
    down = gradient - away * precision
    return np.asarray(np.linalg.solve(information + np.diag(precision), down[..., None])[..., 0])


def _information(
    model: ResponseModel, xi: Array, item: Index, score: Array, mean: Array, sd: Array
) -> tuple[Array, Array]:
    """Information (items, p, p) and gradient (items, p) of the responses' likelihood in xi."""
    n_items = xi.shape[0]
    cells = make_cells(model, xi, item, mean, sd, BINS)
    at = xi[cells.item]
    predicted = predict_responses(model, at, cells.theta, cells.sd)
    gradient = total_gradient(model, score, cells.place, at, cells.theta, cells.sd, predicted)
    weight, s = cells.n[:, None] * predicted.probability, predicted.gradient
    information = by_item(np.einsum("ny,nyp,nyq->npq", weight, s, s, optimize=True), cells.item, n_items)
    return information, by_item(gradient, cells.item, n_items)
