"""Tables at the door: CSV, Parquet and data frames become polars tables whose ids are strings, unchanged."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import polars as pl

from concal.errors import DataError, first_few

Table = str | Path | Any
"""A path to a CSV, TSV or Parquet file, or a data frame (polars, pandas, Arrow, anything narwhals knows)."""

ID_COLUMNS = ("person_id", "item_id", "group")
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
_SUFFIXES = {".csv": ",", ".tsv": "\t", ".parquet": None, ".pq": None}


class Answers(NamedTuple):
    """Responses as they were read.

    Attributes
    ----------
    rows
        `person_id`, `item_id`, `score`; the score is float64 and null where it is not a number.
    unreadable
        What was written there instead.
    silent
        Persons of a wide table without any response.
    """

    rows: pl.DataFrame
    unreadable: pl.Series
    silent: pl.Series


def read_table(
    source: Table, *, columns: Sequence[str] = (), text_only: bool = False, what: str = "table"
) -> pl.DataFrame:
    """Read a table; the id columns come back as strings exactly as they were written.

    Parameters
    ----------
    source
        Path or data frame.
    columns
        Columns that must be there; a missing one is a `DataError` with the nearest name that is.
    text_only
        Read every column of a text file as text (no guessing of types).
    what
        What the table is, for messages.
    """
    if isinstance(source, str | Path):
        table = _read_file(Path(source), text_only, what)
        label = f"{what} {str(source)!r}"
    else:
        table, label = _from_frame(source, what), what
    check_columns(table, columns, label)
    return table.with_columns(id_text(table[name], label) for name in ID_COLUMNS if name in table.columns)


def read_responses(source: Table, *, wide: bool = False) -> Answers:
    """Responses as a long table.

    In a wide table the first column holds the person ids and every other column is an item; empty cells are no
    responses.
    """
    if not wide:
        table = read_table(source, columns=("person_id", "item_id", "score"), text_only=True, what="responses")
        return _with_score(table.select("person_id", "item_id", "score"))
    return _melt(read_table(source, text_only=True, what="responses"))


def _melt(table: pl.DataFrame) -> Answers:
    """A wide table as a long one."""
    if table.width < 2:
        raise DataError(
            f"responses: a wide table needs a column of person ids and one column per item, found {table.columns}"
        )
    if {"person_id", "item_id", "score"} <= set(table.columns):
        raise DataError("responses: this is a long table (person_id, item_id, score); read it without wide (--wide)")
    if "person_id" in table.columns[1:]:
        raise DataError("responses: the first column of a wide table must be the person ids, not 'person_id' later on")
    persons = id_text(table.to_series(0), "responses").alias("person")
    items = table.columns[1:]
    odd = [n for n in items if (k := table[n].dtype).is_nested() or k.is_temporal() or k == pl.Binary]
    if odd:
        raise DataError(
            f"responses: {len(odd)} columns hold no scores: {first_few(odd)}; leave out what is not an item"
        )
    # numbers instead of names, because an item may be called like one of our columns
    cells = table[:, 1:].rename({n: str(k) for k, n in enumerate(items)}).select(pl.all().cast(pl.String))
    long = cells.with_columns(persons).unpivot(index="person", variable_name="k", value_name="score")
    given = long.filter(pl.col("score").is_not_null() & ~pl.col("score").is_in(MISSING))
    names = pl.DataFrame({"k": [str(k) for k in range(len(items))], "item_id": items})
    silent = persons.filter(~persons.is_in(given["person"].unique().implode())).drop_nulls()
    rows = given.join(names, on="k", how="left", maintain_order="left")
    return _with_score(rows.select(pl.col("person").alias("person_id"), "item_id", "score"), silent)


def check_columns(table: pl.DataFrame, columns: Sequence[str], what: str) -> None:
    """Every column must be there, or a `DataError` names the nearest one that is."""
    lost = [name for name in columns if name not in table.columns]
    if not lost:
        return
    hints = []
    for name in lost:
        near = get_close_matches(name, table.columns, n=1, cutoff=0.5)
        hints.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    marks = [mark for mark in (";", "\t", "|") if any(mark in name for name in table.columns)]
    hint = f"; its columns seem to be separated by {marks[0]!r}, save it with commas" if marks else ""
    raise DataError(f"{what}: missing column {', '.join(hints)}; the table has {first_few(table.columns, 20)}{hint}")


def id_text(column: pl.Series, what: str) -> pl.Series:
    """Ids as strings; floating point ids are refused because their text is not what anyone wrote."""
    if column.dtype.is_float():
        raise DataError(
            f"{what}: column {column.name!r} holds floating point numbers ({first_few(column.head(5).to_list())}), "
            "which are no ids; read that column as text or whole numbers"
        )
    if column.dtype.is_nested() or column.dtype == pl.Binary:
        raise DataError(f"{what}: column {column.name!r} has type {column.dtype}; ids must be text or whole numbers")
    return column.cast(pl.String)


def _with_score(table: pl.DataFrame, silent: pl.Series | None = None) -> Answers:
    given = table["score"]
    if given.dtype.is_nested() or given.dtype == pl.Binary or given.dtype.is_temporal():
        raise DataError(f"responses: column 'score' has type {given.dtype}; scores must be numbers")
    if given.dtype in (pl.Categorical, pl.Enum):
        given = given.cast(pl.String)
    text = given.dtype == pl.String
    score = (given.str.strip_chars() if text else given).cast(pl.Float64, strict=False)
    unreadable = given.filter(score.is_null()).cast(pl.String).fill_null("(empty)")
    nobody = pl.Series("person_id", [], dtype=pl.String)
    return Answers(table.with_columns(score.alias("score")), unreadable, nobody if silent is None else silent)


def _read_file(path: Path, text_only: bool, what: str) -> pl.DataFrame:
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if not path.is_file():
        near = _nearest_file(path)
        raise DataError(f"{what}: there is no file {str(path)!r}" + (f"; did you mean {near!r}?" if near else ""))
    if suffix.lower() not in _SUFFIXES:
        raise DataError(f"{what}: {str(path)!r} is none of the kinds that can be read: {', '.join(_SUFFIXES)}, .csv.gz")
    separator = _SUFFIXES[suffix.lower()]
    try:
        if separator is None:
            return pl.read_parquet(path, hive_partitioning=False)
        header = _header(path, separator)
        table = pl.read_csv(
            path,
            separator=separator,
            infer_schema=not text_only,
            infer_schema_length=None,
            schema_overrides=None if text_only else {n: pl.String for n in header if n in ID_COLUMNS},
        )
    except (pl.exceptions.PolarsError, OSError, UnicodeError, csv.Error, EOFError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{what}: {str(path)!r} is not a table that can be read ({reason})") from None
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"{what}: {str(path)!r} has several columns called {first_few(twice)}; names must differ")
    return table


def _header(path: Path, separator: str) -> list[str]:
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file, delimiter=separator), [])


def _nearest_file(path: Path) -> str | None:
    try:
        names = [p.name for p in path.parent.iterdir() if p.is_file()]
    except OSError:
        return None
    near = get_close_matches(path.name, names, n=1)
    return str(path.parent / near[0]) if near else None


def _from_frame(source: Any, what: str) -> pl.DataFrame:
    if isinstance(source, pl.DataFrame):
        return source
    if isinstance(source, pl.LazyFrame):
        return source.collect()
    try:
        frame = nw.from_native(source)
        eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        return eager.to_polars()
    except (TypeError, ValueError) as error:
        kind = f"{type(source).__module__}.{type(source).__qualname__}"
        reason = str(error).strip().splitlines()[0]
        raise DataError(
            f"{what}: {kind} is not a table ({reason}); "
            "give a path to a CSV or Parquet file, or a data frame (polars, pandas, Arrow)"
        ) from None
