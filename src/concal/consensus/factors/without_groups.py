r"""What a period says about an item when some groups of examinees do not count.

The groups that stay have fine response tables of their own (`concal.calibration.fit.by_group`). Side by side they are
the likelihood of the rest, also where the rest has the item: that may be many standard errors from where all groups
together have it. Scores in between stand in classes in a table, so it lacks their spread; a linear term gives each
table l_g the gradient that the group's single responses have where its quadratic was taken (:math:`\phi_g`),

.. math:: \log f_R(\phi) = \sum_g l_g(\phi) + r'\phi, \qquad r = \sum_g (h_g - Q_g\phi_g - \nabla l_g(\phi_g)) .

Its Gaussian (Q, h) is the linearisation (`concal.consensus.factors.linearise`) where the rest and the prior of the
period place the item. The factor's table is that of all the rest's examinees, cut as usual, with the remainder that
gives it the same gradient and, where it can, the same curvature there.

Draws of the item move from where all groups have it to where the rest has it, by the linear map that takes the one
posterior's mean and covariance to the other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.calibration.kernels import LANES
from concal.calibration.result import GroupDraws
from concal.calibration.tables import ResponseTable
from concal.consensus.factors.gaussians import FLOOR, prior_precision
from concal.consensus.factors.linearise import cubature, linearise
from concal.consensus.factors.period import GroupFactors
from concal.consensus.factors.pooled import pooled, side_by_side
from concal.consensus.factors.remainder import kernel_tables, table_terms
from concal.consensus.gaussian import raise_eigenvalues, sum_by, symmetric, times
from concal.consensus.item_posterior import item_posterior
from concal.consensus.shared import with_own_spread
from concal.errors import DataError, counted, first_few
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
_Group = TypeVar("_Group", GroupDraws, GroupFactors)
LeftOut = Mapping[str, frozenset[str]]
"""Item -> groups of examinees whose responses to it do not count."""
MOST_STEPS = 30
CLOSE = 1e-3
"""Posterior SDs between two linearisations from which a further one changes nothing."""


class Shift(NamedTuple):
    r"""Where items' posteriors go, :math:`\xi \to m + T(\xi - m_0)`.

    `before` (items, p) is m_0, `after` m, `turn` (items, p, p) T.
    """

    before: Array
    after: Array
    turn: Array

    def move(self, xi: Array) -> Array:
        """Values (..., items, p)."""
        return np.asarray(self.after + times(self.turn, xi - self.before))

    def widen(self, covariance: Array) -> Array:
        """Covariances (items, p, p)."""
        return symmetric(self.turn @ covariance @ np.swapaxes(self.turn, 1, 2))


@dataclass(frozen=True)
class Rest:
    """What the groups that count say about some items of a group.

    Attributes
    ----------
    item_ids : tuple of str
    rows : (items,)
        Where the items stand in their group.
    n_responses : (items,) int64
    Q, h, dQ, dh, table
        As in `GroupFactors`.
    shift : Shift
        Of the items' posteriors in the period.
    """

    item_ids: tuple[str, ...]
    rows: npt.NDArray[np.intp]
    n_responses: npt.NDArray[np.int64]
    Q: Array
    h: Array
    dQ: Array
    dh: Array
    table: ResponseTable
    shift: Shift


def rest_of(group: GroupFactors, draws: GroupDraws, said: pl.DataFrame, left_out: LeftOut) -> Rest | None:
    """What the other groups say; None where the group has no such item.

    Parameters
    ----------
    group, draws
        Factors and calibration of a group of items, of everybody.
    said
        `PeriodFit.groups`.
    left_out
        Of each item somebody else's responses count.
    """
    rows = np.array([j for j, item in enumerate(group.item_ids) if item in left_out], dtype=np.intp)
    if not rows.size:
        return None
    ids = tuple(group.item_ids[j] for j in rows)
    parts = [_counting(said, item, left_out[item]) for item in ids]
    tables = [_joined(part, len(group.model.atoms) + group.model.levels) for part in parts]
    table = ResponseTable(*(np.stack(column) for column in zip(*map(pooled, tables), strict=True)))
    prior = item_prior(group, draws, rows)
    before = item_posterior(group.Q[rows], group.h[rows], *prior)
    try:
        Q, h, after = _settled(group, rows, side_by_side(tables), _pull(group.model, parts), prior)
    except (np.linalg.LinAlgError, _Unsettled):
        raise DataError(
            f"the groups of examinees that are left do not place {counted(len(ids), 'item')} ({first_few(ids)}): their "
            "responses are too few, or do not tell a slope; exclude the item there for everybody instead"
        ) from None
    n = np.array([part["n_responses"].sum() for part in parts], dtype=np.int64)
    dQ, dh = _remainder(group.model, table, Q, h, *after)
    return Rest(ids, rows, n, Q, h, dQ, dh, table, _shift(before, after))


def _counting(said: pl.DataFrame, item: str, left_out: frozenset[str]) -> pl.DataFrame:
    return said.filter((pl.col("item_id") == item) & ~pl.col("person_group").is_in(list(left_out)))


def _joined(part: pl.DataFrame, cells: int) -> ResponseTable:
    """The bins of several groups of examinees as one table's, (bins, ...)."""
    mean, sd, score, count = (part[name].explode().to_numpy().astype(np.float64) for name in ResponseTable._fields)
    return ResponseTable(mean, sd, score.reshape(-1, cells), count.reshape(-1, cells))


def item_prior(group: GroupFactors, draws: GroupDraws, rows: npt.NDArray[np.intp]) -> tuple[Array, Array]:
    """Mean and covariance of the prior that items had in the period, on its own metric: the population's or a guide."""
    if draws.guide_mean is None:
        mean = group.X[rows] @ group.b
        return mean, np.broadcast_to(group.sigma, (rows.size, *group.sigma.shape))
    assert draws.guide_covariance is not None
    log_A, B = draws.flat("guide_link").mean(axis=0)
    back = metric.invert(metric.Constants(np.exp(log_A), B))
    covariance = metric.move_item_covariance(draws.guide_covariance[rows], back.A)
    return metric.move_items(draws.guide_mean[rows], back.A, back.B), covariance


def _pull(model: ResponseModel, parts: Sequence[pl.DataFrame]) -> Array:
    """What the gradients of groups' single responses have beyond those of their tables, summed by item, (items, p)."""
    said, p = pl.concat(parts), len(model.parameters)
    Q, h, xi = (_stacked(said[name]) for name in ("Q", "h", "place"))
    single = h - times(Q.reshape(-1, p, p), metric.phi_of(xi))
    cells = len(model.atoms) + model.levels
    values = [_stacked(said[name]) for name in ResponseTable._fields]
    table = ResponseTable(*values[:2], *(v.reshape(len(v), -1, cells) for v in values[2:]))
    item = np.repeat(np.arange(len(parts)), [part.height for part in parts])
    return sum_by(item, single - _gradient(model, table, xi), len(parts))


def _stacked(column: pl.Series) -> Array:
    return np.array(column.to_list(), dtype=np.float64)


def _gradient(model: ResponseModel, table: ResponseTable, xi: Array) -> Array:
    """Of tables' log-likelihood in phi, at xi (tables, p)."""
    lanes = np.repeat(xi[:, :, None], LANES, axis=2)
    return table_terms(model, kernel_tables(table), lanes)[1][:, :, 0]


class _Unsettled(Exception):
    """Quadratics and the places they give went on moving each other."""


def _settled(
    group: GroupFactors,
    rows: npt.NDArray[np.intp],
    table: ResponseTable,
    pull: Array,
    prior: tuple[Array, Array],
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Tables and linear terms as quadratics where they and the prior place the items, and the items' posteriors.

    From where all groups have the items, by steps of an SD of the prior at most: far out a quadratic may send an item
    that few responses place farther still.
    """
    sigma, longest = with_own_spread(group.model, group.sigma), np.sqrt(np.diagonal(prior[1], axis1=1, axis2=2))
    mean, covariance = group.mean[rows], group.covariance[rows]
    for _ in range(MOST_STEPS):
        sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        Q, h, _ = linearise(group.model, kernel_tables(table), cubature(mean, covariance))
        Q = raise_eigenvalues(Q, prior_precision(metric.phi_of(mean), sigma), FLOOR)
        h = h + pull
        found, covariance = item_posterior(Q, h, *prior)
        step = found - mean
        if (np.abs(step) < CLOSE * sd).all():
            return Q, h, (found, covariance)
        mean = mean + np.clip(step, -longest, longest)
    raise _Unsettled


def _remainder(
    model: ResponseModel, table: ResponseTable, Q: Array, h: Array, mean: Array, covariance: Array
) -> tuple[Array, Array]:
    """dQ and dh that tables lack of (Q, h) at items N(mean, covariance), as in `concal.consensus.factors.remainder`."""
    table_Q, table_h, _ = linearise(model, kernel_tables(table), cubature(mean, covariance))
    phi = metric.phi_of(mean)
    dQ = raise_eigenvalues(Q - table_Q, prior_precision(phi, covariance), 0.0)
    return dQ, h - table_h - times(Q - table_Q, phi) + times(dQ, phi)


def _shift(before: tuple[Array, Array], after: tuple[Array, Array]) -> Shift:
    turn = np.linalg.cholesky(after[1]) @ np.linalg.inv(np.linalg.cholesky(before[1]))
    return Shift(before[0], after[0], np.asarray(turn, dtype=np.float64))


def with_rest(group: GroupFactors, rest: Rest) -> GroupFactors:
    """The group's factors with those of the rest in their place."""
    changes = {
        "mean": rest.shift.move(group.mean[rest.rows]),
        "covariance": rest.shift.widen(group.covariance[rest.rows]),
        **{name: getattr(rest, name) for name in ("n_responses", "Q", "h", "dQ", "dh")},
        **rest.table._asdict(),
    }
    return _put(group, rest, changes)


def counts_of_rest(group: GroupDraws, rest: Rest) -> GroupDraws:
    """The group with the rest's responses; its draws stay (`moved_draws`)."""
    return _put(group, rest, {"n_responses": rest.n_responses, **rest.table._asdict()})


def moved_draws(xi: npt.NDArray[np.float32], rest: Rest) -> npt.NDArray[np.float32]:
    """Draws (chain, draw, item, parameter) of a group with its items moved to where the rest has them."""
    out = xi.copy()
    out[:, :, rest.rows] = rest.shift.move(xi[:, :, rest.rows].astype(np.float64))
    return out


def moved_item(xi: npt.NDArray[np.float32], rest: Rest, item: str) -> npt.NDArray[np.float32]:
    """Draws (chain, draw, parameter) of one item, moved."""
    own = Shift(*(values[rest.item_ids.index(item)] for values in rest.shift))
    return own.move(xi.astype(np.float64)).astype(np.float32)


def _put(group: _Group, rest: Rest, values: Mapping[str, npt.NDArray[Any]]) -> _Group:
    """The group with other values of the rest's items."""
    changes: dict[str, Any] = {}
    for name, new in values.items():
        changes[name] = getattr(group, name).copy()
        changes[name][rest.rows] = new
    return replace(group, **changes)
