"""Columns of a formula that no item of a group has in a period: its items are calibrated without the terms they feed.

Setting such a column to any one value would say that all items are alike in it: what the feature explains elsewhere
would go into the spread of the items, and over the periods' common coefficients into every prediction. Without its
terms the period tells nothing about their coefficients, and its items' population is that of items of which the feature
is not known: the intercept is their mean, and the spread has what the feature would have explained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import polars as pl

from concal.data.findings import Findings, some
from concal.errors import counted
from concal.formula import Formula, parse_formula
from concal.formula.features import missing
from concal.spec import GroupSpec


def known_part(
    name: str, group: GroupSpec, answered: pl.DataFrame, state: Mapping[str, Any] | None, found: Findings
) -> tuple[Formula, tuple[str, ...]]:
    """A group's formula as far as this period's answered items have its columns, and the columns they lack.

    Lacking is a column that is empty for all of them, or not in the table though an earlier period had it. A column
    that no period has is most likely a slip of the formula, and left in it: the design refuses it.

    Parameters
    ----------
    group
        Any of its strata.
    state
        How earlier periods coded the group's features.
    """
    formula = parse_formula(group.features)
    earlier = {name for term in state["features"] for name in parse_formula(f"~ {term}").columns} if state else set()
    lacking = tuple(
        column
        for column in formula.columns
        if (missing(answered[column]).all() if column in answered.columns else column in earlier)
    )
    if not lacking:
        return formula, ()
    who = f"{counted(answered.height, 'item')} of this period: {some(answered['item_id'])}"
    said = f"groups.{name}.features: {_named(lacking, answered)} for all {who}"
    rest = "keep what other periods say" if set(lacking) <= earlier else "are told by no period yet"
    found.warn(
        f"{said}; they are calibrated without it: its coefficients {rest}, and the prediction of items for which no "
        "period has it does not know it; fill it in where it is known"
    )
    return formula.without(lacking), lacking


def _named(columns: Sequence[str], answered: pl.DataFrame) -> str:
    said = []
    for name in columns:
        if name in answered.columns:
            said.append(f"{name!r} is empty")
        else:
            near = get_close_matches(name, answered.columns, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            said.append(f"{name!r} is not in the item table{hint}")
    return " and ".join(said)
