r"""Drift: each item's period against the consensus of its other periods, with false-discovery control.

For a period's factor (Q, h) on the reference metric and the cavity N(mu, C) of the item's other periods (and the
population), the displacement is tested in the directions the period knows about; its size is what the period alone
would move the item by, :math:`(Q + \Sigma^{*-1})^{-1}(h - Q\mu)`, shown on the expected-score curve (positive: easier).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import chi2

from concal.combine.analytic import consensus_from_totals
from concal.combine.displacement import displacement
from concal.combine.gaussian import inverse, positive_definite, symmetric, times
from concal.combine.result import Consensus, GroupConsensus
from concal.combine.summary import GroupSummary, PeriodSummary
from concal.combine.totals import sum_periods
from concal.combine.wobble import patterns
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
NODES = np.linspace(-3.0, 3.0, 25)
SIMPLE = 0.1  # least precision of a cavity, in units of the population's


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
    summaries: Sequence[PeriodSummary], consensus: Consensus, *, fdr: float = 0.05, half_life: float | None = None
) -> Drift:
    """Test every item seen in two or more periods, period by period.

    Parameters
    ----------
    summaries : the periods the consensus was made of, in the same order
    consensus : Consensus
    fdr : float
        False discovery rate over all tests.
    half_life : float or None
        As it was when combining: old factors are taken out with the weight they had.
    """
    n = len(summaries)
    frames = []
    if consensus.method == "analytic":
        # cavities are differences of Gaussians: what the consensus adds to their product must not be in the difference
        totals = sum_periods(summaries, half_life, shared_metric=False)
        consensus = consensus_from_totals(totals, third_order=False)
    for m, summary in enumerate(summaries):
        weight = 1.0 if half_life is None else float(0.5 ** ((n - 1 - m) / half_life))
        for name, group in summary.groups.items():
            known = consensus.groups.get(name)
            if known is None or known.model != group.model:
                continue
            frame = _test_group(summary, group, known, consensus, weight)
            if frame is not None:
                frames.append(frame)
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


def reference_factor(
    summary: PeriodSummary, group: GroupSummary, rows: npt.NDArray[np.intp], consensus: Consensus
) -> tuple[Array, Array]:
    """The period's factor on the reference metric: linked summaries (analytic), or the joint method's own link."""
    if consensus.method == "analytic":
        Lambda, Omega = group.Lambda[rows], group.Omega[rows]
        return Lambda - Omega, times(Lambda, group.mu[rows]) - times(Omega, group.m[rows])
    link = consensus.links.filter((pl.col("period") == summary.period) & (pl.col("dimension") == group.dimension))
    A, B = float(link["A_mean"][0]), float(link["B_mean"][0])
    p = group.h.shape[1]
    E, e = np.ones(p), np.zeros(p)
    E[0], e[0], e[1] = 1.0 / A, -B / A, np.log(A)
    Q = group.Q[rows]
    return E[:, None] * Q * E, E * (group.h[rows] - Q @ e)


def _test_group(
    summary: PeriodSummary, group: GroupSummary, known: GroupConsensus, consensus: Consensus, weight: float
) -> pl.DataFrame | None:
    place = {item: j for j, item in enumerate(known.item_ids)}
    index = np.array([place[i] for i in group.item_ids], dtype=np.intp)
    usable = group.seen & (known.n_periods[index] > 1) & (known.source[index] == "consensus")
    rows = np.flatnonzero(usable)
    if not rows.size:
        return None
    Q, h = reference_factor(summary, group, rows, consensus)
    at = index[rows]
    P = inverse(known.covariance[at])
    cavity = P - weight * Q
    shift = times(P, known.mean[at]) - weight * h
    fine = positive_definite(cavity, known.sigma, SIMPLE)
    Q, h, cavity, shift, rows = Q[fine], h[fine], cavity[fine], shift[fine], rows[fine]
    if not rows.size:
        return None
    C = inverse(cavity)
    mean = times(C, shift)
    moved = displacement(Q, h, mean, C, np.asarray(np.linalg.cholesky(known.sigma), dtype=np.float64))
    tested = moved.degrees > 0
    Q, h, C, mean, rows = Q[tested], h[tested], C[tested], mean[tested], rows[tested]
    if not rows.size:
        return None
    squared, degrees = moved.squared[tested], moved.degrees[tested]
    Q, score = informative_part(Q, h - times(Q, mean), known.sigma)
    spread = Q + Q @ C @ Q
    G = inverse(Q + np.linalg.inv(known.sigma))
    step = times(G, score)
    step_sd = np.sqrt(np.maximum(np.diagonal(G @ spread @ G, axis1=1, axis2=2), 0.0))
    level, size = _score_change(group.model, mean, step)
    leave_out = _leave_out(Q, score, spread, mean, known.sigma)
    return pl.DataFrame(
        {
            "item_id": [group.item_ids[j] for j in rows],
            "group": [group.name] * rows.size,
            "dimension": [group.dimension] * rows.size,
            "period": [summary.period] * rows.size,
            "n_responses": group.n_responses[rows],
            "distance": np.sqrt(squared),
            "df": degrees,
            "p_value": chi2.sf(squared, degrees),
            "score_shift": level,
            "score_size": size,
            "d_shift": step[:, 0],
            "d_shift_sd": step_sd[:, 0],
            "log_a_shift": step[:, 1],
            "log_a_shift_sd": step_sd[:, 1],
            "leave_out_log_A": leave_out[:, 0],
            "leave_out_B": leave_out[:, 1],
        }
    )


def informative_part(Q: Array, score: Array, sigma: Array) -> tuple[Array, Array]:
    """Factors and their gradients without the directions in which an estimated likelihood curves upwards.

    The period says nothing there: the item is not moved in these directions, and no spread comes from them.
    """
    root = np.linalg.cholesky(sigma)
    unroot = np.linalg.inv(root)
    values, U = np.linalg.eigh(symmetric(root.T @ Q @ root))
    kept = (values > 0.0)[:, None, :] * U
    Q = unroot.T @ ((kept * values[:, None, :]) @ np.swapaxes(U, 1, 2)) @ unroot
    return symmetric(Q), np.asarray(times(kept @ np.swapaxes(U, 1, 2), score @ root) @ unroot)


def _score_change(model: ResponseModel, mean: Array, step: Array) -> tuple[Array, Array]:
    """Average and root-mean-square change of the expected score over abilities N(0, 1), for xi moving by `step`."""
    weight = np.exp(-0.5 * NODES**2)
    weight /= weight.sum()
    level, size = np.empty(mean.shape[0]), np.empty(mean.shape[0])
    for start in range(0, mean.shape[0], 8192):
        part = slice(start, start + 8192)
        theta = np.broadcast_to(NODES, (mean[part].shape[0], NODES.size))
        shape = (*theta.shape, mean.shape[1])
        before = model.expected_score(theta, np.broadcast_to(mean[part][:, None], shape))
        after = model.expected_score(theta, np.broadcast_to((mean + step)[part][:, None], shape))
        level[part] = (after - before) @ weight
        size[part] = np.sqrt((after - before) ** 2 @ weight)
    return level, size


def _leave_out(Q: Array, score: Array, spread: Array, mean: Array, sigma: Array) -> Array:
    """First-order change of the period's (log A, B) when an item is left out of the link, (items, 2)."""
    out = np.zeros((Q.shape[0], 2))
    fine = positive_definite(spread, sigma, 1e-3)
    if not fine.any():
        return out
    P = patterns(mean[fine][:, 0], Q.shape[-1])
    info = Q[fine] @ inverse(spread[fine])
    H = (np.swapaxes(P, 1, 2) @ info @ Q[fine] @ P).sum(axis=0)
    pull = (np.swapaxes(P, 1, 2) @ times(info, score[fine])[:, :, None])[:, :, 0]
    if np.linalg.cond(H) < 1e12:
        out[fine] = pull @ np.linalg.inv(H)
    return out
