"""The item table: one row per item, each in a group of the spec."""

from __future__ import annotations

from difflib import get_close_matches

import polars as pl

from concal.data.findings import Findings, rows_of, some
from concal.data.read import Table, read_table
from concal.data.strata import with_strata
from concal.errors import counted
from concal.spec import Spec


def read_items(source: Table, spec: Spec, found: Findings) -> pl.DataFrame:
    """Items sorted by id, those without id or with an unknown group left out and noted as problems.

    The column `group` may be absent where the spec has one group only. It comes back as the items' strata
    (`concal.data.strata`), which are the groups themselves unless numbers of categories differ.
    """
    only = list(spec.groups) if len(spec.groups) == 1 else []
    table = read_table(source, columns=("item_id",), what="items", notes=found.warnings)
    if only and "group" not in table.columns:
        table = table.with_columns(pl.lit(only[0]).alias("group"))
    table = read_table(table, columns=("item_id", "group"), what="items")
    if not table.height:
        found.error("items: the table has no rows; every item of the responses needs one")
    lost = table["item_id"].is_null() | (table["item_id"] == "").fill_null(False)
    if lost.any():
        found.error(f"items: {counted(int(lost.sum()), 'row')} without an item_id: {rows_of(lost.arg_true() + 1)}")
        table = table.filter(~lost)
    twice = table.filter(table["item_id"].is_duplicated())["item_id"].unique(maintain_order=True)
    if twice.len():
        found.error(f"items: {counted(twice.len(), 'item_id')} on several rows: {some(twice)}; keep one row per item")
        table = table.unique("item_id", keep="first", maintain_order=True)
    nowhere = (table["group"].is_null() | (table["group"] == "")).fill_null(True)
    known = pl.Series([spec.group(name) is not None for name in table["group"].fill_null("")], dtype=pl.Boolean)
    if nowhere.any():
        ids = table.filter(nowhere)["item_id"]
        found.error(
            f"items: {counted(ids.len(), 'item')} without a group: {some(ids)}; the spec has {some(list(spec.groups))}"
        )
    if not (known | nowhere).all():
        unknown = table.filter(~known & ~nowhere)
        names = unknown["group"].unique(maintain_order=True)
        near = get_close_matches(str(names[0]), list(spec.groups), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; the spec has {some(list(spec.groups))}"
        ids = unknown["item_id"]
        found.error(
            f"items: {counted(ids.len(), 'item')} in a group the spec does not have ({some(names)}): {some(ids)}{hint}"
        )
    found.blamed |= set(table.filter(~known)["item_id"].to_list())
    table = table.filter(known)
    return with_strata(table.sort("item_id"), spec, found)
