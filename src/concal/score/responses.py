"""Response tables of people to be scored: everything `concal add` reads, on items of the bank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.findings import Findings, some
from concal.data.read import Answers, Table, check_columns, id_text, read_responses, read_table
from concal.data.rows import index_rows
from concal.errors import DataError, counted
from concal.score.items import ScoringItems
from concal.score.rows import Answered
from concal.score.split import SplitItems
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
    split: SplitItems | None = None,
    period: str | None = None,
) -> Examinees:
    """Read and check a response table.

    Examinees without a response (rows without a score, or nothing but unknown items) are kept. Ids of items that were
    split mean those of `period`, of the period an examinee's prior column names, or of now.
    """
    if unknown not in ("error", "ignore"):
        raise DataError(f'unknown must be "error" or "ignore", not {unknown!r}')
    notes: list[str] = []
    table = read_table(source, text_only=True, what="responses", notes=notes)
    names = spec.data
    person = table.columns[0] if wide and names.person_id not in table.columns else names.person_id
    check_columns(table, [person, *([prior_column] if prior_column else [])], "responses")
    ids = id_text(table[person], "responses").alias("person_id")
    named = None
    if prior_column is not None:
        prior = id_text(table[prior_column], "responses").alias("prior")
        named = pl.DataFrame([ids, prior]).unique(maintain_order=True)
        table = table.drop(prior_column)
    answers = read_responses(table, wide=wide, options=names)
    everybody = ids.drop_nulls().unique().sort()
    found = Findings("scoring")
    for note in notes:
        found.warn(note)
    rows, told = (split or SplitItems()).resolve(answers.rows, period, named)
    if told:
        found.warn(told)
        answers = answers._replace(rows=rows)
    return _indexed(answers, everybody, items, spec, named, unknown, found)


def _indexed(
    answers: Answers,
    everybody: pl.Series,
    items: ScoringItems,
    spec: Spec,
    named: pl.DataFrame | None,
    unknown: Unknown,
    found: Findings,
) -> Examinees:
    """Resolve ids, check scores, settle duplicates by the spec's rule; all problems are told at once."""
    if not everybody.len():
        raise DataError("responses: the table has no rows")
    known, strange = _without_unknown(answers, items, found, unknown)
    counts = np.zeros(everybody.len(), np.int64)
    item, score = np.zeros(0, np.int32), np.zeros(0)
    if known.rows.height:
        rows = index_rows(known, items.table, spec, found)
        at = everybody.search_sorted(rows.person_ids).to_numpy()
        counts[at] = np.bincount(rows.person, minlength=at.size)
        item, score = rows.item, rows.score
    found.stop_if_bad()
    return Examinees(
        everybody,
        Answered(np.concatenate([[0], np.cumsum(counts)]), item, score),
        None if named is None else _named(everybody, named),
        None if unknown == "error" else _counts(everybody, strange),
        tuple(found.warnings),
    )


def _without_unknown(
    answers: Answers, items: ScoringItems, found: Findings, unknown: Unknown
) -> tuple[Answers, pl.DataFrame]:
    """Responses to items of the bank, and the others."""
    rows = answers.rows
    known = rows["item_id"].is_in(items.table["item_id"].implode()) | rows["item_id"].is_null()
    silent = answers.silent[:0]  # they are scored too
    if known.all():
        return answers._replace(silent=silent), rows.head(0)
    strange = rows.filter(~known)
    ids = strange["item_id"].unique(maintain_order=True)
    text = (
        f"responses: {counted(ids.len(), 'item')} the bank does not know, {counted(strange.height, 'row')}: {some(ids)}"
    )
    if unknown == "error":
        found.error(f'{text}; drop the rows, or ignore them (unknown = "ignore", --ignore-unknown)')
    else:
        found.warn(f"{text}; ignored")
    numbers = None if answers.numbers is None else answers.numbers.filter(known)
    return answers._replace(rows=rows.filter(known), silent=silent, numbers=numbers), strange


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
