"""Where a period with too few anchors in the reference links to: the consensus, or another linked period."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from concal.calibration.known import KnownItems
from concal.errors import LinkError, counted
from concal.linking.anchors import Candidates, Source, SourceGroup, find_anchors
from concal.linking.result import Link
from concal.linking.transform import linked_draws

Array = npt.NDArray[np.float64]


class ConsensusGroup(KnownItems, Protocol):
    """What linking reads of a consensus group."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> npt.NDArray[np.str_]: ...  # noqa: D102
    @property
    def n_responses(self) -> npt.NDArray[np.int64]: ...  # noqa: D102


class ConsensusLike(Protocol):
    """What linking reads of a consensus."""

    @property
    def groups(self) -> Mapping[str, ConsensusGroup]: ...  # noqa: D102


SoFar = Callable[[], Mapping[str, ConsensusGroup]]
"""The consensus so far by item group, asked for only if a link has to go through it."""
Others = Callable[[], Iterable[tuple[Source, Link]]]
"""Linked periods, read one at a time and only if a link has to go through them."""


@dataclass(frozen=True)
class Route:
    """How one dimension of a period reaches the reference metric."""

    target: Source
    candidates: Candidates
    path: tuple[str, ...]
    hops: float  # sum over the steps of 1 / anchors: what the link's variance grows with
    link: Link | None = None  # takes the target to the reference metric; None: it is there
    warnings: tuple[str, ...] = ()

    @property
    def placed_target(self) -> Source:
        """The target on the reference metric."""
        return self.target if self.link is None else linked_source(self.target, self.link)


def consensus_source(known: Mapping[str, ConsensusGroup], n_draws: int, seed: int) -> Source:
    """The consensus items that responses support, as draws of their Gaussian posteriors on the reference metric."""
    groups = []
    for position, name in enumerate(sorted(known)):
        group = known[name]
        real = np.flatnonzero(np.asarray(group.source) == "consensus")
        p = group.mean.shape[1]
        rng = np.random.default_rng([seed, position])
        root = np.linalg.cholesky(group.covariance[real]) if real.size else np.zeros((0, p, p))
        noise = rng.standard_normal((n_draws, real.size, p))
        xi = group.mean[real] + np.einsum("nij,snj->sni", root, noise)
        draws = partial(np.asarray, xi)
        groups.append(
            SourceGroup(
                group.name,
                group.dimension,
                group.model,
                tuple(group.item_ids[i] for i in real),
                draws,
                np.asarray(group.n_responses)[real],
                np.ones(real.size),
            )
        )
    dimensions = tuple(dict.fromkeys(group.dimension for group in groups))
    return Source("consensus", dimensions, n_draws, tuple(groups))


def linked_source(source: Source, link: Link) -> Source:
    """Another period on the reference metric, draw by draw."""
    return replace(source, groups=tuple(replace(group, draws=partial(_linked, group, link)) for group in source.groups))


def _linked(group: SourceGroup, link: Link) -> Array:
    return linked_draws(group.draws(), link, group.dimension)


def find_route(
    period: Source,
    reference: Source,
    dimension: str,
    *,
    max_rhat: float,
    min_anchors: int,
    consensus: Callable[[], Source] | None,
    others: Others,
) -> Route:
    """The reference itself if it has enough anchors; else the consensus; else the best chain.

    The best chain has the smallest sum of 1 / anchors over its steps. Where no way reaches `min_anchors`, the one
    with most anchors is taken with a warning; fewer than two anchors everywhere is a `LinkError` with the counts.
    """
    direct = find_anchors(period, reference, dimension, max_rhat)
    n = direct.n_kept
    straight = Route(reference, direct, (period.name, reference.name), 1.0 / max(n, 1))
    if n >= min_anchors:
        return straight
    routes = [straight]
    if consensus is not None:
        through = consensus()
        found = find_anchors(period, through, dimension, max_rhat)
        path = (period.name, "consensus", reference.name)
        routes.append(Route(through, found, path, 1.0 / max(found.n_kept, 1)))
        if found.n_kept >= min_anchors:
            return routes[-1]
    chains = _chains(period, reference, dimension, max_rhat, others)
    enough = [r for r in chains if r.candidates.n_kept >= min_anchors]
    if enough:
        return min(enough, key=lambda r: (r.hops, r.path))
    routes.extend(chains)
    best = max(routes, key=lambda r: r.candidates.n_kept)
    if best.candidates.n_kept < 2:
        raise LinkError(_no_anchors(period, dimension, max_rhat, routes))
    text = (
        f"{dimension}: only {counted(best.candidates.n_kept, 'anchor')} ({' -> '.join(best.path)}), fewer than "
        f"min_anchors = {min_anchors}, and no other way has more"
    )
    return replace(best, warnings=(text,))


def _chains(period: Source, reference: Source, dimension: str, max_rhat: float, others: Others) -> list[Route]:
    routes = []
    for own, link in others():
        if own.name in (period.name, reference.name) or dimension not in link.dimensions:
            continue
        found = find_anchors(period, own, dimension, max_rhat)
        if not found.item_ids:
            continue
        rest = link.path.get(dimension, (own.name, reference.name))
        hops = 1.0 / max(found.n_kept, 1) + _hops(link, dimension)
        routes.append(Route(own, found, (period.name, *rest), hops, link))
    return sorted(routes, key=lambda route: route.target.name)


def _hops(link: Link, dimension: str) -> float:
    table = link.diagnostics
    if table.height and "hops" in table.columns:
        row = table.filter(table["dimension"] == dimension)
        if row.height:
            return float(row["hops"][0])
    return 0.0


def _no_anchors(period: Source, dimension: str, max_rhat: float, routes: list[Route]) -> str:
    parts, unsure = [], 0
    for route in routes:
        c = route.candidates
        rhat, empty = int((c.dropped_by == "rhat").sum()), int((c.dropped_by == "responses").sum())
        lost = f" ({rhat} dropped by R-hat > {max_rhat}, {empty} without responses)" if rhat or empty else ""
        parts.append(f"{route.target.name}: {len(c.item_ids)} shared, {c.n_kept} usable{lost}")
        unsure = max(unsure, rhat)
    remedy = (
        "Run longer chains (--max-sweeps, a smaller calibration.max_rhat)"
        if unsure > 1
        else "Check that item ids match between periods, or add a period that shares items with both"
    )
    return (
        f"period {period.name!r} cannot be linked in dimension {dimension!r}: it needs at least 2 anchors; "
        f"{'; '.join(parts)}. {remedy}"
    )
