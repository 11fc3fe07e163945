"""The published agreement of a consensus with its pooled fit: the mark every bank is shown beside."""

from __future__ import annotations

from typing import Final

PAPER: Final[dict[str, dict[str, float]]] = {
    "d": {
        "mean_r": 0.998,
        "mean_rmse": 0.129,
        "sd_r": 0.970,
        "sd_rmse": 0.066,
        "sd_ratio_low": 0.91,
        "sd_ratio_mid": 0.94,
        "sd_ratio_high": 0.94,
    },
    "log_a": {
        "mean_r": 0.991,
        "mean_rmse": 0.081,
        "sd_r": 0.920,
        "sd_rmse": 0.036,
        "sd_ratio_low": 0.96,
        "sd_ratio_mid": 0.95,
        "sd_ratio_high": 0.98,
    },
}
"""Four quarters of an operational test: tens of thousands of items, hundreds of thousands of examinees a period."""

PAPER_SHARE_SCREENED: Final = 0.019
PAPER_ABILITY_MEAN_DIFFERENCE: Final = 0.08  # largest, in units of the reference metric
PAPER_ABILITY_SD_RATIO: Final = (0.98, 1.07)

STATISTICS: Final = (
    ("Post. mean", "r", "mean_r", 3),
    ("Post. mean", "RMSE", "mean_rmse", 3),
    ("Post. SD", "r", "sd_r", 3),
    ("Post. SD", "RMSE", "sd_rmse", 3),
    ("SD ratio", "low expo.", "sd_ratio_low", 2),
    ("SD ratio", "mid expo.", "sd_ratio_mid", 2),
    ("SD ratio", "high expo.", "sd_ratio_high", 2),
)
"""Rows of the paper's table: heading, statistic, our column, decimals."""
