"""Totals of rows by the place they belong to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]


def total_in(place: Index, values: Array | None, n: int) -> Array:
    """Sum of the values in each of n places; without values, how many there are."""
    return np.bincount(place, values, n).astype(np.float64)


def total_of_runs(place: Index, values: Array, n: int) -> Array:
    """The same of rows of any shape, (rows, ...) -> (n, ...), in the order of their places."""
    out = np.zeros((n, *values.shape[1:]))
    if place.size:
        first = np.flatnonzero(np.diff(place, prepend=-1))
        out[place[first]] = np.add.reduceat(values, first, axis=0)
    return out
