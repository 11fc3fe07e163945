"""What the periods say of a group's items, at the links in force; all their factors on the reference metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.consensus.factors.period import GroupFactors, Placed
from concal.consensus.links import InForce
from concal.consensus.result import GroupConsensus

Array = npt.NDArray[np.float64]


class Seen(NamedTuple):
    """Items of a group that had responses in a period: their rows there and in the consensus, and the link in force."""

    period: int
    group: GroupFactors
    own: npt.NDArray[np.intp]
    item: npt.NDArray[np.intp]
    A: float
    B: float


def seen_items(placed: Sequence[Placed], known: GroupConsensus, links: InForce) -> Iterator[Seen]:
    """Period by period; items under another response model than the group's present one are left out."""
    place = {item: j for j, item in enumerate(known.item_ids)}
    for m, period in enumerate(placed):
        group = period.factors.groups.get(known.name)
        if group is not None and group.model == known.model:
            own = np.flatnonzero(group.seen)
            item = np.array([place[group.item_ids[j]] for j in own], dtype=np.intp)
            yield Seen(m, group, own, item, *links[period.period, known.dimension])


@dataclass(frozen=True)
class Gathered:
    """Factors of one group, period by period.

    Attributes
    ----------
    Q, h : (factors, p, p), (factors, p)
    item : (factors,)
        Rows of their items in the consensus.
    period : (factors,)
    n_responses : (factors,) int64
    A, B : (factors,)
        Of their periods.
    """

    Q: Array
    h: Array
    item: npt.NDArray[np.intp]
    period: npt.NDArray[np.intp]
    n_responses: npt.NDArray[np.int64]
    A: Array
    B: Array


def gather(placed: Sequence[Placed], known: GroupConsensus, links: InForce) -> Gathered | None:
    """Factors of the items that had responses, in the order of the periods; None if there are none."""
    parts = []
    for m, group, own, item, A, B in seen_items(placed, known, links):
        Q, h = metric.move_factor(group.Q[own], group.h[own], A, B)
        every = np.ones(own.size)
        parts.append((Q, h, item, np.full(own.size, m), group.n_responses[own], A * every, B * every))
    if not parts:
        return None
    return Gathered(*(np.concatenate(column) for column in zip(*parts, strict=True)))
