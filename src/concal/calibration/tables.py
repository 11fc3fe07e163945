r"""Response tables: what every item was answered, by ability.

An item's examinees are ordered by what the *other* responses say of their ability and cut into bins of equal size.
Per bin the table keeps where they are (mean, and spread: of the means, and of what is not known about each) and what
they scored: how
many gave each score that has a probability of its own, and for scores in between a few classes with their mean (on the
scale the response model's kernels read). The likelihood of the table,

.. math:: l_T(\phi) = \sum_{bk} n_{bk} \log \int p(y_{bk} \mid a\theta + c, e)\, N(\theta; \mu_b, \sigma_b)\,d\theta ,

has the shape of the item's marginal likelihood at any phi, near or far; `concal.consensus.factors` adds what it lacks.
The same table shows observed scores by ability.

An ability estimated with the item's own response would make the item look steeper than it is (in tests of a dozen
ratings by up to two posterior SDs), so that response is taken out (`concal.calibration.others`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration.layout import GroupLayout, runs
from concal.calibration.others import Told
from concal.calibration.totals import total_in
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
BINS = 5
"""Bins of an item's examinees. With 5, products of three periods that agree are within .03 posterior SD of the exact
ones for 2pl, gpcm, grm and beta, .06 for ordered_beta, .1 for 3pl (tests/consensus/factors/test_exact_product.py)."""


class ResponseTable(NamedTuple):
    """Tables of a group's items.

    `bin_mean`, `bin_sd` (items, bins): ability on the period's own metric; `cell_score`, `cell_count` (items, bins,
    cells): encoded scores and how many gave them. Unused bins and cells have count zero.
    """

    bin_mean: Array
    bin_sd: Array
    cell_score: Array
    cell_count: Array


_TABLED = 500_000  # responses that are put into tables together: a large group's arrays are not made at once


def response_table(g: GroupLayout, told: Told, bins: int = BINS) -> ResponseTable:
    """Tables of all items of a group, from what the examinees' other responses told."""
    parts = [_table_of(g, slice(lo, hi), told, bins) for lo, hi in runs(g.item_start, _TABLED, g.n_items)]
    return ResponseTable(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _table_of(g: GroupLayout, items: slice, told: Told, bins: int) -> ResponseTable:
    """Tables of some items."""
    start = g.item_start[items.start : items.stop + 1]
    n, own = items.stop - items.start, slice(int(start[0]), int(start[-1]))
    item = np.repeat(np.arange(n), np.diff(start))
    score, mean, sd = (values[own].astype(np.float64) for values in (g.item_score, *told))
    return table_of_responses(g.model, n, item, score, mean, sd, bins)


def table_of_responses(
    model: ResponseModel, n: int, item: npt.NDArray[np.intp], score: Array, mean: Array, sd: Array, bins: int = BINS
) -> ResponseTable:
    """Tables of n items from responses: item, encoded score, mean and SD of the ability without the response."""
    place = item * bins + by_ability(item, mean, np.minimum(np.bincount(item, minlength=n), bins))
    centre, spread = bin_moments(place, n * bins, mean, sd)
    cell_score, cell_count = _cells(model, place, score, n * bins)
    return ResponseTable(
        centre.reshape(n, bins), spread.reshape(n, bins), cell_score.reshape(n, bins, -1),
        cell_count.reshape(n, bins, -1),
    )  # fmt: skip


def by_ability(item: npt.NDArray[np.intp], mean: Array, bins: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Bin of each response among its item's `bins` (items,) bins of equal size, ordered by `mean`."""
    counts = np.bincount(item, minlength=bins.size)
    return _rank(item, mean) * bins[item] // np.maximum(counts[item], 1)


def bin_moments(place: npt.NDArray[np.intp], n: int, mean: Array, sd: Array) -> tuple[Array, Array]:
    """Mean and SD of the abilities in each of n bins: spread of the means, and what is not known about each."""
    size = np.maximum(total_in(place, None, n), 1.0)
    centre = total_in(place, mean, n) / size
    return centre, np.sqrt(total_in(place, (mean - centre[place]) ** 2 + sd**2, n) / size)


def _cells(model: ResponseModel, place: npt.NDArray[np.intp], score: Array, n: int) -> tuple[Array, Array]:
    """Scores and counts of every bin's cells, (bins in all, cells): the atoms, then the classes in between."""
    atoms = model.encode_score(np.array(model.atoms)).astype(np.float32).astype(np.float64)
    width = atoms.size + model.levels
    cell_score, cell_count = np.zeros((n, width)), np.zeros((n, width))
    cell_score[:, : atoms.size] = atoms
    inside = np.ones(score.size, dtype=bool)
    for k, atom in enumerate(atoms):
        here = score == atom
        cell_count[:, k] = total_in(place[here], None, n)
        inside &= ~here
    if model.levels and inside.any():
        where, value = place[inside], score[inside]
        size = total_in(where, None, n)[where]
        level = (_rank(where, value) * np.minimum(size, model.levels) // size).astype(np.intp)
        cell = where * model.levels + level
        count = total_in(cell, None, n * model.levels)
        total = total_in(cell, value, n * model.levels) / np.maximum(count, 1.0)
        cell_count[:, atoms.size :] = count.reshape(n, -1)
        cell_score[:, atoms.size :] = total.reshape(n, -1)
    return cell_score, cell_count


def _rank(group: npt.NDArray[np.intp], value: Array) -> npt.NDArray[np.intp]:
    """Rank of each value within its group, from zero; ties in the order they stand in."""
    order = np.lexsort((value, group))
    first = np.concatenate([[0], np.cumsum(np.bincount(group))])
    rank = np.empty(group.size, dtype=np.intp)
    rank[order] = np.arange(group.size) - first[group[order]]
    return rank
