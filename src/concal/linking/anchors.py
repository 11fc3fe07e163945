"""Which items can carry a link: candidates, the R-hat screen, weights, and a record of every decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from concal.calibration.result import Calibration
from concal.errors import LinkError, first_few
from concal.linking.criteria import Array
from concal.linking.stored import Chosen, StoredAnchors
from concal.response import ResponseModel


@dataclass(frozen=True)
class SourceGroup:
    """One item group as linking sees it: counts, the worst R-hat of each item, and where to get its draws.

    `draws` gives xi (draws, items, parameters). It is called while the group's dimension is linked and not before, so
    that of a large period only one dimension is ever in memory.
    """

    name: str
    dimension: str
    model: ResponseModel
    item_ids: tuple[str, ...]
    draws: Callable[[], npt.NDArray[np.floating]]
    n_responses: npt.NDArray[np.int64]
    worst_rhat: Array


@dataclass(frozen=True)
class Source:
    """One side of a link: a period on its own metric, a linked period, or the consensus."""

    name: str
    dimensions: tuple[str, ...]
    n_draws: int
    groups: tuple[SourceGroup, ...]


@dataclass(frozen=True)
class Side:
    """A source with the draws of one dimension at hand: xi (draws, items, parameters) by position of the group.

    `draws` says which of them are used, in which order.
    """

    source: Source
    xi: Mapping[int, npt.NDArray[np.floating]]
    draws: npt.NDArray[np.int64]

    def take(self, which: npt.NDArray[np.int64]) -> Side:
        """The same with some of the draws."""
        return replace(self, draws=self.draws[which])


def draws_of(source: Source, places: npt.NDArray[np.int64]) -> Side:
    """The source with all draws of the groups that the candidates at `places` are in."""
    xi = {int(g): source.groups[g].draws() for g in np.unique(places[:, 0])}
    return Side(source, xi, np.arange(next(iter(xi.values())).shape[0]))


def evenly(n: int, wanted: int) -> npt.NDArray[np.int64]:
    """So many of n draws, evenly spread over the chains; all of them where there are no more."""
    return np.linspace(0, n - 1, min(n, wanted)).round().astype(np.int64)


GroupXi = Callable[[str], npt.NDArray[np.float32]]
"""Draws of a group by its name, (chain, draw, item, parameter)."""


def period_source(calibration: Calibration, xi: GroupXi | None = None) -> Source:
    """A period on its own metric; `xi` where the calibration came without its draws."""
    of = xi or (lambda name: calibration.groups[name].xi)

    def draws(name: str) -> npt.NDArray[np.float32]:
        found = of(name)
        return found.reshape(-1, *found.shape[2:])

    groups = (
        SourceGroup(
            g.name, g.dimension, g.model, g.item_ids, partial(draws, name), np.asarray(g.n_responses), g.worst_rhat
        )
        for name, g in calibration.groups.items()
    )
    return Source(calibration.period, calibration.dimensions, calibration.n_draws, tuple(groups))


@dataclass(frozen=True)
class Candidates:
    """The items of one dimension seen on both sides, sorted by id, and what became of each.

    `place_ref`, `place_foc` are (group, item) positions in the two sources; `dropped_by` is "" while an anchor is
    kept, else "responses", "rhat" or "purification". `round`, `residual` and `drift_probability` belong to
    purification: by the score the residual is standardised, in the paper's rule it is d_ref - (A d + B).
    """

    dimension: str
    item_ids: tuple[str, ...]
    groups: tuple[str, ...]
    place_ref: npt.NDArray[np.int64]
    place_foc: npt.NDArray[np.int64]
    n_ref: npt.NDArray[np.int64]
    n_foc: npt.NDArray[np.int64]
    dropped_by: npt.NDArray[np.str_]
    round: npt.NDArray[np.int64]
    residual: Array
    drift_probability: Array
    unknown_rhat: int = 0  # candidates that passed the screen because a side has no R-hat for them

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Anchors still in use."""
        return np.asarray(self.dropped_by == "")

    @property
    def n_kept(self) -> int:
        """How many."""
        return int(self.kept.sum())

    def weights(self, rule: str) -> Array:
        """Weights of the kept anchors by a rule of `anchor_weights`, zero for the others, (candidates,)."""
        kept, omega = self.kept, np.zeros(len(self.item_ids))
        omega[kept] = anchor_weights(self.n_ref[kept], self.n_foc[kept], rule)
        return omega


def find_anchors(foc: Source, ref: Source, dimension: str, max_rhat: float) -> Candidates:
    """Items of a dimension that both sides have, screened: no responses on a side, or an R-hat above `max_rhat`."""
    seen_ref = _places(ref, dimension)
    seen_foc = _places(foc, dimension)
    items = sorted(seen_ref.keys() & seen_foc.keys())
    place_ref = np.array([seen_ref[i] for i in items], dtype=np.int64).reshape(-1, 2)
    place_foc = np.array([seen_foc[i] for i in items], dtype=np.int64).reshape(-1, 2)
    n_ref, n_foc = _gather(ref, "n_responses", place_ref), _gather(foc, "n_responses", place_foc)
    rhat = np.stack([_gather(ref, "worst_rhat", place_ref), _gather(foc, "worst_rhat", place_foc)])
    worst = np.fmax(*rhat)
    dropped = np.where(np.minimum(n_ref, n_foc) <= 0, "responses", np.where(worst > max_rhat, "rhat", ""))
    return Candidates(
        dimension,
        tuple(items),
        tuple(foc.groups[g].name for g, _ in place_foc),
        place_ref,
        place_foc,
        n_ref.astype(np.int64),
        n_foc.astype(np.int64),
        dropped.astype("U12"),
        np.zeros(len(items), dtype=np.int64),
        np.full(len(items), np.nan),
        np.full(len(items), np.nan),
        int((np.isnan(rhat).any(axis=0) & (dropped == "")).sum()),
    )


def _places(source: Source, dimension: str) -> dict[str, tuple[int, int]]:
    return {
        item: (g, i)
        for g, group in enumerate(source.groups)
        if group.dimension == dimension
        for i, item in enumerate(group.item_ids)
    }


def _gather(source: Source, name: str, places: npt.NDArray[np.int64]) -> Array:
    values = np.zeros(len(places))
    for g, group in enumerate(source.groups):
        mine = places[:, 0] == g
        values[mine] = getattr(group, name)[places[mine, 1]]
    return values


def anchor_weights(n_ref: npt.ArrayLike, n_foc: npt.ArrayLike, weights: str) -> Array:
    r"""Weights with mean 1: equal ("unit"), or by the responses an anchor had on the two sides.

    "counts" is :math:`n_j^{ref} + n_j`, "harmonic" :math:`n_j^{ref}n_j/(n_j^{ref} + n_j)`. The paper makes weights
    proportional to the number of responses an anchor was calibrated on; "counts" takes that as the plain sum.
    The variance of the difference of two independent curves is about 1/n_ref + 1/n_foc; "harmonic" is its inverse, so
    a thousand responses on one side do not make up for five on the other.
    """
    n_ref, n_foc = np.asarray(n_ref, dtype=np.float64), np.asarray(n_foc, dtype=np.float64)
    if weights == "unit":
        return np.ones_like(n_ref)
    omega = n_ref + n_foc
    if weights == "harmonic":
        omega = n_ref * n_foc / omega
    return np.asarray(omega / omega.mean())


def locations(side: Side, places: npt.NDArray[np.int64]) -> Array:
    """Draws of d of the items at `places`, (draws, items)."""
    values = np.empty((side.draws.size, len(places)))
    for g, xi in side.xi.items():
        mine = np.flatnonzero(places[:, 0] == g)
        values[:, mine] = xi[:, :, 0][np.ix_(side.draws, places[mine, 1])]
    return values


def mean_locations(side: Side, places: npt.NDArray[np.int64]) -> Array:
    """Posterior-mean d of the items at `places`, over all draws there are."""
    values = np.empty(len(places))
    for g, xi in side.xi.items():
        mine = np.flatnonzero(places[:, 0] == g)
        values[mine] = xi[:, places[mine, 1], 0].mean(axis=0, dtype=np.float64)
    return values


def anchor_blocks(
    foc: Side, ref: Side, candidates: Candidates, omega: Array
) -> tuple[list[StoredAnchors], npt.NDArray[np.int64]]:
    """The kept anchors' draws by pair of groups, and the candidates' positions in the order of the blocks.

    `omega` has one weight per candidate. Values that are not finite are a `LinkError`.
    """
    kept = np.flatnonzero(candidates.kept)
    pairs = sorted({(int(candidates.place_ref[k, 0]), int(candidates.place_foc[k, 0])) for k in kept})
    blocks, order = [], []
    for g_ref, g_foc in pairs:
        mine = kept[(candidates.place_ref[kept, 0] == g_ref) & (candidates.place_foc[kept, 0] == g_foc)]
        sides = []
        for side, g, places in ((ref, g_ref, candidates.place_ref), (foc, g_foc, candidates.place_foc)):
            sides.append(Chosen(side.xi[g], side.draws, places[mine, 1]))
            _refuse_bad(sides[-1], [candidates.item_ids[k] for k in mine], side.source.name)
        models = ref.source.groups[g_ref].model, foc.source.groups[g_foc].model
        blocks.append(StoredAnchors(*models, sides[0], sides[1], omega[mine]))
        order.append(mine)
    return blocks, np.concatenate(order) if order else np.zeros(0, dtype=np.int64)


def _refuse_bad(chosen: Chosen, item_ids: Sequence[str], name: str) -> None:
    good = [np.isfinite(xi).all(axis=(0, 2)) & (np.abs(xi[:, :, 1]) < 50.0).all(axis=0) for xi in chosen.blocks()]
    bad = np.flatnonzero(~np.concatenate(good))
    if bad.size:
        which = [item_ids[int(k)] for k in bad]
        raise LinkError(
            f"draws of anchors in {name!r} are not finite or have impossible discriminations: {first_few(which)}; "
            "take these items out or calibrate the period again"
        )
