r"""Refit factors where the consensus lies (expectation propagation).

A Gaussian fitted to a period's whole posterior of an item is not the best Gaussian factor where the consensus lies,
because that posterior is curved and skewed (`concal.combine.curved`). The *cavity* is the consensus without the
period's factor. Cavity times curved factor has moments (mean, covariance) that are computed by quadrature; the
factor becomes what makes cavity times Gaussian factor have the same,

.. math:: Q = \mathrm{Cov}^{-1} - P_{cavity}, \qquad h = \mathrm{Cov}^{-1}\,\mathrm{mean} - s_{cavity} .

An item seen in one period alone keeps its factor: the curved density has the mean and covariance of the Gaussian one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import cpu_count

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.combine.curved import curved_moments
from concal.combine.factors import GroupFactors, sum_by_item
from concal.combine.gaussian import inverse, relative_eigenvalues, symmetric, times
from concal.combine.newton import Mode
from concal.combine.posterior import JointPosterior
from concal.combine.summary import GroupSummary, PeriodSummary

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
BLOCK = 1024
LEAST = 0.3
"""Share of its information that refitting leaves an item at least."""

LARGEST_CHANGE = 1.5
"""Largest change of a variance by the last pass: it corrects by a few percent, or the quadrature failed."""

STEEPEST = 1.25
"""Largest kappa / omega: information about d grows at most with this power of a^2; more is noise in a small share."""

WIDEST = 2.0
"""Variance of the consensus, in units of the period's own in any direction, up to which a factor is refitted. The shape
of a posterior is known where its draws lie: that of a period whose small Sigma holds items tightly says nothing about
the places a wider consensus reaches."""


@dataclass(frozen=True)
class Tilted:
    """The posterior with refitted factors; `table` says for every item and period whether its factor was refitted."""

    posterior: JointPosterior
    table: pl.DataFrame


def tilt_factors(
    posterior: JointPosterior, base: JointPosterior, mode: Mode, summaries: Sequence[PeriodSummary]
) -> Tilted:
    """One pass over all factors, every cavity taken at the mode.

    `base` holds the factors as they were before any tilting: curvature multiplies them.
    """
    groups, frames = {}, []
    for name, group in posterior.groups.items():
        Q, h = group.Q.copy(), group.h.copy()
        for m, summary in enumerate(summaries):
            pairs = np.flatnonzero((group.period == m) & group.active[group.item])
            own = summary.groups.get(name)
            if own is None or own.own_precision is None or own.h.shape[1] != group.p or not pairs.size:
                continue
            link = mode.theta[posterior.layout.link(group.dimension)].reshape(-1, 2)[m]
            fine = _tilt_period(group, base.groups[name], mode, name, pairs, link, own, Q, h)
            frames.append(
                pl.DataFrame(
                    {
                        "item_id": [group.item_ids[j] for j in group.item[pairs]],
                        "group": [name] * pairs.size,
                        "period": [summary.period] * pairs.size,
                        "tilted": fine,
                    }
                )
            )
        u = mode.theta[posterior.layout.link(group.dimension)].reshape(-1, 2)[:, 0]
        part = _damping(group, base.groups[name].Q, Q, u)[group.item]
        Q = base.groups[name].Q + part[:, None, None] * (Q - base.groups[name].Q)
        h = base.groups[name].h + part[:, None] * (h - base.groups[name].h)
        groups[name] = replace(group, Q=symmetric(Q), h=h)
    table = pl.concat(frames) if frames else pl.DataFrame()
    return Tilted(replace(posterior, groups=groups), table)


def _tilt_period(
    group: GroupFactors,
    base: GroupFactors,
    mode: Mode,
    name: str,
    pairs: npt.NDArray[np.intp],
    link: Array,
    own: GroupSummary,
    Q: Array,
    h: Array,
) -> npt.NDArray[np.bool_]:
    """Refit the factors of one period in place; which of them could be."""
    assert own.own_mean is not None
    assert own.own_precision is not None
    n, rows = pairs.size, group.row[pairs]
    cavity, shift = _cavities(group, mode, name, pairs, link)
    G, g = cavity + base.Q[pairs], shift + base.h[pairs]
    alone = np.arange(n + 1, dtype=np.int64)
    mean, covariance, fine = _moments(alone, own.own_mean[rows], own.own_precision[rows], shapes(own, rows), G, g)
    fine &= _inside(G, own.own_precision[rows])
    k = np.flatnonzero(fine)
    tilted = inverse(covariance[k])
    Q[pairs[k]] = tilted - cavity[k]
    h[pairs[k]] = times(tilted, mean[k]) - shift[k]
    return fine


def shapes(own: GroupSummary, rows: npt.NDArray[np.intp]) -> Array:
    """Shapes of some items' posteriors as `curved_moments` reads them: omega is Q_dd over the posterior's precision.

    Only guided items have priors that matter beside their responses; for others omega is one.
    """
    assert own.own_precision is not None
    assert own.curvature is not None
    omega = np.ones(rows.size)
    if own.guided:
        share = own.Q[rows, 0, 0] / own.own_precision[rows, 0, 0]
        omega = np.clip(np.maximum(share, np.abs(own.curvature[rows, 0]) / STEEPEST), 1e-3, 1.0)
    return np.column_stack([own.curvature[rows], omega])


def _moments(
    start: Index, mean: Array, precision: Array, shape: Array, G: Array, g: Array
) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """`curved_moments` of many items, a block at a time on all cores."""
    n, p = g.shape
    out = np.zeros((n, p)), np.zeros((n, p, p)), np.zeros(n, dtype=np.bool_)

    def work(first: int) -> None:
        items = slice(first, min(first + BLOCK, n))
        rows = slice(start[items.start], start[items.stop])
        densities = (np.ascontiguousarray(x[rows]) for x in (mean, precision, shape))
        places = start[items.start : items.stop + 1] - start[items.start]
        gaussian = np.ascontiguousarray(G[items]), np.ascontiguousarray(g[items])
        curved_moments(places, *densities, *gaussian, *(x[items] for x in out))

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        list(pool.map(work, range(0, n, BLOCK)))
    found, covariance, fine = out
    fine &= np.isfinite(found).all(axis=1) & np.isfinite(covariance).all(axis=(1, 2))
    covariance[~fine] = np.eye(p)
    fine &= np.linalg.eigvalsh(covariance)[:, 0] > 0.0
    return found, covariance, fine


def tilt_together(
    posterior: JointPosterior, base: JointPosterior, mode: Mode, summaries: Sequence[PeriodSummary]
) -> JointPosterior:
    """The last pass: all curved factors of an item at once.

    Each factor was refitted with the others as Gaussians, which leaves out what two curved factors do together: an
    item's d spreads more than any of them says alone. Cavity is now the population at the mode; what the moments of the
    whole product lack is shared out among the item's factors.
    """
    groups = {}
    for name, group in posterior.groups.items():
        links = mode.theta[posterior.layout.link(group.dimension)].reshape(-1, 2)[group.period]
        E, e = np.ones((group.n_pairs, group.p)), np.zeros((group.n_pairs, group.p))
        E[:, 0], e[:, 0], e[:, 1] = np.exp(links[:, 0]), links[:, 1], -links[:, 0]  # xi = E x + e
        curved = _on_reference(name, group, summaries, E, e)
        if curved is None:
            continue
        P = inverse(np.where(group.active[:, None, None], mode.C[name], np.eye(group.p)))  # idle items have none
        s = times(P, mode.xi[name])
        change = group.weight[:, None, None] * (base.groups[name].Q - group.Q) / (E[:, :, None] * E[:, None, :])
        pulled = group.weight[:, None] * (base.groups[name].h - group.h) / E + times(change, e)
        G, g = P + sum_by_item(group, change), s + sum_by_item(group, pulled)
        mean, covariance, fine = _moments(group.start, *curved, G, g)
        covariance[~fine] = np.eye(group.p)
        precision = inverse(covariance)
        fine &= group.active & (np.diff(group.start) > 1) & _alike(precision, P)
        weight = np.maximum(sum_by_item(group, group.weight), 1e-12)
        more = np.where(fine[:, None, None], precision - P, 0.0) / weight[:, None, None]
        pull = np.where(fine[:, None], times(precision, mean) - s, 0.0) / weight[:, None]
        more, pull = more[group.item], pull[group.item]
        Q = group.Q + E[:, :, None] * more * E[:, None, :]
        groups[name] = replace(group, Q=symmetric(Q), h=group.h + E * (pull - times(more, e)))
    return replace(posterior, groups={**posterior.groups, **groups})


def _on_reference(
    name: str, group: GroupFactors, summaries: Sequence[PeriodSummary], E: Array, e: Array
) -> tuple[Array, Array, Array] | None:
    """Periods' posteriors and shapes of every factor on the reference metric; None when no factor has a shape."""
    mean, precision = np.zeros((group.n_pairs, group.p)), np.zeros((group.n_pairs, group.p, group.p))
    precision[:], shape, any_shape = np.eye(group.p), np.tile([0.0, 0.0, 0.0, 1.0], (group.n_pairs, 1)), False
    for m, summary in enumerate(summaries):
        own, pairs = summary.groups.get(name), np.flatnonzero(group.period == m)
        if own is None or own.own_precision is None or own.h.shape[1] != group.p or not pairs.size:
            continue
        assert own.own_mean is not None
        rows, any_shape = group.row[pairs], True
        mean[pairs] = E[pairs] * own.own_mean[rows] + e[pairs]
        precision[pairs] = own.own_precision[rows] / (E[pairs][:, :, None] * E[pairs][:, None, :])
        shape[pairs] = shapes(own, rows)
    return (mean, precision, shape) if any_shape else None


def _damping(group: GroupFactors, base: Array, tilted: Array, u: Array) -> Array:
    """How much of its change each item keeps: so much that it never loses more than 1 - LEAST of its information.

    A refitted factor may have negative precision (where periods disagree about d, a smaller a explains it). That is
    right near the consensus it was made for, and an invitation to run away from it when hardly anything is left.
    """
    E = np.ones((group.n_pairs, group.p))
    E[:, 0] = np.exp(-u[group.period])
    before, after = (sum_by_item(group, E[:, :, None] * Q * E[:, None, :]) for Q in (base, tilted))
    part = np.ones(group.n_items)
    k = np.flatnonzero(np.linalg.eigvalsh(symmetric(before))[:, 0] > 0.0)
    left = relative_eigenvalues(after[k], symmetric(before[k]))[:, 0]
    part[k] = np.where(left < LEAST, (1.0 - LEAST) / np.maximum(1.0 - left, 1.0 - LEAST), 1.0)
    return part


def _alike(one: Array, other: Array) -> npt.NDArray[np.bool_]:
    """Whether two precisions are within a factor LARGEST_CHANGE of each other in every direction."""
    ratio = relative_eigenvalues(one, other)
    return np.asarray((ratio[:, 0] * LARGEST_CHANGE > 1.0) & (ratio[:, -1] < LARGEST_CHANGE))


def _inside(G: Array, own: Array) -> npt.NDArray[np.bool_]:
    """Whether the consensus (precision G, factor included) lies where the period's posterior (precision `own`) does."""
    return np.asarray(relative_eigenvalues(G, own)[:, 0] * WIDEST > 1.0)


def _cavities(
    group: GroupFactors, mode: Mode, name: str, pairs: npt.NDArray[np.intp], link: Array
) -> tuple[Array, Array]:
    """Consensus at the mode without each factor, on the period's own metric: precision, and precision times mean."""
    items, w = group.item[pairs], group.weight[pairs]
    u, B = float(link[0]), float(link[1])
    E, e = np.ones(group.p), np.zeros(group.p)
    E[0], e[0], e[1] = np.exp(u), B, -u  # xi = E x + e
    P = inverse(mode.C[name][items])
    s = times(P, mode.xi[name][items])
    precision = E[:, None] * P * E - w[:, None, None] * group.Q[pairs]
    return precision, E * (s - P @ e) - w[:, None] * group.h[pairs]
