"""Tables on a terminal: numbers aligned, ids whole, as wide as the terminal is, in blocks where it is too narrow."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from concal.cli.cells import column_text, printable, text_width
from concal.errors import counted

if TYPE_CHECKING:
    import polars as pl

GAP = "  "
NARROWEST = 20
UNKNOWN_WIDTH = 120
"""Columns where nothing says how many there are: a pipe without COLUMNS that no terminal belongs to."""
SHORT_TEXT = 24
"""Text cells up to this width stay on one line; longer ones may be wrapped between words."""


def terminal_width() -> int:
    """Columns to fill: COLUMNS, also in a pipe; else of the terminal that any of the streams belongs to."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return max(int(asked), NARROWEST)
    for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
        try:
            return max(os.get_terminal_size(stream.fileno()).columns, NARROWEST)  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            continue
    return UNKNOWN_WIDTH


def wrapped(text: str) -> str:
    """Prose as wide as the terminal."""
    return textwrap.fill(text, terminal_width())


def print_table(
    table: pl.DataFrame,
    title: str | None = None,
    max_rows: int | None = None,
    *,
    headings: Mapping[str, str] | None = None,
    decimals: Mapping[str, int] | None = None,
    keys: Sequence[str] = (),
) -> None:
    """A table to standard output; cell text is shown as it is, never read as markup or control codes.

    Parameters
    ----------
    table
        Columns and rows in the order they are shown.
    title
        Above it.
    max_rows
        How many rows a terminal shows (a pipe gets all); the rest is counted.
    headings
        Of the columns; default their names.
    decimals
        Of the columns; default: as many as their size asks for.
    keys
        Columns that say which row it is: never wrapped, repeated where the columns need several blocks. Default: the
        first.
    """
    shown = table if max_rows is None or not sys.stdout.isatty() else table.head(max_rows)
    cells = {name: column_text(shown[name], (decimals or {}).get(name)) for name in shown.columns}
    right = {name for name, kind in shown.schema.items() if kind.is_numeric()}
    heads = {name: printable((headings or {}).get(name, name)) for name in shown.columns}
    lines = table_lines(cells, heads, right, tuple(keys) or tuple(table.columns[:1]), terminal_width())
    if title is not None:
        typer.echo(typer.style(printable(title), bold=True))
    for line in lines:
        typer.echo(line)
    if shown.height < table.height:
        typer.echo(f"... and {counted(table.height - shown.height, 'more row')}; --to FILE writes all of them")


def table_lines(
    cells: Mapping[str, list[str]], heads: Mapping[str, str], right: set[str], keys: Sequence[str], width: int
) -> list[str]:
    """Columns of text as lines no wider than `width`, unless the keys and one column are wider than that."""
    lines: list[str] = []
    for names, widths in _blocks(cells, heads, keys, width):
        if lines:
            lines.append("")
        lines += _block(names, cells, heads, right, keys, widths)
    return lines


def _blocks(
    cells: Mapping[str, list[str]], heads: Mapping[str, str], keys: Sequence[str], width: int
) -> list[tuple[list[str], dict[str, int]]]:
    """Columns side by side as far as they fit, the keys in every block; with the width of every column."""
    needs = {name: max(map(text_width, [heads[name], *column])) for name, column in cells.items()}
    least = {
        name: needs[name] if name in keys else min(needs[name], _longest_word(heads[name], column))
        for name, column in cells.items()
    }
    front = [name for name in cells if name in keys]
    _spare_long_ids(front, cells, heads, least, width)
    blocks: list[list[str]] = [[]]
    for name in cells:
        if name in front:
            continue
        tried = [*front, *blocks[-1], name]
        if blocks[-1] and _total(tried, least) > width:
            blocks.append([])
        blocks[-1].append(name)
    return [([*front, *rest], _shared_out([*front, *rest], needs, least, width)) for rest in blocks]


def _total(names: Sequence[str], widths: Mapping[str, int]) -> int:
    return sum(widths[name] for name in names) + len(GAP) * (len(names) - 1)


def _spare_long_ids(
    front: Sequence[str], cells: Mapping[str, list[str]], heads: Mapping[str, str], least: dict[str, int], width: int
) -> None:
    """Where a few long ids alone make the table too wide, they get a line of their own and the column is narrower."""
    too_much = _total(list(least), least) - width
    if too_much <= 0 or not front:
        return
    widest = max(front, key=least.__getitem__)
    lengths = sorted(map(text_width, cells[widest]))
    usual = lengths[(3 * len(lengths)) // 4] if lengths else 0
    least[widest] = max(least[widest] - too_much, usual, text_width(heads[widest]))


def _shared_out(names: Sequence[str], needs: Mapping[str, int], least: Mapping[str, int], width: int) -> dict[str, int]:
    """Room beyond what the columns need at least, given to those that wrap, the narrowest first."""
    room = width - _total(names, least)
    given = {name: least[name] for name in names}
    for name in sorted(names, key=lambda n: needs[n] - least[n]):
        more = min(needs[name] - least[name], max(room, 0))
        given[name] += more
        room -= more
    return given


def _block(
    names: Sequence[str],
    cells: Mapping[str, list[str]],
    heads: Mapping[str, str],
    right: set[str],
    keys: Sequence[str],
    widths: Mapping[str, int],
) -> list[str]:
    head = _row_lines(names, {name: _wrapped(heads[name], widths[name]) for name in names}, right, widths)
    lines = [typer.style(line, bold=True) for line in head]
    lines.append(GAP.join(_rule() * widths[name] for name in names))
    for k in range(len(cells[names[0]])):
        row = {n: [cells[n][k]] if n in keys else _wrapped(cells[n][k], widths[n]) for n in names}
        lines += _row_lines(names, row, right, widths)
    return lines


def _row_lines(
    names: Sequence[str], row: dict[str, list[str]], right: set[str], widths: Mapping[str, int]
) -> list[str]:
    """One row of cells, each of one or more lines; what is too wide for its column goes on a line before."""
    lines = []
    for k, name in enumerate(names):
        if max(map(text_width, row[name])) > widths[name]:
            indent = " " * (_total(names[:k], widths) + len(GAP) if k else 0)
            lines += [indent + text for text in row[name]]
            row[name] = [""]
    for k in range(max(len(row[name]) for name in names)):
        parts = []
        for name in names:
            text = row[name][k] if k < len(row[name]) else ""
            space = " " * (widths[name] - text_width(text))
            parts.append(space + text if name in right else text + space)
        lines.append(GAP.join(parts).rstrip())
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    """Broken between words; a word is never broken."""
    if text_width(text) <= width:
        return [text]
    lines, line = [], ""
    for word in text.split(" "):
        tried = f"{line} {word}" if line else word
        if line and text_width(tried) > width:
            lines.append(line)
            line = word
        else:
            line = tried
    return [*lines, line]


def _longest_word(head: str, cells: Sequence[str]) -> int:
    """The least width of a column: headings wrap between words, cells only where they are long."""
    long = [cell for cell in cells if text_width(cell) > SHORT_TEXT]
    short = [cell for cell in cells if text_width(cell) <= SHORT_TEXT]
    words = [word for text in (head, *long) for word in text.split(" ")]
    return max(map(text_width, [*words, *short]))


def _rule() -> str:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return "─" if encoding.lower().replace("-", "").startswith("utf") else "-"
