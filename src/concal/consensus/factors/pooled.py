"""Response tables of several groups of examinees: side by side, and as one table of the usual size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from concal.calibration.tables import BINS, ResponseTable

Array = npt.NDArray[np.float64]


def side_by_side(tables: Sequence[ResponseTable]) -> ResponseTable:
    """Tables of items, (bins, ...) each, as (items, bins, ...); used bins first, those with fewer are padded."""
    used = [np.flatnonzero(table.cell_count.sum(axis=1) > 0) for table in tables]
    most = max(places.size for places in used)

    def padded(values: Array, places: npt.NDArray[np.intp]) -> Array:
        return np.pad(values[places], [(0, most - places.size), *[(0, 0)] * (values.ndim - 1)])

    return ResponseTable(
        *(
            np.stack([padded(v, places) for v, places in zip(column, used, strict=True)])
            for column in zip(*tables, strict=True)
        )
    )


def pooled(table: ResponseTable) -> ResponseTable:
    """A table of `BINS` bins from one of many: bins in the order of ability, put together to about the same size.

    That is how the examinees would have been cut, had they been one group.
    """
    used = np.flatnonzero(table.cell_count.sum(axis=1) > 0)
    order = used[np.argsort(table.bin_mean[used], kind="stable")]
    mean, sd, score, count = (values[order] for values in table)
    n = count.sum(axis=1)
    middle = (np.cumsum(n) - 0.5 * n) / n.sum()
    place = np.unique((middle * BINS).astype(np.intp), return_inverse=True)[1]  # no bin between is left empty

    def total(values: Array) -> Array:
        out = np.zeros((BINS, *values.shape[1:]))
        np.add.at(out, place, values)
        return out

    size, cells = np.maximum(total(n), 1.0), total(count)
    centre = total(n * mean) / size
    spread = np.sqrt(total(n * (sd**2 + (mean - centre[place]) ** 2)) / size)
    scores = np.where(
        cells > 0, total(count * score) / np.maximum(cells, 1.0), score[0]
    )  # an atom is itself everywhere
    return ResponseTable(centre, spread, scores, cells)
