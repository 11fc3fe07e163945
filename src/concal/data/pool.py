"""All periods as one data set with one population of examinees each: the input of the pooled benchmark."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from concal.data.period import GroupData, PeriodData
from concal.errors import DataError, counted, first_few


def pool_periods(periods: Mapping[str, PeriodData], reference: str, *, name: str = "pooled") -> PeriodData:
    """Periods side by side: items are shared, examinees are not (an id in two periods is two rows).

    Populations are the periods, the reference first; the others keep their order. A period with groups of examinees has
    one for each, called ``period/group``.

    Parameters
    ----------
    periods
        Checked data by period; features must be coded alike (`CheckedPeriod.design_states` handed on).
    reference
        Period whose ability distribution sets the metric.
    name
        Name of the result.
    """
    if reference not in periods:
        raise DataError(f"the reference {reference!r} is not among the periods {first_few(list(periods))}")
    order = [reference, *(p for p in periods if p != reference)]
    sizes = [periods[p].person_ids.len() for p in order]
    start = dict(zip(order, np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64), strict=True))
    groups = dict.fromkeys(g for p in order for g in periods[p].groups)
    dimensions = dict.fromkeys(d for p in order for d in periods[p].dimensions)
    names = [_population_names(p, periods[p]) for p in order]
    first = np.concatenate([[0], np.cumsum([len(own) for own in names])[:-1]])
    return PeriodData(
        period=name,
        dimensions=tuple(dimensions),
        person_ids=pl.concat([periods[p].person_ids for p in order], rechunk=True),
        groups={g: _pool_group(g, {p: periods[p] for p in order}, start) for g in groups},
        populations=tuple(name for own in names for name in own),
        population=np.concatenate(
            [periods[p].population + at for p, at in zip(order, first, strict=True)], dtype=np.int32, casting="unsafe"
        ),
        warnings=tuple(f"{p}: {text}" for p in order for text in periods[p].warnings),
    )


def _population_names(period: str, data: PeriodData) -> list[str]:
    return [period] if len(data.populations) == 1 else [f"{period}/{name}" for name in data.populations]


def _pool_group(name: str, periods: Mapping[str, PeriodData], start: Mapping[str, int]) -> GroupData:
    parts = {p: data.groups[name] for p, data in periods.items() if name in data.groups}
    first = next(iter(parts.values()))
    for period, part in parts.items():
        if part.lacking != first.lacking:
            raise DataError(
                f"group {name!r}: no item of some periods has {first_few(part.lacking or first.lacking)}, which the "
                f"items of others have ({next(iter(parts))!r} and {period!r} differ); one fit of all periods needs it "
                "of every item: fill it in, or take it out of the formula"
            )
        for what in ("model", "dimension", "features", "coding"):
            if getattr(part, what) != getattr(first, what):
                raise DataError(
                    f"group {name!r}: {what} differs between periods ({getattr(first, what)!r} and, in {period!r}, "
                    f"{getattr(part, what)!r}); pool periods of one specification"
                )
    item_ids = sorted({item for part in parts.values() for item in part.item_ids})
    position = {item: k for k, item in enumerate(item_ids)}
    X = np.full((len(item_ids), len(first.features)), np.nan)
    item = []
    for period, part in parts.items():
        local = np.array([position[i] for i in part.item_ids], dtype=np.int32)
        known = ~np.isnan(X[local, 0])
        differs = known & ~np.isclose(X[local], part.X, rtol=1e-9, atol=1e-12).all(axis=1)
        if differs.any():
            ids = [part.item_ids[k] for k in np.flatnonzero(differs)]
            raise DataError(
                f"group {name!r}: features of {counted(len(ids), 'item')} differ between {period!r} and "
                f"the periods before: {first_few(ids)}"
            )
        X[local] = np.where(known[:, None], X[local], part.X)
        item.append(local[part.item])
    return GroupData(
        name=name,
        dimension=first.dimension,
        model=first.model,
        item_ids=tuple(item_ids),
        features=first.features,
        X=X,
        person=np.concatenate([part.person + start[p] for p, part in parts.items()]).astype(np.int32),
        item=np.concatenate(item),
        score=np.concatenate([part.score for part in parts.values()]),
        coding=first.coding,
    )
