"""What each command shows of its table: the columns that answer its question, their headings and what they mean.

Every column has a line here: the headings of the terminal, ``concal schema COMMAND`` (the JSON of ``--json``) and the
reference all come from it. A new command adds its `View` here and calls `concal.cli.show.show_table` with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TEXT, WHOLE, NUMBER, FLAG = "string", "integer", "number", "boolean"


class Column(NamedTuple):
    """One column of a table: type in JSON, what it means; on a terminal its heading (default: its name), decimals."""

    kind: str
    says: str
    heading: str = ""
    decimals: int | None = None


@dataclass(frozen=True)
class View:
    """A table as a command shows it.

    Attributes
    ----------
    title : str
        Above the table.
    empty : str
        Said instead of a table without rows.
    columns : dict of name -> Column
        All columns the table may have; others (a model's further parameters) are numbers.
    shown : tuple of str
        Columns of the terminal; ``--full`` shows all.
    keys : tuple of str
        Columns that say which row it is; their ids are never cut.
    order : tuple of str
        Sorted by these, numbers inside ids as numbers (C3 before C12); () leaves the table's own order.
    further : tuple of str
        Types in JSON of columns that have no line here.
    """

    title: str
    empty: str
    columns: Mapping[str, Column]
    shown: tuple[str, ...]
    keys: tuple[str, ...] = ("item_id",)
    order: tuple[str, ...] = field(default=())
    further: tuple[str, ...] = (NUMBER,)

    def headings(self) -> dict[str, str]:
        """Headings by column."""
        return {name: column.heading or name.replace("_", " ") for name, column in self.columns.items()}

    def decimals(self) -> dict[str, int]:
        """Decimals by column, where they are fixed."""
        return {name: column.decimals for name, column in self.columns.items() if column.decimals is not None}

    def schema(self) -> dict[str, Any]:
        """JSON schema of what ``--json`` prints: an array of rows."""
        properties = {
            name: {"type": c.kind if name in self.keys else [c.kind, "null"], "description": c.says}
            for name, c in self.columns.items()
        }
        row = {
            "type": "object",
            "properties": properties,
            "required": list(self.keys),
            "additionalProperties": {"type": [*self.further, "null"]},
        }
        return {"type": "array", "items": row}


_ITEM = Column(TEXT, "id of the item", "item")
_PERIOD = Column(TEXT, "name of the period", "period")
_GROUP = Column(TEXT, "item group of bank.toml", "group")
_DIMENSION = Column(TEXT, "latent dimension", "dimension")
_MODEL = Column(TEXT, "response model", "model")
_SOURCE = Column(TEXT, "consensus, fallback (population, the responses do not identify it) or predicted", "source")
_RESPONSES = Column(WHOLE, "responses behind the row", "responses")
_PERIODS = Column(WHOLE, "periods that saw the item", "periods")
_UNCONVERGED = Column(TEXT, "periods in which its chains, or those of the whole period, had not converged")

ITEMS = View(
    "Items",
    "the bank has no items yet; `concal add` brings them",
    {
        "item_id": _ITEM,
        "group": _GROUP,
        "dimension": _DIMENSION,
        "model": _MODEL,
        "categories": Column(WHOLE, "score categories, where the model has them"),
        "a": Column(NUMBER, "slope, at the posterior mean of log a", "a"),
        "a_sd": Column(NUMBER, "posterior SD of the slope: a times the SD of log a", "SD a"),
        "d": Column(NUMBER, "location on the reference metric, posterior mean", "d"),
        "d_sd": Column(NUMBER, "posterior SD of the location", "SD d"),
        "d_logit": Column(NUMBER, "difficulty a d in logits, where the group has one slope (1pl, rasch, pcm, rsm)"),
        "d_logit_sd": Column(NUMBER, "its posterior SD"),
        "source": _SOURCE,
        "n_responses": _RESPONSES,
        "n_periods": _PERIODS,
        "unconverged": _UNCONVERGED,
        "d_mean": Column(NUMBER, "posterior mean of d", "mean d"),
        "log_a_mean": Column(NUMBER, "posterior mean of log a", "mean log a"),
        "log_a_sd": Column(NUMBER, "posterior SD of log a", "SD log a"),
    },
    ("item_id", "a", "a_sd", "d", "d_sd", "source", "n_responses"),
    order=("item_id",),
)
ITEMS_LONG = View(
    "Items",
    ITEMS.empty,
    {
        "item_id": _ITEM,
        "group": _GROUP,
        "dimension": _DIMENSION,
        "model": _MODEL,
        "parameter": Column(TEXT, "coordinate of xi: d, log_a, and the model's further ones"),
        "mean": Column(NUMBER, "posterior mean on the reference metric"),
        "sd": Column(NUMBER, "posterior SD", "SD"),
        "source": _SOURCE,
        "n_responses": _RESPONSES,
        "n_periods": _PERIODS,
        "unconverged": _UNCONVERGED,
    },
    ("item_id", "parameter", "mean", "sd", "source", "n_responses"),
    keys=("item_id", "parameter"),
    order=("item_id",),
)
PERIODS = View(
    "Periods",
    "the bank has no period yet; `concal add` brings one",
    {
        "period": _PERIOD,
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
LINKS = View(
    "Links: theta on the reference metric = A theta + B",
    "the bank has no period yet; `concal add` brings one",
    {
        "period": _PERIOD,
        "dimension": _DIMENSION,
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
        "item_id": _ITEM,
        "dimension": _DIMENSION,
        "group": _GROUP,
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
DRIFT = View(
    "Drift",
    "nothing drifted",
    {
        "item_id": _ITEM,
        "group": _GROUP,
        "dimension": _DIMENSION,
        "period": _PERIOD,
        "n_responses": _RESPONSES,
        "drifted": Column(FLAG, "whether the item moved in this period"),
        "direction": Column(TEXT, "easier or harder"),
        "score_shift": Column(NUMBER, "mean change of the expected score over the period's examinees", "score shift"),
        "score_size": Column(NUMBER, "root-mean-square change of the expected score", "score size"),
        "movers": Column(TEXT, "periods in which the item moved"),
        "item_distance": Column(NUMBER, "disagreement of the item's periods"),
        "item_df": Column(NUMBER, "its degrees of freedom"),
        "item_p_value": Column(NUMBER, "p that all periods of the item agree", "item p"),
        "item_q_value": Column(NUMBER, "false discovery rate at which the item is found", "q"),
        "distance": Column(NUMBER, "of this period from the others, in standard errors"),
        "df": Column(NUMBER, "its degrees of freedom"),
        "p_value": Column(NUMBER, "p that this period agrees with the others", "p"),
        "q_value": Column(NUMBER, "false discovery rate over all periods of all items", "period q"),
        "d_shift": Column(NUMBER, "change of d"),
        "d_shift_sd": Column(NUMBER, "its SD"),
        "log_a_shift": Column(NUMBER, "change of log a"),
        "log_a_shift_sd": Column(NUMBER, "its SD"),
        "leave_out_log_A": Column(NUMBER, "change of the period's log A without the item"),
        "leave_out_B": Column(NUMBER, "change of the period's B without the item"),
    },
    ("item_id", "period", "direction", "score_shift", "item_q_value", "n_responses"),
    keys=("item_id", "period"),
)
DIF = View(
    "Differential item functioning",
    "groups of examinees of equal ability answer every item alike, as far as the responses tell",
    {
        "item_id": _ITEM,
        "group": _GROUP,
        "dimension": _DIMENSION,
        "person_group": Column(TEXT, "group of examinees", "examinees"),
        "n_responses": _RESPONSES,
        "flagged": Column(FLAG, "whether the item differs in this group"),
        "direction": Column(TEXT, "easier or harder for the group"),
        "score_shift": Column(NUMBER, "mean change of the expected score over the group's examinees", "score shift"),
        "score_size": Column(NUMBER, "root-mean-square change of the expected score", "score size"),
        "item_distance": Column(NUMBER, "disagreement of the groups about the item"),
        "item_df": Column(NUMBER, "its degrees of freedom"),
        "item_p_value": Column(NUMBER, "p that all groups agree", "item p"),
        "item_q_value": Column(NUMBER, "false discovery rate at which the item is found", "q"),
        "distance": Column(NUMBER, "of this group from the others, in standard errors"),
        "df": Column(NUMBER, "its degrees of freedom"),
        "p_value": Column(NUMBER, "p that this group agrees with the others", "p"),
        "q_value": Column(NUMBER, "false discovery rate over all groups of all items", "group q"),
        "d_shift": Column(NUMBER, "difference in d", "d shift"),
        "d_shift_sd": Column(NUMBER, "its SD"),
        "log_a_shift": Column(NUMBER, "difference in log a", "log a shift"),
        "log_a_shift_sd": Column(NUMBER, "its SD"),
    },
    ("item_id", "person_group", "direction", "score_shift", "d_shift", "item_q_value", "n_responses"),
    keys=("item_id", "person_group"),
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
        "item_id": _ITEM,
        "periods": Column(TEXT, "in which it holds"),
        "new_id": Column(TEXT, "id of the item that was split off", "new id"),
        "reason": Column(TEXT, "why, as given"),
        "idle": Column(FLAG, "whether the bank has none of the periods, so that it does nothing"),
    },
    ("act", "item_id", "periods", "new_id", "reason", "idle"),
    keys=("act", "item_id"),
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
        "group": _GROUP,
        "model": _MODEL,
        "dimension": _DIMENSION,
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
    {"group": _GROUP, **_QUANTILES},
    ("group", "min", "q10", "median", "q90", "max"),
    keys=("group",),
)
PERSONS = View(
    "Responses per examinee",
    "no responses",
    {"dimension": _DIMENSION, "persons": Column(WHOLE, "examinees with a response", "examinees"), **_QUANTILES},
    ("dimension", "persons", "min", "q10", "median", "q90", "max"),
    keys=("dimension",),
)
LINKAGE = View(
    "Linkage plan",
    "the first period: there is nothing to link to",
    {
        "dimension": _DIMENSION,
        "period": _PERIOD,
        "items": Column(WHOLE, "items with responses"),
        "shared_with_reference": Column(WHOLE, "of them also in the reference", "shared with reference"),
        "chain": Column(TEXT, "periods on the way to the reference; null where there is none", "way"),
        "weakest_step": Column(WHOLE, "fewest shared items of a step on the way", "weakest step"),
        "linked": Column(FLAG, "whether there is a way"),
    },
    ("dimension", "period", "items", "shared_with_reference", "weakest_step", "linked", "chain"),
    keys=("dimension", "period"),
)
_METHOD = Column(TEXT, "consensus method, or pooled", "method")
_PARAMETER = Column(TEXT, "coordinate of xi", "parameter")
AGREEMENT = View(
    "By dimension, response model and parameter",
    "no item could be compared",
    {
        "method": _METHOD,
        "dimension": _DIMENSION,
        "model": _MODEL,
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
        "period": _PERIOD,
        "dimension": _DIMENSION,
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
DOCTOR = View(
    "This machine",
    "nothing was looked at",
    {
        "check": Column(TEXT, "what was looked at"),
        "ok": Column(FLAG, "whether it is as it should be"),
        "seen": Column(TEXT, "what was seen"),
    },
    ("check", "ok", "seen"),
    keys=("check",),
)
DRAFTS = View(
    "Proposed groups",
    "no items",
    {
        "group": _GROUP,
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
STEPS = View(
    "How long the steps took",
    "no steps",
    {"step": Column(TEXT, "what was done"), "seconds": Column(NUMBER, "wall time", "seconds", 1)},
    ("step", "seconds"),
    keys=("step",),
)
SIMULATED = View(
    "Periods",
    "nothing was simulated",
    {
        "period": _PERIOD,
        "responses": Column(WHOLE, "responses"),
        "examinees": Column(WHOLE, "examinees"),
        "items_seen": Column(WHOLE, "items with responses", "items seen"),
        "file": Column(TEXT, "where the responses are"),
    },
    ("period", "responses", "examinees", "items_seen", "file"),
    keys=("period",),
)

FIT = View(
    "Fit",
    "every item follows its curve, as far as the responses tell",
    {
        "item_id": _ITEM,
        "group": _GROUP,
        "dimension": _DIMENSION,
        "period": _PERIOD,
        "n_responses": _RESPONSES,
        "flagged": Column(FLAG, "whether q is at most the false discovery rate"),
        "misfit": Column(NUMBER, "root-mean-square of observed less expected mean score by ability, beyond chance"),
        "p_value": Column(NUMBER, "p that the item follows its curve: chi-square, infit and outfit together", "p"),
        "q_value": Column(NUMBER, "false discovery rate over items and periods at which it is flagged", "q"),
        "mean_score": Column(NUMBER, "mean score, divided by the largest", "mean score"),
        "infit": Column(NUMBER, "mean square of residuals, weighted by their variance; 1 is expected", "infit"),
        "infit_p": Column(NUMBER, "its p-value; null where the item's parameters decide it", "infit p"),
        "outfit": Column(NUMBER, "mean square of standardised residuals; 1 is expected", "outfit"),
        "outfit_p": Column(NUMBER, "its p-value; null where the item's parameters decide it", "outfit p"),
        "chi_square": Column(NUMBER, "observed against expected mean scores in five ability bins", "chi-square"),
        "df": Column(WHOLE, "its degrees of freedom"),
        "chi_square_p": Column(NUMBER, "its p-value", "chi-square p"),
    },
    ("item_id", "period", "misfit", "infit", "outfit", "q_value", "n_responses"),
    keys=("item_id", "period"),
)
FIT_BINS = View(
    "Scores by ability",
    "no period came with its responses",
    {
        "item_id": _ITEM,
        "group": _GROUP,
        "period": _PERIOD,
        "bin": Column(WHOLE, "a fifth of the item's examinees, by what their other responses say"),
        "theta": Column(NUMBER, "their mean ability on the reference metric", "ability"),
        "n_responses": _RESPONSES,
        "observed": Column(NUMBER, "mean score, divided by the largest"),
        "se": Column(NUMBER, "its standard error", "SE"),
        "expected": Column(NUMBER, "mean score the period's calibration predicts"),
    },
    ("item_id", "period", "theta", "observed", "se", "expected", "n_responses"),
    keys=("item_id", "period", "bin"),
)
FIT_PAIRS = View(
    "Dependent pairs",
    "no pair of items depends on each other beyond the ability",
    {
        "item_id": _ITEM,
        "other_id": Column(TEXT, "id of the other item", "other item"),
        "dimension": _DIMENSION,
        "period": _PERIOD,
        "n_common": Column(WHOLE, "examinees who answered both", "examinees"),
        "q3": Column(NUMBER, "correlation of their residuals, about 0 for independent items", "Q3"),
        "t": Column(NUMBER, "the same in standard errors", "t"),
        "p_value": Column(NUMBER, "p that they are independent given the ability", "p"),
        "q_value": Column(NUMBER, "false discovery rate over the period's pairs at which it is listed", "q"),
    },
    ("item_id", "other_id", "period", "q3", "q_value", "n_common"),
    keys=("item_id", "other_id", "period"),
)
SCORES = View(
    "Scores",
    "nobody to score",
    {
        "person_id": Column(TEXT, "id of the examinee", "examinee"),
        "n_responses": Column(WHOLE, "responses that count", "responses"),
        "n_unknown": Column(WHOLE, "responses to items the bank does not know, ignored", "unknown"),
        "prior": Column(
            TEXT,
            "whose ability distribution is the prior: a period's, all periods', or a given one; empty with ml and wle",
        ),
        "items": Column(TEXT, "item uncertainty: mean, soft, joint draws or independent draws"),
        "pv": Column(WHOLE, "number of the plausible value"),
        "item_draw": Column(WHOLE, "draw of items and links behind the plausible value"),
    },
    ("person_id", "pv", "n_responses"),
    keys=("person_id",),
    further=(NUMBER, TEXT),
)
REPORTING = View(
    "Reported scores",
    "no reported scores: scores are theta; `concal reporting BANK NAME --slope ... --intercept ...` makes one",
    {
        "score": Column(TEXT, "name of the reported score: a dimension's, or a composite's"),
        "slope": Column(NUMBER, "reported points per unit of theta"),
        "intercept": Column(NUMBER, "reported score at theta = 0"),
        "min": Column(NUMBER, "lowest score reported"),
        "max": Column(NUMBER, "highest score reported"),
        "round": Column(NUMBER, "scores are multiples of this"),
        "weights": Column(TEXT, "dimensions with their weights"),
    },
    ("score", "slope", "intercept", "min", "max", "round", "weights"),
    keys=("score",),
)
_INFORMATION = {
    "dimension": _DIMENSION,
    "theta": Column(NUMBER, "ability on the reference metric", "theta", 2),
    "information": Column(NUMBER, "Fisher information of the items together, mean over draws", "information", 2),
    "information_low": Column(NUMBER, "5 % quantile over draws of the items", "5 %", 2),
    "information_high": Column(NUMBER, "95 % quantile", "95 %", 2),
    "sem": Column(NUMBER, "standard error of measurement, 1 / sqrt(information)", "SEM", 3),
    "sem_low": Column(NUMBER, "5 % quantile of the SEM"),
    "sem_high": Column(NUMBER, "95 % quantile of the SEM"),
    "reliability": Column(NUMBER, "conditional reliability in the population of all periods", "reliability", 3),
    "reliability_low": Column(NUMBER, "5 % quantile of the reliability"),
    "reliability_high": Column(NUMBER, "95 % quantile of the reliability"),
}
INFORMATION = View(
    "Information",
    "no items",
    _INFORMATION,
    ("dimension", "theta", "information", "information_low", "information_high", "sem", "reliability"),
    keys=("dimension", "theta"),
)
ITEM_INFORMATION = View(
    "Items at their best",
    "no items",
    {
        "item_id": _ITEM,
        "dimension": _DIMENSION,
        "at_theta": Column(NUMBER, "where the item measures best", "at theta", 2),
        "information": Column(NUMBER, "information there, mean over draws", "information", 3),
        "information_low": Column(NUMBER, "5 % quantile over draws", "5 %", 3),
        "information_high": Column(NUMBER, "95 % quantile", "95 %", 3),
    },
    ("item_id", "dimension", "at_theta", "information", "information_low", "information_high"),
    order=("item_id",),
)
VIEWS: dict[str, View] = {
    "items": ITEMS,
    "items-long": ITEMS_LONG,
    "predict": ITEMS,
    "periods": PERIODS,
    "links": LINKS,
    "anchors": ANCHORS,
    "drift": DRIFT,
    "dif": DIF,
    "fit": FIT,
    "fit-bins": FIT_BINS,
    "fit-pairs": FIT_PAIRS,
    "history": HISTORY,
    "acts": ACTS,
    "doctor": DOCTOR,
    "score": SCORES,
    "reporting": REPORTING,
    "information": INFORMATION,
    "information-items": ITEM_INFORMATION,
}
"""Tables by the name ``concal schema`` knows them under: their command's."""
