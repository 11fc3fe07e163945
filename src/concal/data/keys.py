r"""Reversed keys: which items' scores fall with what the items of their dimension have in common.

The rest of the test tells a few reversed items from the others. Where many are reversed, as in questionnaires that ask
half of their statements the other way round, the rest says nothing. There the items are keyed first, by the signs of
the leading eigenvector of their correlations, the majority being right; the rest is that of the keyed scores. Signs are
looked for only where nearly all items of a dimension were answered by everybody: where items are chosen by ability,
correlations have signs that are not those of the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.classical import Array, item_rest_correlations
from concal.data.findings import Findings
from concal.data.period import GroupData, PeriodData
from concal.errors import counted

ENOUGH = 50
"""Responses from which Fisher's z of a correlation is near enough to normal."""
Z_99 = 2.576
TELLING = 0.15
"""Median correlation from which the rest says something of the ability. Where items are chosen by ability it does not:
who got an easier one did worse before. In simulated adaptive tests of 20 out of 300 items the medians were -.32 to .09
and up to two items in three seemed reversed, although none was; with wider choices (.22 and above) none did."""
COMPLETE = 0.9
"""Share of a dimension's items that its examinees answered from which nobody chose the items."""
STEPS = 30
"""Of the power iteration: signs settle long before the values do."""


def doubt_keys(data: PeriodData, found: Findings) -> None:
    r"""Warn of items whose score falls with the rest of the test, chance aside.

    That is, where the upper end of a 99 % interval, :math:`\tanh(\operatorname{artanh} r + 2.576 / \sqrt{n - 3})`, is
    below zero, r being the correlation with the (keyed) rest. Nothing is said of a dimension in which the typical
    correlation, keyed, is not positive, as in an adaptive test.

    Parameters
    ----------
    data
        The period.
    found
        Gets the warning.
    """
    keys = find_keys(data)
    signs = pl.concat(
        pl.DataFrame({"item_id": pl.Series(g.item_ids, dtype=pl.String), "dimension": g.dimension, "key": keys[name]})
        for name, g in data.groups.items()
    )
    judged = item_rest_correlations(data, keys).join(signs, on="item_id")
    judged = judged.filter((pl.col("n_rest") >= ENOUGH) & pl.col("item_rest").is_not_null())
    typical = (pl.col("item_rest") * pl.col("key")).median().over("dimension")
    upper = pl.col("item_rest").clip(-1.0, 1.0).arctanh() + Z_99 / (pl.col("n_rest") - 3.0).sqrt()
    falling = judged.filter((typical >= TELLING) & (upper < 0.0)).sort("item_rest", "item_id")
    if not falling.height:
        return
    first = falling.head(5).select("item_id", "item_rest").iter_rows()
    shown = ", ".join(f"{item!r} ({f'{r:.2f}'.replace('0.', '.', 1)})" for item, r in first)
    more = f" and {falling.height - 5:,} more" if falling.height > 5 else ""
    verb = "score falls" if falling.height == 1 else "scores fall"
    found.warn(
        f"{counted(falling.height, 'item')} whose {verb} with the rest of the test (item-rest correlation): "
        f"{shown}{more}: is the key reversed?"
    )


def find_keys(data: PeriodData) -> dict[str, Array]:
    """1 for every item of every group, -1 where it goes against the majority of a dimension everybody answered."""
    keys = {name: np.ones(len(group.item_ids)) for name, group in data.groups.items()}
    for dimension in data.dimensions:
        own = {name: group for name, group in data.groups.items() if group.dimension == dimension}
        if own and _complete(list(own.values())):
            signs = _signs(list(own.values()), data.person_ids.len())
            ends = np.cumsum([len(group.item_ids) for group in own.values()])[:-1]
            keys |= dict(zip(own, np.split(signs, ends), strict=True))
    return keys


def _complete(groups: Sequence[GroupData]) -> bool:
    """Nearly all items were answered by everybody who answered one."""
    n_items = sum(np.unique(group.item).size for group in groups)
    n_persons = np.unique(np.concatenate([group.person for group in groups])).size
    return sum(group.score.size for group in groups) >= COMPLETE * n_items * n_persons > 0


def _signs(groups: Sequence[GroupData], n_persons: int) -> Array:
    """Signs of the leading eigenvector of the items' correlations, positive the majority, or the first item's half."""
    z, person, item = _standardised(groups)
    n_items = sum(len(group.item_ids) for group in groups)
    v = np.random.default_rng(0).standard_normal(n_items)
    for _ in range(STEPS):
        common = np.bincount(person, z * v[item], n_persons)
        along = np.bincount(item, z * common[person], n_items)
        v = along / max(float(np.linalg.norm(along)), 1e-300)
    signs = np.where(v < 0.0, -1.0, 1.0)
    return signs if (signs.sum(), signs[0]) > (0.0, -1.0) else -signs


def _standardised(
    groups: Sequence[GroupData],
) -> tuple[Array, npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Scores with mean 0 and sum of squares 1 in every item, whose; items are numbered through the groups."""
    first = np.cumsum([0, *(len(group.item_ids) for group in groups)])
    item = np.concatenate([group.item + start for group, start in zip(groups, first, strict=False)])
    score = np.concatenate([group.score for group in groups])
    person = np.concatenate([group.person for group in groups])
    size = np.maximum(np.bincount(item, minlength=first[-1]), 1.0)
    off = score - (np.bincount(item, score, first[-1]) / size)[item]
    scale = np.sqrt(np.bincount(item, off * off, first[-1]))
    return off / np.where(scale > 0.0, scale, 1.0)[item], person, item
