"""What each period says about a group's items, at the links in force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.consensus.factors.period import GroupFactors
from concal.consensus.links import in_force
from concal.report.view import View

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """A period's posteriors of the items it has responses to, on the reference metric.

    Attributes
    ----------
    period : str
    factors : GroupFactors
        On the period's own metric.
    rows : (n,) int
        Which of its items.
    places : (n,) int
        Where they stand among the group's items in the consensus.
    A, B : float
        The link in force.
    mean : (n, p), covariance : (n, p, p)
    """

    period: str
    factors: GroupFactors
    rows: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    A: float
    B: float
    mean: Array
    covariance: Array


def seen_items(view: View, group: str) -> Iterator[Seen]:
    """Period by period; periods without responses to the group are left out."""
    place = {item: k for k, item in enumerate(view.consensus.groups[group].item_ids)}
    for placed in view.placed:
        period, own = placed.factors.period, placed.factors.groups.get(group)
        if own is None:
            continue
        rows = np.array([j for j in np.flatnonzero(own.seen) if own.item_ids[j] in place], dtype=np.int64)
        if not rows.size:
            continue
        A, B = in_force(view.consensus.links)[period, own.dimension]
        yield Seen(
            period,
            own,
            rows,
            np.array([place[own.item_ids[j]] for j in rows], dtype=np.int64),
            A,
            B,
            metric.move_items(own.mean[rows], A, B),
            metric.move_item_covariance(own.covariance[rows], A),
        )
