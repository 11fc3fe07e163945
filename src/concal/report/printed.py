"""Tables as people read them: heads in words, numbers to the digits that matter, p-values never zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

WORDS = {
    "n_items": "items",
    "n_responses": "responses",
    "n_persons": "examinees",
    "n_draws": "draws",
    "max_rhat_population": "R-hat, population",
    "min_ess_population": "ESS, population",
    "max_rhat_items": "R-hat, worst item",
    "share_items_rhat": "items within target",
    "median_ess_items": "ESS, median item",
    "shared_with_reference": "shared with reference",
    "weakest_step": "weakest step",
    "effective_anchors": "effective anchors",
    "A_sd": "± A",
    "B_sd": "± B",
    "mean_sd": "± mean",
    "sd_sd": "± SD",
    "sd": "SD",
    "mean_difference": "mean difference",
    "sd_ratio": "SD ratio",
    "pooled_mean": "pooled mean",
    "pooled_sd": "pooled SD",
    "by_links": "of it by the links",
    "by_items": "of it by the items",
    "pairwise_mean_difference": "mean difference, pairwise link",
    "pairwise_sd_ratio": "SD ratio, pairwise link",
    "rmse": "RMSE",
    "coverage_50": "coverage 50 %",
    "coverage_90": "coverage 90 %",
    "coverage_95": "coverage 95 %",
    "period_1": "period",
    "period_2": "and",
    "rhat": "R-hat",
    "ess_bulk": "bulk ESS",
    "item_id": "item",
    "new_id": "new id",
    "mean_d_shift": "mean shift of d",
    "mean_score_shift": "mean shift of the score",
    "inflation_low": "expected from",
    "inflation_high": "to",
    "score_shift": "shift of the score",
    "score_size": "size of the change",
    "item_q_value": "q",
    "q_value": "q",
    "other_id": "and item",
    "n_common": "examinees of both",
    "p_value": "p",
    "d_shift": "shift of d",
    "log_a_shift": "shift of log a",
    "movers": "moved in",
    "dropped_by": "dropped by",
    "displacement_sd": "± displacement",
    "influence_A": "influence on A",
    "influence_B": "influence on B",
    "mean_r": "r, means",
    "mean_rmse": "RMSE, means",
    "sd_r": "r, SDs",
    "sd_rmse": "RMSE, SDs",
    "sd_ratio_low": "SD ratio, low exposure",
    "sd_ratio_mid": "mid",
    "sd_ratio_high": "high",
    "examinees_from": "examinees from",
    "examinees_to": "to",
    "items_there": "share of items there",
    "sem_least": "SEM, least",
    "sem_most": "SEM, most",
    "sem_best": "SEM, best items",
    "thinnest_at": "thinnest at θ",
    "n": "n",
}
"""Heads of columns that do not read well as they are."""

DIGITS = {"seconds": 1, "min_ess_population": 0, "median_ess_items": 0, "effective_anchors": 1, "ess_bulk": 0}
"""Decimals of columns that have others than three."""


@dataclass(frozen=True)
class Printed:
    """A table of text: heads, whether a column is numeric, rows."""

    heads: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


def printed(table: pl.DataFrame, columns: Sequence[str] | None = None, digits: int = 3) -> Printed:
    """A table as text; columns that are not there are left out."""
    names = [name for name in (columns or table.columns) if name in table.columns]
    writers = [p_value if is_p(name) else _writer(DIGITS.get(name, digits)) for name in names]
    rows = tuple(tuple(w(v) for v, w in zip(row, writers, strict=True)) for row in table.select(names).iter_rows())
    heads = tuple(WORDS.get(name, name.replace("_", " ")) for name in names)
    return Printed(heads, tuple(table.schema[name].is_numeric() for name in names), rows)


def _writer(digits: int) -> Any:
    return lambda value: cell(value, digits)


def is_p(name: str) -> bool:
    """Whether a column holds p- or q-values."""
    return name in ("p", "q") or name.endswith(("p_value", "q_value"))


def p_value(value: float | None) -> str:
    """A p-value: never "0.000".

    >>> p_value(2e-9), p_value(0.0312), p_value(1.0)
    ('< .001', '.031', '1.000')
    """
    if value is None or not np.isfinite(value):
        return "–"
    return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def cell(value: Any, digits: int = 3) -> str:
    """A value as people read it.

    >>> cell(-0.0002), cell(1234567), cell(None), cell(True)
    ('0.000', '1,234,567', '–', 'yes')
    """
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:z,.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def moment(text: str) -> str:
    """A time stamp to the minute.

    >>> moment("2026-11-16T02:11:39+00:00")
    '2026-11-16 02:11 UTC'
    """
    return f"{text[:10]} {text[11:16]} UTC" if text.endswith("+00:00") else text


def with_moments(table: pl.DataFrame, column: str) -> pl.DataFrame:
    """The table with a column of time stamps to the minute."""
    if column not in table.columns:
        return table
    return table.with_columns(pl.col(column).map_elements(moment, return_dtype=pl.String))
