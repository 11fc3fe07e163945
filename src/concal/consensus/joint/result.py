"""What the chains gave as a consensus: moments of items, draws of all items together, a table of links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.calibration.family import families
from concal.calibration.layout import GroupLayout
from concal.consensus.analytic.consensus import group_consensus
from concal.consensus.analytic.forms import GroupEvidence
from concal.consensus.analytic.population import Population
from concal.consensus.analytic.totals import Totals
from concal.consensus.draws import with_noise
from concal.consensus.factors.population import conditional_covariance
from concal.consensus.gaussian import symmetric
from concal.consensus.joint.arrange import GroupTables
from concal.consensus.joint.sampler import JointDraws
from concal.consensus.result import GroupConsensus

Array = npt.NDArray[np.float64]
_AT_A_TIME = 50  # draws of predicted items made together, in double precision


@dataclass(frozen=True)
class JointSample:
    """What was sampled, from what: evidence by group, factors and layout by part of a group, and the draws.

    `parts` says for every group which of the tables, layouts and draws are its; the first has the items that its form
    in force describes. `suspects` counts the items that hardly count for the links.
    """

    evidence: list[GroupEvidence]
    parts: list[list[int]]
    tables: list[GroupTables]
    layouts: list[GroupLayout]
    draws: JointDraws
    suspects: int
    rng: np.random.Generator

    @cached_property
    def alone(self) -> set[int]:
        """Parts without other strata: their conditional means of beta are means; those of strata are draws."""
        return {family.lead for family in families(self.layouts) if len(family.members) == 1}


def group_result(sample: JointSample, which: int) -> GroupConsensus:
    """Moments over the draws of a group; items nobody answered get the population's prediction.

    The population is that of the group's first part, whose items the form in force describes. A group alone has
    conditional means of beta, and its conditional covariance; strata have draws.
    """
    group, parts, draws = sample.evidence[which], sample.parts[which], sample.draws
    k = parts[0]
    g, alone = sample.layouts[k], k in sample.alone
    T = g.design.to_user
    beta = T @ (draws.beta_mean[k] if alone else draws.beta[k])
    flat = beta.reshape(beta.shape[0], -1)
    V = np.atleast_2d(np.cov(flat, rowvar=False))
    if alone:
        thinned = draws.sigma[k][:: max(1, draws.sigma[k].shape[0] // 400)]
        hyperprior = g.design.prior_precision(float(group.form.hyperprior[0, 0]))
        V = conditional_covariance(g.design.X @ np.linalg.inv(T), hyperprior, thinned, g.model.prior.sd) + V
    V = symmetric(V)
    population = Population(flat.mean(axis=0).reshape(beta.shape[1:]), V, symmetric(draws.sigma[k].mean(axis=0)))
    mean, covariance = group.prior_mean.copy(), group.prior_covariance.copy()
    known = group.form.describes
    mean[known], covariance[known] = population.predict(group.form.X[known])
    for part in parts:
        rows = sample.tables[part].rows
        mean[rows], covariance[rows] = draws.mean[part], symmetric(draws.covariance[part])
    return group_consensus(group, mean, covariance, population)


def joint_draws(groups: Mapping[str, GroupConsensus], sample: JointSample) -> dict[str, npt.NDArray[np.float32]]:
    """Draws of all items together; items nobody answered are drawn from their prediction.

    A group's sampled draws are let go as soon as they are among those of all its items.
    """
    found, xi = {}, sample.draws.xi
    for (name, group), own in zip(groups.items(), sample.parts, strict=True):
        kept = xi[own[0]]
        out = np.empty((kept.shape[0], len(group.item_ids), kept.shape[2]), np.float32)
        for k in own:
            out[:, sample.tables[k].rows] = xi[k]
            xi[k] = np.empty((0, *xi[k].shape[1:]), np.float32)
        rest = np.flatnonzero(group.n_periods == 0)
        shared = list(group.model.shared)
        for lo in range(0, kept.shape[0] if rest.size else 0, _AT_A_TIME):
            some = slice(lo, lo + _AT_A_TIME)
            noise = sample.rng.standard_normal((len(out[some]), rest.size, kept.shape[2]))
            if shared and kept.shape[1]:  # what belongs to the group is what the answered items have in the same draw
                known = kept[some, 0, shared].astype(np.float64)
                noise[..., shared] = _shared_noise(group, known, rest[0], shared)[:, None]
            out[some, rest] = with_noise(group.mean[rest], group.covariance[rest], shared, noise)
        found[name] = out
    return found


def _shared_noise(group: GroupConsensus, values: Array, row: int, shared: list[int]) -> Array:
    """Standard normals that give a predicted item the values of the coordinates in common, (draws, shared)."""
    root = np.linalg.cholesky(group.covariance[row][np.ix_(shared, shared)])
    return np.asarray(np.linalg.solve(root, (values - group.mean[row, shared]).T).T)


def link_table(draws: JointDraws, totals: Totals) -> pl.DataFrame:
    """Mean and SD of A and B per period and dimension."""
    A, B = np.exp(draws.links[..., 0]), draws.links[..., 1]
    return pl.DataFrame(
        [
            {
                "period": period,
                "dimension": dimension,
                "A_mean": float(A[:, k, m].mean()),
                "A_sd": float(A[:, k, m].std(ddof=1)),
                "B_mean": float(B[:, k, m].mean()),
                "B_sd": float(B[:, k, m].std(ddof=1)),
            }
            for m, period in enumerate(totals.periods)
            for k, dimension in enumerate(totals.dimensions)
        ]
    )
