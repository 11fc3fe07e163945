"""Gaussian moments of an item's draws, on its own metric and linked, a block of items at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.calibrate.result import GroupDraws
from concal.combine.curved import curvature
from concal.errors import DataError, first_few

Array = npt.NDArray[np.float64]
BLOCK_BYTES = 48 * 2**20


@dataclass(frozen=True)
class Moments:
    """Mean (items, p), covariance (items, p, p), skewness and excess kurtosis (items, p) of some draws.

    `curvature` (items, 3) is the shape `concal.combine.curved` describes.
    """

    mean: Array
    covariance: Array
    skewness: Array
    kurtosis: Array
    curvature: Array


def item_blocks(n_items: int, n_draws: int, p: int) -> Iterator[slice]:
    """Cut the items into blocks whose draws fit comfortably in memory."""
    size = max(1, BLOCK_BYTES // (8 * n_draws * p))
    for start in range(0, n_items, size):
        yield slice(start, min(start + size, n_items))


def block_draws(group: GroupDraws, items: slice | npt.NDArray[np.intp], which: npt.NDArray[np.intp] | None) -> Array:
    """Draws of some items as (items, p, draws) float64, contiguous along draws."""
    xi = group.xi.reshape(-1, *group.xi.shape[2:])
    block = xi[:, items] if which is None else xi[which][:, items]
    return np.ascontiguousarray(block.transpose(1, 2, 0), dtype=np.float64)


def link_block(x: Array, A: Array, B: Array) -> Array:
    """Draw s of every item on the reference metric: d -> A_s d + B_s, log a -> log a - log A_s."""
    moved = x.copy()
    moved[:, 0] = moved[:, 0] * A + B
    moved[:, 1] -= np.log(A)
    return moved


def block_moments(x: Array, *, shape: bool = False) -> Moments:
    """Moments over the last axis of (items, p, draws); those beyond the second only for the `shape`."""
    mean = x.mean(axis=2)
    z = x - mean[:, :, None]
    covariance = z @ z.transpose(0, 2, 1) / (x.shape[2] - 1)
    if not shape:
        return Moments(mean, covariance, np.zeros_like(mean), np.zeros_like(mean), np.zeros((len(mean), 3)))
    square = z * z
    variance = np.maximum(square.mean(axis=2), np.finfo(float).tiny)
    skewness = (square * z).mean(axis=2) / variance**1.5
    kurtosis = (square * square).mean(axis=2) / variance**2 - 3.0
    return Moments(mean, covariance, skewness, kurtosis, curvature(x))


def item_moments(
    group: GroupDraws,
    link: tuple[Array, Array] | None,
    which: npt.NDArray[np.intp] | None,
    period: str,
) -> tuple[Moments, Moments]:
    """Moments of every item of a group on its own metric (all draws) and linked (the linked draws).

    Parameters
    ----------
    link : (A, B), each (draws,), or None for the reference
    which : indices of the draws that were linked, None for all
    """
    n, p, s = group.n_items, len(group.model.parameters), group.n_draws
    own = _room(n, p)
    same = link is None and which is None
    linked = own if same else _room(n, p)
    for block in item_blocks(n, s, p):
        x = block_draws(group, block, None)
        if not np.isfinite(x).all():
            bad = np.flatnonzero(~np.isfinite(x).all(axis=(1, 2)))
            names = [group.item_ids[block.start + i] for i in bad]
            raise DataError(
                f"period {period!r}, group {group.name!r}: draws of {first_few(names)} are not finite; "
                "recalibrate the period or leave these items out"
            )
        _fill(own, block, block_moments(x, shape=True))
        if not same:
            y = x if which is None else x[:, :, which]
            _fill(linked, block, block_moments(y if link is None else link_block(y, *link)))
    if not same:
        linked = Moments(linked.mean, linked.covariance, own.skewness, own.kurtosis, own.curvature)
    return own, linked


def _room(n: int, p: int) -> Moments:
    return Moments(np.empty((n, p)), np.empty((n, p, p)), np.empty((n, p)), np.empty((n, p)), np.empty((n, 3)))


def _fill(into: Moments, block: slice, values: Moments) -> None:
    into.mean[block] = values.mean
    into.covariance[block] = values.covariance
    into.skewness[block] = values.skewness
    into.kurtosis[block] = values.kurtosis
    into.curvature[block] = values.curvature
