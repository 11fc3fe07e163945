"""Agreement of the consensus with the pooled fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from concal.evaluate.pairs import TERTILES
from concal.evaluate.tables import notes, paper_table, to_latex, to_markdown
from concal.report.pack import Block
from concal.report.printed import printed
from concal.report.section import Section
from concal.report.view import View


def section(view: View, block: Block) -> Section:
    """The published table's layout, distances, and a point per item; nothing without an evaluation."""
    evaluation = view.evaluation
    if evaluation is None:
        return Section("agreement", "Agreement with the pooled fit", printed={"compared": False})
    paper = paper_table(evaluation)
    numeric = (False, False, *(True for _ in paper.columns[2:]))
    return Section(
        "agreement",
        "Agreement with the pooled fit",
        printed={
            "compared": True,
            "paper": replace(printed(paper), numeric=numeric),
            "notes": notes(evaluation),
            "distance": printed(evaluation.distance),
            "detail": printed(with_ratios(evaluation.agreement)),
            "abilities": printed(evaluation.abilities),
            "recovery": printed(evaluation.recovery) if evaluation.recovery.height else None,
            "markdown": to_markdown(paper),
            "latex": to_latex(evaluation),
        },
        drawn={"pairs": pairs(evaluation.pairs, block)},
    )


def with_ratios(table: pl.DataFrame) -> pl.DataFrame:
    """SD ratios by exposure in one column, so that the table fits the page."""
    parts = [f"sd_ratio_{name}" for name in TERTILES]
    said = pl.format(" ".join(["{}"] * len(parts)), *(pl.col(name).round(2) for name in parts))
    return table.with_columns(said.alias("SD ratios by exposure")).drop(parts)


def pairs(table: pl.DataFrame, block: Block) -> list[dict[str, Any]]:
    """The pairs the R-hat screen kept, by dimension, model and parameter; mean and SD by method."""
    found = []
    by = ["dimension", "model", "parameter"]
    methods = table["method"].unique(maintain_order=True).to_list()
    for key, part in table.filter("kept").group_by(by, maintain_order=True):
        first = part.filter(pl.col("method") == methods[0])
        columns = first.select("item_id", "tertile", "exposure", "pooled_mean", "pooled_sd")
        for method in methods:
            own = part.filter(pl.col("method") == method)
            own = own.select("item_id", pl.col("mean").alias(f"mean {method}"), pl.col("sd").alias(f"sd {method}"))
            columns = columns.join(own, on="item_id", how="left", maintain_order="left")
        label = dict(zip(by, key, strict=True))
        found.append({**label, "methods": methods, "frame": block.frame(columns, exact=False)})
    return found
