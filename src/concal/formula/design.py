r"""Design matrices X of the item population model :math:`\xi_j \sim N(X_j \beta, \Sigma)`, in the user's units."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from concal.errors import first_few
from concal.formula.basis import Array, State
from concal.formula.features import Features
from concal.formula.nodes import Factor, Formula, factor_name, parts_of
from concal.formula.parse import parse_formula


def learn_design(
    formula: str | Formula,
    items: pl.DataFrame,
    group: str,
    state: State | None = None,
    *,
    lacking: Sequence[str] = (),
) -> State:
    """Categories, centres, scales and knots of every feature the given state does not know yet.

    `lacking` are columns the formula was to read as well (`Formula.without`); the state keeps them.
    """
    parsed = _parsed(formula)
    known: State = dict(state["features"]) if state else {}
    table = Features(items, group, known)
    table.check_columns(parsed)
    for term in parsed.terms:
        for factor in term:
            table.learn(factor)
    return {"formula": parsed.text, "features": known, "lacking": list(lacking)}


def apply_design(
    formula: str | Formula,
    items: pl.DataFrame,
    group: str,
    state: State,
    *,
    unseen_level: Literal["error", "mean"] = "error",
    warnings: list[str] | None = None,
) -> tuple[Array, tuple[str, ...]]:
    """X and its column names under a learned state."""
    parsed = _parsed(formula)
    table = Features(items, group, state["features"], unseen_level, warnings if warnings is not None else [])
    table.check_columns(parsed)
    blocks, names = [np.ones((items.height, 1))], ["1"]
    for term in _full_rank_terms(parsed, table):
        block, labels = np.ones((items.height, 1)), [""]
        for factor, full in term:
            columns, own = table.columns_of(factor, full)
            block = (block[:, :, None] * columns[:, None, :]).reshape(items.height, block.shape[1] * columns.shape[1])
            labels = [f"{left}:{right}" if left else right for left in labels for right in own]
        blocks.append(block)
        names += labels
    return np.concatenate(blocks, axis=1), tuple(names)


def coding_of(formula: str | Formula, state: State) -> str:
    """Fingerprint of how a formula's features are coded: equal names with other centres, levels or knots differ."""
    known = state["features"]
    parts = [part for term in _parsed(formula).terms for factor in term for part in parts_of(factor)]
    used = {name: known[name] for name in map(factor_name, parts) if name in known}
    return hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()[:16]


def doubt_rank(X: Array, names: Sequence[str], group: str) -> list[str]:
    """What to say of columns that the items cannot tell apart, or nothing: their coefficients keep their proper priors.

    Such columns are the normal case of a bank that evolves: a level without an item in this period, a feature that is
    the same for all of its items, more features than items.
    """
    n, k = X.shape
    size = np.sqrt((X**2).sum(axis=0))
    scaled = X / np.where(size > 0, size, 1.0)
    if np.linalg.matrix_rank(scaled, tol=1e-8 * np.sqrt(n)) == k:
        return []
    basis: list[int] = []
    found: list[str] = []
    for j in range(k):
        if size[j] == 0:
            found.append(f"{names[j]!r} is zero for every item")
            continue
        weight, *_ = np.linalg.lstsq(scaled[:, basis], scaled[:, j], rcond=None)
        if np.linalg.norm(scaled[:, j] - scaled[:, basis] @ weight) > 1e-8:
            basis.append(j)
        else:
            used = [names[b] for b, w in zip(basis, weight, strict=True) if abs(w) > 1e-6]
            found.append(f"{names[j]!r} follows from {first_few(used)}")
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    items = f"{n} items" if n > 1 else "one item"
    return (
        [
            f"groups.{group}.features: {len(found)} of {k} design columns cannot be told apart from the others by the "
            f"{items} of this period: {'; '.join(found[:5])}{more}; their coefficients keep their priors"
        ]
        if found
        else []
    )


def _parsed(formula: str | Formula) -> Formula:
    return formula if isinstance(formula, Formula) else parse_formula(formula)


class _Scoped(NamedTuple):
    """Categorical factors of a term: those coded without and those coded with their reference level."""

    reduced: frozenset[Factor]
    full: frozenset[Factor]


def _full_rank_terms(formula: Formula, table: Features) -> Iterator[list[tuple[Factor, bool]]]:
    """Terms with the coding that keeps X of full rank.

    A category with all its levels spans itself without the reference level plus the constant. So each term splits
    into the products of reduced categories it spans; those an earlier term spans already are left out, and what is
    left is put together again with full coding where a pair (without f, with reduced f) allows it.
    """
    spanned: set[tuple[frozenset[Factor], frozenset[Factor]]] = {(frozenset(), frozenset())}
    for term in formula.terms:
        categories = [f for f in term if table.is_category(f)]
        numbers = frozenset(f for f in term if f not in categories)
        subsets = [frozenset(c) for size in range(len(categories) + 1) for c in combinations(categories, size)]
        new = [s for s in subsets if (numbers, s) not in spanned]
        spanned |= {(numbers, s) for s in subsets}
        for scoped in _merge_all([_Scoped(s, frozenset()) for s in new]):
            used = numbers | scoped.reduced | scoped.full
            yield [(f, f in scoped.full) for f in term if f in used]


def _merge_all(parts: list[_Scoped]) -> list[_Scoped]:
    while (merged := _merge_once(parts)) is not None:
        parts = merged
    return parts


def _merge_once(parts: list[_Scoped]) -> list[_Scoped] | None:
    for i, short in enumerate(parts):
        for k in range(i + 1, len(parts)):
            long = parts[k]
            extra = long.reduced - short.reduced
            if short.full == long.full and short.reduced <= long.reduced and len(extra) == 1:
                parts = [*parts[:k], _Scoped(long.reduced - extra, long.full | extra), *parts[k + 1 :]]
                return parts[:i] + parts[i + 1 :]
    return None
