"""Everything that can be known about a period before sampling: bad rows stop, doubts are collected."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from concal.data.classical import item_rest_correlations
from concal.data.doubts import doubt_populations, doubt_responses
from concal.data.findings import Findings, some
from concal.data.items import read_items
from concal.data.keys import doubt_keys
from concal.data.lacking import known_part
from concal.data.linkage import ItemIds, Linkage, linkage
from concal.data.people import WHY_ITEMS, EarlierPersons
from concal.data.period import Design, GroupData, PeriodData
from concal.data.person_groups import groups_of, refuse_untied
from concal.data.read import Table, read_responses
from concal.data.rows import Rows, index_rows
from concal.data.strata import strata
from concal.data.tables import period_tables
from concal.errors import ConcalError, counted
from concal.formula.design import apply_design, coding_of, learn_design
from concal.formula.features import missing
from concal.names import check_safe_name, split_stratum
from concal.shown import doubts, shown
from concal.spec import GroupSpec, Spec

DesignStates = Mapping[str, dict[str, Any]]
Strata = Mapping[str, GroupSpec]


@shown
@dataclass(frozen=True)
class CheckedPeriod:
    """A period that may be calibrated.

    Attributes
    ----------
    data : PeriodData
    warnings : tuple of str
        Statistical doubts, each with a count and the first five items or examinees.
    tables : dict of str -> polars DataFrame
        ``groups`` (counts), ``exposure`` (quantiles of responses per item), ``persons`` (of responses per examinee),
        ``items`` (each item's responses, mean score, item-rest correlation, and how often it was left out: empty cells
        of a wide table, rows without a score of a long one).
    design_states : dict of group -> plain data
        How features are coded; hand it to the next period's check.
    linkage : Linkage or None
        When the items of the other periods were given.
    returning : polars Series of str
        Examinees of an earlier period, whose responses are left out of this one.
    """

    data: PeriodData
    warnings: tuple[str, ...]
    tables: Mapping[str, pl.DataFrame]
    design_states: Mapping[str, dict[str, Any]]
    linkage: Linkage | None = None
    returning: pl.Series = field(default_factory=lambda: pl.Series("person_id", [], dtype=pl.String))

    @property
    def n_returning(self) -> int:
        """How many examinees of an earlier period it had."""
        return self.returning.len()

    def _facts(self) -> dict[str, object]:
        data = self.data
        return {
            "period": data.period,
            "responses": f"{data.n_responses:,} of {counted(data.person_ids.len(), 'examinee')}",
            "items": ", ".join(f"{len(g.item_ids):,} {name}" for name, g in data.groups.items()),
            "returning": counted(self.n_returning, "examinee") if self.n_returning else None,
            "warnings": doubts(self.warnings),
        }


def check_period(
    responses: Table,
    items: Table,
    spec: Spec,
    *,
    period: str = "period",
    design_states: DesignStates | None = None,
    earlier_persons: EarlierPersons | None = None,
    earlier_items: ItemIds | None = None,
    wide: bool = False,
) -> CheckedPeriod:
    """Check one period's responses and items against the spec and index them for the engine.

    The result does not depend on the order of rows in either table.

    Parameters
    ----------
    responses
        Path or data frame: `person_id`, `item_id`, `score`; or wide.
    items
        Path or data frame: `item_id`, `group`, feature columns.
    spec
        The programme; its ``data`` section says what to do with duplicates, returning examinees, unseen levels.
    period
        Name of the period.
    design_states
        `CheckedPeriod.design_states` of the periods before, so that features are coded alike.
    earlier_persons
        Examinees of the periods before, by period.
    earlier_items
        Items of the other periods by period and dimension, to plan the linkage. The first is the reference where the
        spec's is not among them; this period may stand there, without items.
    wide
        Responses have one column per item.

    Raises
    ------
    DataError
        One error that lists every problem with its count and the first five offenders.
    """
    check_safe_name(period)
    found = Findings(f"period {period!r}")
    table = answers = None
    try:
        table = read_items(items, spec, found)
    except ConcalError as error:
        found.caught(error)
    try:
        answers = read_responses(responses, wide=wide, options=spec.data)
    except ConcalError as error:
        found.caught(error)
    if table is None or answers is None:
        found.stop_if_bad()
        raise AssertionError("a table that could not be read is a problem")
    found.warnings += answers.notes
    if answers.not_given:
        found.warn(f"{counted(answers.not_given, 'row')} without a score: taken as not given, left out")
    parts = strata(table, spec)
    rows = index_rows(answers, table, spec, found, earlier_persons)
    doubt_responses(rows, table, parts, spec, found)
    kept = rows.n_responses > 0  # the bank predicts the others
    designs, states = _designs(table, kept, parts, spec, design_states or {}, found)
    # with items missing from the table, counts of shared items would blame the linkage for that
    plan = None if found.blamed else _plan(table, rows, parts, spec, period, earlier_items, found)
    found.stop_if_bad()
    people = groups_of(rows.person_ids, answers.person_groups, period, spec, found)
    data = _period_data(period, rows, table, kept, designs, parts, spec, found, people)
    refuse_untied(data, spec, found)
    found.stop_if_bad()
    doubt_keys(data, found)
    data = replace(data, warnings=tuple(found.warnings))
    tables = period_tables(data, rows, table, item_rest_correlations(data), wide=wide, omitted=answers.omitted)
    return CheckedPeriod(data, data.warnings, tables, states, plan, rows.returning)


def _designs(
    table: pl.DataFrame,
    kept: np.ndarray[Any, np.dtype[np.bool_]],
    parts: Strata,
    spec: Spec,
    known: DesignStates,
    found: Findings,
) -> tuple[dict[str, Design], dict[str, dict[str, Any]]]:
    """Design matrices of the kept items; what a state does not know is learned from all items of the group.

    A state also says which columns of the formula no kept item has: they and what they feed are not in it.
    """
    designs: dict[str, Design] = {}
    states = {name: state for name, state in known.items() if spec.group(name) is not None}
    keep, whole = pl.Series(kept), pl.Series([_base(name) for name in table["group"]], dtype=pl.String)
    by_group = {_base(name): state for name, state in reversed(list(known.items()))}
    formulas = {
        base: known_part(base, group, table.filter((whole == base) & keep), by_group.get(base), found)
        for base, group in {_base(name): group for name, group in parts.items()}.items()
        if ((whole == base) & keep).any()
    }
    for name in parts:
        base = _base(name)
        mine = whole == base
        own = table.filter((table["group"] == name) & keep)
        if not own.height:
            continue
        formula, lacking = formulas[base]
        try:
            complete = table.filter(mine & (keep | _complete(table, formula.columns)))
            state = learn_design(formula, complete, name, known.get(name, by_group.get(base)), lacking=lacking)
            X, features = apply_design(
                formula, own, name, state, unseen_level=spec.data.unseen_level, warnings=found.warnings
            )
            designs[name] = Design(X, features, coding_of(state["formula"], state), lacking)
            states[name] = state
        except ConcalError as error:
            found.caught(error)
    doubt_populations(designs, parts, found)
    return designs, states


def _base(name: str) -> str:
    return split_stratum(name)[0]


def _complete(table: pl.DataFrame, columns: Collection[str]) -> pl.Series:
    """Rows with every feature: an incomplete item nobody answered does not stand in the way."""
    good = pl.Series(np.ones(table.height, dtype=bool))
    for name in columns:
        if name in table.columns:
            good = good & ~missing(table[name])
    return good


def _plan(
    table: pl.DataFrame,
    rows: Rows,
    parts: Strata,
    spec: Spec,
    period: str,
    earlier: ItemIds | None,
    found: Findings,
) -> Linkage | None:
    """The linkage plan with this period in it; no way to the reference is a problem."""
    if not earlier:
        return None
    answered = table.filter(pl.Series(rows.n_responses > 0))
    own: dict[str, list[str]] = {}
    for name, group in parts.items():
        ids = answered.filter(pl.col("group") == name)["item_id"].to_list()
        if ids:
            own.setdefault(group.dimension, []).extend(ids)
    periods = {**earlier, period: own}  # in its place where it was given one, which says that it comes first
    reference = spec.bank.reference if spec.bank.reference in periods else next(iter(periods))
    plan = linkage(periods, str(reference), spec.linking.min_anchors)
    for problem in plan.problems(period):
        returning = (
            f"; {counted(rows.returning.len(), 'examinee')} in common do not help: {WHY_ITEMS}"
            if rows.returning.len()
            else ""
        )
        found.error(f"{problem}{returning}")
    return plan


def _period_data(
    period: str,
    rows: Rows,
    table: pl.DataFrame,
    kept: np.ndarray[Any, np.dtype[np.bool_]],
    designs: Mapping[str, Design],
    parts: Strata,
    spec: Spec,
    found: Findings,
    people: tuple[tuple[str, ...], np.ndarray[Any, np.dtype[np.int32]]],
) -> PeriodData:
    ids, groups = table["item_id"], table["group"]
    data: dict[str, GroupData] = {}
    for name, design in designs.items():
        mine = (groups == name).to_numpy() & kept
        local = np.cumsum(mine, dtype=np.int32) - 1
        own = mine[rows.item]
        data[name] = GroupData(
            name=name,
            dimension=parts[name].dimension,
            model=parts[name].response_model,
            item_ids=tuple(ids.filter(pl.Series(mine)).to_list()),
            features=design.features,
            X=design.X,
            person=rows.person[own],
            item=local[rows.item[own]].astype(np.int32),
            score=rows.score[own],
            coding=design.coding,
            lacking=design.lacking,
        )
    answered_groups = {_base(name) for name in data}
    if absent := [name for name in spec.groups if name not in answered_groups]:
        found.warn(f"{counted(len(absent), 'group')} without responses in this period: {some(absent)}")
    answered = {g.dimension for g in data.values() if g.score.size}
    if silent := [d for d in spec.bank.dimensions if d not in answered]:
        found.error(
            f"{counted(len(silent), 'dimension')} without responses in this period: {some(silent)}; every period "
            "of a bank must measure all of its dimensions: add the missing responses, or keep a bank per dimension"
        )
    return PeriodData(period, spec.bank.dimensions, rows.person_ids, data, *people, tuple(found.warnings))
