"""Tables of items that moved, and of items that groups of examinees do not answer alike."""

from __future__ import annotations

from concal.cli.views.view import DIMENSION, FLAG, GROUP, ITEM, NUMBER, PERIOD, RESPONSES, TEXT, Column, View

SIZE_AND_SHIFT = (
    "Score size and shift: root-mean-square and mean change of the expected score (0 to 1) over the {}'s examinees; "
    "a size far above the shift is a curve that became steeper or flatter."
)

DRIFT = View(
    "Drift",
    "nothing drifted",
    {
        "item_id": ITEM,
        "group": GROUP,
        "dimension": DIMENSION,
        "period": PERIOD,
        "n_responses": RESPONSES,
        "drifted": Column(FLAG, "whether the item moved in this period"),
        "direction": Column(TEXT, "easier or harder; null, as are the shifts, where all other periods moved"),
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
        "d_shift": Column(NUMBER, "change of d, as the responses tell it"),
        "d_shift_sd": Column(NUMBER, "its SD"),
        "log_a_shift": Column(NUMBER, "change of log a, as the responses tell it"),
        "log_a_shift_sd": Column(NUMBER, "its SD"),
        "leave_out_log_A": Column(NUMBER, "change of the period's log A without the item"),
        "leave_out_B": Column(NUMBER, "change of the period's B without the item"),
    },
    ("item_id", "period", "direction", "score_size", "score_shift", "item_q_value", "n_responses"),
    keys=("item_id", "period"),
    note=f"Largest score size first. {SIZE_AND_SHIFT.format('period')}",
)
DIF = View(
    "Differential item functioning",
    "groups of examinees of equal ability answer every item alike, as far as the responses tell",
    {
        "item_id": ITEM,
        "group": GROUP,
        "dimension": DIMENSION,
        "person_group": Column(TEXT, "group of examinees", "examinees"),
        "n_responses": RESPONSES,
        "flagged": Column(FLAG, "whether the item differs in this group"),
        "direction": Column(TEXT, "easier or harder for the group; null, as are the shifts, where all others differ"),
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
        "d_shift": Column(NUMBER, "difference in d, as the responses tell it", "d shift"),
        "d_shift_sd": Column(NUMBER, "its SD"),
        "log_a_shift": Column(NUMBER, "difference in log a, as the responses tell it", "log a shift"),
        "log_a_shift_sd": Column(NUMBER, "its SD"),
    },
    (
        *("item_id", "person_group", "direction", "score_size", "score_shift"),
        *("d_shift", "log_a_shift", "item_q_value", "n_responses"),
    ),
    keys=("item_id", "person_group"),
    note=f"Largest score size first. {SIZE_AND_SHIFT.format('group')}",
)
