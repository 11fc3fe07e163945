"""What changed since a release or an earlier version, item by item."""

from __future__ import annotations

import polars as pl

from concal.evaluate.compare import compare
from concal.report.pack import Block
from concal.report.printed import printed
from concal.report.section import Section
from concal.report.view import View

SHOWN = ("item_id", "group", "change", "n_responses", "d_before", "d_now", "d_move", "sd_ratio", "score_shift")
MOST = 5_000  # items in the table, most consequential first
_COUNTED = ("new", "gone", "first answered", "changed")


def section(view: View, block: Block) -> Section:
    """Counts, links, and a table of all items whose numbers differ, by what it means for scores."""
    if view.base is None:
        return Section("changes", "Changes", printed={"base": None})
    words, version = view.base
    found = compare(version.consensus(joint=False), view.consensus)
    both = found.items.filter(pl.col("score_size").is_not_null())
    differ = found.items.filter(pl.col("change") != "same")
    return Section(
        "changes",
        "Changes",
        printed={
            "base": words,
            "counts": {change: found.items.filter(pl.col("change") == change).height for change in _COUNTED},
            "compared": both.height,
            "typical": both["score_size"].median() if both.height else None,
            "largest": both.row(0, named=True) if both.height else None,
            "links": printed(found.links),
        },
        drawn={"items": block.frame(differ.head(MOST).select(SHOWN), exact=False), "n": differ.height, "base": words},
    )
