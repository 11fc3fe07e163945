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

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.stats import norm

from concal.calibration.fit.pvalues import benjamini_hochberg

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Floats = npt.NDArray[np.floating]
COMMON = 50
"""Fewest examinees two items must share: below, only a correlation above .4 could be told from chance."""
BLOCK = 64  # items at a time: bounds memory
KEPT = 200  # pairs of a period that are kept, those that stand out most


class Residuals(NamedTuple):
    """Of responses: row of the item, examinee, standardised residual z, and b."""

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
    row = np.cumsum(often) - 1
    here = often[found.item]
    n_rows = int(often.sum())
    places = sparse.csr_array(
        (np.arange(int(here.sum()), dtype=np.int32), (row[found.item[here]], found.person[here])),
        shape=(n_rows, n_persons),
    )
    turned = places.T.tocsr()

    def products(values: Floats) -> Iterator[Array]:
        """Sums over common examinees of products, some items with all: double, and one kind of value at a time.

        Of a large period they are millions, and all four kinds at once were the most memory of its calibration.
        """
        right = sparse.csr_array((values[turned.data].astype(np.float64), turned.indices, turned.indptr), turned.shape)
        for lo in range(0, n_rows, BLOCK):
            start = places.indptr[lo : lo + BLOCK + 1]
            some = slice(start[0], start[-1])
            own = values[places.data[some]].astype(np.float64)
            left = sparse.csr_array((own, places.indices[some], start - start[0]), (start.size - 1, n_persons))
            yield (left @ right).toarray()

    z, b = found.z[here], found.b[here]
    enough = []
    for lo, n in zip(range(0, n_rows, BLOCK), products(np.ones(z.size, np.float32)), strict=True):
        ahead = np.arange(n_rows)[None, :] > np.arange(lo, lo + n.shape[0])[:, None]
        i, j = np.nonzero((n >= common) & ahead)
        enough.append((lo, i, j, n[i, j]))

    def picked(values: Floats) -> Array:
        """Of the pairs with enough common examinees."""
        blocks = [block[i, j] for block, (_, i, j, _) in zip(products(values), enough, strict=True)]
        return np.concatenate(blocks) if blocks else np.zeros(0)

    total, square = picked(z) + picked(b), picked(z**2)
    first, second, n_common = (
        np.concatenate(column) if enough else np.zeros(0, int)
        for column in ([lo + i for lo, i, _, _ in enough], [j for _, _, j, _ in enough], [n for *_, n in enough])
    )
    some = square > 0
    first, second, n_common, total = first[some], second[some], n_common[some], total[some]
    q3, t = np.asarray(total / n_common, np.float64), total / np.sqrt(square[some])
    p = 2.0 * norm.sf(np.abs(t))
    q = benjamini_hochberg(p)
    at = np.argsort(p, kind="stable")[:kept]
    names = np.flatnonzero(often)
    return Pairs(
        names[first[at]], names[second[at]], np.rint(n_common[at]).astype(np.int64), q3[at], t[at], p[at], q[at], p.size
    )
