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
from concal.combine.factors import GroupFactors
from concal.combine.gaussian import inverse, symmetric, times
from concal.combine.newton import Mode
from concal.combine.posterior import JointPosterior
from concal.combine.summary import GroupSummary, PeriodSummary

Array = npt.NDArray[np.float64]
BLOCK = 1024


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
    assert own.curvature is not None
    n, p, rows = pairs.size, group.p, group.row[pairs]
    cavity, shift = _cavities(group, mode, name, pairs, link)
    G, g = cavity + base.Q[pairs], shift + base.h[pairs]
    mean, covariance, fine = np.zeros((n, p)), np.zeros((n, p, p)), np.zeros(n, dtype=np.bool_)
    posterior = own.own_mean[rows], own.own_precision[rows], own.curvature[rows]

    def work(start: int) -> None:
        part = slice(start, start + BLOCK)
        given = (np.ascontiguousarray(x[part]) for x in (*posterior, G, g))
        curved_moments(*given, mean[part], covariance[part], fine[part])

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        list(pool.map(work, range(0, n, BLOCK)))
    k = np.flatnonzero(fine)
    tilted = inverse(covariance[k])
    Q[pairs[k]] = tilted - cavity[k]
    h[pairs[k]] = times(tilted, mean[k]) - shift[k]
    return fine


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
