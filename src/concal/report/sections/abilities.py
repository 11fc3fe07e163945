"""The periods' ability distributions on the reference metric."""

from __future__ import annotations

import polars as pl

from concal.bank.tables.person_groups import ALL, group_table
from concal.report.pack import Block
from concal.report.printed import printed
from concal.report.section import Section
from concal.report.view import View


def section(view: View, block: Block) -> Section:
    """At the links of the consensus."""
    return Section(
        "abilities",
        "Ability distributions",
        printed={"abilities": printed(_shown(group_table(view.calibrations, view.in_force)))},
        drawn={"histogram": block.frame(view.ability_histogram)},
    )


def _shown(table: pl.DataFrame) -> pl.DataFrame:
    """Without the column of groups where no period has some."""
    return table if (table["person_group"] != ALL).any() else table.drop("person_group")
