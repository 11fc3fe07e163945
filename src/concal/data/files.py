"""Files of any kind a testing programme has: text, Parquet, Feather, Excel, SPSS, Stata, SAS, a folder of Parquet."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import polars as pl

from concal.data.text import read_text
from concal.errors import DataError, counted, first_few

TEXT = {".csv": None, ".tsv": "\t", ".tab": "\t", ".txt": None}
ARROW = (".parquet", ".pq", ".feather", ".arrow", ".ipc")
STATISTICS = {
    ".sav": "read_sav", ".zsav": "read_sav", ".por": "read_por", ".dta": "read_dta", ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}  # fmt: skip
REMEDIES = {
    ".xls": "save it as .xlsx or .csv",
    ".ods": "save it as .xlsx or .csv",
    ".rds": "in R: arrow::write_parquet(x, 'file.parquet') or write.csv(x, 'file.csv', row.names = FALSE)",
    ".rdata": "in R: arrow::write_parquet(x, 'file.parquet') or write.csv(x, 'file.csv', row.names = FALSE)",
    ".json": "write it as a table, .csv or .parquet",
    ".zip": "unpack it first",
}
KINDS = ".csv, .tsv, .txt (also .gz), .parquet, .feather, .xlsx, .sav, .dta, .sas7bdat, or a folder of Parquet files"


def read_file(path: Path, *, text_only: bool, as_text: Sequence[str], what: str) -> tuple[pl.DataFrame, list[str]]:
    """The table of a file, and what had to be guessed; a file that holds none is a `DataError` that says why."""
    if path.is_dir():
        return _read_folder(path, what), []
    if not path.is_file():
        near = _nearest_file(path)
        raise DataError(f"{what}: there is no file {str(path)!r}" + (f"; did you mean {near!r}?" if near else ""))
    suffix = (path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix).lower()
    reader = _reader(suffix, text_only, as_text)
    if reader is None:
        remedy = REMEDIES.get(suffix, f"what can be read: {KINDS}")
        raise DataError(f"{what}: {str(path)!r} is none of the kinds that can be read; {remedy}")
    try:
        return reader(path)
    except DataError as error:
        raise DataError(f"{what}: {str(path)!r} {error}") from None
    except ImportError:
        extra = "excel" if suffix == ".xlsx" else "stats"
        raise DataError(
            f"{what}: reading {suffix} files needs another package: pip install 'concal[{extra}]'"
        ) from None
    except (OSError, UnicodeError, csv.Error, EOFError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{what}: {str(path)!r} is not a table that can be read ({first_line(error)})") from None
    except Exception as error:  # readers of other formats have errors of their own
        if suffix not in STATISTICS and suffix != ".xlsx":
            raise
        raise DataError(
            f"{what}: {str(path)!r} is not a {suffix} file that can be read ({first_line(error)})"
        ) from None


Reader = Callable[[Path], tuple[pl.DataFrame, list[str]]]


def _reader(suffix: str, text_only: bool, as_text: Sequence[str]) -> Reader | None:
    if suffix in TEXT:
        return lambda path: read_text(path, text_only=text_only, as_text=as_text, separator=TEXT[suffix])
    if suffix in ARROW:
        return _read_arrow
    if suffix == ".xlsx":
        return _read_excel
    if suffix in STATISTICS:
        return _read_statistics
    return None


def _read_arrow(path: Path) -> tuple[pl.DataFrame, list[str]]:
    if path.suffix.lower() in (".parquet", ".pq"):
        return pl.read_parquet(path, hive_partitioning=False), []
    return pl.read_ipc(path), []


def _read_excel(path: Path) -> tuple[pl.DataFrame, list[str]]:
    import fastexcel

    sheets = fastexcel.read_excel(path).sheet_names
    table = pl.read_excel(path, sheet_name=sheets[0], engine="calamine", infer_schema_length=None)
    more = f"of its {len(sheets)} sheets the first was read, {sheets[0]!r}"
    return whole_numbers(table), [more] if len(sheets) > 1 else []


def _read_statistics(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """SPSS, Stata, SAS; values their owner declared missing are missing."""
    import pyreadstat

    table, _ = getattr(pyreadstat, STATISTICS[path.suffix.lower()])(str(path), output_format="polars")
    return whole_numbers(table), []


def whole_numbers(table: pl.DataFrame) -> pl.DataFrame:
    """Columns of whole numbers as such: these formats know no others than floating point."""
    return table.with_columns(
        table[name].cast(pl.Int64)
        for name, kind in table.schema.items()
        if kind.is_float() and bool((table[name].fill_nan(None) % 1 == 0).drop_nulls().all()) and table[name].len()
    )


def _read_folder(path: Path, what: str) -> pl.DataFrame:
    """All Parquet files of a folder as one table; they must have the same columns."""
    files = sorted(p for p in path.rglob("*") if p.suffix.lower() in (".parquet", ".pq") and p.is_file())
    if not files:
        seen = sorted(p.name for p in path.iterdir())
        inside = f"it holds {first_few(seen)}" if seen else "it is empty"
        raise DataError(f"{what}: {str(path)!r} is a folder without Parquet files ({inside}); name the file itself")
    try:
        return pl.concat((pl.read_parquet(p, hive_partitioning=False) for p in files), how="vertical")
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{what}: {counted(len(files), 'Parquet file')} of {str(path)!r} cannot make one table "
            f"({first_line(error)}); they need the same columns of the same types"
        ) from None


def first_line(error: BaseException) -> str:
    """The gist of an error of another library."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _nearest_file(path: Path) -> str | None:
    try:
        names = [p.name for p in path.parent.iterdir() if p.is_file()]
    except OSError:
        return None
    near = get_close_matches(path.name, names, n=1)
    return str(path.parent / near[0]) if near else None


def frame_of(source: Any, what: str) -> pl.DataFrame:
    """A data frame of any library: polars (lazy too), pandas, Arrow, DuckDB relations, whatever narwhals knows."""
    import narwhals as nw

    if isinstance(source, pl.DataFrame):
        return source
    kind = f"{type(source).__module__}.{type(source).__qualname__}"
    try:
        frame = nw.from_native(source)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what}: {kind} is not a table ({first_line(error)}); "
            "give a path to a file, or a data frame (polars, pandas, Arrow, DuckDB)"
        ) from None
    lazy = isinstance(frame, nw.LazyFrame)
    try:
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect()
        return frame.to_polars()
    except Exception as error:  # whatever the query or the conversion does
        if mixed := _mixed_columns(source):
            raise DataError(f"{what}: {mixed[0]}; make it one kind, e.g. with .astype(str)") from None
        doing = "could not be computed" if lazy else "is not a table that can be read"
        raise DataError(f"{what}: the {kind} {doing} ({first_line(error)})") from None


def _mixed_columns(source: Any) -> list[str]:
    """Columns of a pandas frame that hold several kinds of values."""
    found: list[str] = []
    if not type(source).__module__.startswith("pandas"):
        return []
    for name in source.columns:
        column = source[name]
        if str(getattr(column, "dtype", "")) != "object":
            continue
        kinds = column.dropna().map(lambda value: type(value).__name__).value_counts()
        if len(kinds) > 1:
            found.append(f"column {name!r} mixes {', '.join(f'{kind} ({n})' for kind, n in kinds.items())}")
    return found
