"""Responses as index arrays: ids resolved, bad rows reported, duplicates and returning examinees settled."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.findings import Findings, rows_of, some
from concal.data.people import EarlierPersons, doubt_twins, returning
from concal.data.read import Answers
from concal.data.strata import declared_maxima, strata, whole_numbers
from concal.errors import counted
from concal.names import split_stratum
from concal.response import ResponseModel
from concal.spec import Spec

SHARE_OF_MAXIMUM = 0.02
"""No score beyond this share of the declared maximum: a share from 0 to 1 of 50 points and more."""
SENSELESS = 1e6
STEPS_OF_A_POINT = (2, 4)
"""Half and quarter points."""
ENOUGH_TO_TELL = 30
"""Responses of which one at least would reach it."""


@dataclass(frozen=True)
class Rows:
    """Responses ordered by examinee and item.

    Attributes
    ----------
    person_ids : polars Series of str
        Sorted; every examinee has a response.
    person, item : (responses,) int32
        Index into `person_ids` and into the sorted item table.
    score : (responses,) float64
    n_responses, n_distinct : (items,) int64
        Responses and different scores of each item of the table.
    returning : polars Series of str
        Examinees an earlier period has; none of their responses is here.
    """

    person_ids: pl.Series
    person: npt.NDArray[np.int32]
    item: npt.NDArray[np.int32]
    score: npt.NDArray[np.float64]
    n_responses: npt.NDArray[np.int64]
    n_distinct: npt.NDArray[np.int64]
    returning: pl.Series


def index_rows(
    answers: Answers,
    table: pl.DataFrame,
    spec: Spec,
    found: Findings,
    earlier_persons: EarlierPersons | None = None,
) -> Rows:
    """Resolve ids, check scores, settle duplicates and returning examinees; problems go to `found`."""
    if not answers.rows.height:
        n = answers.not_given or answers.silent.len()
        what = "score is" if answers.not_given else "cell is"
        found.error(
            f"responses: every {what} empty, NA or NaN, of {counted(n, 'row')}: is it the right column of scores?"
            if n
            else "responses: the table has no rows"
        )
    if answers.silent.len():
        found.warn(
            f"{counted(answers.silent.len(), 'examinee')} without any response: {some(answers.silent)}; left out"
        )
    responses = _resolve(answers, table, found)
    run = responses["person_id"].rle_id()
    heads = responses["person_id"].filter(run.diff().fill_null(1) != 0)
    persons = heads.unique().sort()
    doubt_twins(persons, "person ids", "they are counted as different examinees", found)
    back = returning(persons, earlier_persons, spec, found)
    kept = persons.filter(~back)
    # responses mostly come examinee by examinee: look each run of rows up once, not each row
    position = _positions(heads, kept).gather(run).alias("person")
    rows = responses.select("item", "score").with_columns(position).filter(pl.col("person").is_not_null())
    units = score_units(table, spec, found)
    _doubt_shares(rows, table, units, found)
    rows = _in_model_units(rows, units)
    _check_scores(rows, kept, table, spec, units, found)
    key = pl.col("person").cast(pl.Int64) * table.height + pl.col("item")  # one number sorts five times faster than two
    rows = rows.with_columns(key.alias("key")).sort("key", maintain_order=True)
    rows = _settle_duplicates(rows, kept, table, spec, units, found)
    per_item = rows.group_by("item").agg(pl.len().alias("n"), pl.col("score").n_unique().alias("distinct"))
    n_responses, n_distinct = np.zeros((2, table.height), dtype=np.int64)
    n_responses[per_item["item"].to_numpy()] = per_item["n"].to_numpy()
    n_distinct[per_item["item"].to_numpy()] = per_item["distinct"].to_numpy()
    doubt_twins(table["item_id"].filter(pl.Series(n_responses > 0)), "item ids", "they are different items", found)
    person, item, score = (rows[name].to_numpy() for name in ("person", "item", "score"))
    return Rows(kept, person, item, score, n_responses, n_distinct, persons.filter(back))


def _positions(ids: pl.Series, known: pl.Series) -> pl.Series:
    """Position of each id among the known ones, null where it is not one of them."""
    index = pl.DataFrame({"id": known, "at": pl.int_range(known.len(), dtype=pl.Int32, eager=True)})
    return pl.DataFrame({"id": ids}).join(index, on="id", how="left", maintain_order="left")["at"]


def _resolve(answers: Answers, table: pl.DataFrame, found: Findings) -> pl.DataFrame:
    """Rows with both ids, a known item and a readable score; with the item's position."""
    responses, unreadable, numbers = answers.rows, answers.unreadable, answers.numbers
    for name in ("person_id", "item_id"):
        lost = responses[name].is_null() | (responses[name] == "").fill_null(False)
        if lost.any():
            at = (lost.arg_true() + 1 if numbers is None else numbers.filter(lost)).unique().sort()
            found.error(f"responses: {counted(at.len(), 'row')} without a {name}: {rows_of(at)}")
            if unreadable.len():
                unreadable = unreadable.filter(~lost.filter(responses["score"].is_null()))
            responses = responses.filter(~lost)
            numbers = None if numbers is None else numbers.filter(~lost)
    if answers.wide:
        responses, unreadable = _without_words(responses, unreadable, found)
    if unreadable.len():
        bad = responses.filter(pl.col("score").is_null()).head(5)
        shown = [f"{p!r} on {i!r}" for p, i in zip(bad["person_id"], bad["item_id"], strict=True)]
        words = unreadable.str.to_lowercase().is_in(["true", "false", "t", "f", "yes", "no"]).all()
        remedy = "write right as 1 and wrong as 0" if words else "a response that was not given has no row"
        found.error(
            f"responses: {counted(unreadable.len(), 'score')} not a number ({some(unreadable.unique().sort())}): "
            f"{', '.join(shown)}{' ...' if unreadable.len() > 5 else ''}; {remedy}"
        )
        responses = responses.filter(pl.col("score").is_not_null())
    responses = responses.with_columns(_positions(responses["item_id"], table["item_id"]).alias("item"))
    unknown = responses["item"].is_null()
    ids = responses.filter(unknown)["item_id"].unique(maintain_order=True)
    ids = ids.filter(~ids.is_in(list(found.blamed)))
    if ids.len() and table.height:
        unlisted = int(responses["item_id"].is_in(ids.implode()).sum())
        found.error(
            f"responses: {counted(ids.len(), 'item_id')} not in the item table, {counted(unlisted, 'row')}: "
            f"{some(ids)}{_near_id(ids[0], table['item_id'])}; add the items to the table or drop the rows"
            f"{', or name columns that are no items in data.ignore' if answers.wide else ''}"
        )
    return responses.filter(~unknown)


def _without_words(responses: pl.DataFrame, unreadable: pl.Series, found: Findings) -> tuple[pl.DataFrame, pl.Series]:
    """A wide table's rows without columns in which nothing is a number: these are no items."""
    if not unreadable.len():
        return responses, unreadable
    words = responses.select("item_id", pl.col("score").is_null().all().over("item_id").alias("words"))["words"]
    columns = responses.filter(words)["item_id"].unique(maintain_order=True)
    if not columns.len():
        return responses, unreadable
    here = words.filter(responses["score"].is_null())
    examples = unreadable.filter(here).unique(maintain_order=True)
    found.error(
        f"responses: {counted(columns.len(), 'column')} without a single number: {some(columns)} (there is "
        f"{some(examples)}); if they are no items, name them in data.ignore; if they are, score the answers first"
    )
    return responses.filter(~words), unreadable.filter(~here)


def _near_id(lost: str, known: pl.Series) -> str:
    """A hint: the usual causes are spaces, lost leading zeros and upper case."""
    alike = known.filter(known.str.strip_chars().str.strip_chars_start("0").str.to_lowercase() == _plain(lost))
    near = alike.head(1).to_list() or get_close_matches(lost, known.head(5000).to_list(), n=1)
    return f" (nearest item: {near[0]!r})" if near else ""


def _plain(text: str) -> str:
    return text.strip().lstrip("0").lower()


def _doubt_shares(rows: pl.DataFrame, table: pl.DataFrame, units: ScoreUnits, found: Findings) -> None:
    """Scores far below the maximum that was declared for them, as shares of it would be."""
    if (units.maximum == units.declared).all():
        return
    most = rows.group_by("item").agg(pl.len().alias("n"), pl.col("score").max().alias("largest")).sort("item")
    at = most["item"].to_numpy()
    items = table[at].select("item_id", "group").hstack(most.select("n", "largest"))
    items = items.with_columns(pl.Series("declared", units.declared[at]), pl.Series("model", units.maximum[at]))
    low = (pl.col("largest") > 0) & (pl.col("largest") < SHARE_OF_MAXIMUM * pl.col("declared"))
    items = items.filter(pl.col("declared") != pl.col("model"))
    for (name,), own in items.group_by("group", maintain_order=True):
        whole = own.select(pl.col("n").sum(), pl.col("largest").max(), pl.col("declared").min()).with_columns(low=low)
        n, largest, declared, all_low = whole.row(0)
        if all_low and n >= ENOUGH_TO_TELL and own["declared"].n_unique() == 1:
            found.warn(
                f"group {name!r}: the largest of {n:,} scores is {largest:g}, but max_score is {declared:g}: if they "
                "are shares already, take max_score away; otherwise give the points"
            )
            continue
        doubted = own.filter(low & (pl.col("n") >= ENOUGH_TO_TELL))
        if doubted.height:
            first = doubted.head(5).select("item_id", "largest", "declared").iter_rows()
            shown = ", ".join(f"{item!r} ({value:g} of {most:g})" for item, value, most in first)
            more = f" and {doubted.height - 5:,} more" if doubted.height > 5 else ""
            found.warn(
                f"group {name!r}: {counted(doubted.height, 'item')} whose largest score is below "
                f"{100 * SHARE_OF_MAXIMUM:.0f} % of its max_score: {shown}{more}; if they are shares already, take "
                "their max_score away; otherwise give the points"
            )


def _in_model_units(rows: pl.DataFrame, units: ScoreUnits) -> pl.DataFrame:
    """Scores out of a declared maximum, in the response model's own units."""
    if (units.maximum == units.declared).all():
        return rows
    score = units.scores(rows["item"].to_numpy(), rows["score"].to_numpy())
    return rows.with_columns(pl.Series("score", score))


class ScoreUnits(NamedTuple):
    """What every item's scores are out of, (items,): the response model's maximum, and the declared one."""

    maximum: npt.NDArray[np.float64]
    declared: npt.NDArray[np.float64]

    def scores(self, item: npt.NDArray[Any], score: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Scores of items (by position) in the response model's units; whole numbers stay exact."""
        return np.asarray(score * self.maximum[item] / self.declared[item])

    def given(self, item: npt.NDArray[Any], score: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Scores in the response model's units as they were given."""
        return np.asarray(score * self.declared[item] / self.maximum[item])


def score_units(table: pl.DataFrame, spec: Spec, found: Findings) -> ScoreUnits:
    """From the item table's column max_score and the groups' own."""
    units = ScoreUnits(*np.ones((2, table.height)))
    given = declared_maxima(table, Findings("said with the item table"))
    numbered = ~np.isnan(whole_numbers(table, "categories", Findings("said with the item table")))
    numbered |= np.array([split_stratum(name)[1] is not None for name in table["group"].to_list()], dtype=bool)
    for name, group in strata(table, spec).items():
        own, model = (table["group"] == name).to_numpy(), group.response_model
        declared = np.where(np.isnan(given), group.max_score or np.nan, given)[own]
        said_again = np.isnan(given[own]) | (given[own] == group.max_score)
        fits = _divides(declared, model, finer=numbered[own] | said_again)
        odd = own.nonzero()[0][~np.isnan(declared) & (model.n_categories is not None) & ~fits]
        if odd.size:
            ids = table["item_id"].gather(odd)
            found.error(
                f"group {name!r} ({group.model}): {counted(odd.size, 'item')} with a max_score that does not fit "
                f"{model.n_categories} categories: {some(ids)}; give them their own number in a column categories of "
                "the item table"
            )
        units.maximum[own] = model.max_score
        units.declared[own] = np.where(np.isnan(declared), model.max_score, declared)
    return units


def _divides(
    declared: npt.NDArray[np.float64], model: ResponseModel, finer: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Whether a maximum is the categories' own, or a multiple of it (percent of four steps).

    Where `finer`, the categories may be a multiple of the maximum: half points. An item with a maximum of its own and
    the group's number of categories most likely lacks a number, so that one is asked for.
    """
    with np.errstate(invalid="ignore"):
        steps = declared / model.max_score
        steps = np.where((steps < 1) & finer, 1.0 / steps, steps)
        return np.asarray((steps >= 1) & (np.abs(steps - np.round(steps)) < 1e-9))


def _check_scores(
    rows: pl.DataFrame,
    persons: pl.Series,
    table: pl.DataFrame,
    spec: Spec,
    units: ScoreUnits,
    found: Findings,
    note: str = "",
) -> None:
    """Scores outside the range of the group's response model, shown as they came."""
    item, score = rows["item"].to_numpy(), rows["score"].to_numpy()
    for name, group in strata(table, spec).items():
        own = np.flatnonzero((table["group"] == name).to_numpy()[item])
        model = group.response_model
        bad = own[model.bad_scores(score[own])]
        if bad.size and found.blamed:
            bad = bad[~np.isin(item[bad], np.flatnonzero(table["item_id"].is_in(list(found.blamed)).to_numpy()))]
        if not bad.size:
            continue
        given, largest = units.given(item[bad], score[bad]), units.declared[item[bad]]
        declared = units.maximum[item[bad]] != largest
        shown = [
            f"{value:g}{f' of {most:g}' if said else ''} "
            f"({persons[int(rows['person'][int(r)])]!r} on {table['item_id'][int(item[r])]!r})"
            for r, value, most, said in zip(bad[:5], given, largest, declared, strict=False)
        ]
        more = f" and {bad.size - 5:,} more" if bad.size > 5 else ""
        remedy = _remedy(model, score[bad], declared, score[own])
        rule = f"{model.score_rule()}{', in units of max_score' if declared.any() else ''}"
        found.error(
            f"group {name!r} ({group.model}): {counted(int(bad.size), 'score')}{note} must be {rule}: "
            f"{', '.join(shown)}{more}{f'; {remedy}' if remedy else ''}"
        )


def _remedy(
    model: ResponseModel,
    score: npt.NDArray[np.float64],
    declared: npt.NDArray[np.bool_],
    every: npt.NDArray[np.float64],
) -> str:
    """What may be done about scores that a model cannot take; `declared` where their maximum is.

    `every` are all scores of the group, good ones too.
    """
    if declared.any() and (score[declared] > model.max_score).any():
        return "scores above their declared max_score: mend the scores, or the maximum"
    if found := model.remedy(score):
        return found
    if not np.isfinite(score).all() or (np.abs(score) > SENSELESS).any():
        return "a number like that is no score, most often a mistake of a program: mend the column"
    if (score < 0).any():
        return "a negative score is often a code for a response that was not given: leave its row out"
    if model.n_categories is None:
        return ""
    if declared.any() and model.n_categories > 2:
        return (
            "with that many categories only whole steps of the maximum are scores: mend the scores, or declare another"
        )
    if declared.any():
        return (
            "with two categories an item's points are all or nothing: for points in between, gpcm or grm and as many "
            "categories as there are points, and one more (without a number, max_score gives it)"
        )
    return _category_remedy(model, score, every)


def _category_remedy(model: ResponseModel, score: npt.NDArray[np.float64], every: npt.NDArray[np.float64]) -> str:
    """Of scores that are no category of the model's, without a declared maximum."""
    whole = bool((every == np.round(every)).all())
    low, high = float(every.min()), float(every.max())
    if whole and low > 0 and high - low <= model.max_score:
        return f"scores go from {low:g} to {high:g}: count from 0, every score {low:g} less (`concal start` does it)"
    if whole and model.polytomous:
        return (
            f"scores go up to {high:g}: give the item's number of categories, one more than its highest score (a "
            f"column categories of the item table, or in the group: {int(high) + 1} categories), or what points are "
            "out of (max_score)"
        )
    parts = next((k for k in STEPS_OF_A_POINT if (np.abs(k * every - np.round(k * every)) < 1e-9).all()), None)
    if model.polytomous and not whole and parts is not None:
        top = int(max(model.max_score, np.ceil(high)))
        return (
            f"scores in steps of {1 / parts:g}: count the steps, categories = {parts * top + 1} with max_score = {top}"
        )
    if not whole and (score <= model.max_score).all():
        return "shares need a model that takes them (beta, ordered_beta), points out of more their max_score"
    if (score == np.round(score)).all():
        return (
            "ordered scores need a model that takes them (gpcm, grm) and the item's number of categories, points that "
            "are all or nothing their max_score"
        )
    return ""


def _settle_duplicates(
    rows: pl.DataFrame, persons: pl.Series, table: pl.DataFrame, spec: Spec, units: ScoreUnits, found: Findings
) -> pl.DataFrame:
    """One response per examinee and item, by the spec's rule; `rows` come sorted, ties in the order they were given."""
    same = (rows["key"] == rows["key"].shift(1)).fill_null(False)
    if not same.any():
        return rows
    first = rows.filter(same).unique(["person", "item"], maintain_order=True)
    shown = [
        f"{persons[p]!r} on {table['item_id'][i]!r}" for p, i in first.head(5).select("person", "item").iter_rows()
    ]
    more = f" and {first.height - 5:,} more" if first.height > 5 else ""
    text = (
        f"responses: {counted(first.height, 'person-item pair')} with several responses "
        f"({counted(int(same.sum()), 'row')} too many): {', '.join(shown)}{more}"
    )
    rule = spec.data.duplicates
    if rule == "error":
        found.error(f'{text}; keep one each, or set data.duplicates = "first", "last" or "mean"')
        return rows.filter(~same)
    found.warn(f"{text}; the {rule} is used (data.duplicates)")
    if rule == "first":
        return rows.filter(~same)
    if rule == "last":
        return rows.filter(~same.shift(-1, fill_value=False))
    rows = rows.group_by("person", "item").agg(pl.col("score").mean()).sort("person", "item")
    _check_scores(rows, persons, table, spec, units, found, " after taking means of duplicates")
    return rows
