"""Response tables of people to be scored: everything `concal add` reads, on items of the bank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.findings import Findings, counted, some
from concal.data.read import Answers, Table, check_columns, id_text, read_responses, read_table
from concal.data.rows import index_rows
from concal.errors import DataError
from concal.score.items import ScoringItems
from concal.score.rows import Answered
from concal.spec import Spec

Unknown = Literal["error", "ignore"]


@dataclass(frozen=True)
class Examinees:
    """People with their responses, sorted by id.

    Attributes
    ----------
    person_ids : polars Series of str
    answered : Answered
    prior : polars Series of str or None
        The prior a column names for each.
    n_unknown : (persons,) int64 or None
        Responses to items the bank does not know, where these are ignored.
    warnings : tuple of str
    """

    person_ids: pl.Series
    answered: Answered
    prior: pl.Series | None = None
    n_unknown: npt.NDArray[np.int64] | None = None
    warnings: tuple[str, ...] = ()

    def counts(self, items: ScoringItems, lo: int, hi: int) -> npt.NDArray[np.int64]:
        """Responses of examinees lo..hi by dimension."""
        part = self.answered.part(lo, hi)
        dim = np.concatenate([np.full(g.n_items, g.dim) for g in items.groups])
        person = np.repeat(np.arange(hi - lo), np.diff(part.start))
        D = len(items.dimensions)
        found = np.bincount(person * D + dim[part.item], minlength=(hi - lo) * D)
        return np.asarray(found.reshape(hi - lo, D), dtype=np.int64)


def read_examinees(
    source: Table,
    items: ScoringItems,
    spec: Spec,
    *,
    wide: bool = False,
    prior_column: str | None = None,
    unknown: Unknown = "error",
) -> Examinees:
    """Read and check a response table.

    Examinees without a response (empty rows of a wide table, or nothing but unknown items) are kept.
    """
    table = read_table(source, text_only=True, what="responses")
    named = None
    if prior_column is not None:
        check_columns(table, [prior_column], "responses")
        person = table.columns[0] if wide else "person_id"
        check_columns(table, [person], "responses")
        named = table.select(
            id_text(table[person], "responses").alias("person_id"),
            id_text(table[prior_column], "responses").alias("prior"),
        ).unique(maintain_order=True)
        table = table.drop(prior_column)
    return index_examinees(read_responses(table, wide=wide), items, spec, named, unknown)


def index_examinees(
    answers: Answers, items: ScoringItems, spec: Spec, named: pl.DataFrame | None = None, unknown: Unknown = "error"
) -> Examinees:
    """Resolve ids, check scores, settle duplicates by the spec's rule; all problems are told at once."""
    if unknown not in ("error", "ignore"):
        raise DataError(f'unknown must be "error" or "ignore", not {unknown!r}')
    found = Findings("scoring")
    everybody = pl.concat([answers.rows["person_id"], answers.silent]).drop_nulls().unique().sort()
    rows, strange = _without_unknown(answers.rows, items, found, unknown)
    if rows.height:
        indexed = index_rows(Answers(rows, answers.unreadable, answers.silent[:0]), items.table, spec, found)
        found.stop_if_bad()
        place = pl.DataFrame({"person_id": everybody}).with_row_index("at")
        at = pl.DataFrame({"person_id": indexed.person_ids}).join(place, on="person_id", how="left")["at"].to_numpy()
        counts = np.zeros(everybody.len(), np.int64)
        counts[at] = np.bincount(indexed.person, minlength=at.size)
        answered = Answered(np.concatenate([[0], np.cumsum(counts)]), indexed.item, indexed.score)
    else:
        found.stop_if_bad()
        answered = Answered(np.zeros(everybody.len() + 1, np.int64), np.zeros(0, np.int32), np.zeros(0))
    if not everybody.len():
        raise DataError("responses: the table has no rows")
    return Examinees(
        everybody,
        answered,
        None if named is None else _named(everybody, named),
        None if unknown == "error" else _counts(everybody, strange),
        tuple(found.warnings),
    )


def _without_unknown(
    rows: pl.DataFrame, items: ScoringItems, found: Findings, unknown: Unknown
) -> tuple[pl.DataFrame, pl.DataFrame]:
    known = rows["item_id"].is_in(items.table["item_id"].implode()) | rows["item_id"].is_null()
    if known.all():
        return rows, rows.head(0)
    strange = rows.filter(~known)
    ids = strange["item_id"].unique(maintain_order=True)
    text = (
        f"responses: {counted(ids.len(), 'item')} the bank does not know, {counted(strange.height, 'row')}: {some(ids)}"
    )
    if unknown == "error":
        found.error(f'{text}; drop the rows, or ignore them (unknown = "ignore", --ignore-unknown)')
    else:
        found.warn(f"{text}; ignored")
    return rows.filter(known), strange


def _named(everybody: pl.Series, named: pl.DataFrame) -> pl.Series:
    """The prior of every examinee; one who names two is an error."""
    twice = named.filter(named["person_id"].is_duplicated())["person_id"].unique(maintain_order=True)
    if twice.len():
        raise DataError(
            f"{counted(twice.len(), 'examinee')} with several priors in their column: {some(twice)}; keep one"
        )
    frame = pl.DataFrame({"person_id": everybody}).join(named, on="person_id", how="left", maintain_order="left")
    return frame["prior"]


def _counts(everybody: pl.Series, rows: pl.DataFrame) -> npt.NDArray[np.int64]:
    counts = rows.group_by("person_id").agg(pl.len().alias("n"))
    frame = pl.DataFrame({"person_id": everybody}).join(counts, on="person_id", how="left", maintain_order="left")
    return np.asarray(frame["n"].fill_null(0).to_numpy(), dtype=np.int64)
