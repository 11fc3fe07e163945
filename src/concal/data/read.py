"""Tables at the door: files and data frames become polars tables whose ids are strings, unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from concal.data.files import frame_of, read_file
from concal.data.text import with_decimal_points
from concal.errors import DataError, counted, first_few
from concal.spec import DataSpec

Table = str | Path | Any
"""A path to a file (see `concal.data.files`), or a data frame (polars, pandas, Arrow, DuckDB, what narwhals knows)."""

ID_COLUMNS = ("person_id", "item_id", "group")
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""A score written like this was not given."""


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
    not_given
        Rows of a long table whose score is empty, NA or NaN: no responses, left out.
    omitted
        `item_id`, `omitted`: how many of them each item has; None where no row is empty, so that nobody can tell.
    numbers
        Where the rows stood in the file, from 1, when some were left out.
    notes
        What had to be guessed about the file.
    wide
        A column per item: some may be none.
    person_groups
        `person_id`, `person_group` as the rows say it, where there is such a column.
    """

    rows: pl.DataFrame
    unreadable: pl.Series
    silent: pl.Series
    not_given: int = 0
    numbers: pl.Series | None = None
    notes: tuple[str, ...] = ()
    person_groups: pl.DataFrame | None = None
    omitted: pl.DataFrame | None = None
    wide: bool = False


def read_table(
    source: Table,
    *,
    columns: Sequence[str] = (),
    text_only: bool = False,
    what: str = "table",
    notes: list[str] | None = None,
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
    notes
        Gets what had to be guessed about a file.
    """
    table, label = _loaded(source, text_only, what, notes)
    check_columns(table, columns, label)
    return table.with_columns(id_text(table[name], label) for name in ID_COLUMNS if name in table.columns)


def _loaded(source: Table, text_only: bool, what: str, notes: list[str] | None) -> tuple[pl.DataFrame, str]:
    """The table of a path or a frame, and what to call it in messages."""
    if not isinstance(source, str | Path):
        return frame_of(source, what), what
    table, said = read_file(Path(source), text_only=text_only, as_text=ID_COLUMNS, what=what)
    if notes is not None:
        notes += [f"{what} {str(source)!r}: {text}" for text in said]
    return table, f"{what} {str(source)!r}"


def read_responses(source: Table, *, wide: bool = False, options: DataSpec | None = None) -> Answers:
    """Responses as a long table.

    Parameters
    ----------
    source
        Path or data frame: one row per response, or wide. Answers that were read before are taken as they are.
    wide
        One column per item, beside the person ids: the column `options` names, or else the first. Empty cells are no
        responses.
    options
        The spec's data section: what the columns are called, which are no items, what an empty score means.
    """
    if isinstance(source, Answers):
        return source
    options = options or DataSpec()
    notes: list[str] = []
    if wide:
        table, label = _loaded(source, True, "responses", notes)
        answers = _melt(table, options, label)
    else:
        names = {options.person_id: "person_id", options.item_id: "item_id", options.score: "score"}
        table, label = _loaded(source, True, "responses", notes)
        check_columns(table, list(names), label, remedy=WIDE if _no_long_table(table, options) else RENAME)
        rows = table.select(pl.col(old).alias(new) for old, new in names.items())
        ids = [id_text(rows[name], label) for name in ("person_id", "item_id")]
        answers = _with_score(rows.with_columns(ids), missing=options.missing == "skip")
        answers = answers._replace(person_groups=_person_groups(table, options.person_id, options, label))
    return answers._replace(notes=tuple(notes))


def _person_groups(table: pl.DataFrame, who: str, options: DataSpec, label: str) -> pl.DataFrame | None:
    """The group of every examinee, where the table has such a column."""
    if options.person_group not in table.columns:
        return None
    columns = {"person_id": id_text(table[who], label), "person_group": id_text(table[options.person_group], label)}
    return pl.DataFrame(columns).drop_nulls("person_id").unique(maintain_order=True)


def _melt(table: pl.DataFrame, options: DataSpec, label: str) -> Answers:
    """A wide table as a long one."""
    if {options.person_id, options.item_id, options.score} <= set(table.columns):
        raise DataError(
            f"{label}: this is a long table ({options.person_id}, {options.item_id}, {options.score}); read it without "
            "wide (--wide)"
        )
    who = options.person_id if options.person_id in table.columns else (table.columns or [""])[0]
    left_out = {who, options.person_group, *options.ignore}
    items = [name for name in table.columns if name not in left_out]
    if not items:
        raise DataError(
            f"{label}: a wide table needs a column of person ids and one column per item, found {table.columns}"
        )
    if who != options.person_id:
        _refuse_item_as_ids(table[who], options, label)
    persons = id_text(table[who], label).alias("person")
    odd = [n for n in items if (k := table[n].dtype).is_nested() or k.is_temporal() or k == pl.Binary]
    if odd:
        raise DataError(
            f"{label}: {counted(len(odd), 'column')} without scores: {first_few(odd)}; leave out what is not an item "
            "(data.ignore in bank.toml)"
        )
    # numbers instead of names, because an item may be called like one of our columns
    cells = table.select(items).rename({n: str(k) for k, n in enumerate(items)}).select(pl.all().cast(pl.String))
    nobody = (persons.is_null() | (persons == "")).any()  # then messages need the rows of the file
    index = [persons, *([pl.int_range(1, table.height + 1, eager=True).alias("row")] if nobody else [])]
    long = cells.with_columns(index).unpivot(index=[c.name for c in index], variable_name="k", value_name="score")
    given = long.filter(pl.col("score").is_not_null() & ~pl.col("score").str.strip_chars().is_in(MISSING))
    names = pl.DataFrame({"k": [str(k) for k in range(len(items))], "item_id": items})
    silent = persons.filter(~persons.is_in(given["person"].unique().implode())).drop_nulls()
    rows = given.join(names, on="k", how="left", maintain_order="left")
    answers = _with_score(rows.select(pl.col("person").alias("person_id"), "item_id", "score"), silent)
    if nobody:
        answers = answers._replace(numbers=rows["row"])
    return answers._replace(person_groups=_person_groups(table, who, options, label), wide=True)


def _refuse_item_as_ids(first: pl.Series, options: DataSpec, label: str) -> None:
    """The first column is taken for the ids where none is named; refused where it looks like an item's scores."""
    n = first.n_unique()
    numbers = first.drop_nulls().cast(pl.String).str.strip_chars().str.contains(r"^\d{1,3}([.,]\d+)?$")
    if n <= FEW_SCORES and first.len() >= ROWS_PER_SCORE * n and numbers.len() and numbers.all():
        raise DataError(
            f"{label}: there is no column {options.person_id!r} of ids, and the first, {first.name!r}, holds {n} "
            f"different numbers in {first.len():,} rows, as an item does: say in bank.toml what the column of ids is "
            "called (data.person_id), or add one with a different id in every row"
        )


FEW_SCORES, ROWS_PER_SCORE = 12, 3
"""So few different numbers, each so often, are scores: ids differ from row to row."""
RENAME = "rename it, or say in bank.toml what it is called (`concal start` does)"
WIDE = (
    "if it has a row per examinee and a column per item, say so (--wide, wide=True); otherwise rename the columns, or "
    "say in bank.toml what they are called (`concal start` does)"
)


def _no_long_table(table: pl.DataFrame, options: DataSpec) -> bool:
    """Neither a column of items nor one of scores: most often a wide table."""
    return not {options.item_id, options.score} & set(table.columns)


def check_columns(table: pl.DataFrame, columns: Sequence[str], what: str, *, remedy: str = RENAME) -> None:
    """Every column must be there, or a `DataError` names the nearest one that is."""
    lost = [name for name in columns if name not in table.columns]
    if not lost:
        return
    hints = []
    for name in lost:
        near = get_close_matches(name, table.columns, n=1, cutoff=0.5)
        hints.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    raise DataError(
        f"{what}: missing column {', '.join(hints)}; the table has {first_few(table.columns, 20)}; {remedy}"
    )


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


def _with_score(table: pl.DataFrame, silent: pl.Series | None = None, *, missing: bool = True) -> Answers:
    """Scores as numbers; with `missing`, rows whose score is empty, NA or NaN are no responses and go."""
    given = table["score"]
    if given.dtype.is_nested() or given.dtype == pl.Binary or given.dtype.is_temporal():
        raise DataError(f"responses: column 'score' has type {given.dtype}; scores must be numbers")
    if given.dtype in (pl.Categorical, pl.Enum):
        given = given.cast(pl.String)
    if given.dtype == pl.String:
        given = with_decimal_points(given.str.strip_chars(), "responses")
        empty = given.is_null() | given.is_in(MISSING)
    else:
        empty = given.is_null() | given.is_nan() if given.dtype.is_float() else given.is_null()
    n_empty, numbers, omitted = int(empty.sum()) if missing else 0, None, None
    if n_empty:
        omitted = table.filter(empty)["item_id"].value_counts(name="omitted")
        table, given, numbers = table.filter(~empty), given.filter(~empty), (~empty).arg_true() + 1
    score = given.cast(pl.Float64, strict=False)
    unreadable = given.filter(score.is_null()).cast(pl.String).fill_null("(empty)").replace("", "(empty)")
    nobody = pl.Series("person_id", [], dtype=pl.String)
    rows = table.with_columns(score.alias("score"))
    return Answers(rows, unreadable, nobody if silent is None else silent, n_empty, numbers, omitted=omitted)
