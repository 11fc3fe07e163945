"""Tables for people, for programs (--json) and for files (--to)."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from concal.cli.cells import printable
from concal.cli.terminal import print_table, wrapped
from concal.errors import DataError, counted
from concal.report.write import write_whole

if TYPE_CHECKING:
    import polars as pl

    from concal.cli.views import View


MAX_ROWS = 50
"""A terminal shows so many rows; a pipe, a file and JSON get all."""
_OF_A_PERIOD = re.compile(r"period ('[^']*'): (.*)", re.DOTALL)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def show_table(
    table: pl.DataFrame,
    view: View,
    *,
    title: str | None = None,
    full: bool = False,
    as_json: bool = False,
    to: Path | None = None,
    sort: bool = True,
) -> None:
    """Print a table, print it as JSON rows, or write it to a file.

    Parameters
    ----------
    table
        What to show; JSON and files get all of its columns.
    view
        How it is shown: see `concal.cli.views`.
    title
        Above the printed table, instead of the view's.
    full
        Print all columns, not only those that answer the question.
    as_json
        Print a JSON array of objects instead.
    to
        Write all rows there instead; the suffix says the format.
    sort
        False: rows stay in the order they are in, whatever the view says.
    """
    table = naturally_sorted(table, view.order if sort else ())
    if to is not None:
        write_table(table, to)
        typer.echo(f"{counted(table.height, 'row')} written to {to}", err=True)
    elif as_json:
        print_json(json_rows(table))
    else:
        print_view(table, view, title=title, full=full, max_rows=MAX_ROWS)


def print_view(
    table: pl.DataFrame, view: View, *, title: str | None = None, full: bool = False, max_rows: int | None = None
) -> None:
    """Print the columns a view shows (`full`: all) and its note, or what it says of a table without rows."""
    if not table.height:
        typer.echo(view.empty)
        return
    wanted = [*view.columns, *(name for name in table.columns if name not in view.columns)] if full else view.shown
    shown = table.select(name for name in wanted if name in table.columns)
    keys = [name for name in view.keys if name in table.columns]
    print_table(shown, title or view.title, max_rows, headings=view.headings(), decimals=view.decimals(), keys=keys)
    if view.note:
        typer.echo(wrapped(view.note))


def naturally_sorted(table: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Rows in the order people expect of names: C3 before C12."""
    from concal.names import natural_key

    names = [name for name in by if name in table.columns]
    if not names:
        return table
    keys = [tuple(natural_key(str(value)) for value in row) for row in table.select(names).iter_rows()]
    order = sorted(range(table.height), key=keys.__getitem__)
    return table[order]


def write_table(table: pl.DataFrame, to: Path) -> None:
    """Write CSV, Parquet or JSON; the file appears whole or not at all."""
    kind = to.suffix.lower()
    if kind not in (".csv", ".parquet", ".json"):
        raise DataError(f"cannot write {str(to)!r}: the name must end in .csv, .parquet or .json")
    if kind == ".csv":
        write_text(spreadsheet_safe(table).write_csv(), to)
    elif kind == ".parquet":
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        write_whole(to, buffer.getvalue())
    else:
        write_text(json_text(json_rows(table)), to)


def write_text(text: str, to: Path) -> None:
    """Write a text file; it appears whole or not at all."""
    write_whole(to, text.encode("utf-8"))


def spreadsheet_safe(table: pl.DataFrame) -> pl.DataFrame:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front (numbers are left alone)."""
    import polars as pl

    def guarded(name: str) -> pl.Expr:
        cell = pl.col(name).cast(pl.String)
        starts = pl.any_horizontal(cell.str.starts_with(mark) for mark in _FORMULA_STARTS)
        return pl.when(starts).then("'" + cell).otherwise(cell).alias(name)

    text = [n for n, kind in table.schema.items() if kind in (pl.String, pl.Categorical, pl.Enum)]
    listed = [n for n, kind in table.schema.items() if kind.is_nested()]
    flat = table.with_columns(pl.col(n).map_elements(_list_text, return_dtype=pl.String) for n in listed)
    return flat.with_columns(guarded(n) for n in text)


def _list_text(value: Any) -> str:
    return json.dumps(value.to_list() if hasattr(value, "to_list") else value, ensure_ascii=False)


def json_rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain data; NaN and infinities become null, which JSON has no words for."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_dicts()]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def json_text(value: Any) -> str:
    """JSON, never with NaN."""
    return json.dumps(_plain(value), ensure_ascii=False, indent=2, allow_nan=False)


def print_json(value: Any) -> None:
    """JSON to standard output."""
    typer.echo(json_text(value))


def print_warnings(warnings: Sequence[str]) -> None:
    """Doubts, on standard error; what is said of several periods is said once."""
    for text in _said_once(warnings):
        typer.echo(f"warning: {printable(text)}", err=True)


def _said_once(warnings: Sequence[str]) -> list[str]:
    """Texts of several periods that are the same but for the period's name as one.

    >>> _said_once(["period 'Q1': too thin", "no anchor", "period 'Q2': too thin"])
    ["periods 'Q1', 'Q2': too thin", 'no anchor']
    """
    periods: dict[str, list[str]] = {}
    for text in warnings:
        found = _OF_A_PERIOD.fullmatch(text)
        named = periods.setdefault(found[2] if found else text, [])
        named += [found[1]] if found else []
    return [
        f"period{'s' * (len(named) > 1)} {', '.join(named)}: {text}" if named else text
        for text, named in periods.items()
    ]
