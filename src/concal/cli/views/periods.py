"""Tables of periods: what they are, their links and anchors, what was done."""

from __future__ import annotations

from concal.cli.views.view import DIMENSION, FLAG, GROUP, ITEM, NO_PERIOD, NUMBER, PERIOD, TEXT, WHOLE, Column, View

PERIODS = View(
    "Periods",
    NO_PERIOD,
    {
        "period": PERIOD,
        "reference": Column(FLAG, "whether it sets the metric"),
        "n_items": Column(WHOLE, "items with responses", "items"),
        "n_responses": Column(WHOLE, "responses", "responses"),
        "n_persons": Column(WHOLE, "examinees, where the period came with them", "examinees"),
        "person_groups": Column(TEXT, "groups of examinees, the one that sets the metric first", "examinee groups"),
        "n_draws": Column(WHOLE, "posterior draws kept", "draws"),
        "engine": Column(TEXT, "what calibrated it"),
        "seed": Column(WHOLE, "seed of the calibration", "seed", 0),
        "prior": Column(TEXT, "population, or bank where items had priors from the bank"),
        "converged": Column(FLAG, "whether the targets for R-hat and effective draws were reached"),
        "n_unconverged": Column(WHOLE, "items above the R-hat target", "items not converged"),
        "seconds": Column(NUMBER, "the calibration took", "seconds", 1),
        "update_seconds": Column(NUMBER, "link, combination and files took", "update seconds", 1),
        "added": Column(TEXT, "when"),
    },
    ("period", "reference", "n_items", "n_responses", "n_persons", "converged", "seconds"),
    keys=("period",),
)
PERSON_GROUPS = View(
    "Ability distributions on the reference metric",
    "no period came with its examinees",
    {
        "period": PERIOD,
        "dimension": DIMENSION,
        "person_group": Column(TEXT, "group of examinees; all: everybody of the period", "examinee group"),
        "n_persons": Column(WHOLE, "examinees with a response in the dimension", "examinees"),
        "mean": Column(NUMBER, "mean of their abilities"),
        "mean_sd": Column(NUMBER, "posterior SD of the mean, the link's uncertainty included", "SD of mean"),
        "sd": Column(NUMBER, "standard deviation of their abilities", "SD"),
        "sd_sd": Column(NUMBER, "posterior SD of the standard deviation", "SD of SD"),
    },
    ("period", "dimension", "person_group", "n_persons", "mean", "mean_sd", "sd", "sd_sd"),
    keys=("period", "dimension", "person_group"),
)
LINKS = View(
    "Links: theta on the reference metric = A theta + B",
    NO_PERIOD,
    {
        "period": PERIOD,
        "dimension": DIMENSION,
        "reference": Column(TEXT, "the period whose metric it is"),
        "A": Column(NUMBER, "slope of the link, as the consensus has it", "A"),
        "A_sd": Column(NUMBER, "posterior SD of A", "SD A"),
        "B": Column(NUMBER, "shift of the link, as the consensus has it", "B"),
        "B_sd": Column(NUMBER, "posterior SD of B", "SD B"),
        "candidates": Column(WHOLE, "items shared with what the period was linked to"),
        "anchors": Column(WHOLE, "of them kept as anchors"),
        "effective_anchors": Column(NUMBER, "anchors by their weights", "effective anchors"),
        "path": Column(TEXT, "periods the link went through"),
    },
    ("period", "dimension", "A", "A_sd", "B", "B_sd", "anchors"),
    keys=("period", "dimension"),
)
ANCHORS = View(
    "Anchors",
    "the period was linked without anchors: it is the reference",
    {
        "item_id": ITEM,
        "dimension": DIMENSION,
        "group": GROUP,
        "n_responses": Column(WHOLE, "responses in the period", "responses"),
        "n_responses_ref": Column(WHOLE, "responses on the other side", "responses there"),
        "weight": Column(NUMBER, "weight in the link"),
        "kept": Column(FLAG, "whether it is an anchor of the link"),
        "dropped_by": Column(TEXT, "responses, rhat or purification; null where kept", "dropped by"),
        "round": Column(WHOLE, "round of the purification that dropped it"),
        "residual": Column(NUMBER, "change of the mean score in its standard errors (paper: of d); positive: easier"),
        "drift_probability": Column(NUMBER, "probability that the item drifted", "P(drift)"),
        "displacement": Column(NUMBER, "how far d lies from the link"),
        "displacement_sd": Column(NUMBER, "its SD", "SD displacement"),
        "influence_A": Column(NUMBER, "change of A without the anchor"),
        "influence_B": Column(NUMBER, "change of B without the anchor"),
    },
    ("item_id", "dimension", "kept", "dropped_by", "residual", "weight", "n_responses"),
    keys=("item_id", "dimension"),
    order=("item_id",),
)
HISTORY = View(
    "History",
    "the bank has no version",
    {
        "version": Column(WHOLE, "number of the version", "version", 0),
        "written": Column(TEXT, "when"),
        "author": Column(TEXT, "by whom"),
        "action": Column(TEXT, "what was done"),
        "reason": Column(TEXT, "why, as given"),
        "periods": Column(WHOLE, "periods of that version"),
        "reference": Column(TEXT, "the period that sets the metric"),
        "releases": Column(TEXT, "names that froze it"),
        "concal": Column(TEXT, "version of the program that wrote it"),
    },
    ("version", "written", "author", "action", "releases", "reason"),
    keys=("version",),
)
ACTS = View(
    "Excluded and split",
    "nothing was excluded or split",
    {
        "act": Column(TEXT, "exclude or split"),
        "item_id": ITEM,
        "periods": Column(TEXT, "in which it holds"),
        "person_group": Column(TEXT, "examinees whose responses do not count; empty: all", "examinee group"),
        "new_id": Column(TEXT, "id of the item that was split off", "new id"),
        "reason": Column(TEXT, "why, as given"),
        "idle": Column(FLAG, "whether the bank has none of the periods, so that it does nothing"),
    },
    ("act", "item_id", "periods", "person_group", "new_id", "reason", "idle"),
    keys=("act", "item_id"),
)
