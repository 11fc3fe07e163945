"""How features are coded and what item tables say of items: both follow from the periods, in their order.

A period keeps how it coded its features and the item table it came with. The bank codes a feature as the first of its
present periods did, and goes by the newest formula all of whose columns a period had. Features of an item that no
period calibrated under that formula are those of the newest table that has them. Nothing of this is stored a second
time, so nothing of it can be lost or stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from concal.bank.building.periods import Periods
from concal.consensus.analytic.forms import NewItems
from concal.errors import ConcalError, DataError
from concal.formula import factor_name, parse_formula, parts_of
from concal.formula.design import apply_design

State = dict[str, Any]


def used_coding(states: Mapping[str, State], groups: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Of some design states, what these groups (name -> features) use; None for a group whose coding is unknown."""
    found: dict[str, Any] = {}
    for name, features in groups.items():
        state = states.get(name) or ({"formula": "~ 1", "features": {}} if features == ("1",) else None)
        lacking = list(state.get("lacking", ())) if state else []
        found[name] = state and {"formula": state["formula"], "features": _used(state), "lacking": lacking}
    return found


def _used(state: State) -> dict[str, Any]:
    terms = parse_formula(state["formula"]).terms
    names = [factor_name(part) for term in terms for factor in term for part in parts_of(factor)]
    return {name: state["features"][name] for name in dict.fromkeys(names) if name in state["features"]}


def merged_coding(periods: Periods) -> dict[str, Any]:
    """How the next period should code features: each as the first present period that has it."""
    return merge_codings(period.coding() for period in periods.values())


def merge_codings(codings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of several periods in their order: each feature as the first that has it, the formula in force."""
    found: dict[str, Any] = {}
    for coding in codings:
        for name, state in coding.items():
            if state is not None:
                known = found[name]["features"] if name in found else {}
                force = in_force([found[name], state] if name in found else [state]) or state
                found[name] = {**force, "features": {**state["features"], **known}}
    return found


def newest_coding(periods: Periods) -> dict[str, Any]:
    """Formula and coding of each group that are in force: what its predictions are made with.

    Another response model has other parameters: periods with another one than the group's newest do not count.
    """
    seen: dict[str, list[tuple[State | None, dict[str, Any]]]] = {}
    for period in periods.values():
        models = period.strata()
        for name, state in period.coding().items():
            seen.setdefault(name, []).append((state, models.get(name, {})))
    return {name: in_force([s for s, m in found if _alike(m, found[-1][1])]) for name, found in seen.items()}


def _alike(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether strata that both have, have one response model."""
    return all(some[stratum] == others[stratum] for stratum in some.keys() & others.keys())


def in_force(states: Sequence[State | None]) -> State | None:
    """Which coding of a group counts: the newest, one whose items lacked columns only if there is no other.

    As `concal.consensus.analytic.forms.form_in_force` has it of populations; draws without a coding lack nothing.
    """
    return next((s for s in reversed(states) if s is None or not s.get("lacking")), states[-1])


def _missing(periods: Periods, codings: Mapping[str, State | None]) -> pl.DataFrame:
    """item_id and group of the items of all item tables that no period calibrated under its group's coding."""
    listed = pl.DataFrame(schema={"item_id": pl.String, "group": pl.String})
    for period in periods.values():
        listed = pl.concat([period.listed(), listed]).unique("item_id", keep="first", maintain_order=True)
    for period in periods.values():
        own = period.coding()
        alike = [name for name, state in codings.items() if own.get(name) == state]
        seen = period.calibrated().filter(pl.col("group").is_in(alike))
        listed = listed.join(seen.select("item_id"), on="item_id", how="anti")
    return listed


def design_rows(periods: Periods, group: str, table: pl.DataFrame, unseen: Literal["error", "mean"]) -> NewItems:
    """Ids and design rows of a table's items of a group, with the formula and the coding of its newest period."""
    state = newest_coding(periods).get(group)
    if state is None:
        raise DataError(
            f"group {group!r} has no responses in any period, or its draws came without saying how its features are "
            "coded, so nothing is known about its items"
        )
    rows = table.filter(pl.col("group") == group)
    X, _ = apply_design(state["formula"], rows, group, state, unseen_level=unseen, warnings=[])
    return rows["item_id"].to_list(), X


def items_of_tables(periods: Periods) -> dict[str, NewItems]:
    """Ids and design rows, by group, of listed items that no period calibrated under the formula in force.

    Nobody has answered them, or only in periods with another formula or without a column of it. Items whose features
    cannot be coded are left out.
    """
    codings = newest_coding(periods)
    missing = _missing(periods, codings)
    found: dict[str, NewItems] = {}
    for name, state in codings.items():
        left = missing.filter(pl.col("group") == name).select("item_id")
        if state is None or not left.height:
            continue
        rows: dict[str, np.ndarray[Any, Any]] = {}
        for period in reversed(list(periods.values())):
            table = period.listed(*parse_formula(state["formula"]).columns).filter(pl.col("group") == name)
            coded = _design_rows(table.join(left, on="item_id", how="semi"), name, state)
            rows |= coded
            left = left.filter(~pl.col("item_id").is_in(list(coded)))
            if not left.height:
                break
        if rows:
            ids = tuple(sorted(rows))
            found[name] = (ids, np.array([rows[item] for item in ids]))
    return found


def _design_rows(table: pl.DataFrame, group: str, state: State) -> dict[str, np.ndarray[Any, Any]]:
    """Design rows of the items that have every feature; none where the table's columns do not fit the coding."""
    columns = parse_formula(state["formula"]).columns
    if not set(columns) <= set(table.columns):
        return {}
    table = table.drop_nulls(list(columns))
    for name in columns:
        table = table.filter(pl.col(name).is_finite()) if table[name].dtype.is_float() else table
    if not table.height:
        return {}
    try:
        X, _ = apply_design(state["formula"], table, group, state, unseen_level="mean", warnings=[])
    except ConcalError:
        return {}  # said when the item is asked for by name (`Bank.predict`)
    return dict(zip(table["item_id"].to_list(), X, strict=True))
