"""Anchors whose draws stay where they are: of a large period some are taken at a time, and they are never copied whole.

Draws are most of the memory a link may use. A period of 24,000 items has 0.3 GB of them, and a link looks at two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.linking.criteria import Anchors, Array
from concal.response import ResponseModel

ITEMS_AT_A_TIME = 1024


class Chosen(NamedTuple):
    """Some items of a group in some draws: xi (all draws, all items, parameters), and which of them."""

    xi: npt.NDArray[np.floating]
    draws: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]

    def take(self, draws: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.floating]:
        """Some of the draws, (draws, items, parameters)."""
        return self.xi[np.ix_(self.draws[draws], self.items)]

    def at(self, k: int) -> npt.NDArray[np.floating]:
        """One coordinate, (draws, items)."""
        return self.xi[:, :, k][np.ix_(self.draws, self.items)]

    def blocks(self) -> Iterator[npt.NDArray[np.floating]]:
        """All draws, some items at a time."""
        for start in range(0, self.items.size, ITEMS_AT_A_TIME):
            yield self.xi[np.ix_(self.draws, self.items[start : start + ITEMS_AT_A_TIME])]

    def mean(self) -> Array:
        """Posterior means as a single draw, (1, items, parameters)."""
        return np.concatenate([xi.mean(axis=0, keepdims=True, dtype=np.float64) for xi in self.blocks()], axis=1)


@dataclass(frozen=True)
class StoredAnchors:
    """`Anchors` that take their draws when they are used."""

    ref_model: ResponseModel
    foc_model: ResponseModel
    ref: Chosen
    foc: Chosen
    omega: Array

    @property
    def n_draws(self) -> int:
        """Draws."""
        return int(self.ref.draws.size)

    def take(self, draws: slice | npt.NDArray[np.int64]) -> Anchors:
        """Some of the draws."""
        return Anchors(self.ref_model, self.foc_model, self.ref.take(draws), self.foc.take(draws), self.omega)

    def ref_at(self, k: int) -> npt.NDArray[np.floating]:
        """Coordinate k of xi on the reference metric, (draws, anchors)."""
        return self.ref.at(k)

    def foc_at(self, k: int) -> npt.NDArray[np.floating]:
        """Coordinate k of xi on the period's own metric, (draws, anchors)."""
        return self.foc.at(k)

    @cached_property
    def mean(self) -> Anchors:
        """The posterior means as a single draw, float64."""
        return Anchors(self.ref_model, self.foc_model, self.ref.mean(), self.foc.mean(), self.omega)


Block = Anchors | StoredAnchors
"""Anchors of one pair of item groups, draw by draw, wherever their draws are."""
