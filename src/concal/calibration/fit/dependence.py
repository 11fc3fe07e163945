r"""Local dependence: pairs of items whose residuals go together in the same examinees (Yen's Q3, corrected).

The residual z of a response is standardised and taken from what the examinee's *other* responses predict. With v and
v_- the variances of the ability with and without the response, residuals of two responses to independent items have the
correlation :math:`-b_1 b_2`, :math:`b^2 = v_-/v - 1` (exact for normal responses: each helped to predict the other). So
over the examinees of both items

.. math:: Q_3 = \frac1n \sum_i (z_{i1} z_{i2} + b_{i1} b_{i2}), \qquad
          t = \frac{\sum_i (z_{i1} z_{i2} + b_{i1} b_{i2})}{\sqrt{\sum_i z_{i1}^2 z_{i2}^2}}

is about zero, and t about standard normal, for items that are independent given the ability.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from concal.calibration.fit.pvalues import benjamini_hochberg
from concal.calibration.kernels.pairs import by_person, pair_sums

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Floats = npt.NDArray[np.floating]
COMMON = 50
"""Fewest examinees two items must share: below, only a correlation above .4 could be told from chance."""
BLOCK = 64  # items at a time with all others: bounds memory
KEPT = 200  # pairs of a period that are kept, those that stand out most


class Residuals(NamedTuple):
    """Of responses in the order of items: row of the item (ascending), examinee, standardised residual z, and b."""

    item: npt.NDArray[np.integer]
    person: npt.NDArray[np.integer]
    z: Floats
    b: Floats


class Pairs(NamedTuple):
    """Pairs of items that stand out most, and how many were tested."""

    first: Index
    second: Index
    n_common: npt.NDArray[np.int64]
    q3: Array
    t: Array
    p_value: Array
    q_value: Array
    tested: int


def dependent_pairs(found: Residuals, n_items: int, n_persons: int, *, common: int = COMMON, kept: int = KEPT) -> Pairs:
    """Q3 of every pair of items of one dimension with enough common examinees; the `kept` smallest p-values."""
    often = np.bincount(found.item, minlength=n_items) >= common
    names = np.flatnonzero(often)
    first, second, n_common, total, square = _sums(found, often, n_persons, common)
    some = square > 0
    first, second, n_common, total = first[some], second[some], n_common[some], total[some]
    t = total / np.sqrt(square[some])
    p = 2.0 * norm.sf(np.abs(t))
    q = benjamini_hochberg(p)
    at = np.argsort(p, kind="stable")[:kept]
    q3 = total[at] / n_common[at]
    return Pairs(names[first[at]], names[second[at]], n_common[at].astype(np.int64), q3, t[at], p[at], q[at], p.size)


def _sums(found: Residuals, often: npt.NDArray[np.bool_], n_persons: int, common: int) -> tuple[Array, ...]:
    """Pairs of the items that are there often enough, their common examinees, and the sums of Q3 and t."""
    row = np.where(often, np.cumsum(often) - 1, -1).astype(np.int32)[found.item]  # items that are too rare: -1
    names = np.flatnonzero(often)
    n_rows = names.size
    counts = np.bincount(found.person[row >= 0], minlength=n_persons)
    start = np.concatenate([[0], np.cumsum(counts)])
    others = np.empty(start[-1], np.int32), np.empty(start[-1], found.z.dtype), np.empty(start[-1], found.b.dtype)
    by_person(row, found.person, found.z, found.b, start[:-1].copy(), *others)
    ends = np.searchsorted(found.item, names.astype(found.item.dtype), side="right")
    empty = (np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0), np.zeros(0))
    parts = [empty]
    for lo in range(0, n_rows, BLOCK):
        hi = min(lo + BLOCK, n_rows)
        own = slice(int(ends[lo - 1]) if lo else 0, int(ends[hi - 1]))
        n = np.zeros((hi - lo, n_rows), np.int32)
        total, square = np.zeros(n.shape), np.zeros(n.shape)
        mine = row[own], found.person[own], found.z[own], found.b[own]
        pair_sums(*mine, start, *others, lo, n, total, square)
        i, j = np.nonzero(n >= common)
        parts.append(((lo + i).astype(np.int32), j.astype(np.int32), n[i, j], total[i, j], square[i, j]))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
