"""Links that drifting items do not pull: how probable it is that each item stayed where it was.

The posterior probability that the worst of an item's factors agrees with the others is the weight of all of them for
the links: the item itself keeps every factor in full, as in a pooled analysis, so one that moved would also pull the
links of the periods that saw it where it was.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.workers import Workers
from concal.consensus.drift.displacement import directions, displacement, without_each
from concal.consensus.joint.arrange import BLOCK_ITEMS, GroupTables

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
START_SHARE, LEAST_SHARE, MOST_SHARE = 0.02, 0.005, 0.3
"""How often items of a period are taken to have moved: before the data are asked, at least, and at most. The first only
begins an estimate that the data take over. A share of zero could never grow again, so some is kept; and beyond a third
it is the period's link that is wrong rather than its items, and without them nothing would tell the link."""
SURE = 0.9
"""Probabilities above count as one, so that nothing is lost where nothing drifts: at `START_SHARE` and without evidence
an item's is .98. Below it the probability itself is the weight, so nothing jumps by more than a tenth."""


def link_weights(
    tables: GroupTables,
    Q: Array,
    h: Array,
    link: Array,
    linked: Bools,
    at: Array,
    prior_mean: Array,
    sigma: Array,
    workers: Workers,
) -> Array:
    """Weights (factors,) of a group's factors for the links.

    Parameters
    ----------
    Q, h : quadratics of the factors on their own metrics
    link : (periods, 2)
        (log A, B) of the group's dimension.
    linked : (periods,)
        Periods whose link is known before the chains run. Others are placed by the chains: until then nobody can say
        what moved in them, and they neither test nor are tested.
    at, prior_mean : (items, p)
        Where the items are, and their prior means, in xi.
    """
    log_same, tested = np.full(tables.n_factors, np.inf), np.zeros(tables.n_factors, dtype=bool)

    def compare(lo: int) -> None:
        """Each factor of some items with what the others say."""
        items = slice(lo, min(lo + BLOCK_ITEMS, tables.rows.size))
        own = slice(int(tables.start[items.start]), int(tables.start[items.stop]))
        item, known = tables.item[own] - lo, linked[tables.period[own]]
        log_A, B = link[tables.period[own]].T
        moved_Q, moved_h = metric.move_factor(Q[own], h[own], np.exp(log_A), B)
        others = without_each(moved_Q, moved_h, item, at[items], prior_mean[items], sigma, moved=~known)
        seen = directions(moved_Q, others.units)
        moved = displacement(moved_Q, moved_h, others.mean, others.covariance, seen)
        several = np.bincount(item[known], minlength=items.stop - lo)[item] > 1
        tested[own] = known & others.usable & (moved.degrees > 0) & several
        log_same[own] = np.where(tested[own], moved.log_same, np.inf)

    workers.map(compare, range(0, tables.rows.size, BLOCK_ITEMS))
    # of an item's factors only the worst is suspected: of two that disagree one has to keep the item's place, and it
    # is the earlier one
    least = np.minimum.reduceat(log_same, tables.start[:-1])[tables.item]
    worst = np.maximum.reduceat(np.where(log_same == least, np.arange(log_same.size), -1), tables.start[:-1])
    worst = worst[tested[worst]]
    same = np.ones(log_same.size)
    same[worst] = _stayed(log_same[worst], tables.period[worst], np.bincount(tables.period[tested]))
    stayed = np.minimum.reduceat(np.where(same <= SURE, same, 1.0), tables.start[:-1])
    return np.asarray(stayed[tables.item])


def _stayed(log_same: Array, period: npt.NDArray[np.integer], tested: npt.NDArray[np.integer]) -> Array:
    """Probabilities that items did not move, with the share of movers that each period shows; `tested` by period."""
    share = np.full(tested.size, START_SHARE)
    for _ in range(10):
        gone = np.bincount(period, 1.0 - _probability(log_same, share[period]), tested.size)
        share = np.clip(gone / np.maximum(tested, 1), LEAST_SHARE, MOST_SHARE)
    return _probability(log_same, share[period])


def _probability(log_same: Array, share: Array) -> Array:
    """Posterior probability that items did not move, given the share of movers in their periods."""
    odds = np.log1p(-share) - np.log(share) + log_same
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -700.0, 700.0))))


def suspected(tables: GroupTables, weights: Array) -> int:
    """How many items count less than half."""
    return int((weights[tables.start[:-1]] < 0.5).sum())
