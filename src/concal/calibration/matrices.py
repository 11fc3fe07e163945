"""Small matrices of all chains: stored with the lane last, like everything; linear algebra wants it first."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def by_lane(values: npt.NDArray[np.floating]) -> Array:
    """(..., LANES) as (LANES, ...), contiguous."""
    return np.ascontiguousarray(values.transpose(_last_to_first(values.ndim)), dtype=np.float64)


def lanes_last(values: npt.NDArray[np.floating]) -> Array:
    """(LANES, ...) as (..., LANES), contiguous."""
    return np.ascontiguousarray(values.transpose(_first_to_last(values.ndim)), dtype=np.float64)


def inverse(matrices: Array) -> Array:
    """Inverses of (..., n, n, LANES)."""
    return lanes_last(np.linalg.inv(matrices.transpose(_last_to_first(matrices.ndim))))


@cache
def _last_to_first(n: int) -> tuple[int, ...]:
    """Axes for `transpose`, which takes a tenth of the time of `moveaxis`: small periods do little else."""
    return (n - 1, *range(n - 1))


@cache
def _first_to_last(n: int) -> tuple[int, ...]:
    return (*range(1, n), 0)


@cache
def lower(n: int, k: int = 0) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns up to the k-th diagonal, row by row: looked up many times a sweep, so kept."""
    rows, columns = np.tril_indices(n, k)
    return rows, columns


def symmetric(rows: Array, n: int) -> Array:
    """(..., n (n + 1) / 2, LANES) lower triangles by rows -> (..., n, n, LANES)."""
    i, j = lower(n)
    full = np.empty((*rows.shape[:-2], n, n, rows.shape[-1]))
    full[..., i, j, :] = full[..., j, i, :] = rows
    return full
