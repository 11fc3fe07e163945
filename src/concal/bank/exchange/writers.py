"""Tables as files of general formats: what each writes, given a table with a row per item or examinee."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from concal.errors import BankError

Write = Callable[[Path], Any]
_RUNS = ("=", "+", "-", "@", "\t", "\r")


def csv_writer(table: pl.DataFrame) -> Write:
    """Safe in a spreadsheet."""
    return neutral(table).write_csv


def parquet_writer(table: pl.DataFrame) -> Write:
    """As it is."""
    return table.write_parquet


def json_writer(table: pl.DataFrame) -> Write:
    """Writes an array with an object per row."""
    text = json.dumps(table.fill_nan(None).to_dicts(), ensure_ascii=False, indent=1, allow_nan=False)
    return lambda path: path.write_text(text + "\n", encoding="utf-8")


def excel_writer(table: pl.DataFrame) -> Write:
    """On a sheet; nothing in it is a formula or a link."""
    try:
        import xlsxwriter
    except ImportError:
        raise BankError("writing Excel files needs the package xlsxwriter: pip install 'concal[excel]'") from None

    def write(path: Path) -> None:
        with xlsxwriter.Workbook(str(path), {"strings_to_formulas": False, "strings_to_urls": False}) as book:
            table.write_excel(workbook=book, worksheet="items")

    return write


def neutral(table: pl.DataFrame) -> pl.DataFrame:
    """Text a spreadsheet would run as a formula, and text that begins with an apostrophe, gets one in front."""

    def guarded(name: str) -> pl.Expr:
        cell = pl.col(name)
        starts = pl.any_horizontal(cell.str.starts_with(mark) for mark in (*_RUNS, "'"))
        return pl.when(starts).then("'" + cell).otherwise(cell).alias(name)

    return table.with_columns(guarded(n) for n, kind in table.schema.items() if kind == pl.String)
