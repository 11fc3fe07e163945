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
    place = row[found.item[here]], found.person[here]
    parts, columns = _matrices(*place, found.z[here], found.b[here], (n_rows, n_persons))
    pieces = []
    for lo in range(0, n_rows, BLOCK):
        n, zz, bb, square = (
            (part[lo : lo + BLOCK] @ column).toarray().astype(np.float64)
            for part, column in zip(parts, columns, strict=True)
        )
        ahead = np.arange(n_rows)[None, :] > np.arange(lo, lo + n.shape[0])[:, None]
        i, j = np.nonzero((n >= common) & ahead & (square > 0))
        total = zz[i, j] + bb[i, j]
        pieces.append((i + lo, j, n[i, j], total / n[i, j], total / np.sqrt(square[i, j])))
    first, second, n_common, q3, t = (
        (np.concatenate(column) for column in zip(*pieces, strict=True)) if pieces else (np.zeros(0, int),) * 5
    )
    p = 2.0 * norm.sf(np.abs(t))
    q = benjamini_hochberg(p)
    at = np.argsort(p, kind="stable")[:kept]
    names = np.flatnonzero(often)
    return Pairs(
        names[first[at]], names[second[at]], np.rint(n_common[at]).astype(np.int64), q3[at], t[at], p[at], q[at], p.size
    )


def _matrices(
    row: Index, person: npt.NDArray[np.integer], z: Floats, b: Floats, shape: tuple[int, int]
) -> tuple[list[sparse.csr_array], list[sparse.csr_array]]:
    """Ones, z, b and z^2 by item and examinee, and their transposes: single numbers, one set of places for all four.

    Of a large period they are millions each, and double ones with places of their own were the most memory of its
    calibration.
    """
    places = sparse.csr_array((np.arange(row.size, dtype=np.int32), (row, person)), shape=shape)
    turned = places.T.tocsr()

    def filled(at: sparse.csr_array, values: Floats) -> sparse.csr_array:
        return sparse.csr_array((values[at.data].astype(np.float32, copy=False), at.indices, at.indptr), shape=at.shape)

    every: list[Floats] = [np.ones(z.size, np.float32), z, b, z**2]
    return [filled(places, values) for values in every], [filled(turned, values) for values in every]
