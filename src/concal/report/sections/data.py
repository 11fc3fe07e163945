"""The periods' data, and which items they share."""

from __future__ import annotations

import polars as pl

from concal.evaluate.digest import exposure_histogram
from concal.report.pack import Block
from concal.report.printed import cell, printed, with_moments
from concal.report.section import Section
from concal.report.view import View

_PERIODS = (
    "period",
    "reference",
    "n_items",
    "n_responses",
    "n_persons",
    "engine",
    "converged",
    "n_unconverged",
    "added",
)


def section(view: View, block: Block) -> Section:
    """Periods, exposure, and the linkage plan."""
    return Section(
        "data",
        "Data and linkage plan",
        printed={
            "periods": printed(with_moments(view.bank.periods(), "added"), _PERIODS),
            "shared": shared_matrices(view),
            "linkage": printed(view.linkage.table()),
        },
        drawn={"exposure": block.frame(exposure_histogram(view.calibrations))},
    )


def shared_matrices(view: View) -> list[tuple[str, list[str], list[list[str]]]]:
    """Shared items between periods, a matrix per dimension: (dimension, periods, cells)."""
    plan, pairs, found = view.linkage.table(), view.linkage.pairs(), []
    for dimension in view.spec.bank.dimensions:
        rows = plan.filter(pl.col("dimension") == dimension).iter_rows(named=True)
        own = {row["period"]: row["items"] for row in rows}
        both = pairs.filter(pl.col("dimension") == dimension)
        count = {(a, b): n for a, b, n in both.select("period_1", "period_2", "shared").iter_rows()}
        here = [period for period in view.periods if period in own]
        cells = [[cell(own[a] if a == b else count.get((a, b), count.get((b, a), 0))) for b in here] for a in here]
        if here:
            found.append((dimension, here, cells))
    return found
