"""An item's examinees in cells of nearly equal ability, as their other responses tell it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration.tables import bin_moments, by_ability

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
FINE = 4
"""Cells a bin is divided into: abilities within a cell are taken as normal, which for a fifth of the examinees at
the edge of the distribution is not good enough where they are many."""


class Cells(NamedTuple):
    """Cells of examinees, in the order of items.

    `item`, `bin` (cells,): to which they belong; `n`: how many examinees; `theta`, `sd`: their abilities; `place`
    (responses,): the cell of every response.
    """

    item: Index
    bin: Index
    n: Array
    theta: Array
    sd: Array
    place: Index


def make_cells(item: Index, n_items: int, mean: Array, sd: Array, bins: int) -> Cells:
    """Cut every item's examinees into equal bins by `mean`, and each bin into cells."""
    n = np.bincount(item, minlength=n_items)
    used, most = np.minimum(n, bins * FINE), bins * FINE
    held, place = np.unique(item * most + by_ability(item, mean, used), return_inverse=True)
    owner = held // most
    return Cells(
        owner,
        held % most * np.minimum(n, bins)[owner] // used[owner],
        total_in(place, np.ones(place.size), held.size),
        *bin_moments(place, held.size, mean, sd),
        place,
    )


def total_in(place: Index, values: Array, n: int) -> Array:
    """Sum of the values in each of n places."""
    return np.bincount(place, values, n).astype(np.float64)


def by_item(values: Array, item: Index, n_items: int) -> Array:
    """Sum over the cells of each item, (cells, ...) -> (items, ...)."""
    out = np.zeros((n_items, *values.shape[1:]))
    if item.size:
        first = np.flatnonzero(np.diff(item, prepend=-1))
        out[item[first]] = np.add.reduceat(values, first, axis=0)
    return out
