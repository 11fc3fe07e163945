r"""Classical item statistics: what can be said of an item before any model, on sparse data too.

An examinee's *rest* is the mean share of the other scores in the item's dimension, each divided by its largest; the
item-rest correlation is that of the item's score with the rest, over the examinees who have one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.period import PeriodData

Array = npt.NDArray[np.float64]


def item_rest_correlations(data: PeriodData) -> pl.DataFrame:
    """item_id, item_rest of every item; null where scores or rests do not vary."""
    n = data.person_ids.len()
    total = {dimension: np.zeros(n) for dimension in data.dimensions}
    count = {dimension: np.zeros(n) for dimension in data.dimensions}
    for group in data.groups.values():
        total[group.dimension] += np.bincount(group.person, group.score / group.model.max_score, n)
        count[group.dimension] += np.bincount(group.person, minlength=n)
    frames = []
    for group in data.groups.values():
        own, others = group.score / group.model.max_score, count[group.dimension][group.person] - 1.0
        has = others > 0
        rest = (total[group.dimension][group.person][has] - own[has]) / others[has]
        values = _correlations(group.item[has], len(group.item_ids), own[has], rest)
        frames.append(pl.DataFrame({"item_id": pl.Series(group.item_ids, dtype=pl.String), "item_rest": values}))
    return pl.concat(frames).with_columns(pl.col("item_rest").fill_nan(None))


def _correlations(item: npt.NDArray[np.int32], n_items: int, x: Array, y: Array) -> Array:
    """Pearson correlation of x and y within each item; NaN where one does not vary."""
    size = np.maximum(np.bincount(item, minlength=n_items), 1.0)
    dx = x - (np.bincount(item, x, n_items) / size)[item]
    dy = y - (np.bincount(item, y, n_items) / size)[item]
    xx, yy, xy = (np.bincount(item, values, n_items) for values in (dx * dx, dy * dy, dx * dy))
    with np.errstate(invalid="ignore", divide="ignore"):
        varies = (xx > 1e-12 * size) & (yy > 1e-12 * size)
        return np.where(varies, xy / np.sqrt(xx * yy), np.nan)
