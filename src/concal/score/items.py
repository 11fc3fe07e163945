"""The bank's items as scoring reads them: where each is, how well it is known, and draws of all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.consensus.draws import item_normals, with_noise
from concal.consensus.result import Consensus
from concal.errors import DataError
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
POINTS = 64
"""Points of an item's posterior that `soft` averages over."""
INDEPENDENT_DRAWS = 400
"""Draws of items that have no joint ones: as many as the joint method keeps."""


@dataclass(frozen=True)
class GroupItems:
    """The items of one group, on the reference metric.

    Attributes
    ----------
    name : str
    dim : int
        The dimension they load on.
    model : ResponseModel
    first : int
        Place of the first one among all items.
    mean : (items, p), covariance : (items, p, p)
    draws : (draws, items, p) float32 or None
        Joint draws across all items of the bank.
    """

    name: str
    dim: int
    model: ResponseModel
    first: int
    mean: Array
    covariance: Array
    draws: npt.NDArray[np.float32] | None

    @property
    def n_items(self) -> int:
        """How many."""
        return int(self.mean.shape[0])


@dataclass(frozen=True)
class ScoringItems:
    """All items of a bank, one group after the other.

    Attributes
    ----------
    dimensions : tuple of str
    groups : tuple of GroupItems
    item_ids : tuple of str
    seed : int
        Of independent draws, where there are no joint ones.
    max_score : mapping of item id to number
        What scores of an item are out of, where that was declared.
    """

    dimensions: tuple[str, ...]
    groups: tuple[GroupItems, ...]
    item_ids: tuple[str, ...]
    seed: int
    max_score: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, consensus: Consensus, seed: int, max_score: Mapping[str, float] | None = None) -> ScoringItems:
        """From a bank's posterior."""
        groups: list[GroupItems] = []
        ids: list[str] = []
        for name, g in consensus.groups.items():
            joint = None if consensus.joint is None else consensus.joint[name]
            dim = consensus.dimensions.index(g.dimension)
            groups.append(GroupItems(name, dim, g.model, len(ids), g.mean, g.covariance, joint))
            ids.extend(g.item_ids)
        return cls(tuple(consensus.dimensions), tuple(groups), tuple(ids), seed, max_score or {})

    @property
    def joint(self) -> bool:
        """Whether the draws of the items are joint ones."""
        return all(g.draws is not None for g in self.groups)

    @property
    def draws_kind(self) -> str:
        """What they are called: joint draws, or independent draws."""
        return "joint draws" if self.joint else "independent draws"

    @property
    def n_draws(self) -> int:
        """How many there are."""
        return min(INDEPENDENT_DRAWS if g.draws is None or not self.joint else g.draws.shape[0] for g in self.groups)

    def spread_draws(self, n: int, what: str = "draws") -> npt.NDArray[np.int64]:
        """n of the draws there are, evenly spread over the chains; two at least, and not more than there are."""
        if not 2 <= n <= self.n_draws:
            raise DataError(f"{what} must be from 2 to {self.n_draws}, the {self.draws_kind} there are, not {n}")
        return np.asarray(np.linspace(0, self.n_draws - 1, n).round(), dtype=np.int64)

    @cached_property
    def table(self) -> pl.DataFrame:
        """item_id, group and max_score, in order."""
        names = [g.name for g in self.groups for _ in range(g.n_items)]
        ids = pl.Series("item_id", self.item_ids, dtype=pl.String)
        points = pl.Series("max_score", [self.max_score.get(item) for item in self.item_ids], dtype=pl.Float64)
        return pl.DataFrame([ids, pl.Series("group", names, dtype=pl.String), points])

    @cached_property
    def first_atom(self) -> npt.NDArray[np.int64]:
        """Row of every item's first atom in a table with a row per item and atom, and behind the last their number."""
        counts = [np.full(g.n_items, len(g.model.atoms)) for g in self.groups]
        return np.concatenate([[0], np.cumsum(np.concatenate(counts))])

    def draw(self, s: int, wanted: Sequence[npt.NDArray[np.int64]]) -> list[Array]:
        """Draw s of some items of every group: joint where there are joint draws, independent otherwise.

        An item's independent draws come from a stream of its own, so they do not depend on what else is asked for.
        """
        return [self.group_draw(g, s, items) for g, items in zip(self.groups, wanted, strict=True)]

    def group_draw(self, g: GroupItems, s: int, items: npt.NDArray[np.int64]) -> Array:
        """Draw s of some items of one group."""
        if g.draws is not None:
            return np.asarray(g.draws[s][items], dtype=np.float64)
        if not items.size:
            return np.empty((0, g.mean.shape[1]))
        z = np.stack([self._normals(g, g.first + int(j))[s] for j in items])
        return with_noise(g.mean[items], g.covariance[items], g.model.shared, z)

    def _normals(self, g: GroupItems, item: int) -> Array:
        if item not in self._streams:
            made = item_normals(self.seed, self.item_ids[item], g.name, g.model, INDEPENDENT_DRAWS)
            self._streams[item] = made
        return self._streams[item]

    @cached_property
    def _streams(self) -> dict[int, Array]:
        return {}


def posterior_points(mean: Array, covariance: Array, n: int = POINTS) -> Array:
    """Points (items, n, p) with the mean and covariance of every item's posterior, exactly.

    The same standard points for all items: a scrambled Sobol sequence made normal, each point with its mirror image
    (odd moments vanish) and whitened (second moments are exact).
    """
    p = mean.shape[1]
    root = np.linalg.cholesky(covariance)
    return np.asarray(mean[:, None] + np.einsum("jab,rb->jra", root, _standard_points(n, p)))


@cache
def _standard_points(n: int, p: int) -> Array:
    from scipy.special import ndtri
    from scipy.stats import qmc

    half = ndtri(qmc.Sobol(p, scramble=True, rng=np.random.default_rng(20263)).random(n // 2))
    z = np.concatenate([half, -half])
    white: Array = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / n)).T
    white.flags.writeable = False
    return white
