"""Sums over the examinees two items have in common, some items with all that follow them."""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.compiler import kernel


@kernel(fastmath=False)
def by_person(item: Any, person: Any, z: Any, b: Any, place: Any, out_item: Any, out_z: Any, out_b: Any) -> None:
    """Responses in the order of persons; `place` (persons,) is where each one's begin and, at the end, where they end.

    Items below zero are left out.
    """
    for k in range(item.size):
        if item[k] >= 0:
            at = place[person[k]]
            out_item[at], out_z[at], out_b[at] = item[k], z[k], b[k]
            place[person[k]] = at + 1


@kernel(fastmath=False)
def pair_sums(
    item: Any, person: Any, z: Any, b: Any, start: Any, by_item: Any, by_z: Any, by_b: Any, lo: int, n: Any, total: Any,
    square: Any,
) -> None:  # fmt: skip
    """Add to n, total and square (rows, items): how many, sums of z z' + b b' and of (z z')^2.

    Of the items lo, lo + 1, ... (whose responses are item, person, z, b) with every later item; start (persons + 1,)
    says where a person's responses are among by_item, by_z, by_b.
    """
    for k in range(item.size):
        j, p, own_z, own_b = item[k], person[k], np.float64(z[k]), np.float64(b[k])
        if j < 0:
            continue
        for other in range(start[p], start[p + 1]):
            i = by_item[other]
            if i > j:
                product = own_z * by_z[other]
                n[j - lo, i] += 1
                total[j - lo, i] += product + own_b * by_b[other]
                square[j - lo, i] += product * product
