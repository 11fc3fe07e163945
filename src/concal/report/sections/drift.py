"""Items that moved, what it means for scores, what was decided about them, and what that did to others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from concal.bank.bank import Bank
from concal.errors import BankError
from concal.evaluate.attention import drifted
from concal.evaluate.compare import compare
from concal.evaluate.misfit import change_in_words
from concal.report.pack import Block
from concal.report.printed import printed
from concal.report.section import Section
from concal.report.view import View

MOST_TESTS = 20_000
_TESTS = ("item_id", "period", "score_shift", "distance", "drifted")
_MOVED = (
    *("item_id", "period", "direction", "score_size", "score_shift", "item_q_value", "n_responses", "movers"),
    *("d_shift", "leave_out_log_A", "leave_out_B"),
)


def section(view: View, block: Block) -> Section:
    """Movers by consequence, every test as a point, acts and their effects, periods as a whole."""
    found = view.drift.items
    moved = drifted(found)
    done = list(effects(view))
    return Section(
        "drift",
        "Drift",
        printed={
            "n_moved": moved["item_id"].n_unique() if moved.height else 0,
            "n_tested": found["item_id"].n_unique() if found.height else 0,
            "acts": printed(view.acts) if view.acts.height else None,
            "effects": printed(pl.DataFrame(done), digits=4) if done else None,
            "periods": printed(view.drift.periods) if view.drift.periods.height else None,
        },
        drawn={
            "n_tested": found.height,
            "moved": block.frame(moved.select([name for name in _MOVED if name in moved.columns])),
            "said": [f"in {row['period']} {change_in_words(row)}" for row in moved.iter_rows(named=True)],
            "tests": block.frame(_shown_tests(found), exact=False),
        },
    )


def _shown_tests(drift: pl.DataFrame) -> pl.DataFrame:
    """The tests a figure shows: those that drifted, and of the others those with the smallest p-values."""
    if "drifted" not in drift.columns:
        return drift
    told = drift.filter(pl.col("score_shift").is_not_null())
    return told.sort(~pl.col("drifted"), "p_value", maintain_order=True).head(MOST_TESTS).select(_TESTS)


def effects(view: View) -> Iterator[dict[str, Any]]:
    """What each decision did to links and to other items: the version that made it against the one before."""
    for step in view.history.filter(pl.col("action").str.contains("^(exclude|include|split|join)")).iter_rows(
        named=True
    ):
        try:
            before, after = (Bank(view.bank.path).at(step["version"] - k).consensus(joint=False) for k in (1, 0))
        except BankError:  # an old version that was pruned
            continue
        change = compare(before, after)
        links = change.links.with_columns(
            by_A=pl.col("A_now") - pl.col("A_before"), by_B=pl.col("B_now") - pl.col("B_before")
        )
        far = links.sort(pl.col("by_B").abs() + pl.col("by_A").abs(), descending=True).row(0, named=True)
        named = set(step["action"].split())
        others = change.items.filter(pl.col("score_size").is_not_null() & ~pl.col("item_id").is_in(list(named)))
        yield {
            "decision": step["action"],
            "version": step["version"],
            "link that moved most": f"{far['period']}, {far['dimension']}",
            "A by": far["by_A"],
            "B by": far["by_B"],
            "other items, typical shift of the score": others["score_size"].median() if others.height else None,
            "largest": others["score_size"].max() if others.height else None,
            "of": others["item_id"][0] if others.height else None,
        }
