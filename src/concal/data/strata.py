"""Numbers of categories belong to items: a group's items are told apart by theirs.

Items of one group with 2, 3 and 5 categories have steps that are different parameters, so each number of categories is
a *stratum* with a response model of its own; all strata of a group share the population of d and log a
(`concal.calibration.moves.strata`). An item's number is declared, never read off the responses: a category that nobody
has used yet is one of the item's all the same. It is, in this order,

- the column ``categories`` of the item table,
- ``categories`` of the group in bank.toml,
- one more than the item's ``max_score`` (the item table's column, or the group's).

The stratum of the group's own number has the group's name, the others are called ``essay (3 categories)``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.findings import Findings, some
from concal.errors import counted
from concal.names import split_stratum, stratum_name
from concal.spec import MOST_CATEGORIES, GroupSpec, Spec

Array = npt.NDArray[np.float64]


def with_strata(table: pl.DataFrame, spec: Spec, found: Findings) -> pl.DataFrame:
    """The item table with every item's stratum as its group; items without a number of categories are problems."""
    named = [split_stratum(name) for name in table["group"].to_list()]
    base = np.array([group for group, _ in named], dtype=object)
    in_name = np.array([np.nan if k is None else k for _, k in named], dtype=np.float64)
    own = np.where(np.isnan(in_name), whole_numbers(table, "categories", found), in_name)
    points = declared_maxima(table, found)
    stratum = base.copy()
    for name, group in spec.groups.items():
        mine = np.flatnonzero(base == name)
        if group.polytomous:
            stratum[mine] = _strata(name, group, table["item_id"].gather(mine), own[mine], points[mine], found)
        else:
            _refuse_categories(name, group, table["item_id"].gather(mine), own[mine], found)
    return table.with_columns(pl.Series("group", stratum.tolist(), dtype=pl.String))


def strata(table: pl.DataFrame, spec: Spec) -> dict[str, GroupSpec]:
    """Strata of an item table (of `with_strata`) in the order of the spec and of their numbers, each as a group."""
    present = {split_stratum(name): name for name in table["group"].unique().to_list()}
    order = {name: k for k, name in enumerate(spec.groups)}
    ordered = sorted(present, key=lambda parts: (order[parts[0]], parts[1] or 0))
    return {present[parts]: spec.groups[parts[0]].of(parts[1]) for parts in ordered}


def whole_numbers(table: pl.DataFrame, column: str, found: Findings) -> Array:
    """A column of numbers of categories, NaN where there is none."""
    if column not in table.columns:
        return np.full(table.height, np.nan)
    given = table[column].cast(pl.Float64, strict=False)
    bad = (given.is_null() & table[column].is_not_null()) | ~(
        (given == given.round()) & (given >= 2) & (given <= MOST_CATEGORIES)
    ).fill_null(True)
    if bad.any():
        ids = table["item_id"].filter(bad)
        found.error(
            f"items: {counted(ids.len(), 'item')} whose {column} is not a whole number from 2 to {MOST_CATEGORIES}: "
            f"{some(ids)}"
        )
    return given.set(bad, None).fill_null(np.nan).to_numpy()


def declared_maxima(table: pl.DataFrame, found: Findings) -> Array:
    """The item table's column max_score, NaN where there is none."""
    if "max_score" not in table.columns:
        return np.full(table.height, np.nan)
    given = table["max_score"].cast(pl.Float64, strict=False)
    bad = (given.is_null() & table["max_score"].is_not_null()) | ~(given > 0).fill_null(True) | given.is_infinite()
    if bad.fill_null(False).any():
        ids = table["item_id"].filter(bad.fill_null(False))
        found.error(f"items: {counted(ids.len(), 'item')} whose max_score is not a number above 0: {some(ids)}")
    return given.set(bad.fill_null(False), None).fill_null(np.nan).to_numpy()


def _strata(
    name: str, group: GroupSpec, ids: pl.Series, own: Array, points: Array, found: Findings
) -> npt.NDArray[np.object_]:
    """Names of the strata of a polytomous group's items."""
    default = np.nan if group.categories is None else float(group.categories)
    points = np.where(np.isnan(points), group.max_score or np.nan, points)
    number = np.where(np.isnan(own), np.where(np.isnan(default), points + 1.0, default), own)
    bad = ~((number == np.round(number)) & (number >= 2) & (number <= MOST_CATEGORIES))
    if bad.any():
        found.error(
            f"group {name!r} ({group.model}): {counted(int(bad.sum()), 'item')} without a number of categories: "
            f"{some(ids.filter(pl.Series(bad)))}; give the item table a column categories (or max_score, in whole "
            "points), or set categories in the group"
        )
        found.blamed |= set(ids.filter(pl.Series(bad)).to_list())
        number = np.where(bad, 2.0, number)
    names = [name if k == group.categories else stratum_name(name, int(k)) for k in number.tolist()]
    return np.array(names, dtype=object)


def _refuse_categories(name: str, group: GroupSpec, ids: pl.Series, own: Array, found: Findings) -> None:
    """A number of categories for items whose model has none, or another."""
    model = group.response_model
    other = ~np.isnan(own) & (own != (model.n_categories or np.nan))
    if other.any():
        found.error(
            f"group {name!r} ({group.model}): {counted(int(other.sum()), 'item')} with categories the model does not "
            f'take: {some(ids.filter(pl.Series(other)))}; use model = "gpcm" or "grm", or leave the column empty for '
            "them"
        )
