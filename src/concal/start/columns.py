"""Which columns of a table are ids, items and scores: by their names, and in wide tables by what they hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from concal.data.read import MISSING
from concal.errors import DataError, counted, first_few

PERSON = (
    "personid", "person", "examineeid", "examinee", "studentid", "student", "userid", "user", "pid", "respondentid",
    "respondent", "subjectid", "subject", "candidateid", "candidate", "learnerid", "learner", "participantid",
    "participant", "testtaker", "idstud", "caseid", "case", "id",
)  # fmt: skip
ITEM = ("itemid", "item", "questionid", "question", "problemid", "problem", "taskid", "task", "itemkey", "itemname")
SCORE = (
    "score", "resp", "response", "correct", "iscorrect", "outcome", "points", "mark", "rating", "result", "value",
    "answer",
)  # fmt: skip
NOT_ITEMS = (
    "total", "sum", "sumscore", "totalscore", "score", "age", "sex", "gender", "male", "female", "school",
    "schooltype", "class", "grade", "country", "region", "language", "wave", "period", "quarter", "year", "date",
    "time", "form", "booklet", "group", "weight", "seq", "row", "rt",
)  # fmt: skip
"""Names, as `plain` makes them, best first (the last of PERSON is also what other things are called)."""
NUMBER = r"^[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?$"


@dataclass(frozen=True)
class Columns:
    """What was recognised.

    Attributes
    ----------
    wide : bool
        One column per item.
    person_id : str
    item_id, score : str
        Of a long table; of a wide one their default names.
    items : tuple of str
        Columns of a wide table that are items.
    others : tuple of str
        Neither ids nor scores.
    """

    wide: bool
    person_id: str
    item_id: str = "item_id"
    score: str = "score"
    items: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def plain(name: str) -> str:
    """A name without case and signs: "Person.ID" and "person_id" are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_columns(table: pl.DataFrame, given: Mapping[str, str | None], where: str) -> Columns:
    """What the columns of a table of responses are.

    Parameters
    ----------
    table
        With types as they were read.
    given
        Columns that were named: "person", "item", "score"; None where they are to be found.
    where
        What the table is called in messages.
    """
    for role, name in given.items():
        if name is not None and name not in table.columns:
            raise DataError(
                f"{where}: there is no column {name!r} (--{role}); there are {first_few(table.columns, 20)}"
            )
    person = given.get("person") or _named(table.columns, PERSON)
    item = given.get("item") or _named(table.columns, ITEM)
    score = given.get("score") or _named(table.columns, SCORE)
    if item is None:
        return _wide(table, person, where)
    missing = [role for role, name in (("person", person), ("score", score)) if name is None]
    if person is None or score is None:
        raise DataError(
            f"{where}: {item!r} looks like the column of items, but which holds the {' and the '.join(missing)}? "
            f"The table has {first_few(table.columns, 20)}; say it with "
            + " and ".join(f"--{role} COLUMN" for role in missing)
        )
    others = tuple(name for name in table.columns if name not in (person, item, score))
    return Columns(False, person, item, score, others=others)


def _named(columns: Sequence[str], known: Sequence[str]) -> str | None:
    """The first column that is called like one of these, in their order."""
    by_name = {plain(name): name for name in reversed(columns)}
    return next((by_name[name] for name in known if name in by_name), None)


def _wide(table: pl.DataFrame, person: str | None, where: str) -> Columns:
    if person is None:
        first = table.columns[0] if table.width else ""
        unique = table.width > 1 and table[first].n_unique() == table.height
        if not unique or table.schema[first].is_float():
            raise DataError(
                f"{where}: no column is called like the ids of examinees, and the first, {first!r}, does not hold a "
                "different one in every row; add a column of ids, or name it with --person COLUMN"
            )
        person = first
    items = tuple(name for name in table.columns if name != person and _holds_scores(table[name]))
    if len(items) < 2:
        words = [name for name in table.columns if name != person and _holds_words(table[name])]
        if len(words) > 1:
            raise DataError(
                f"{where}: {counted(len(words), 'column')} of text where a wide table has scores "
                f"({first_few([f'{n}: {table[n].drop_nulls()[0]}' for n in words])}); score the answers first (0 and "
                "1, or points), or name the columns of a long table with --person, --item and --score"
            )
        raise DataError(
            f"{where}: neither a long table (a column of items) nor a wide one (a column of scores per item): "
            f"{first_few(table.columns, 20)}; name the columns with --person, --item and --score"
        )
    others = tuple(name for name in table.columns if name not in (person, *items))
    return Columns(True, person, items=items, others=others)


def _holds_scores(column: pl.Series) -> bool:
    """Numbers, and not called like something that is no item."""
    called = plain(column.name)
    if called in NOT_ITEMS or called.startswith("cov"):
        return False
    if column.dtype == pl.String:
        return _mostly_numbers(column)
    return column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)


def _mostly_numbers(text: pl.Series) -> bool:
    """Numbers among which NA or a decimal comma stands; a few words there are for the reader of scores to name."""
    given = text.str.strip_chars()
    given = given.filter(~given.is_in(MISSING)).drop_nulls()
    return 2 * int(given.str.contains(NUMBER).sum()) >= given.len()


def _holds_words(column: pl.Series) -> bool:
    return column.dtype == pl.String and plain(column.name) not in NOT_ITEMS and column.drop_nulls().len() > 0
