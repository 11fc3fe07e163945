"""Lines of a text file that are no rows of its table: cut off, too long, with a quote that is never closed, blank."""

from __future__ import annotations

import csv
import io

import polars as pl

from concal.errors import counted

WHOLE_LINE = "\x1f"
"""A separator nobody has: a line is one column."""


def bad_line(data: bytes, separator: str, n: int) -> str | None:
    """Why a file is no table of `n` columns, with the line; None where no single line is to blame."""
    text = data.decode("utf-8-sig", errors="replace")
    reader, start, too_long = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True), 1, []
    try:
        for cells in reader:
            if len(cells) > n:
                too_long.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        if "unexpected end" in str(error):
            return f"a quote that opens in line {start:,} is never closed: close it, or take it away"
        return f"line {start:,} cannot be read ({error}); a quote inside a cell is written twice"
    if not too_long:
        return None
    line, cells = too_long[0]
    return (
        f"{counted(len(too_long), 'line')} with more cells than the {n} columns of the header, the first is line "
        f"{line:,} with {len(cells)}: {separator.join(cells)[:80]!r}; quote cells that hold the separator"
    )


def whole_rows(table: pl.DataFrame, data: bytes, separator: str) -> tuple[pl.DataFrame, list[str], str | None]:
    """The table without its blank lines, what is to be said of them, and which lines end too early, if any.

    Parameters
    ----------
    table
        As it was parsed: cells that a line does not have are null.
    data
        The file.
    separator
        Of its columns.
    """
    first, *others = table.columns
    alone = table.select(pl.all_horizontal(pl.col(others).is_null()) if others else pl.lit(True)).to_series()
    empty = table[first].is_null()
    if table[first].dtype == pl.String:
        empty = empty | (table[first].str.strip_chars() == "").fill_null(False)
    blank = empty & alone
    suspect = table[table.columns[-1]].is_null() & ~blank if others else pl.zeros(table.height, pl.Boolean, eager=True)
    if not (blank.any() or suspect.any()):
        return table, [], None
    notes = []
    if blank.any():
        at = (blank.arg_true() + 2).head(5).to_list()
        more = f" and {int(blank.sum()) - 5:,} more" if blank.sum() > 5 else ""
        notes.append(f"{counted(int(blank.sum()), 'blank line')} left out: {', '.join(map(str, at))}{more}")
    short = _short_lines(data, separator, table, suspect) if suspect.any() else []
    return table.filter(~blank), notes, _too_early(short, table.width) if short else None


def _short_lines(data: bytes, separator: str, table: pl.DataFrame, suspect: pl.Series) -> list[tuple[int, int, str]]:
    """Number, cells and text of the lines with fewer cells than the header."""
    lines = pl.read_csv(
        data, has_header=False, separator=WHOLE_LINE, quote_char=None, infer_schema=False, new_columns=["text"]
    )
    lines = lines.with_row_index("line", offset=1)
    if lines.height != table.height + 1:  # some cell goes over several lines
        return _counted_one_by_one(data, separator, table.width)
    lines = lines[1:].filter(suspect)
    quoted = lines["text"].str.contains('"', literal=True)
    cells = pl.col("text").str.count_matches(separator, literal=True) + 1
    plain = lines.filter(~quoted).select("line", cells.alias("cells"), "text").filter(pl.col("cells") < table.width)
    found = list(plain.iter_rows())
    for line, text in lines.filter(quoted).iter_rows():
        n = len(next(csv.reader([text], delimiter=separator)))
        found += [(line, n, text)] if n < table.width else []
    return sorted(found)


def _counted_one_by_one(data: bytes, separator: str, n: int) -> list[tuple[int, int, str]]:
    """The same where a line may be part of a row only."""
    text = data.decode("utf-8-sig", errors="replace")
    reader, start, found = csv.reader(io.StringIO(text, newline=""), delimiter=separator), 1, []
    for cells in reader:
        if "".join(cells).strip() and len(cells) < n:
            found.append((start, len(cells), separator.join(cells)))
        start = reader.line_num + 1
    return found


def _too_early(short: list[tuple[int, int, str]], n: int) -> str:
    shown = ", ".join(f"line {line:,} has {cells} ({text[:60]!r})" for line, cells, text in short[:5])
    more = f" and {len(short) - 5:,} more" if len(short) > 5 else ""
    return (
        f"{counted(len(short), 'line')} with fewer cells than the {n} columns of the header: {shown}{more}; was the "
        "file cut off? An empty cell still needs its separator"
    )
