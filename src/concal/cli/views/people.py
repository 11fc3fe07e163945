"""Tables of examinees' scores and of how they are reported."""

from __future__ import annotations

from concal.cli.views.view import NUMBER, TEXT, WHOLE, Column, View

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
