"""The periods' ability distributions on the reference metric."""

from __future__ import annotations

from concal.evaluate.digest import ability_table
from concal.report.pack import Block
from concal.report.printed import printed
from concal.report.section import Section
from concal.report.view import View


def section(view: View, block: Block) -> Section:
    """At the links of the consensus."""
    return Section(
        "abilities",
        "Ability distributions",
        printed={"abilities": printed(ability_table(view.calibrations, view.in_force))},
        drawn={"histogram": block.frame(view.ability_histogram)},
    )
