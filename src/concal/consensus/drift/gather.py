"""All factors of a group on the reference metric, at the links in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.consensus.factors.period import Placed
from concal.consensus.result import GroupConsensus

Array = npt.NDArray[np.float64]
InForce = Mapping[tuple[str, str], tuple[float, float]]
"""(A, B) by period and dimension."""


def in_force(links: pl.DataFrame) -> InForce:
    """(A, B) at the mean, from `Consensus.links`."""
    return {(r["period"], r["dimension"]): (r["A_mean"], r["B_mean"]) for r in links.iter_rows(named=True)}


@dataclass(frozen=True)
class Gathered:
    """Factors of one group, period by period.

    Attributes
    ----------
    Q, h : (factors, p, p), (factors, p)
    mean, sd : (factors, p)
        The period's own posterior of xi.
    item : (factors,)
        Rows of their items in the consensus.
    period : (factors,)
    n_responses : (factors,) int64
    A, B : (factors,)
        Of their periods.
    """

    Q: Array
    h: Array
    mean: Array
    sd: Array
    item: npt.NDArray[np.intp]
    period: npt.NDArray[np.intp]
    n_responses: npt.NDArray[np.int64]
    A: Array
    B: Array


def gather(placed: Sequence[Placed], known: GroupConsensus, links: InForce) -> Gathered | None:
    """Factors of the items that had responses, in the order of the periods; None if there are none."""
    place = {item: j for j, item in enumerate(known.item_ids)}
    parts = []
    for m, period in enumerate(placed):
        group = period.factors.groups.get(known.name)
        if group is None or group.model != known.model:
            continue
        seen = np.flatnonzero(group.seen)
        rows = np.array([place[group.item_ids[j]] for j in seen], dtype=np.intp)
        A, B = links[period.period, known.dimension]
        Q, h = metric.move_factor(group.Q[seen], group.h[seen], A, B)
        mean = metric.move_items(group.mean[seen], A, B)
        spread = metric.move_item_covariance(group.covariance[seen], A)
        sd = np.sqrt(np.diagonal(spread, axis1=1, axis2=2))
        every = np.ones(seen.size)
        parts.append((Q, h, mean, sd, rows, np.full(seen.size, m), group.n_responses[seen], A * every, B * every))
    if not parts:
        return None
    return Gathered(*(np.concatenate(column) for column in zip(*parts, strict=True)))
