"""What a check shows: counts per group, exposure, responses per examinee, and the items themselves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.period import PeriodData
from concal.data.rows import Rows

QUANTILES = {"min": 0.0, "q10": 0.1, "q25": 0.25, "median": 0.5, "q75": 0.75, "q90": 0.9, "max": 1.0}


def period_tables(
    data: PeriodData,
    rows: Rows,
    table: pl.DataFrame,
    item_rest: pl.DataFrame,
    *,
    wide: bool = False,
    omitted: pl.DataFrame | None = None,
) -> Mapping[str, pl.DataFrame]:
    """The tables of `CheckedPeriod.tables`.

    `item_rest` is that of `concal.data.classical`. In a wide table an examinee's empty cells are items left out; in a
    long one `omitted` counts rows without a score.
    """
    groups, exposure, persons = [], [], []
    per_dimension = {d: np.zeros(data.person_ids.len(), dtype=np.int64) for d in data.dimensions}
    for name, group in data.groups.items():
        per_item = np.bincount(group.item, minlength=len(group.item_ids))
        per_person = np.bincount(group.person, minlength=data.person_ids.len())
        per_dimension[group.dimension] += per_person
        groups.append(
            {
                "group": name,
                "model": group.model.kind,
                "dimension": group.dimension,
                "items": len(group.item_ids),
                "items_in_table": int((table["group"] == name).sum()),
                "responses": int(group.score.size),
                "persons": int((per_person > 0).sum()),
                "features": group.X.shape[1] - 1,
                "mean_score": float(group.score.mean()) if group.score.size else None,
            }
        )
        exposure.append({"group": name, **_quantiles(per_item)})
    for dimension, counts in per_dimension.items():
        persons.append({"dimension": dimension, "persons": int((counts > 0).sum()), **_quantiles(counts[counts > 0])})
    return {
        "groups": pl.DataFrame(groups),
        "exposure": pl.DataFrame(exposure),
        "persons": pl.DataFrame(persons),
        "items": _item_table(item_rest, rows, table, wide, omitted),
    }


def _quantiles(counts: npt.NDArray[np.int64]) -> dict[str, float]:
    values = np.quantile(counts, list(QUANTILES.values())) if counts.size else np.zeros(len(QUANTILES))
    return dict(zip(QUANTILES, values.tolist(), strict=True))


def _item_table(
    item_rest: pl.DataFrame, rows: Rows, table: pl.DataFrame, wide: bool, omitted: pl.DataFrame | None
) -> pl.DataFrame:
    total = np.bincount(rows.item, weights=rows.score, minlength=table.height)
    mean = np.divide(total, rows.n_responses, out=np.full(table.height, np.nan), where=rows.n_responses > 0)
    left_out = pl.Series(rows.person_ids.len() - rows.n_responses) if wide else pl.lit(None, dtype=pl.Int64)
    if omitted is not None:
        found = table.select("item_id").join(omitted, on="item_id", how="left", maintain_order="left")
        left_out = found["omitted"].fill_null(0).cast(pl.Int64)
    statistics = table.select("item_id", "group").with_columns(
        pl.Series("n_responses", rows.n_responses),
        pl.Series("mean_score", mean).fill_nan(None),
        pl.Series("n_distinct_scores", rows.n_distinct),
        left_out.alias("omitted"),
    )
    return statistics.join(item_rest.select("item_id", "item_rest"), on="item_id", how="left", maintain_order="left")
