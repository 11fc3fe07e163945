"""Moments of items' draws, a block of items at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.result import GroupDraws
from concal.errors import DataError, first_few

Array = npt.NDArray[np.float64]
BLOCK_BYTES = 12 * 2**20
"""Of draws at a time; a handful of arrays of that size are alive at once, beside everything a calibration has."""


class PhiMoments(NamedTuple):
    """Mean (items, p) and covariance (items, p, p) of phi over the draws."""

    mean: Array
    covariance: Array


def draw_blocks(group: GroupDraws, at_once: int = BLOCK_BYTES) -> Iterator[tuple[slice, Array]]:
    """Blocks of items with their draws of xi, (items, p, draws) float64, of so many bytes."""
    n, p, s = group.n_items, len(group.model.parameters), group.n_draws
    xi = group.xi.reshape(-1, *group.xi.shape[2:])
    size = max(1, at_once // (8 * s * p))
    for start in range(0, n, size):
        block = slice(start, min(start + size, n))
        yield block, np.ascontiguousarray(xi[:, block].transpose(1, 2, 0), dtype=np.float64)


def phi_blocks(group: GroupDraws, at_once: int = BLOCK_BYTES) -> Iterator[tuple[slice, Array]]:
    """The same in slope and intercept."""
    for block, x in draw_blocks(group, at_once):
        yield block, np.moveaxis(metric.phi_of(np.moveaxis(x, 1, -1)), -1, 1)


def item_moments(group: GroupDraws, period: str) -> tuple[Array, Array, PhiMoments]:
    """Mean and covariance of every item's xi, and those of its phi; draws that are not finite are refused."""
    n, p = group.n_items, len(group.model.parameters)
    xi = np.empty((n, p)), np.empty((n, p, p))
    phi = PhiMoments(np.empty((n, p)), np.empty((n, p, p)))
    for block, x in draw_blocks(group):
        bad = np.flatnonzero(~np.isfinite(x).all(axis=(1, 2)))
        if bad.size:
            names = [group.item_ids[block.start + i] for i in bad]
            raise DataError(
                f"period {period!r}, group {group.name!r}: draws of {first_few(names)} are not finite; "
                "recalibrate the period or leave these items out"
            )
        xi[0][block], xi[1][block] = _moments(x)
        phi.mean[block], phi.covariance[block] = _moments(np.moveaxis(metric.phi_of(np.moveaxis(x, 1, -1)), -1, 1))
    return *xi, phi


def _moments(x: Array) -> tuple[Array, Array]:
    mean = x.mean(axis=2)
    z = x - mean[:, :, None]
    return mean, z @ z.transpose(0, 2, 1) / (x.shape[2] - 1)
