r"""Drift: each item's period against the consensus of its other periods, with false-discovery control.

For a period's Gaussian factor (Q, h) on the reference metric, at the links in force, and N(mu, C) what the item's other
periods and the population say, the displacement is tested in the directions the period knows about; its size is what
the period alone would move the item by, :math:`(Q + \Omega)^{-1}(h - Q\mu)` with Omega the prior's precision, shown on
the expected-score curve (positive: easier).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import chi2

from concal import metric
from concal.combine.drift.displacement import displacement
from concal.combine.drift.others import Others, without_each
from concal.combine.factors.period import Placed
from concal.combine.factors.wobble import positive_part
from concal.combine.gaussian import inverse, times
from concal.combine.result import Consensus, GroupConsensus
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
NODES = np.linspace(-3.0, 3.0, 25)
LEAST_SLOPE = 0.05  # of the item's, that a displaced slope is shown with


@dataclass(frozen=True)
class Drift:
    """What moved.

    Attributes
    ----------
    items : polars DataFrame
        One row per item and period that could be tested: item_id, group, dimension, period, n_responses, distance (in
        standard errors), df, p_value, q_value, drifted, direction, score_shift, score_size, d_shift, d_shift_sd,
        log_a_shift, log_a_shift_sd, leave_out_log_A, leave_out_B (change of the period's link without the item).
    periods : polars DataFrame
        Per period and dimension: tested, drifted, mean_d_shift, mean_score_shift, inflation (median squared distance
        over its expectation; about 1 when the uncertainties are right).
    """

    items: pl.DataFrame
    periods: pl.DataFrame


def find_drift(
    placed: Sequence[Placed], consensus: Consensus, *, fdr: float = 0.05, half_life: float | None = None
) -> Drift:
    """Test every item seen in two or more periods, period by period.

    Parameters
    ----------
    placed : the periods the consensus was made of, in the same order
    consensus : Consensus
    fdr : float
        False discovery rate over all tests.
    half_life : float or None
        As it was when combining: what others say fades alike.
    """
    links = {(r["period"], r["dimension"]): (r["A_mean"], r["B_mean"]) for r in consensus.links.iter_rows(named=True)}
    frames = [
        frame
        for group in consensus.groups.values()
        if (frame := _test_group(placed, group, links, half_life)) is not None
    ]
    if not frames:
        return Drift(pl.DataFrame(), pl.DataFrame())
    table = pl.concat(frames)
    q_value = benjamini_hochberg(table["p_value"].to_numpy())
    table = table.with_columns(q_value=pl.Series(q_value), drifted=pl.Series(q_value <= fdr))
    table = table.with_columns(
        direction=pl.when(pl.col("score_shift") > 0).then(pl.lit("easier")).otherwise(pl.lit("harder"))
    )
    periods = (
        table.with_columns(relative=(pl.col("distance") ** 2) / pl.Series(chi2.median(table["df"].to_numpy())))
        .group_by("period", "dimension", maintain_order=True)
        .agg(
            tested=pl.len(),
            drifted=pl.col("drifted").sum(),
            mean_d_shift=pl.col("d_shift").mean(),
            mean_score_shift=pl.col("score_shift").mean(),
            inflation=pl.col("relative").median(),
        )
    )
    return Drift(table.sort("p_value", maintain_order=True), periods)


def benjamini_hochberg(p_value: Array) -> Array:
    """Adjusted p-values: the smallest false discovery rate at which each test is listed."""
    n = p_value.shape[0]
    order = np.argsort(p_value, kind="stable")
    ranked = p_value[order] * n / np.arange(1, n + 1)
    adjusted = np.minimum.accumulate(ranked[::-1])[::-1]
    out = np.empty(n)
    out[order] = np.minimum(adjusted, 1.0)
    return out


@dataclass(frozen=True)
class _Factors:
    """All factors of a group on the reference metric: Q, h, the rows of their items, their periods and responses."""

    Q: Array
    h: Array
    item: npt.NDArray[np.intp]
    period: npt.NDArray[np.intp]
    n_responses: npt.NDArray[np.int64]


def _gather(
    placed: Sequence[Placed], known: GroupConsensus, links: Mapping[tuple[str, str], tuple[float, float]]
) -> _Factors | None:
    place = {item: j for j, item in enumerate(known.item_ids)}
    parts = []
    for m, period in enumerate(placed):
        group = period.factors.groups.get(known.name)
        if group is None or group.model != known.model:
            continue
        seen = np.flatnonzero(group.seen)
        rows = np.array([place[group.item_ids[j]] for j in seen], dtype=np.intp)
        Q, h = metric.move_factor(group.Q[seen], group.h[seen], *links[period.period, known.dimension])
        parts.append((Q, h, rows, np.full(seen.size, m, dtype=np.intp), group.n_responses[seen]))
    if not parts:
        return None
    return _Factors(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _test_group(
    placed: Sequence[Placed],
    known: GroupConsensus,
    links: Mapping[tuple[str, str], tuple[float, float]],
    half_life: float | None,
) -> pl.DataFrame | None:
    found = _gather(placed, known, links)
    if found is None:
        return None
    age = np.ones(len(placed)) if half_life is None else 0.5 ** ((len(placed) - 1 - np.arange(len(placed))) / half_life)
    weight = age[found.period]
    prior = np.where(np.isnan(known.X[:, :1]), known.mean, np.nan_to_num(known.X) @ known.beta)
    others = without_each(
        weight[:, None, None] * found.Q, weight[:, None] * found.h, found.item, known.mean, prior, known.sigma
    )
    moved = displacement(found.Q, found.h, others.mean, others.covariance, others.unit)
    several = np.bincount(found.item, minlength=len(known.item_ids))[found.item] > 1
    at = np.flatnonzero(others.usable & several & (moved.degrees > 0))
    if not at.size:
        return None
    return _frame(placed, known, found, others, moved.squared, moved.degrees, at)


def _frame(
    placed: Sequence[Placed],
    known: GroupConsensus,
    found: _Factors,
    others: Others,
    squared: Array,
    degrees: npt.NDArray[np.int64],
    at: npt.NDArray[np.intp],
) -> pl.DataFrame:
    """Size and direction of the displacements `at`."""
    Q, mean, C = positive_part(found.Q[at]), others.mean[at], others.covariance[at]
    score = found.h[at] - times(found.Q[at], mean)
    spread = Q + Q @ C @ Q
    G = inverse(Q + others.unit[at])
    step = times(G, score)
    before = mean.copy()
    before[:, 1] = np.maximum(before[:, 1], LEAST_SLOPE * np.exp(known.mean[found.item[at], 1]))
    after = before + step
    after[:, 1] = np.maximum(after[:, 1], LEAST_SLOPE * before[:, 1])
    xi, moved_xi = metric.xi_of(before), metric.xi_of(after)
    K = np.zeros((at.size, 2, mean.shape[1]))  # d (d, log a) / d phi
    a = before[:, 1]
    K[:, 0, 0], K[:, 0, 1], K[:, 1, 1] = -1.0 / a, before[:, 0] / a**2, 1.0 / a
    sd = np.sqrt(np.maximum(np.diagonal(K @ G @ spread @ G @ np.swapaxes(K, 1, 2), axis1=1, axis2=2), 0.0))
    level, size = _score_change(known.model, xi, moved_xi)
    out = _leave_out(Q, score, spread, a, found.period[at])
    n = at.size
    return pl.DataFrame(
        {
            "item_id": [known.item_ids[j] for j in found.item[at]],
            "group": [known.name] * n,
            "dimension": [known.dimension] * n,
            "period": [placed[m].period for m in found.period[at]],
            "n_responses": found.n_responses[at],
            "distance": np.sqrt(squared[at]),
            "df": degrees[at],
            "p_value": chi2.sf(squared[at], degrees[at]),
            "score_shift": level,
            "score_size": size,
            "d_shift": moved_xi[:, 0] - xi[:, 0],
            "d_shift_sd": sd[:, 0],
            "log_a_shift": moved_xi[:, 1] - xi[:, 1],
            "log_a_shift_sd": sd[:, 1],
            "leave_out_log_A": out[:, 0],
            "leave_out_B": out[:, 1],
        }
    )


def _score_change(model: ResponseModel, before: Array, after: Array) -> tuple[Array, Array]:
    """Average and root-mean-square change of the expected score over abilities N(0, 1), from items to items in xi."""
    weight = np.exp(-0.5 * NODES**2)
    weight /= weight.sum()
    level, size = np.empty(before.shape[0]), np.empty(before.shape[0])
    for start in range(0, before.shape[0], 8192):
        part = slice(start, start + 8192)
        theta = np.broadcast_to(NODES, (before[part].shape[0], NODES.size))
        shape = (*theta.shape, before.shape[1])
        change = model.expected_score(theta, np.broadcast_to(after[part][:, None], shape))
        change = change - model.expected_score(theta, np.broadcast_to(before[part][:, None], shape))
        level[part], size[part] = change @ weight, np.sqrt(change**2 @ weight)
    return level, size


def _leave_out(Q: Array, score: Array, spread: Array, slope: Array, period: npt.NDArray[np.intp]) -> Array:
    """First-order change of each period's (log A, B) when the item is left out of its link, (factors, 2)."""
    out = np.zeros((Q.shape[0], 2))
    P = metric.patterns(slope, Q.shape[-1])
    # a weak factor's spread is hardly invertible: a part in a million of its size makes it so and moves nothing
    ridge = 1e-6 * np.trace(spread, axis1=1, axis2=2)[:, None, None] * np.eye(Q.shape[-1])
    info = Q @ inverse(spread + ridge)
    H = np.swapaxes(P, 1, 2) @ info @ Q @ P
    pull = times(np.swapaxes(P, 1, 2), times(info, score))
    for m in np.unique(period):
        here = period == m
        total = H[here].sum(axis=0)
        if np.linalg.cond(total) < 1e12:
            out[here] = pull[here] @ np.linalg.inv(total)
    return out
