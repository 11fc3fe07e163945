"""Summaries people look at: distributions of exposure, R-hat and abilities, expected-score curves with their bands."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.bank.tables.views import count_sources
from concal.calibration.result import Calibration
from concal.consensus.factors.period import GroupFactors
from concal.consensus.result import Consensus
from concal.linking.result import Link
from concal.linking.transform import linked_abilities
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
ABILITY_EDGES: Array = np.round(np.arange(-5.0, 5.01, 0.25), 2)
RHAT_EDGES = (*np.round(np.arange(1.0, 1.1001, 0.005), 3).tolist(), float("inf"))


def histogram(values: Array, edges: Array, **labels: str) -> pl.DataFrame:
    """Counts between edges, the last bin closed on both sides: labels, from, to, count."""
    count, _ = np.histogram(values, edges)
    columns = {"from": edges[:-1], "to": edges[1:], "count": count}
    return pl.DataFrame(columns).select(*(pl.lit(v).alias(k) for k, v in labels.items()), pl.all())


def exposure_edges(largest: int) -> Array:
    """Doubling bins: 0, 1, 2-3, 4-7, ... up to the largest count.

    >>> exposure_edges(5).tolist()
    [0.0, 1.0, 2.0, 4.0, 8.0]
    """
    top = int(np.ceil(np.log2(max(largest, 1) + 1)))
    return np.array([0.0, *(2.0**k for k in range(top + 1))])


def exposure_histogram(calibrations: Mapping[str, Calibration]) -> pl.DataFrame:
    """Responses per item in each period: period, from, to (not included), count of items."""
    counts = {p: np.concatenate([g.n_responses for g in c.groups.values()]) for p, c in calibrations.items()}
    edges = exposure_edges(max((int(n.max(initial=0)) for n in counts.values()), default=0))
    return _joined([histogram(n.astype(np.float64), edges, period=p) for p, n in counts.items()])


def rhat_histogram(calibrations: Mapping[str, Calibration]) -> pl.DataFrame:
    """R-hat of (item, parameter) pairs: period, from, to, count; everything below 1 is in the first bin."""
    edges = np.array(RHAT_EDGES)
    frames = []
    for period, calibration in calibrations.items():
        rhat = np.concatenate([g.rhat.ravel() for g in calibration.groups.values()])
        frames.append(histogram(np.maximum(rhat[np.isfinite(rhat)], 1.0), edges, period=period))
    return _joined(frames)


def convergence_table(calibrations: Mapping[str, Calibration]) -> pl.DataFrame:
    """What each period's run reached."""
    rows = []
    for period, calibration in calibrations.items():
        reached = calibration.convergence
        rhat = np.concatenate([g.rhat.ravel() for g in calibration.groups.values()])
        ess = np.concatenate([g.ess_bulk.ravel() for g in calibration.groups.values()])
        rows.append(
            {
                "period": period,
                "engine": calibration.engine,
                "converged": reached.converged,
                "sweeps": reached.sweeps,
                "draws": calibration.n_draws,
                "seconds": reached.seconds,
                "max_rhat_population": reached.max_rhat_population,
                "min_ess_population": reached.min_ess_population,
                "max_rhat_items": _finite_max(rhat),
                "share_items_rhat": reached.share_items_rhat,
                "median_ess_items": float(np.nanmedian(ess)) if np.isfinite(ess).any() else None,
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def worst_items(calibrations: Mapping[str, Calibration], n: int = 25) -> pl.DataFrame:
    """The items with the largest R-hat of each period: period, item_id, group, rhat, ess_bulk, n_responses."""
    frames = []
    for period, calibration in calibrations.items():
        table = pl.concat(
            pl.DataFrame(
                {
                    "period": [period] * g.n_items,
                    "item_id": pl.Series(g.item_ids, dtype=pl.String),
                    "group": [g.name] * g.n_items,
                    "rhat": g.rhat.max(axis=1),
                    "ess_bulk": g.ess_bulk.min(axis=1),
                    "n_responses": g.n_responses,
                }
            )
            for g in calibration.groups.values()
        )
        frames.append(table.fill_nan(None).sort("rhat", descending=True, nulls_last=True).head(n))
    return _joined(frames)


def ability_histogram(calibrations: Mapping[str, Calibration], links: Mapping[str, Link]) -> pl.DataFrame:
    """Examinees' posterior mean abilities on the reference metric: period, dimension, from, to, count."""
    edges = ABILITY_EDGES
    frames = []
    for period, calibration in calibrations.items():
        if calibration.abilities is None:
            continue
        mean = linked_abilities(calibration.abilities, links[period]).mean
        for k, dimension in enumerate(calibration.dimensions):
            answered = calibration.abilities.n_responses[:, k] > 0
            values = np.clip(mean[answered, k], edges[0], edges[-1])
            frames.append(histogram(values, edges, period=period, dimension=dimension))
    return _joined(frames)


def score_curves(model: ResponseModel, mean: Array, covariance: Array, theta: Array) -> tuple[Array, Array]:
    """Expected-score curves E_j(theta) in [0, 1] and the SD of their logits, (items, nodes) each.

    The curve is that of the posterior mean of xi. Its logit is nearly straight in theta and nearly linear in xi, so
    that its variance is g' C g with g the gradient of logit E in xi and C the posterior covariance, and
    sigma(logit E +- 1.645 SD) the 90 % band.

    Parameters
    ----------
    model : ResponseModel
    mean : (items, p)
    covariance : (items, p, p)
    theta : (nodes,)
    """
    step = 1e-4

    def logit(xi: Array) -> Array:
        score = np.clip(model.expected_score(theta, xi[:, None, :]), 1e-9, 1.0 - 1e-9)
        return np.log(score) - np.log1p(-score)

    ahead = step * np.eye(mean.shape[1])
    gradient = np.stack([(logit(mean + e) - logit(mean - e)) / (2.0 * step) for e in ahead], axis=-1)
    variance = np.einsum("jka,jab,jkb->jk", gradient, covariance, gradient)
    curve = np.asarray(model.expected_score(theta, mean[:, None, :]), dtype=np.float64)
    return curve, np.sqrt(np.maximum(variance, 0.0))


def scores_by_ability(group: GroupFactors, A: float, B: float) -> tuple[Array, Array] | None:
    """Observed scores from a period's response tables: bins' abilities and mean scores, (items, bins) each.

    Abilities are on the metric A theta + B, scores divided by the largest one. A bin holds an equal share of the item's
    examinees, ordered by what their other responses say of their ability. Unused bins are NaN; None without tables.
    """
    if group.bin_mean is None or group.cell_score is None or group.cell_count is None:
        return None
    total = group.cell_count.sum(axis=2)
    with np.errstate(invalid="ignore"):
        mean = (_raw_scores(group.model, group.cell_score) * group.cell_count).sum(axis=2) / total
    theta = np.where(total > 0, metric.move_theta(group.bin_mean, A, B), np.nan)
    return theta, mean / group.model.max_score


def _raw_scores(model: ResponseModel, encoded: Array) -> Array:
    """Scores from what the response model's kernels read in their place, by looking them up; exact for categories."""
    score = np.linspace(0.0, model.max_score, 1000 * int(np.ceil(model.max_score)) + 1)
    with np.errstate(divide="ignore"):
        code = model.encode_score(score)
    finite = np.isfinite(code)  # a logit has no ends
    return np.interp(encoded, code[finite], score[finite])


def source_table(consensus: Consensus) -> pl.DataFrame:
    """Items by where their numbers come from: group, dimension, model, items, consensus, fallback, predicted."""
    rows = []
    for name, group in consensus.groups.items():
        own = {"group": name, "dimension": group.dimension, "model": group.model.kind, "items": len(group.item_ids)}
        rows.append({**own, **count_sources(group)})
    return pl.DataFrame(rows)


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames) if frames else pl.DataFrame()


def _finite_max(values: Array) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else None
