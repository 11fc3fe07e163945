"""What the bank can measure where, and the examinees beside the items."""

from __future__ import annotations

from concal.evaluate.targeting import BEST, THETA, bank_information, location_histogram, targeting_table
from concal.report.pack import Block
from concal.report.printed import printed
from concal.report.section import Section
from concal.report.view import View


def section(view: View, block: Block) -> Section:
    """Information per dimension, and the person-item map."""
    curves = {name: found for name, (found, _) in view.information.items()}
    known = bank_information(view.consensus, curves, THETA)
    locations = location_histogram(view.consensus)
    where = targeting_table(known, locations, view.ability_histogram)
    return Section(
        "information",
        "What the bank measures",
        printed={"best": BEST, "targeting": printed(where, digits=2)},
        drawn={
            "best": BEST,
            "curves": block.frame(known),
            "locations": block.frame(locations),
            "where": block.frame(where),
        },
    )
