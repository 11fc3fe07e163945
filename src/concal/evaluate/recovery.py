"""Recovery of a known truth: RMSE of posterior means and coverage of posterior intervals."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.calibration.result import Calibration
from concal.errors import DataError, first_few

Array = npt.NDArray[np.float64]
LEVELS = (50, 90, 95)


def recovery(pairs: pl.DataFrame, truth: pl.DataFrame, pooled: Calibration) -> pl.DataFrame:
    """How well consensus and pooled fit recover the truth, on the pairs that passed the R-hat screen.

    The consensus is taken as Gaussian, so its central intervals are mean +- z SD; those of the pooled fit are quantiles
    of its draws.

    Parameters
    ----------
    pairs : polars DataFrame
        What `concal.evaluate.pairs.compare_pairs` gives, one or several methods.
    truth : polars DataFrame
        item_id, parameter, value on the reference metric; see `check_truth`.
    pooled : Calibration

    Returns
    -------
    polars DataFrame
        method (a consensus method, or "pooled"), parameter, n, rmse, bias, coverage_50, coverage_90, coverage_95.
    """
    known = check_truth(truth)
    kept = pairs.filter("kept").join(known, on=["item_id", "parameter"], how="inner")
    if not kept.height:
        raise DataError(
            "the truth names none of the compared items; it has "
            f"{first_few(truth['item_id'].unique(maintain_order=True).head(5).to_list())}, the bank "
            f"{first_few(pairs['item_id'].unique(maintain_order=True).head(5).to_list())}"
        )
    rows = []
    for (method, parameter), part in kept.group_by(["method", "parameter"], maintain_order=True):
        mean, sd, value = (part[name].to_numpy() for name in ("mean", "sd", "value"))
        inside = {level: np.abs(value - mean) <= _z(level) * sd for level in LEVELS}
        rows.append(_row(str(method), str(parameter), mean, value, inside))
    first = kept.filter(pl.col("method") == kept["method"][0])
    for (parameter,), part in first.group_by(["parameter"], maintain_order=True):
        value = part["value"].to_numpy()
        intervals = pooled_intervals(pooled, part)
        inside = {level: (value >= low) & (value <= high) for level, (low, high) in intervals.items()}
        rows.append(_row("pooled", str(parameter), part["pooled_mean"].to_numpy(), value, inside))
    return pl.DataFrame(rows)


def check_truth(truth: pl.DataFrame) -> pl.DataFrame:
    """One value per item and parameter: the columns item_id, parameter and value; anything else is refused in words.

    A truth by period (a further column `period`) keeps the items that did not move: an item that drifted has no single
    true value to recover.
    """
    missing = [name for name in ("item_id", "parameter", "value") if name not in truth.columns]
    if missing:
        raise DataError(
            f"the truth lacks the column(s) {first_few(missing)}; it needs item_id, parameter, value "
            f"(one row per item and parameter) and has {first_few(truth.columns, 12)}"
        )
    columns = [pl.col("item_id").cast(pl.String), pl.col("parameter"), pl.col("value").cast(pl.Float64)]
    if "period" in truth.columns:
        by_item = truth.select(columns).group_by("item_id", "parameter", maintain_order=True)
        values = by_item.agg(pl.col("value").first(), n=pl.col("value").n_unique())
        moved = values.filter(pl.col("n") > 1)["item_id"].unique()
        return values.filter(~pl.col("item_id").is_in(moved.implode())).drop("n")
    known = truth.select(columns)
    twice = known.filter(known.select("item_id", "parameter").is_duplicated())
    if twice.height:
        raise DataError(
            f"the truth has several values for {first_few(twice['item_id'].unique(maintain_order=True).to_list())}; "
            "give one per item and parameter, or a column period"
        )
    return known


def pooled_intervals(pooled: Calibration, part: pl.DataFrame) -> dict[int, tuple[Array, Array]]:
    """Central intervals of the pooled draws for rows of one parameter: level -> (lower, upper)."""
    low = {level: np.empty(part.height) for level in LEVELS}
    high = {level: np.empty(part.height) for level in LEVELS}
    rows = part.with_row_index("row")
    for (name,), some in rows.group_by(["group"], maintain_order=True):
        group = pooled.groups[str(name)]
        place = {item: k for k, item in enumerate(group.item_ids)}
        items = [place[item] for item in some["item_id"]]
        which = group.model.parameters.index(some["parameter"][0])
        draws = group.xi[..., which].reshape(-1, group.n_items)[:, items].astype(np.float64)
        tails = [(1 - level / 100) / 2 for level in LEVELS]
        cut = np.quantile(draws, [*tails, *(1 - t for t in tails)], axis=0)
        target = some["row"].to_numpy()
        for k, level in enumerate(LEVELS):
            low[level][target], high[level][target] = cut[k], cut[len(LEVELS) + k]
    return {level: (low[level], high[level]) for level in LEVELS}


def _z(level: int) -> float:
    return NormalDist().inv_cdf(0.5 + level / 200)


def _row(
    method: str, parameter: str, mean: Array, value: Array, inside: dict[int, npt.NDArray[np.bool_]]
) -> dict[str, str | int | float]:
    return {
        "method": method,
        "parameter": parameter,
        "n": int(value.size),
        "rmse": float(np.sqrt(np.mean((mean - value) ** 2))),
        "bias": float(np.mean(mean - value)),
        **{f"coverage_{level}": float(hit.mean()) for level, hit in inside.items()},
    }
