"""Tables of data before a calibration: drafts, counts, linkage, simulated files."""

from __future__ import annotations

from concal.cli.views.view import DIMENSION, FLAG, GROUP, MODEL, NUMBER, PERIOD, TEXT, WHOLE, Column, View

DRAFTS = View(
    "Proposed groups",
    "no items",
    {
        "group": GROUP,
        "model": Column(TEXT, "proposed response model"),
        "items": Column(WHOLE, "items"),
        "responses": Column(WHOLE, "responses"),
        "scores": Column(TEXT, "what the scores are"),
    },
    ("group", "model", "items", "responses", "scores"),
    keys=("group",),
)
FEATURES = View(
    "Item features that were found",
    "no features",
    {
        "column": Column(TEXT, "column of items.csv"),
        "kind": Column(TEXT, "number, categories, text, or another type"),
        "levels": Column(WHOLE, "different values"),
        "missing": Column(WHOLE, "items without a value"),
        "term": Column(TEXT, "how a formula may use it; null: not as it is", "in a formula"),
    },
    ("column", "kind", "levels", "missing", "term"),
    keys=("column",),
)
_QUANTILES = {
    name: Column(NUMBER, f"{what} of the counts")
    for name, what in (
        ("min", "smallest"), ("q10", "10 % quantile"), ("q25", "25 % quantile"), ("median", "median"),
        ("q75", "75 % quantile"), ("q90", "90 % quantile"), ("max", "largest"),
    )
}  # fmt: skip
GROUPS = View(
    "Groups",
    "no group has items",
    {
        "group": GROUP,
        "model": MODEL,
        "dimension": DIMENSION,
        "items": Column(WHOLE, "items with responses"),
        "items_in_table": Column(WHOLE, "items of the item table"),
        "responses": Column(WHOLE, "responses"),
        "persons": Column(WHOLE, "examinees who answered one of its items", "examinees"),
        "features": Column(WHOLE, "columns of the design matrix but the intercept"),
        "mean_score": Column(NUMBER, "mean score", "mean score"),
    },
    ("group", "model", "dimension", "items", "responses", "persons", "mean_score"),
    keys=("group",),
)
EXPOSURE = View(
    "Responses per item",
    "no responses",
    {"group": GROUP, **_QUANTILES},
    ("group", "min", "q10", "median", "q90", "max"),
    keys=("group",),
)
PERSONS = View(
    "Responses per examinee",
    "no responses",
    {"dimension": DIMENSION, "persons": Column(WHOLE, "examinees with a response", "examinees"), **_QUANTILES},
    ("dimension", "persons", "min", "q10", "median", "q90", "max"),
    keys=("dimension",),
)
LINKAGE = View(
    "Linkage plan",
    "the first period: there is nothing to link to",
    {
        "dimension": DIMENSION,
        "period": PERIOD,
        "items": Column(WHOLE, "items with responses"),
        "shared_with_reference": Column(WHOLE, "of them also in the reference", "shared with reference"),
        "chain": Column(TEXT, "periods on the way to the reference; null where there is none", "way"),
        "weakest_step": Column(WHOLE, "fewest shared items of a step on the way", "weakest step"),
        "linked": Column(FLAG, "whether there is a way"),
    },
    ("dimension", "period", "items", "shared_with_reference", "weakest_step", "linked", "chain"),
    keys=("dimension", "period"),
)
SIMULATED = View(
    "Periods",
    "nothing was simulated",
    {
        "period": PERIOD,
        "responses": Column(WHOLE, "responses"),
        "examinees": Column(WHOLE, "examinees"),
        "items_seen": Column(WHOLE, "items with responses", "items seen"),
        "file": Column(TEXT, "where the responses are"),
    },
    ("period", "responses", "examinees", "items_seen", "file"),
    keys=("period",),
)
