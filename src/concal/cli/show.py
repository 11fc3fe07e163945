"""Tables for people (rich), for programs (--json) and for files (--to)."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from concal.errors import DataError
from concal.report.write import write_whole

if TYPE_CHECKING:
    import polars as pl

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ToOption = Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Write to a .csv, .parquet or .json file.")]


class Method(StrEnum):
    """Consensus methods."""

    joint = "joint"
    analytic = "analytic"
    paper = "paper"


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def show_table(
    table: pl.DataFrame,
    *,
    title: str | None = None,
    as_json: bool = False,
    to: Path | None = None,
    max_rows: int | None = 50,
) -> None:
    """Print a table, print it as JSON rows, or write it to a file.

    Parameters
    ----------
    table
        What to show.
    title
        Above the printed table.
    as_json
        Print a JSON array of objects instead.
    to
        Write all rows there instead; the suffix says the format.
    max_rows
        How many rows the terminal shows; the rest is counted.
    """
    if to is not None:
        write_table(table, to)
        typer.echo(f"{table.height:,} rows written to {to}", err=True)
    elif as_json:
        print_json(json_rows(table))
    else:
        print_table(table, title, max_rows)


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


def print_table(table: pl.DataFrame, title: str | None = None, max_rows: int | None = 50) -> None:
    """A table for the terminal; cell text is shown as it is, never read as markup or control codes."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = table if max_rows is None else table.head(max_rows)
    page = Table(title=None if title is None else Text(title), title_justify="left", header_style="bold")
    for name, kind in table.schema.items():
        page.add_column(Text(printable(name)), justify="right" if kind.is_numeric() else "left")
    for row in shown.iter_rows():
        page.add_row(*(Text(cell_text(value)) for value in row))
    console = Console(width=None if _is_terminal() else 160)
    console.print(page)
    if shown.height < table.height:
        console.print(f"... and {table.height - shown.height:,} more rows; --to FILE writes all of them")


def _is_terminal() -> bool:
    import sys

    return sys.stdout.isatty()


def cell_text(value: Any) -> str:
    """A cell as text: numbers short, nothing for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return printable(str(value))


def printable(text: str) -> str:
    """Text without control characters, which could move a terminal's cursor or colours."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def print_warnings(warnings: Sequence[str]) -> None:
    """Doubts, on standard error."""
    for text in warnings:
        typer.echo(f"warning: {printable(text)}", err=True)
