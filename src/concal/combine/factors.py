"""Likelihood factors of all periods, arranged by item, for the joint consensus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.combine.gaussian import symmetric, times
from concal.combine.specification import GroupTotals
from concal.combine.summary import GroupSummary, PeriodSummary

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupFactors:
    """Factors of one group, item after item (compressed rows).

    Attributes
    ----------
    name : str
    dimension : int
        Index of its latent dimension.
    p : int
    item_ids : tuple of str
    start : (items + 1,) int64
        Pairs of item j are start[j] .. start[j + 1].
    period, row : (pairs,) int64
        Which period, and which row of that period's summary.
    Q, h : (pairs, p, p), (pairs, p)
        Factor on the period's own metric.
    weight, age : (pairs,)
        How much the factor counts for the links, and its age discount alone (they differ for drifting factors).
    X : (items, features)
        Zero rows where the newest formula does not describe the item.
    own_prior : (items,) int64
        0: the group's population; k > 0: row k - 1 of the fixed priors below.
    prior_mean, prior_precision : (k, p), (k, p, p)
        Item-level replacement priors of items outside the newest formula.
    hyperprior : (features, features)
    prior_sd : (p,)
        Scale of the half-t prior on sqrt(diag(Sigma)).
    active : (items,) bool
        Items that enter; the others have no data or are not identified beyond the population.
    """

    name: str
    dimension: int
    p: int
    item_ids: tuple[str, ...]
    start: Index
    period: Index
    row: Index
    Q: Array
    h: Array
    weight: Array
    age: Array
    X: Array
    own_prior: Index
    prior_mean: Array
    prior_precision: Array
    hyperprior: Array
    prior_sd: Array
    active: npt.NDArray[np.bool_]

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.item_ids)

    @property
    def n_pairs(self) -> int:
        """Item-by-period factors."""
        return int(self.period.shape[0])

    @property
    def item(self) -> Index:
        """Item index of every pair."""
        return np.repeat(np.arange(self.n_items, dtype=np.int64), np.diff(self.start))


def arrange_factors(
    summaries: Sequence[PeriodSummary], united: Mapping[str, GroupTotals], weights: Sequence[float]
) -> dict[str, GroupFactors]:
    """Sort every period's factors by item.

    `united` (from the totals) fixes the items, their design rows under the newest formula, and the replacement priors
    of items that formula does not describe.
    """
    dimensions = summaries[0].dimensions
    return {name: _arrange_group(name, total, summaries, weights, dimensions) for name, total in united.items()}


def _arrange_group(
    name: str,
    total: GroupTotals,
    summaries: Sequence[PeriodSummary],
    weights: Sequence[float],
    dimensions: tuple[str, ...],
) -> GroupFactors:
    place = {item: j for j, item in enumerate(total.item_ids)}
    p = len(total.model.parameters)
    newest_seen = np.zeros(len(place), dtype=bool)
    for summary in summaries:
        group = summary.groups.get(name)
        if group is not None and group.model == total.model:
            newest_seen[[place[i] for i, s in zip(group.item_ids, group.seen, strict=True) if s]] = True
    items, periods, rows, Qs, hs = [], [], [], [], []
    for m, summary in enumerate(summaries):
        group = summary.groups.get(name)
        if group is None:
            continue
        index = np.fromiter((place[i] for i in group.item_ids), dtype=np.int64, count=group.n_items)
        Q, h, use = group.Q, group.h, np.asarray(group.seen)
        if group.model != total.model:
            Q, h = _location_factor(group, p)
            use = use & ~newest_seen[index]
        keep = np.flatnonzero(use)
        items.append(index[keep])
        periods.append(np.full(keep.size, m, dtype=np.int64))
        rows.append(keep.astype(np.int64))
        Qs.append(Q[keep])
        hs.append(h[keep])
    item, period = np.concatenate(items), np.concatenate(periods)
    order = np.lexsort((period, item))
    start = np.zeros(len(place) + 1, dtype=np.int64)
    np.cumsum(np.bincount(item, minlength=len(place)), out=start[1:])
    bare = np.asarray(np.isnan(total.X).any(axis=1))
    own = np.zeros(len(place), dtype=np.int64)
    own[bare] = 1 + np.arange(int(bare.sum()))
    latest = next(s.groups[name] for s in reversed(summaries) if name in s.groups)
    return GroupFactors(
        name=name,
        dimension=dimensions.index(total.dimension),
        p=p,
        item_ids=total.item_ids,
        start=start,
        period=period[order],
        row=np.concatenate(rows)[order],
        Q=np.ascontiguousarray(np.concatenate(Qs)[order]),
        h=np.ascontiguousarray(np.concatenate(hs)[order]),
        weight=np.asarray(weights, dtype=np.float64)[period[order]],
        age=np.asarray(weights, dtype=np.float64)[period[order]],
        X=np.where(bare[:, None], 0.0, total.X),
        own_prior=own,
        prior_mean=total.prior_mean[bare],
        prior_precision=total.prior_precision[bare],
        hyperprior=latest.hyperprior,
        prior_sd=np.asarray(total.model.prior.sd, dtype=np.float64),
        active=np.diff(start) > 0,
    )


def _location_factor(group: GroupSummary, p: int) -> tuple[Array, Array]:
    """Factor of (d, log a) alone, from a form with another number of categories: the rest integrated out.

    Under the period's prior; what a guided period was told is in no factor, so there it is the spread of its items.
    """
    n, old = group.n_items, group.h.shape[1]
    Omega, m = group.Omega, group.m
    if group.guided:
        Omega, m = np.repeat(np.linalg.inv(group.sigma)[None], n, axis=0), group.X @ group.b
    Q, h = np.zeros((n, p, p)), np.zeros((n, p))
    Q2, h2 = group.Q[:, :2, :2], group.h[:, :2]
    if old > 2:
        inner = group.Q[:, 2:, 2:] + Omega[:, 2:, 2:]
        cross = group.Q[:, :2, 2:]
        shift = group.h[:, 2:] + times(Omega[:, 2:, 2:], m[:, 2:])
        back = np.linalg.solve(inner, np.concatenate([cross.transpose(0, 2, 1), shift[:, :, None]], axis=2))
        Q2 = symmetric(Q2 - cross @ back[:, :, :2])
        h2 = h2 - times(cross, back[:, :, 2])
    Q[:, :2, :2], h[:, :2] = Q2, h2
    return Q, h


def sum_by_item(group: GroupFactors, values: Array) -> Array:
    """Sum pair values (pairs, ...) over each item's periods, (items, ...)."""
    out = np.zeros((group.n_items, *values.shape[1:]))
    filled = np.flatnonzero(np.diff(group.start) > 0)
    if filled.size:
        out[filled] = np.add.reduceat(values, group.start[filled], axis=0)
    return out


def connected_periods(groups: Mapping[str, GroupFactors], n_periods: int, dimension: int) -> list[list[int]]:
    """Sets of periods that hang together through common items of one dimension; periods without it are left out."""
    parent = list(range(n_periods))

    def root(m: int) -> int:
        while parent[m] != m:
            parent[m] = parent[parent[m]]
            m = parent[m]
        return m

    present: set[int] = set()
    for group in groups.values():
        if group.dimension != dimension or group.n_pairs == 0:
            continue
        present.update(int(m) for m in np.unique(group.period))
        same = np.flatnonzero(np.diff(group.item) == 0)
        met = np.zeros((n_periods, n_periods), dtype=bool)
        met[group.period[same], group.period[same + 1]] = True
        for a, b in zip(*np.nonzero(met), strict=True):
            parent[root(int(a))] = root(int(b))
    parts: dict[int, list[int]] = {}
    for m in sorted(present):
        parts.setdefault(root(m), []).append(m)
    return list(parts.values())
