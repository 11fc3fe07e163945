r"""What each group of examinees says about an item, on the period's own metric: a quadratic, and a response table.

At the item's posterior mean the predicted distributions of the group's responses (`concal.calibration.fit.predict`)
give the gradient l and the information Q of their likelihood, carried to :math:`\phi` (`concal.metric`):

.. math:: \log f_g(\phi) = -\tfrac12\phi'Q\phi + h'\phi, \qquad h = l + Q\,\phi .

Groups that answer an item alike have factors that agree; `concal.consensus.drift` compares them as it compares periods.
A quadratic holds near the item that all groups together have. Where a group is left out of it
(`concal.consensus.factors.by_person_group`) the item moves away from there, so the shape of what the other groups say
is kept too: a response table (`concal.calibration.tables`) of each group's examinees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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


class GroupEvidence(NamedTuple):
    """Factors of items by group of examinees: `Q` (items, groups, p, p), `h` (items, groups, p) and responses `n`.

    `table` are the groups' response tables, (items, groups, ...).
    """

    Q: Array
    h: Array
    n: npt.NDArray[np.int64]
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
    phi, tables = metric.phi_of(xi), []
    for g in range(n_groups):
        own = group == g
        cells = make_cells(model, xi, item[own], mean[own], sd[own], BINS)
        at = xi[cells.item]
        predicted = predict_responses(model, at, cells.theta, cells.sd)
        gradient = total_gradient(model, score[own], cells.place, at, cells.theta, cells.sd, predicted)
        weight, s = cells.n[:, None] * predicted.probability, predicted.gradient
        information = by_item(np.einsum("ny,nyp,nyq->npq", weight, s, s, optimize=True), cells.item, n_items)
        half = metric.gradient_in_phi(information, xi[:, None, :])
        Q[:, g] = metric.gradient_in_phi(np.swapaxes(half, 1, 2), xi[:, None, :])
        l = metric.gradient_in_phi(by_item(gradient, cells.item, n_items), xi)
        h[:, g] = l + np.einsum("jab,jb->ja", Q[:, g], phi)
        n[:, g] = np.bincount(item[own], minlength=n_items)
        encoded = model.encode_score(score[own])
        tables.append(table_of_responses(model, n_items, item[own], encoded, mean[own], sd[own], TABLE_BINS))
    return GroupEvidence(Q, h, n, _side_by_side(tables))


def _side_by_side(tables: Sequence[ResponseTable]) -> ResponseTable:
    """Tables of several groups, (items, groups, ...)."""
    return ResponseTable(*(np.stack(column, axis=1) for column in zip(*tables, strict=True)))
