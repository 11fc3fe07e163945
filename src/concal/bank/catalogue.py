"""Items the bank has heard of but nobody has answered: kept with their features, so that they can be predicted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import polars as pl

from concal.combine.specification import NewItems
from concal.combine.totals import Totals
from concal.data.design import apply_design
from concal.data.findings import Findings
from concal.data.items import read_items
from concal.data.period import PeriodData
from concal.data.read import Table
from concal.errors import ConcalError
from concal.formula import parse_formula
from concal.spec import Spec


def new_catalogue(known: pl.DataFrame, items: Table, data: PeriodData, spec: Spec) -> pl.DataFrame:
    """Items of this and earlier item tables that this period did not answer; the newest table's features count."""
    table = read_items(items, spec, Findings("items"))
    columns = {name for group in spec.groups.values() for name in parse_formula(group.features).columns}
    answered = [item for group in data.groups.values() for item in group.item_ids]
    fresh = table.select("item_id", "group", *(c for c in table.columns if c in columns))
    if known.width:
        old = known.filter(~pl.col("item_id").is_in(fresh["item_id"].implode()))
        with suppress(pl.exceptions.PolarsError):  # a feature changed its type: the newest table is the one that counts
            fresh = pl.concat([old, fresh], how="diagonal_relaxed")
    return fresh.filter(~pl.col("item_id").is_in(answered)).sort("item_id")


def unanswered_items(
    catalogue: pl.DataFrame, designs: Mapping[str, Any], spec: Spec, totals: Totals
) -> dict[str, NewItems]:
    """Design rows of items no period has answered, by group; items whose features cannot be coded are left out."""
    found: dict[str, NewItems] = {}
    if not catalogue.width:
        return found
    for name, group in spec.groups.items():
        if name not in totals.groups or name not in designs:
            continue
        known = {item for form in totals.groups[name] for item in form.item_ids}
        rows = catalogue.filter((pl.col("group") == name) & ~pl.col("item_id").is_in(list(known)))
        complete = [c for c in parse_formula(group.features).columns if c in rows.columns]
        rows = rows.drop_nulls(complete)
        if not rows.height:
            continue
        try:
            X, features = apply_design(group.features, rows, name, designs[name], unseen_level="mean", warnings=[])
        except ConcalError:
            continue  # said when the item is asked for by name (`Bank.predict`)
        if features == totals.groups[name][-1].features:
            found[name] = (tuple(rows["item_id"].to_list()), X)
    return found
