"""Links of the periods to the reference metric, and the anchors they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from concal.bank.tables.views import link_table
from concal.linking.result import Link
from concal.report.pack import Block
from concal.report.printed import printed
from concal.report.section import Section
from concal.report.view import View

CLOUD = 400  # draws of (A, B) a plot shows
_ANCHORS = (
    *("period", "item_id", "dimension", "n_responses", "kept", "dropped_by", "displacement", "displacement_sd"),
)


def section(view: View, block: Block) -> Section:
    """Constants, draws of the periods' own links, and every candidate anchor."""
    table = link_table(view.consensus.links, view.links)
    return Section(
        "links",
        "Links",
        printed={"links": printed(table), "method": view.consensus.method},
        drawn={
            "reference": view.reference,
            "clouds": [cloud for period in view.periods for cloud in clouds(view.links[period], block)],
            "anchors": block.frame(anchors(view.links), exact=False),
        },
    )


def clouds(link: Link, block: Block) -> list[dict[str, Any]]:
    """Some of a link's draws, evenly spaced; the reference has none."""
    if link.period == link.reference:
        return []
    every = np.unique(np.linspace(0, link.A.shape[0] - 1, CLOUD).astype(int))
    return [
        {
            "period": link.period,
            "dimension": dimension,
            "A": block.numbers(link.A[every, k]),
            "B": block.numbers(link.B[every, k]),
        }
        for k, dimension in enumerate(link.dimensions)
    ]


def anchors(links: Mapping[str, Link]) -> pl.DataFrame:
    """The candidates of all periods."""
    frames = [
        link.anchors.select(pl.lit(period).alias("period"), pl.all())
        for period, link in links.items()
        if link.anchors.height
    ]
    found = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
    return found.select([name for name in _ANCHORS if name in found.columns])
