"""Links in force: those a consensus ended with, and the periods' draws moved there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from concal import metric
from concal.linking.result import Link

InForce = Mapping[tuple[str, str], tuple[float, float]]
"""(A, B) by period and dimension."""


def in_force(table: pl.DataFrame) -> InForce:
    """(A, B) at the mean, from `Consensus.links`."""
    return {(r["period"], r["dimension"]): (r["A_mean"], r["B_mean"]) for r in table.iter_rows(named=True)}


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
    constants = in_force(table)
    return {period: _placed(link, constants) for period, link in links.items()}


def _placed(link: Link, constants: InForce) -> Link:
    found = [constants[link.period, dimension] for dimension in link.dimensions]
    wanted = metric.Constants(*np.array(found, dtype=np.float64).T)
    own = metric.Constants(link.A.mean(axis=0), link.B.mean(axis=0))
    moved = metric.compose(metric.compose(wanted, metric.invert(own)), metric.Constants(link.A, link.B))
    return replace(link, A=moved.A, B=moved.B)
