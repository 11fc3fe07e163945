r"""Which periods of an item moved: the smallest subset whose removal leaves periods that agree.

Single periods first, then pairs, and so on up to half of the item's periods. Of several subsets of one size the one
that leaves the others most in agreement is named; of equally good ones the latest, because somebody has to keep the
item's place: of two periods that disagree it is the earlier one, and so it is when an item's first half disagrees with
its second. Where no subset brings agreement the best of the largest size is named.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from concal.consensus.drift.homogeneity import KnownParts, conflict, p_value

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
AGREE = 0.01
"""p-value above which periods are taken to agree. An innocent period is named beside the mover about this often; a
second mover hides only while it is this unremarkable."""
MOST_SUBSETS = 1000
"""Subsets of one size that are all looked at; beyond, the best one found is extended by one period (20 periods: all
triples, then step by step)."""
AT_ONCE = 200_000  # sets of periods in one pass, for memory


def find_movers(parts: KnownParts, item: npt.NDArray[np.intp], items: npt.NDArray[np.intp]) -> Flags:
    """Which factors moved, (factors,), for the items `items` whose factors do not agree.

    Parameters
    ----------
    parts : KnownParts
        All factors, those of an item in the order of their periods.
    item : (factors,)
        Their items.
    items : item numbers that were flagged
    """
    moved = np.zeros(item.size, dtype=bool)
    informative = np.flatnonzero((parts.rank > 0) & np.isin(item, items))
    order = informative[np.argsort(item[informative], kind="stable")]
    start = np.flatnonzero(np.diff(item[order], prepend=-1))
    sizes = np.diff(start, append=order.size)
    for size in np.unique(sizes[sizes > 1]):
        rows = order[start[sizes == size][:, None] + np.arange(size)]  # (items, periods)
        most = max(1, AT_ONCE // max(MOST_SUBSETS, int(size)))
        for at in range(0, rows.shape[0], most):
            block = rows[at : at + most]
            moved[block] = _outlying(parts.rows(block))
    return moved


def _agreement(parts: KnownParts, kept: Flags) -> Array:
    """Log p-values of the periods `kept` (items or 1, sets, periods) taken together, (items, sets)."""
    n, size = parts.own.shape
    width = parts.h.shape[-1]
    numbers = (parts.Q.reshape(n, size, width**2), parts.h, parts.own[..., None], parts.rank[..., None])
    total = kept.astype(np.float64) @ np.concatenate(numbers, axis=-1)
    Q = total[..., : width**2].reshape(*total.shape[:-1], width, width)
    h = total[..., width**2 : -2]
    squared, degrees = conflict(Q, h, total[..., -2], np.rint(total[..., -1]).astype(np.int64))
    p = p_value(squared, degrees)
    return np.where(p > 0.0, np.log(np.maximum(p, 1e-320)), -squared)  # too small for a p-value, still in order


def _outlying(parts: KnownParts) -> Flags:
    """The outlying subset of every item, (items, periods); parts have the axes (items, periods)."""
    n, size = parts.own.shape
    named = np.zeros((n, size), dtype=bool)
    left = np.arange(n)
    for k in range(1, size // 2 + 1):
        here = parts.rows(left)
        sets = _subsets(size, k) if comb(size, k) <= MOST_SUBSETS else _extended(named[left])
        agreement = _agreement(here, ~sets)
        best = agreement.argmax(axis=1)
        chosen = np.take_along_axis(np.broadcast_to(sets, (left.size, *sets.shape[1:])), best[:, None, None], 1)[:, 0]
        if 2 * k == size:
            chosen = _later_half(here, chosen)
        named[left] = chosen
        left = left[agreement[np.arange(left.size), best] < np.log(AGREE)]
        if not left.size:
            break
    return named


def _subsets(size: int, k: int) -> Flags:
    """All subsets of k periods, the latest first: (1, sets, periods)."""
    found = np.array(list(combinations(range(size - 1, -1, -1), k)))
    sets = np.zeros((found.shape[0], size), dtype=bool)
    np.put_along_axis(sets, found, True, axis=1)
    return sets[None]


def _extended(named: Flags) -> Flags:
    """Every subset (items, periods) with one more period, the latest first; (items, sets, periods)."""
    n, size = named.shape
    more = np.eye(size, dtype=bool)[::-1]
    sets = named[:, None, :] | more[None]
    grown = sets.sum(axis=2) > named.sum(axis=1)[:, None]
    return sets[grown].reshape(n, -1, size)


def _later_half(parts: KnownParts, chosen: Flags) -> Flags:
    """Where both halves agree in themselves the one without the first period has moved."""
    both = _agreement(parts, chosen[:, None, :])[:, 0] >= np.log(AGREE)
    return np.where((both & chosen[:, 0])[:, None], ~chosen, chosen)
