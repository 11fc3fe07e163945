"""What each command shows of its table: the columns that answer its question, their headings and what they mean.

Every column has a line here: the headings of the terminal, ``concal schema COMMAND`` (the JSON of ``--json``) and the
reference all come from it. A new command adds its `View` to the file of its
subject and calls `concal.cli.show.show_table` with it.
"""

from __future__ import annotations

from concal.cli.views.data import DRAFTS, EXPOSURE, FEATURES, GROUPS, LINKAGE, PERSONS, SIMULATED
from concal.cli.views.drift import DIF, DRIFT
from concal.cli.views.evaluation import ABILITIES, AGREEMENT, DISTANCE, RECOVERY
from concal.cli.views.items import FIT, FIT_BINS, FIT_PAIRS, INFORMATION, ITEM_INFORMATION, ITEMS, ITEMS_LONG
from concal.cli.views.machine import DOCTOR, STEPS
from concal.cli.views.people import REPORTING, SCORES
from concal.cli.views.periods import ACTS, ANCHORS, HISTORY, LINKS, PERIODS, PERSON_GROUPS
from concal.cli.views.view import NO_PERIOD, Column, View

__all__ = [
    "ABILITIES",
    "ACTS",
    "AGREEMENT",
    "ANCHORS",
    "DIF",
    "DISTANCE",
    "DOCTOR",
    "DRAFTS",
    "DRIFT",
    "EXPOSURE",
    "FEATURES",
    "FIT",
    "FIT_BINS",
    "FIT_PAIRS",
    "GROUPS",
    "HISTORY",
    "INFORMATION",
    "ITEMS",
    "ITEMS_LONG",
    "ITEM_INFORMATION",
    "LINKAGE",
    "LINKS",
    "NO_PERIOD",
    "PERIODS",
    "PERSONS",
    "PERSON_GROUPS",
    "RECOVERY",
    "REPORTING",
    "SCORES",
    "SIMULATED",
    "STEPS",
    "VIEWS",
    "Column",
    "View",
]

VIEWS: dict[str, View] = {
    "items": ITEMS,
    "items-long": ITEMS_LONG,
    "predict": ITEMS,
    "periods": PERIODS,
    "periods-groups": PERSON_GROUPS,
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
