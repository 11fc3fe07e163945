"""Groups so small that their population model rests on its priors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from concal.data.findings import Findings
from concal.errors import counted
from concal.formula.design import doubt_rank
from concal.names import split_stratum
from concal.spec import GroupSpec


def doubt_populations(
    designs: Mapping[str, tuple[np.ndarray[Any, np.dtype[np.float64]], Sequence[str]]],
    parts: Mapping[str, GroupSpec],
    found: Findings,
) -> None:
    """Warn of columns that this period's items cannot tell apart, and of no more items than coefficients.

    Items of one group with different numbers of categories are judged together: they share the population of d and
    log a. Only the steps are a number's own.
    """
    whole: dict[str, list[str]] = {}
    for name in designs:
        whole.setdefault(split_stratum(name)[0], []).append(name)
    for group, members in whole.items():
        X, features = np.concatenate([designs[name][0] for name in members]), designs[members[0]][1]
        found.warnings += doubt_rank(X, features, group)
        if len(X) <= len(features):
            _doubt(f"group {group!r}: {counted(len(X), 'item')}", len(features), found)
        elif len(members) > 1:
            _doubt_steps(group, {name: len(designs[name][0]) for name in members}, len(features), parts, found)


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
