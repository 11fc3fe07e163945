r"""Classical item statistics: what can be said of an item before any model, on sparse data too.

An examinee's *rest* is the mean share of the other scores in the item's dimension, each divided by its largest; the
item-rest correlation is that of the item's score with the rest, over the examinees who have one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.period import GroupData, PeriodData

Array = npt.NDArray[np.float64]


def item_rest_correlations(data: PeriodData, keys: Mapping[str, Array] | None = None) -> pl.DataFrame:
    """item_id, item_rest and n_rest (examinees with a rest) of every item; null where scores or rests do not vary.

    Parameters
    ----------
    data
        The period.
    keys
        -1 for every item of a group whose score counts reversed in the rest of others, else 1. Default: none does.
    """
    n = data.person_ids.len()
    total = {dimension: np.zeros(n) for dimension in data.dimensions}
    count = {dimension: np.zeros(n) for dimension in data.dimensions}
    shares = {name: _shares(group, None if keys is None else keys[name]) for name, group in data.groups.items()}
    for name, group in data.groups.items():
        total[group.dimension] += np.bincount(group.person, shares[name], n)
        count[group.dimension] += np.bincount(group.person, minlength=n)
    frames = []
    for name, group in data.groups.items():
        own, others = group.score / group.model.max_score, count[group.dimension][group.person] - 1.0
        has = others > 0
        rest = (total[group.dimension][group.person][has] - shares[name][has]) / others[has]
        values = _correlations(group.item[has], len(group.item_ids), own[has], rest)
        n_rest = np.bincount(group.item[has], minlength=len(group.item_ids))
        ids = pl.Series(group.item_ids, dtype=pl.String)
        frames.append(pl.DataFrame({"item_id": ids, "item_rest": values, "n_rest": n_rest}))
    return pl.concat(frames).with_columns(pl.col("item_rest").fill_nan(None))


def _shares(group: GroupData, key: Array | None) -> Array:
    """Scores by their largest; where the item's key is -1, what is left to the largest."""
    share = group.score / group.model.max_score
    return share if key is None else np.where(key[group.item] < 0.0, 1.0 - share, share)


def _correlations(item: npt.NDArray[np.int32], n_items: int, x: Array, y: Array) -> Array:
    """Pearson correlation of x and y within each item; NaN where one does not vary."""
    size = np.maximum(np.bincount(item, minlength=n_items), 1.0)
    dx = x - (np.bincount(item, x, n_items) / size)[item]
    dy = y - (np.bincount(item, y, n_items) / size)[item]
    xx, yy, xy = (np.bincount(item, values, n_items) for values in (dx * dx, dy * dy, dx * dy))
    with np.errstate(invalid="ignore", divide="ignore"):
        varies = (xx > 1e-12 * size) & (yy > 1e-12 * size)
        return np.where(varies, xy / np.sqrt(xx * yy), np.nan)
