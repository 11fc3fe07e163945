"""Delimited text as people save it: separator, encoding, byte-order mark and decimal comma are found out, not asked."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from concal.data.lines import bad_line, whole_rows
from concal.errors import DataError, first_few

SEPARATORS = (",", ";", "\t", "|")
_SAMPLE = 1 << 18  # bytes looked at to find separator and encoding
_SIGNS = set("–—‘’“”„…°€£§«»·ªº¿¡×\u00a0")  # what people type beside letters
_ROW = "row"  # R and pandas write row names first, under an empty header
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def read_text(
    path: Path, *, text_only: bool, as_text: Sequence[str], separator: str | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """A delimited text file, plain or gzipped, and what had to be guessed on the way.

    Parameters
    ----------
    path
        The file.
    text_only
        Every column as text.
    as_text
        Columns that are text whatever they look like (ids).
    separator
        Default: found out.
    """
    source, sample, notes = _decoded(path)
    rows = _sample_rows(sample)
    mark = separator or find_separator(rows, str(path))
    header = next(csv.reader(rows, delimiter=mark), [])
    header = [_ROW, *header[1:]] if header[:1] == [""] and header.count("") == 1 else header
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"has several columns called {first_few(twice)}; names must differ")
    try:
        table = _parsed(source, mark, header, text_only, as_text)
    except pl.exceptions.ComputeError as error:
        if "utf" not in str(error).lower() or not isinstance(source, Path):
            why = bad_line(source if isinstance(source, bytes) else _all_bytes(source), mark, len(header))
            if why is None:
                raise
            raise DataError(f"is not a table that can be read: {why}") from None
        source, notes = _legacy(_all_bytes(path))  # the first bytes were plain, later ones are not
        table = _parsed(source, mark, header, text_only, as_text)
    if table.height and table.width and table[table.columns[-1]].null_count():
        table, said, cut = whole_rows(table, source if isinstance(source, bytes) else _all_bytes(source), mark)
        if cut is not None:
            raise DataError(f"has {cut}")
        notes = [*notes, *said]
    if mark != "," and not text_only:
        table = table.with_columns(_without_decimal_commas(table, [n for n in table.columns if n not in as_text]))
    return table, notes


def _parsed(
    source: Path | bytes, separator: str, header: Sequence[str], text_only: bool, as_text: Sequence[str]
) -> pl.DataFrame:
    table = pl.read_csv(
        source,
        separator=separator,
        infer_schema=not text_only,
        infer_schema_length=None,
        schema_overrides=None if text_only else {n: pl.String for n in header if n in as_text},
    )
    return table.rename({"": _ROW}) if table.columns[:1] == [""] else table


def find_separator(rows: Sequence[str], where: str = "the table") -> str:
    """What separates the columns: found in the header, and the same number of times in the rows below it.

    >>> find_separator(["id;a;b", "1;0,5;1"])
    ';'
    """
    shapes = {mark: _shape(rows, mark) for mark in SEPARATORS}
    possible = [mark for mark in SEPARATORS if shapes[mark][0] > 1]
    if len(possible) < 2:
        return possible[0] if possible else ","
    even = [mark for mark in possible if shapes[mark][1]]
    if len(even) == 1:
        return even[0]
    said = " or ".join(f"{_NAMES[mark]} ({shapes[mark][0]} columns)" for mark in even or possible)
    raise DataError(f"cannot tell what separates the columns, {said}; save it with one of them only, or as .tsv")


def _shape(rows: Sequence[str], mark: str) -> tuple[int, bool]:
    """Columns of the header, and whether all rows of the sample have as many."""
    counts = [len(row) for row in csv.reader(rows, delimiter=mark) if row]
    return (counts[0] if counts else 0), len(set(counts)) == 1


def _sample_rows(sample: str) -> list[str]:
    """Lines of the sample; the last may be cut off and is left out, unless it is the only one."""
    lines = sample.splitlines(keepends=True)
    return lines[:-1] if len(lines) > 1 and len(sample) >= _SAMPLE // 4 and not sample.endswith("\n") else lines


def _decoded(path: Path) -> tuple[Path | bytes, str, list[str]]:
    """What polars reads (the file itself where it is UTF-8), the beginning as text, notes."""
    head = _head(path)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = _all_bytes(path).decode("utf-16")
        return text.encode("utf-8"), text[:_SAMPLE], ["read as UTF-16, which its first bytes say it is"]
    if b"\r" in head and b"\n" not in head:
        data, notes = _all_bytes(path).replace(b"\r", b"\n"), ["its lines end in CR alone"]
        try:
            return data, _utf8(data[:_SAMPLE]), notes
        except UnicodeDecodeError:
            data, said = _legacy(data)
            return data, data[:_SAMPLE].decode("utf-8", errors="ignore"), notes + said
    try:
        return path, _utf8(head), []
    except UnicodeDecodeError:
        data, notes = _legacy(_all_bytes(path))
        return data, data[:_SAMPLE].decode("utf-8", errors="ignore"), notes


def _utf8(head: bytes) -> str:
    """UTF-8 with or without a byte-order mark; a character cut off at the end of the sample is no error."""
    try:
        return head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(head) == _SAMPLE and error.start >= len(head) - 3:
            return head[: error.start].decode("utf-8-sig")
        raise


def _legacy(data: bytes) -> tuple[bytes, list[str]]:
    """Windows-1252 (of which latin-1 text is a part), where the text then reads like text."""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError as error:
        raise DataError(_neither(data, error.start)) from None
    odd = next((k for k, c in enumerate(text) if not _plausible(c)), None)
    if odd is not None:
        raise DataError(_neither(data, odd))
    at = next(k for k, c in enumerate(text) if not c.isascii())
    found = next(part for part in re.split(r"[,;|\t\n]", text[max(0, at - 15) : at + 15]) if not part.isascii())
    line = text.count("\n", 0, at) + 1
    return text.encode("utf-8"), [f"it is not UTF-8 and was read as Windows-1252: {found!r} in line {line}"]


def _plausible(c: str) -> bool:
    return (c.isascii() and (c.isprintable() or c in "\t\r\n")) or c.isalpha() or c in _SIGNS


def _neither(data: bytes, at: int) -> str:
    line = data.count(b"\n", 0, at) + 1
    return f"is neither UTF-8 nor Windows-1252 text (byte 0x{data[at]:02x} in line {line}); save it as UTF-8"


def _head(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return file.read(_SAMPLE)


def _all_bytes(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def with_decimal_points(text: pl.Series, what: str) -> pl.Series:
    """Decimal commas as points; a column that mixes both, or whose commas may separate thousands, is refused."""
    commas = text.filter(text.str.contains(r"^\s*[-+]?\d+,\d+\s*$"))
    if not commas.len():
        return text
    points = text.filter(text.str.contains(r"^\s*[-+]?\d*\.\d+\s*$"))
    if points.len():
        raise DataError(
            f"{what}: decimals have a comma in some rows ({first_few(commas.head(5).to_list())}) and a point in others "
            f"({first_few(points.head(5).to_list())}); write them one way"
        )
    if commas.str.contains(r"^\s*[-+]?[1-9]\d{0,2},\d{3}\s*$").all():
        raise DataError(
            f"{what}: cannot tell whether the comma in {first_few(commas.head(5).to_list())} is a decimal comma or "
            "separates thousands; write decimals with a point, or leave the comma out"
        )
    return text.str.replace(",", ".", literal=True)


def _without_decimal_commas(table: pl.DataFrame, names: Iterable[str]) -> list[pl.Series]:
    """Columns of a table separated by something else that hold nothing but numbers with decimal commas."""
    found = []
    for name in names:
        column = table[name]
        if column.dtype != pl.String or not column.len():
            continue
        given = column.drop_nulls()
        if given.len() and given.str.contains(r"^\s*[-+]?\d+(,\d+)?\s*$").all():
            found.append(with_decimal_points(column, f"column {name!r}").str.strip_chars().cast(pl.Float64))
    return found
