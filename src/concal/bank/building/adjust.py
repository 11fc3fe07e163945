"""A period as acts make it: items under their new ids, items that do not count without anything to say.

An item of which a group of examinees is left out says what the other groups say (`rests_of`). Its fit in the period was
that of everybody's responses, so nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.acts import NOTHING, Adjustment
from concal.calibration.fit.period_fit import PeriodFit
from concal.calibration.result import Calibration, GroupDraws
from concal.consensus.factors.period import GroupFactors, PeriodFactors
from concal.consensus.factors.without_groups import Rest, counts_of_rest, rest_of, with_rest
from concal.data.period import GroupData, PeriodData

_Group = TypeVar("_Group", GroupDraws, GroupFactors)
SILENCED = ("n_responses", "Q", "h", "dQ", "dh", "cell_count")
"""What an item says through its responses; the rest describes it and stays."""


Rests = Mapping[str, Rest]
"""By item group: what other groups of examinees say about items of which some are left out."""


def rests_of(calibration: Calibration, factors: PeriodFactors, by: Adjustment) -> Rests:
    """Of a period as it was stored, its calibration with or without draws."""
    if not by.left_out or calibration.fit is None:
        return {}
    left_out, said = {item: frozenset(groups) for item, groups in by.left_out.items()}, calibration.fit.groups
    found = {name: rest_of(g, calibration.groups[name], said, left_out) for name, g in factors.groups.items()}
    return {name: rest for name, rest in found.items() if rest is not None}


def adjust_calibration(calibration: Calibration, by: Adjustment, rests: Rests) -> Calibration:
    """Draws under the new ids; items that do not count are no anchors, because they have no responses.

    Draws stay where they are: whoever reads them moves them (`concal.consensus.factors.without_groups`).
    """
    if by == NOTHING:
        return calibration
    groups = {
        name: _adjusted(counts_of_rest(g, rests[name]) if name in rests else g, by)
        for name, g in calibration.groups.items()
    }
    fit = None if calibration.fit is None else adjust_fit(calibration.fit, by)
    return replace(calibration, groups=groups, fit=fit)


def adjust_fit(fit: PeriodFit, by: Adjustment) -> PeriodFit:
    """Fit of the items that count, under the new ids."""
    if by == NOTHING:
        return fit

    def adjusted(frame: pl.DataFrame, silent: Collection[str]) -> pl.DataFrame:
        for name in {"item_id", "other_id"} & set(frame.columns):
            counts = ~pl.col(name).is_in(list(silent))
            frame = frame.filter(counts).with_columns(pl.col(name).replace(dict(by.renamed)))
        return frame

    silent = by.excluded | by.left_out.keys()
    items, bins, pairs = (adjusted(frame, silent) for frame in (fit.items, fit.bins, fit.pairs))
    return PeriodFit(items, bins, pairs, fit.n_pairs, adjusted(_counting(fit.groups, by), by.excluded))


def _counting(said: pl.DataFrame, by: Adjustment) -> pl.DataFrame:
    """`PeriodFit.groups` without groups of examinees that are left out."""
    if not by.left_out:
        return said
    pairs = [(item, group) for item, groups in by.left_out.items() for group in groups]
    out = pl.DataFrame(pairs, schema={"item_id": pl.String, "person_group": pl.String}, orient="row")
    return said.join(out, on=["item_id", "person_group"], how="anti", maintain_order="left")


def adjust_factors(factors: PeriodFactors, by: Adjustment, rests: Rests) -> PeriodFactors:
    """Factors under the new ids; those that do not count are zero."""
    if by == NOTHING:
        return factors
    groups = {
        name: _adjusted(with_rest(g, rests[name]) if name in rests else g, by) for name, g in factors.groups.items()
    }
    return replace(factors, groups=groups)


def _adjusted(group: _Group, by: Adjustment) -> _Group:
    out = _mask(group.item_ids, by)
    changes: dict[str, Any] = {"item_ids": tuple(map(by.known_as, group.item_ids))}
    for name in SILENCED if out.any() else ():
        values = getattr(group, name, None)
        if values is not None:
            changes[name] = np.where(out.reshape(-1, *[1] * (values.ndim - 1)), np.zeros((), values.dtype), values)
    return replace(group, **changes)


def _mask(item_ids: tuple[str, ...], by: Adjustment) -> npt.NDArray[np.bool_]:
    return np.array([item in by.excluded for item in item_ids], dtype=bool)


def adjust_table(table: pl.DataFrame, by: Adjustment) -> pl.DataFrame:
    """A table of items and their n_responses: of those that do not count none."""
    if by == NOTHING:
        return table
    less = {item: sum(groups.values()) for item, groups in by.left_out.items()}
    left = pl.col("n_responses") - pl.col("item_id").replace_strict(less, default=0, return_dtype=pl.Int64)
    counts = pl.when(pl.col("item_id").is_in(list(by.excluded))).then(0).otherwise(left)
    return adjust_ids(table.with_columns(counts.cast(pl.Int64).alias("n_responses")), by)


def adjust_ids(table: pl.DataFrame, by: Adjustment) -> pl.DataFrame:
    """A table somebody gave: only its item_id changes, whatever its other columns are called."""
    return table if by == NOTHING else table.with_columns(pl.col("item_id").replace(dict(by.renamed)))


def adjust_data(data: PeriodData, by: Adjustment) -> PeriodData:
    """Responses of the items that count, under the new ids."""
    if by == NOTHING:
        return data
    return replace(data, groups={name: _adjusted_data(g, data, by) for name, g in data.groups.items()})


def _adjusted_data(group: GroupData, data: PeriodData, by: Adjustment) -> GroupData:
    kept = ~_mask(group.item_ids, by)[group.item]
    for j, item in enumerate(group.item_ids):
        out = [name in by.left_out.get(item, ()) for name in data.populations]
        if any(out):
            kept &= (group.item != j) | ~np.array(out)[data.population[group.person]]
    return replace(
        group,
        item_ids=tuple(map(by.known_as, group.item_ids)),
        person=group.person[kept],
        item=group.item[kept],
        score=group.score[kept],
    )
