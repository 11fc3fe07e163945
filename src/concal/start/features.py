"""Item features that lie about: columns of the item table, and columns of the responses that go with the item."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from concal.formula.features import missing
from concal.start.columns import ITEM, plain

MOST_LEVELS = 12
"""A text column with more levels than this is listed but not proposed."""
SCHEMA = {"column": pl.String, "kind": pl.String, "levels": pl.Int64, "missing": pl.Int64, "term": pl.String}


def match_items(table: pl.DataFrame, ids: pl.Series) -> pl.DataFrame:
    """An item table whose id column is called item_id: the one that holds most of the ids."""

    def known(name: str) -> int:
        return int(ids.is_in(table[name].cast(pl.String, strict=False).unique().implode()).sum())

    usable = [n for n, kind in table.schema.items() if not (kind.is_float() or kind.is_nested())]
    found = {name: known(name) for name in usable}
    best = max(usable, key=lambda n: (found[n], plain(n) in ITEM), default=None)
    if best is None or not found[best]:
        raise LookupError(first_ids(table))
    names = safe_names([n for n in table.columns if n != best])
    return table.rename({best: "item_id", **names}).with_columns(pl.col("item_id").cast(pl.String))


def first_ids(table: pl.DataFrame) -> str:
    """The beginning of a table's first column, for messages."""
    return ", ".join(repr(str(v)) for v in table.to_series(0).head(3).to_list()) if table.width else "no columns"


def safe_name(name: str) -> str:
    """A column name that a formula can use; names with a meaning of their own get an underscore."""
    clean = re.sub(r"\W+", "_", name).strip("_") or "feature"
    clean = f"x_{clean}" if clean[0].isdigit() else clean
    return f"{clean}_" if clean in ("item_id", "person_id", "score") else clean


def safe_names(names: Sequence[str]) -> dict[str, str]:
    """Safe names that differ, by the names there are.

    >>> safe_names(["max.points", "max_points"])
    {'max.points': 'max_points', 'max_points': 'max_points_2'}
    """
    found: dict[str, str] = {}
    for name in names:
        clean, k = safe_name(name), 1
        while (new := clean if k == 1 else f"{clean}_{k}") in found.values():
            k += 1
        found[name] = new
    return found


def from_responses(table: pl.DataFrame, item: str, columns: Sequence[str]) -> pl.DataFrame:
    """Columns of a long table that are the same in all rows of an item, but not in all rows."""
    usable = [n for n in columns if not table.schema[n].is_nested() and table[n].n_unique() > 1]
    if not usable:
        return pl.DataFrame({"item_id": table[item].cast(pl.String).unique(maintain_order=True)})
    per_item = table.group_by(item).agg(pl.col(n).drop_nulls().n_unique() for n in usable)
    constant = [n for n in usable if (per_item[n] <= 1).all()]
    first = table.group_by(item, maintain_order=True).agg(pl.col(n).drop_nulls().first() for n in constant)
    return first.rename({item: "item_id", **safe_names(constant)}).with_columns(pl.col("item_id").cast(pl.String))


def describe_features(items: pl.DataFrame, taken: Sequence[str]) -> pl.DataFrame:
    """Columns an item table has beside ids: column, kind, levels, missing, term of a formula (null: none proposed)."""
    rows = []
    for name in items.columns:
        if name in taken:
            continue
        column = items[name]
        levels, lost = column.drop_nulls().n_unique(), int(missing(column).sum())
        term = None
        if column.dtype.is_numeric() or column.dtype == pl.Boolean:
            kind, term = "number", name
        elif column.dtype in (pl.String, pl.Categorical, pl.Enum):
            kind = "categories" if levels <= MOST_LEVELS else "text"
            term = f"C({name})" if kind == "categories" else None
        else:
            kind = str(column.dtype).split("(")[0].lower()
        rows.append((name, kind, levels, lost, term if levels > 1 and not lost else None))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def terms_by_group(items: pl.DataFrame, features: pl.DataFrame) -> dict[str, list[str]]:
    """Proposed terms of every group's formula: features that differ among its items, none that repeats another."""
    proposed = dict(features.drop_nulls("term").select("column", "term").rows())
    found: dict[str, list[str]] = {}
    for (name,), part in items.group_by("group", maintain_order=True):
        columns = [n for n in proposed if part[n].n_unique() > 1]
        codes = {n: tuple(part[n].rank("dense").to_list()) for n in columns}
        new = [n for k, n in enumerate(columns) if codes[n] not in [codes[m] for m in columns[:k]]]
        found[str(name)] = [proposed[n] for n in new]
    return found
