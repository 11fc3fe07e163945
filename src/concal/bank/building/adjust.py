"""A period as acts make it: items under their new ids, items that do not count without anything to say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.acts import NOTHING, Adjustment
from concal.calibration.fit.period_fit import PeriodFit
from concal.calibration.result import Calibration, GroupDraws
from concal.consensus.factors.period import GroupFactors, PeriodFactors
from concal.data.period import GroupData, PeriodData

_Group = TypeVar("_Group", GroupDraws, GroupFactors)
SILENCED = ("n_responses", "Q", "h", "dQ", "dh", "cell_count")
"""What an item says through its responses; the rest describes it and stays."""


def adjust_calibration(calibration: Calibration, by: Adjustment) -> Calibration:
    """Draws under the new ids; items that do not count are no anchors, because they have no responses."""
    if by == NOTHING:
        return calibration
    groups = {name: _adjusted(g, by) for name, g in calibration.groups.items()}
    fit = None if calibration.fit is None else adjust_fit(calibration.fit, by)
    return replace(calibration, groups=groups, fit=fit)


def adjust_fit(fit: PeriodFit, by: Adjustment) -> PeriodFit:
    """Fit of the items that count, under the new ids."""
    if by == NOTHING:
        return fit

    def adjusted(frame: pl.DataFrame) -> pl.DataFrame:
        for name in {"item_id", "other_id"} & set(frame.columns):
            counts = ~pl.col(name).is_in(list(by.excluded))
            frame = frame.filter(counts).with_columns(pl.col(name).replace(dict(by.renamed)))
        return frame

    return PeriodFit(adjusted(fit.items), adjusted(fit.bins), adjusted(fit.pairs), fit.n_pairs, adjusted(fit.groups))


def adjust_factors(factors: PeriodFactors, by: Adjustment) -> PeriodFactors:
    """Factors under the new ids; those that do not count are zero."""
    if by == NOTHING:
        return factors
    return replace(factors, groups={name: _adjusted(g, by) for name, g in factors.groups.items()})


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
    counts = pl.when(pl.col("item_id").is_in(list(by.excluded))).then(0).otherwise(pl.col("n_responses"))
    return adjust_ids(table.with_columns(counts.cast(pl.Int64).alias("n_responses")), by)


def adjust_ids(table: pl.DataFrame, by: Adjustment) -> pl.DataFrame:
    """A table somebody gave: only its item_id changes, whatever its other columns are called."""
    return table if by == NOTHING else table.with_columns(pl.col("item_id").replace(dict(by.renamed)))


def adjust_data(data: PeriodData, by: Adjustment) -> PeriodData:
    """Responses of the items that count, under the new ids."""
    if by == NOTHING:
        return data
    return replace(data, groups={name: _adjusted_data(g, by) for name, g in data.groups.items()})


def _adjusted_data(group: GroupData, by: Adjustment) -> GroupData:
    kept = ~_mask(group.item_ids, by)[group.item]
    return replace(
        group,
        item_ids=tuple(map(by.known_as, group.item_ids)),
        person=group.person[kept],
        item=group.item[kept],
        score=group.score[kept],
    )
