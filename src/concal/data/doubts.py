"""Periods, items and groups of which the responses say so little that their priors decide."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from concal.data.findings import Findings, some
from concal.data.period import Design, PeriodData
from concal.data.rows import Rows
from concal.errors import DataError, counted
from concal.formula.design import doubt_rank
from concal.names import split_stratum
from concal.spec import GroupSpec, Spec

FEW_EXAMINEES = 10
"""Fewer fix the mean of the abilities, which the metric is measured from, to no better than a third of an SD."""


def doubt_responses(
    rows: Rows, table: pl.DataFrame, parts: Mapping[str, GroupSpec], spec: Spec, found: Findings
) -> None:
    """Warn of what the responses cannot tell: of the period as a whole, of groups, of single items."""
    if not rows.score.size:
        return
    _doubt_period(rows, table, parts, found)
    _doubt_items(rows, table, parts, spec, found)


def _doubt_period(rows: Rows, table: pl.DataFrame, parts: Mapping[str, GroupSpec], found: Findings) -> None:
    """Too few examinees, one response each, or equal scores throughout: there is nothing to be learned."""
    n = rows.person_ids.len()
    if n < FEW_EXAMINEES:
        found.warn(
            f"{counted(n, 'examinee')} in the whole period: the ability distribution that sets the metric is hardly "
            "known, and with it every item; put this period together with another"
        )
    names = table["group"].to_numpy()
    for dimension in dict.fromkeys(group.dimension for group in parts.values()):
        here = np.isin(names, [name for name, group in parts.items() if group.dimension == dimension])[rows.item]
        per_person = np.bincount(rows.person[here], minlength=n)
        if per_person.max() == 1 and per_person.sum() > 1:
            found.warn(
                f"dimension {dimension!r}: {counted(int(per_person.sum()), 'examinee')} with one response each: "
                "nothing tells their abilities from the items, so slopes stay at their priors; does person_id name the "
                "examinee, or the row?"
            )
    for name in parts:
        score = rows.score[(names == name)[rows.item]]
        if score.size > 1 and score.min() == score.max():
            found.warn(
                f"group {name!r}: all {score.size:,} scores are {score[0]:g}, so nothing can be learned of its items; "
                "is it the right column?"
            )


def refuse_single_responses(data: PeriodData) -> None:
    """A `DataError` where all examinees of a dimension gave one response in the whole period.

    Then no slope can be known, and no calibration ends. Responses in other dimensions tell the abilities a little, by
    the correlation: that is a doubt (`doubt_responses`).
    """
    n = data.person_ids.len()
    counts = {name: np.bincount(group.person, minlength=n) for name, group in data.groups.items()}
    given = np.sum(list(counts.values()), axis=0)
    for dimension in data.dimensions:
        groups = [name for name, group in data.groups.items() if group.dimension == dimension]
        there = np.sum([counts[name] for name in groups], axis=0)
        if (given[there > 0] == 1).all():
            n_items = sum(np.unique(data.groups[name].item).size for name in groups)
            raise DataError(
                f"period {data.period!r}, dimension {dimension!r}: all {int((there > 0).sum()):,} examinees gave one "
                f"response only, to {counted(n_items, 'item')} in all: nothing tells their abilities from the items, "
                "so no slope can be known; give data in which examinees answer two items or more, and check that "
                "person_id names the examinee, not the row (data.person_id)"
            )


def _doubt_items(rows: Rows, table: pl.DataFrame, parts: Mapping[str, GroupSpec], spec: Spec, found: Findings) -> None:
    """Few responses, constant items, categories never seen."""
    seen = table.select("item_id", "group").with_columns(
        pl.Series("n", rows.n_responses), pl.Series("distinct", rows.n_distinct)
    )
    seen = seen.filter(pl.col("n") > 0)
    few = seen.filter(pl.col("n") < spec.data.few_responses)["item_id"]
    if few.len():
        found.warn(
            f"{counted(few.len(), 'item')} with fewer than {spec.data.few_responses} responses: {some(few)}; "
            "their parameters come mostly from the features"
        )
    constant = seen.filter((pl.col("distinct") == 1) & (pl.col("n") > 1))["item_id"]
    if constant.len():
        found.warn(f"{counted(constant.len(), 'item')} on which everybody has the same score: {some(constant)}")
    for name, group in parts.items():
        own = (table["group"] == name).to_numpy()[rows.item]
        n_items = seen.filter(pl.col("group") == name).height
        found.warnings += [
            f"group {name!r} ({group.model}): {text}" for text in group.response_model.doubts(rows.score[own], n_items)
        ]
        n_categories = group.response_model.n_categories
        if n_categories is None or n_categories == 2:
            continue
        lacking = seen.filter(
            (pl.col("group") == name) & (pl.col("distinct") < n_categories) & (pl.col("distinct") > 1)
        )["item_id"]
        if lacking.len():
            found.warn(
                f"group {name!r}: {counted(lacking.len(), 'item')} without a response in some of the {n_categories} "
                f"categories: {some(lacking)}"
            )


def doubt_populations(designs: Mapping[str, Design], parts: Mapping[str, GroupSpec], found: Findings) -> None:
    """Warn of columns that this period's items cannot tell apart, and of no more items than coefficients.

    Items of one group with different numbers of categories are judged together: they share the population of d and
    log a. Only the steps are a number's own.
    """
    whole: dict[str, list[str]] = {}
    for name in designs:
        whole.setdefault(split_stratum(name)[0], []).append(name)
    for group, members in whole.items():
        X, features = np.concatenate([designs[name].X for name in members]), designs[members[0]].features
        found.warnings += doubt_rank(X, features, group)
        if len(X) <= len(features):
            _doubt(f"group {group!r}: {counted(len(X), 'item')}", len(features), found)
        elif len(members) > 1:
            _doubt_steps(group, {name: len(designs[name].X) for name in members}, len(features), parts, found)


def _doubt_steps(
    group: str, n_items: Mapping[str, int], k: int, parts: Mapping[str, GroupSpec], found: Findings
) -> None:
    for name, n in n_items.items():
        model = parts[name].response_model
        if n <= k and model.extras:
            _doubt(f"group {group!r}: {counted(n, 'item')} with {model.n_categories} categories and steps", k, found)


def _doubt(what: str, k: int, found: Findings) -> None:
    found.warn(
        f"{what} for {counted(k, 'coefficient')} and the spread around them: the priors of the population model "
        "decide where the responses say little; a group shared with similar items would know more"
    )
