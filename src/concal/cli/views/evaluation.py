"""Tables of an evaluation against the pooled fit."""

from __future__ import annotations

from concal.cli.views.view import DIMENSION, MODEL, NUMBER, PERIOD, TEXT, WHOLE, Column, View

_METHOD = Column(TEXT, "consensus method, or pooled", "method")
_PARAMETER = Column(TEXT, "coordinate of xi", "parameter")
AGREEMENT = View(
    "By dimension, response model and parameter",
    "no item could be compared",
    {
        "method": _METHOD,
        "dimension": DIMENSION,
        "model": MODEL,
        "parameter": _PARAMETER,
        "n": Column(WHOLE, "items compared"),
        "share_screened": Column(NUMBER, "share left out by the R-hat screen", "share screened"),
        "mean_r": Column(NUMBER, "correlation of posterior means with the pooled fit's", "mean r", 4),
        "mean_rmse": Column(NUMBER, "RMSE of posterior means", "mean RMSE"),
        "sd_r": Column(NUMBER, "correlation of posterior SDs", "SD r", 4),
        "sd_rmse": Column(NUMBER, "RMSE of posterior SDs", "SD RMSE"),
        "sd_ratio_low": Column(NUMBER, "mean SD ratio, third of the items with fewest responses", "SD ratio low"),
        "sd_ratio_mid": Column(NUMBER, "the same, middle third", "SD ratio mid"),
        "sd_ratio_high": Column(NUMBER, "the same, third with most responses", "SD ratio high"),
    },
    ("method", "dimension", "model", "parameter", "mean_r", "mean_rmse", "sd_r", "sd_ratio_mid"),
    keys=("method", "dimension", "model", "parameter"),
)
DISTANCE = View(
    "Distance of posterior means from the pooled fit, in pooled SDs (root mean square)",
    "no item could be compared",
    {
        "method": _METHOD,
        "parameter": _PARAMETER,
        "n": Column(WHOLE, "items compared"),
        "distance": Column(NUMBER, "all of it", decimals=3),
        "by_links": Column(
            NUMBER, "what the links make of it: against the same method at the pooled links", decimals=3
        ),
        "by_items": Column(NUMBER, "what is left at the pooled links", decimals=3),
    },
    ("method", "parameter", "n", "distance", "by_links", "by_items"),
    keys=("method", "parameter"),
)
ABILITIES = View(
    "Abilities: linked period fits against the pooled fit",
    "no abilities were compared",
    {
        "period": PERIOD,
        "dimension": DIMENSION,
        "mean": Column(NUMBER, "ability mean of the period, linked"),
        "sd": Column(NUMBER, "ability SD of the period, linked", "SD"),
        "pooled_mean": Column(NUMBER, "the pooled fit's mean", "pooled mean"),
        "pooled_sd": Column(NUMBER, "the pooled fit's SD", "pooled SD"),
        "mean_difference": Column(NUMBER, "mean of the linked fit minus the pooled fit's", "mean difference"),
        "sd_ratio": Column(NUMBER, "SD of the linked fit over the pooled fit's", "SD ratio"),
        "pairwise_mean_difference": Column(NUMBER, "mean difference at the period's own link"),
        "pairwise_sd_ratio": Column(NUMBER, "SD ratio at the period's own link"),
    },
    ("period", "dimension", "mean_difference", "sd_ratio"),
    keys=("period", "dimension"),
)
RECOVERY = View(
    "Recovery of the truth: RMSE and coverage of central intervals",
    "the truth is not known",
    {
        "method": _METHOD,
        "parameter": _PARAMETER,
        "n": Column(WHOLE, "items compared"),
        "rmse": Column(NUMBER, "RMSE of posterior means to the truth", "RMSE"),
        "bias": Column(NUMBER, "mean of posterior mean minus truth"),
        "coverage_50": Column(NUMBER, "share of 50 % intervals with the truth in them", "50 %"),
        "coverage_90": Column(NUMBER, "the same, 90 %", "90 %"),
        "coverage_95": Column(NUMBER, "the same, 95 %", "95 %"),
    },
    ("method", "parameter", "n", "rmse", "coverage_50", "coverage_90", "coverage_95"),
    keys=("method", "parameter"),
)
