"""Factors of all periods arranged by item, as the passes read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from concal.calibration.layout import GroupLayout
from concal.calibration.standardise import standardise
from concal.calibration.tables import ResponseTable
from concal.consensus.analytic.forms import GroupEvidence, carry_slope
from concal.consensus.analytic.population import Population
from concal.consensus.factors.period import GroupFactors, Placed
from concal.consensus.factors.remainder import Tables, kernel_tables, table_of
from concal.names import split_stratum, stratum_name
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
CHUNK_FACTORS = 8000  # a thread takes at a time
BLOCK_ITEMS = 1024


@dataclass(frozen=True)
class GroupTables:
    """Factors of one group, sorted by item and, within an item, by period.

    Attributes
    ----------
    rows : (items,)
        Where the items (all answered) stand in the group's list.
    start : (items + 1,) int64
        Item j has the factors start[j] to start[j + 1].
    item, period : (factors,) int32
    tables : Tables
    Q, h : (factors, p, p), (factors, p)
        The table's remainder, or the whole Gaussian factor where there is no table.
    """

    rows: npt.NDArray[np.intp]
    start: npt.NDArray[np.int64]
    item: npt.NDArray[np.int32]
    period: npt.NDArray[np.int32]
    tables: Tables
    Q: Array
    h: Array

    @property
    def n_factors(self) -> int:
        """Pairs of an item and a period that saw it."""
        return int(self.item.size)

    def sum_by_item(self, values: Array) -> Array:
        """Sums of (factors, ...) over the factors of each item."""
        return np.asarray(np.add.reduceat(values, self.start[:-1], axis=0))

    def of_items(self, items: npt.NDArray[np.intp]) -> GroupTables:
        """Those of some of the items, given by their places in order; they are items 0, 1, ... of the result."""
        use = np.flatnonzero(np.isin(self.item, items))
        item = np.searchsorted(items, self.item[use]).astype(np.int32)
        start = np.concatenate([[0], np.cumsum(np.bincount(item, minlength=items.size))]).astype(np.int64)
        own = self.tables.rows(use)
        return GroupTables(self.rows[items], start, item, self.period[use], own, self.Q[use], self.h[use])


def arrange(
    placed: Sequence[Placed],
    group: GroupEvidence,
    populations: Mapping[tuple[object, ...], Population],
) -> GroupTables:
    """Factors of one group from every period that saw its items."""
    rows = np.flatnonzero(group.answered)
    place = {group.item_ids[j]: k for k, j in enumerate(rows)}
    parts, n_periods = [], np.zeros(rows.size, np.int64)
    for m, period in enumerate(placed):
        source = period.factors.groups.get(group.name)
        if source is None:
            continue
        use = source.seen
        if source.model != group.model:
            newest = _seen_under(placed, group)
            use = use & np.array([i not in newest for i in source.item_ids], dtype=bool)
        at = np.flatnonzero(use)
        items = np.array([place[source.item_ids[j]] for j in at], dtype=np.int32)
        parts.append((m, source, at, items))
        n_periods[items] += 1
    tables = _room(rows, np.concatenate([[0], np.cumsum(n_periods)]).astype(np.int64), group.model)
    free = tables.start[:-1].copy()  # every period sees an item once, and they come in their order
    for m, source, at, items in parts:
        to = free[items]
        free[items] += 1
        tables.item[to], tables.period[to] = items, m
        _fill(tables, to, source, at, group, populations)
    return tables


def _room(rows: npt.NDArray[np.intp], start: npt.NDArray[np.int64], model: ResponseModel) -> GroupTables:
    """Zeros for all factors."""
    n, p, width = int(start[-1]), len(model.parameters), len(model.atoms) + model.levels
    item, period, bins = (np.zeros(n, np.int32) for _ in range(3))
    mean, sd = (np.zeros((n, MOST_BINS), np.float32) for _ in range(2))
    score, count = (np.zeros((n, MOST_BINS, width), np.float32) for _ in range(2))
    tables = Tables(bins, mean, sd, score, count)
    return GroupTables(rows, start, item, period, tables, np.zeros((n, p, p)), np.zeros((n, p)))


def by_form(group: GroupEvidence, tables: GroupTables) -> list[tuple[GroupEvidence, GroupTables]]:
    """A group's answered items by the form that describes them, that in force first; each as a group of its own."""
    parts, left = [], np.ones(tables.rows.size, dtype=bool)
    for form in group.others:
        own = form.describes[tables.rows]
        if own.any() and not own.all():
            left &= ~own
            parts.append((_named(replace(group, form=form)), tables.of_items(np.flatnonzero(own))))
    return [(_named(group), tables if left.all() else tables.of_items(np.flatnonzero(left))), *parts]


def _named(group: GroupEvidence) -> GroupEvidence:
    """Called by its form too: strata share a population if they are of one group and have one form."""
    base, categories = split_stratum(group.name)
    name = f"{base} [{' + '.join(group.form.features)}, {group.form.coding}]"
    return replace(group, name=name if categories is None else stratum_name(name, categories))


def faded(tables: GroupTables, n_periods: int, half_life: float) -> GroupTables:
    """The same when a period counts half after every `half_life` later ones."""
    weight = 0.5 ** ((n_periods - 1 - tables.period) / half_life)
    own = tables.tables._replace(cell_count=(weight[:, None, None] * tables.tables.cell_count).astype(np.float32))
    return replace(tables, tables=own, Q=weight[:, None, None] * tables.Q, h=weight[:, None] * tables.h)


def _seen_under(placed: Sequence[Placed], group: GroupEvidence) -> set[str]:
    """Items of a group that some period saw under its present response model."""
    return {
        item
        for p in placed
        if (g := p.factors.groups.get(group.name)) is not None and g.model == group.model
        for item, seen in zip(g.item_ids, g.seen, strict=True)
        if seen
    }


def _fill(
    tables: GroupTables,
    to: npt.NDArray[np.int64],
    source: GroupFactors,
    at: npt.NDArray[np.intp],
    group: GroupEvidence,
    populations: Mapping[tuple[object, ...], Population],
) -> None:
    """Put the factors `at` of a period into their rows `to`."""
    model = group.model
    table = table_of(source)
    if table is None or source.model != model:
        Q, h = source.Q[at], source.h[at]
        if source.model != model:
            Q, h = carry_slope(Q, h, populations.get(source.form_key), source.X[at], len(model.parameters))
        tables.Q[to], tables.h[to] = Q, h
        return
    assert source.dQ is not None
    assert source.dh is not None
    bins, *cells = kernel_tables(ResponseTable(*(values[at] for values in table)))
    tables.tables.bins[to] = bins
    for column, values in zip(tables.tables[1:], cells, strict=True):
        column[to, : values.shape[1]] = values
    tables.Q[to], tables.h[to] = source.dQ[at], source.dh[at]


MOST_BINS = 5
"""Tables are stored with this many bins; fewer are padded."""


def answered_rows(group: GroupEvidence, tables: GroupTables) -> Array:
    """Design rows of the items somebody answered; without features they get the group's mean."""
    X = group.form.X[tables.rows]
    bare = np.isnan(X[:, 0])
    return np.where(bare[:, None], X[~bare].mean(axis=0) if (~bare).any() else np.eye(1, X.shape[1])[0], X)


def group_layout(
    group: GroupEvidence, tables: GroupTables, dim: int, whole: Array | None = None, part_of: str | None = None
) -> GroupLayout:
    """The group's items as the engine's steps see them; there are no responses, so nobody's row is empty.

    `whole` are the design rows of all strata of the group, where there are others; `part_of` is the name of the group
    of which these are the items of one form.
    """
    X, n = answered_rows(group, tables), tables.rows.size
    nobody = np.zeros(0, np.int32)
    blocks = tuple((lo, min(lo + BLOCK_ITEMS, n)) for lo in range(0, n, BLOCK_ITEMS))
    return GroupLayout(
        name=group.name,
        model=group.model,
        dim=dim,
        n_items=n,
        design=standardise(X, whole),
        person_start=np.zeros(1, np.int64),
        person_item=nobody,
        person_score=np.zeros(0, np.float32),
        item_start=np.zeros(n + 1, np.int64),
        item_person=nobody,
        item_score=np.zeros(0, np.float32),
        item_chunks=_chunks(tables),
        item_blocks=blocks,
        part_of=part_of,
    )


def _chunks(tables: GroupTables) -> tuple[tuple[int, int], ...]:
    """Runs of items a thread takes at a time: `CHUNK_FACTORS`, or `BLOCK_ITEMS` where items have many factors.

    Most passes cost the same for any number of factors; they never depend on the number of threads.
    """
    n, lo, out = tables.rows.size, 0, []
    while lo < n:
        hi = int(np.searchsorted(tables.start, tables.start[lo] + CHUNK_FACTORS, side="right")) - 1
        hi = min(max(hi, lo + BLOCK_ITEMS), n)
        out.append((lo, hi))
        lo = hi
    return tuple(out)
