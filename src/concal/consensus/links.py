"""Links of the method in force, with the spread of the linked draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from concal import metric
from concal.linking.result import Link


def constants(table: pl.DataFrame, period: str, dimension: str) -> tuple[float, float]:
    """(A, B) of a period and dimension at the mean, from `Consensus.links`."""
    row = table.row(by_predicate=(pl.col("period") == period) & (pl.col("dimension") == dimension), named=True)
    return row["A_mean"], row["B_mean"]


def links_in_force(links: Mapping[str, Link], table: pl.DataFrame) -> dict[str, Link]:
    """The periods' links with their draws moved so that their means are those a consensus ended with.

    A period's draws and those of its own link belong together draw by draw, and that dependence is what the
    uncertainty of its abilities rests on; where the period lies is the consensus' to say.

    Parameters
    ----------
    links : dict of period -> Link
    table : polars DataFrame
        `Consensus.links`.
    """
    return {period: _placed(link, table) for period, link in links.items()}


def _placed(link: Link, table: pl.DataFrame) -> Link:
    found = [constants(table, link.period, dimension) for dimension in link.dimensions]
    wanted = metric.Constants(*np.array(found, dtype=np.float64).T)
    own = metric.Constants(link.A.mean(axis=0), link.B.mean(axis=0))
    moved = metric.compose(metric.compose(wanted, metric.invert(own)), metric.Constants(link.A, link.B))
    return replace(link, A=moved.A, B=moved.B)
