r"""Drift: items whose periods disagree, and in which of them the item moved, with false-discovery control over items.

First every item as a whole: do its periods' factors agree (`homogeneity`)? Then, for those that do not, the outlying
periods (`movers`). Every period of an item is also tested against what its other periods that did not move, and the
population, say (`displacement`), in the directions it knows about. How far it lies from these periods is told by the
responses alone (`difference`): in d, in log a, and on the expected-score curve (positive: easier) where the period's
examinees are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import chi2

from concal import metric
from concal.calibration.fit.pvalues import benjamini_hochberg
from concal.consensus.drift.difference import differences
from concal.consensus.drift.displacement import Directions, Others, directions, displacement, without_each
from concal.consensus.drift.gather import Gathered, gather
from concal.consensus.drift.homogeneity import KnownParts, item_agreement, known_parts
from concal.consensus.drift.movers import find_movers
from concal.consensus.factors.gaussians import prior_precision
from concal.consensus.factors.period import Placed
from concal.consensus.gaussian import inverse, positive_part, times, units_of
from concal.consensus.links import in_force
from concal.consensus.result import Consensus, GroupConsensus
from concal.errors import counted
from concal.shown import shown

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
LEAST_SLOPE = 0.05
"""Of the item's, that a link is led through. Where the other periods say little of the item their slope may come out at
or below zero, which no change of unit moves; one twentieth is small beside any slope and not zero."""
USUAL = 3.0  # normal deviates within which a period's median distance is expected
FEWEST_RESPONSES = 20
"""Behind a test that counts for its period's inflation. The factor of four responses is one of few values: on real
responses of students dealt to periods at random, 62 % of such tests lie beyond their median, of those with 20 and more
51 to 56 %."""


@shown
@dataclass(frozen=True)
class Drift:
    """What moved.

    Attributes
    ----------
    items : polars DataFrame
        One row per item and period that could be tested, those that drifted first and by `score_size`: item_id, group,
        dimension, period, n_responses; the item as a whole: item_distance, item_df, item_p_value, item_q_value, movers
        (its periods that moved, or null); drifted (this period is one of them), and the period against the others that
        did not move: distance (in standard errors), df, p_value, q_value; as the responses alone tell it, null where
        all others moved: direction, score_shift, score_size (mean and root-mean-square change of the expected score
        over the period's examinees), d_shift, d_shift_sd, log_a_shift, log_a_shift_sd; leave_out_log_A, leave_out_B
        (change of the period's link without the item).
    periods : polars DataFrame
        Per period and dimension: tested, drifted, mean_d_shift, mean_score_shift, judged (tests with 20 responses and
        more), inflation (their median squared distance over its expectation; about 1 when the uncertainties are right;
        null where there is none), inflation_low, inflation_high (where it lies in all but a few of a thousand cases,
        given the number of tests).
    """

    items: pl.DataFrame
    periods: pl.DataFrame

    def _facts(self) -> dict[str, object]:
        moved = self.items.filter("drifted") if "drifted" in self.items.columns else self.items.clear()
        return {
            "tested": f"{_counted(self.items, 'item_id', 'item')} in {_counted(self.items, 'period', 'period')}",
            "drifted": _counted(moved, "item_id", "item") if moved.height else "none",
            "largest": ", ".join(f"{i} in {p}" for i, p in moved.head(5).select("item_id", "period").iter_rows()),
        }


def _counted(rows: pl.DataFrame, column: str, noun: str) -> str:
    return counted(rows[column].n_unique() if rows.height else 0, noun)


@dataclass(frozen=True)
class _Group:
    """One group's factors, and whether each of its items is of one piece: X^2, its degrees of freedom and p-value."""

    known: GroupConsensus
    found: Gathered
    seen: Directions
    parts: KnownParts
    squared: Array
    degrees: npt.NDArray[np.int64]
    p_value: Array


def find_drift(
    placed: Sequence[Placed], consensus: Consensus, *, fdr: float = 0.05, half_life: float | None = None
) -> Drift:
    """Test every item seen in two or more periods, and name the periods in which it moved.

    Parameters
    ----------
    placed : the periods the consensus was made of, in the same order
    consensus : Consensus
    fdr : float
        False discovery rate over items.
    half_life : float or None
        As it was when combining: what others say fades alike. Whether periods agree does not depend on it.
    """
    links = in_force(consensus.links)
    found = [(known, gather(placed, known, links)) for known in consensus.groups.values()]
    there = [(known, factors) for known, factors in found if factors is not None]
    return compare(there, [p.period for p in placed], fdr=fdr, half_life=half_life)


def compare(
    found: Sequence[tuple[GroupConsensus, Gathered]],
    names: Sequence[str],
    *,
    fdr: float = 0.05,
    half_life: float | None = None,
) -> Drift:
    """Test whether each item's factors agree, and name those that moved.

    Parameters
    ----------
    found : item groups with their factors
    names : what the factors come from, periods or groups of examinees, in order
    fdr, half_life
        See `find_drift`.
    """
    groups = [_test_items(known, factors) for known, factors in found]
    tested = [group.degrees > 0 for group in groups]
    q = benjamini_hochberg(np.concatenate([np.zeros(0), *(g.p_value[t] for g, t in zip(groups, tested, strict=True))]))
    frames = []
    for group, here in zip(groups, tested, strict=True):
        item_q = np.ones(here.size)
        item_q[here], q = q[: here.sum()], q[here.sum() :]
        frames.append(_frame(names, group, item_q, fdr, half_life))
    rows = [frame for frame in frames if frame is not None]
    if not rows:
        return Drift(pl.DataFrame(), pl.DataFrame())
    table = pl.concat(rows)
    table = table.with_columns(
        q_value=pl.Series(benjamini_hochberg(table["p_value"].to_numpy())),
        direction=pl.when(pl.col("score_shift") > 0)
        .then(pl.lit("easier"))
        .when(pl.col("score_shift").is_not_null())
        .then(pl.lit("harder")),
    )
    order = table.sort("drifted", "score_size", descending=True, nulls_last=True, maintain_order=True)
    return Drift(order.select(COLUMNS), _periods(table))


COLUMNS = (
    *("item_id", "group", "dimension", "period", "n_responses", "drifted", "direction", "score_shift", "score_size"),
    *("movers", "item_distance", "item_df", "item_p_value", "item_q_value", "distance", "df", "p_value", "q_value"),
    *("d_shift", "d_shift_sd", "log_a_shift", "log_a_shift_sd", "leave_out_log_A", "leave_out_B"),
)


def _test_items(known: GroupConsensus, found: Gathered) -> _Group:
    centre = metric.phi_of(known.mean)
    seen = directions(found.Q, units_of(prior_precision(centre, known.sigma)).rows(found.item))
    parts = known_parts(found.Q, found.h, centre[found.item], seen)
    return _Group(known, found, seen, parts, *item_agreement(parts, found.item, len(known.item_ids)))


def _frame(
    names: Sequence[str], group: _Group, item_q: Array, fdr: float, half_life: float | None
) -> pl.DataFrame | None:
    known, found = group.known, group.found
    moved = find_movers(group.parts, found.item, np.flatnonzero((item_q <= fdr) & (group.degrees > 0)))
    age = len(names) - 1 - found.period
    weight = np.ones(age.size) if half_life is None else 0.5 ** (age / half_life)
    prior = np.where(np.isnan(known.X[:, :1]), known.mean, np.nan_to_num(known.X) @ known.beta)
    others = without_each(
        weight[:, None, None] * found.Q, weight[:, None] * found.h, found.item, known.mean, prior, known.sigma, moved
    )
    placed_at = displacement(found.Q, found.h, others.mean, others.covariance, group.seen)
    several = np.bincount(found.item, minlength=len(known.item_ids))[found.item] > 1
    at = np.flatnonzero(others.usable & several & (placed_at.degrees > 0))
    if not at.size:
        return None
    movers: dict[int, list[str]] = {}
    for k in np.flatnonzero(moved):
        movers.setdefault(int(found.item[k]), []).append(names[found.period[k]])
    item = found.item[at]
    tested = group.degrees[item] > 0
    out = _influence(known, found, others, at)
    return differences(known, found, weight, moved, at).with_columns(
        item_id=pl.Series([known.item_ids[j] for j in item.tolist()], dtype=pl.String),
        group=pl.lit(known.name),
        dimension=pl.lit(known.dimension),
        n_responses=pl.Series(found.n_responses[at]),
        distance=pl.Series(np.sqrt(placed_at.squared[at])),
        df=pl.Series(placed_at.degrees[at]),
        p_value=pl.Series(chi2.sf(placed_at.squared[at], placed_at.degrees[at])),
        leave_out_log_A=pl.Series(out[:, 0]),
        leave_out_B=pl.Series(out[:, 1]),
        period=pl.Series([names[m] for m in found.period[at]], dtype=pl.String),
        drifted=pl.Series(moved[at]),
        movers=pl.Series([", ".join(movers[j]) if j in movers else None for j in item.tolist()], dtype=pl.String),
        item_distance=pl.Series(np.where(tested, np.sqrt(group.squared[item]), np.nan)).fill_nan(None),
        item_df=pl.Series(group.degrees[item]),
        item_p_value=pl.Series(np.where(tested, group.p_value[item], np.nan)).fill_nan(None),
        item_q_value=pl.Series(np.where(tested, item_q[item], np.nan)).fill_nan(None),
    )


def _influence(known: GroupConsensus, found: Gathered, others: Others, at: npt.NDArray[np.intp]) -> Array:
    """First-order change of each period's (log A, B) without the item, (factors, 2)."""
    Q, mean = positive_part(found.Q[at]), others.mean[at]
    score = found.h[at] - times(found.Q[at], mean)
    slope = np.maximum(mean[:, 1], LEAST_SLOPE * np.exp(known.mean[found.item[at], 1]))
    return leave_out(Q, score, Q + Q @ others.covariance[at] @ Q, slope, found.period[at])


def leave_out(Q: Array, score: Array, spread: Array, slope: Array, period: npt.NDArray[np.intp]) -> Array:
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


def _periods(table: pl.DataFrame) -> pl.DataFrame:
    """Each period as a whole, by dimension."""
    relative = pl.Series(table["distance"].to_numpy() ** 2 / chi2.median(table["df"].to_numpy()))
    enough = pl.col("n_responses") >= FEWEST_RESPONSES
    found = (
        table.with_columns(relative=relative)
        .group_by("period", "dimension", maintain_order=True)
        .agg(
            tested=pl.len(),
            drifted=pl.col("drifted").sum(),
            mean_d_shift=pl.col("d_shift").mean(),
            mean_score_shift=pl.col("score_shift").mean(),
            judged=enough.sum(),
            inflation=pl.col("relative").filter(enough).median(),
            df=pl.col("df").filter(enough).median().round().fill_null(1.0),
        )
    )
    low, high = _usual_inflation(found["judged"].to_numpy(), found["df"].to_numpy())
    return found.drop("df").with_columns(inflation_low=pl.Series(low), inflation_high=pl.Series(high))


def _usual_inflation(n: npt.NDArray[np.integer], degrees: Array) -> tuple[Array, Array]:
    r"""Where the median of n chi-squares over its expectation lies when all is well.

    The number of values below the true median is binomial (n, 1/2), so the sample median is between the quantiles
    :math:`\tfrac12 \pm z/(2\sqrt n)`.
    """
    half = 0.5 * USUAL / np.sqrt(np.maximum(n, 1))
    middle = chi2.median(degrees)
    low = chi2.ppf(np.maximum(0.5 - half, 0.0), degrees) / middle
    return low, np.where(half < 0.5, chi2.ppf(np.minimum(0.5 + half, 1.0), degrees) / middle, np.inf)
