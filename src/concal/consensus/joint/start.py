"""Where the chains start: items at the links known by then, tables linearised there, items that moved weighed down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from concal.calibration.kernels import LANES
from concal.calibration.state import GroupState, level_shared
from concal.calibration.workers import Workers
from concal.consensus.analytic.forms import GroupEvidence
from concal.consensus.analytic.totals import Totals
from concal.consensus.gaussian import raise_eigenvalues, symmetric
from concal.consensus.item_posterior import item_posterior
from concal.consensus.joint.likelihood import Factors
from concal.consensus.joint.robust import link_weights, suspected

Array = npt.NDArray[np.float64]
FARTHEST = 8.0  # SDs from the prior's mean up to which a place is believed; where chains start, not where they end
LEAST = 1e-8  # of the prior's variance: 10,000 times as narrow as it; a million responses leave a hundredth
SETTLING = 1  # rounds of linearising the tables before the chains start; the warm-up has another


def settle(
    evidence: Sequence[GroupEvidence], factors: Factors, link: Array, workers: Workers
) -> list[tuple[Array, Array]]:
    """Items' means and covariances at the analytic population and links (dimensions, periods, 2).

    Tables are linearised there. Places are then .005 posterior SD from those of the tables themselves, also in a
    programme where items drift.
    """
    found = []
    for k, (group, g, table) in enumerate(zip(evidence, factors.groups, factors.tables, strict=True)):
        prior = group.prior_mean[table.rows], group.item_prior_covariance[table.rows]
        known = usable_place(*item_posterior(group.Q[table.rows], group.h[table.rows], *prior), *prior)
        for _ in range(SETTLING):
            factors.relocate(k, *known, link[g.dim], workers)
            known = usable_place(*item_posterior(*factors.sums(k, link[g.dim]), *prior), *prior)
        found.append(known)
    factors.judge()
    return found


def usable_place(mean: Array, covariance: Array, prior_mean: Array, prior_covariance: Array) -> tuple[Array, Array]:
    """Places to linearise and to start at, from posteriors that a factor without curvature may have put anywhere.

    The gradients of a period whose responses tell no slope can be a pull without end: its posterior is a point at a
    slope of millions. Chains go where tables and prior have the item from any place that is not beyond both.
    """
    sd = np.sqrt(np.diagonal(prior_covariance, axis1=1, axis2=2))
    near = np.clip(mean, prior_mean - FARTHEST * sd, prior_mean + FARTHEST * sd)
    return near, raise_eigenvalues(covariance, prior_covariance, LEAST)


def protect_links(
    evidence: Sequence[GroupEvidence],
    factors: Factors,
    known: Sequence[tuple[Array, Array]],
    link: Array,
    linked: npt.NDArray[np.bool_],
    workers: Workers,
) -> int:
    """Weigh the factors for the links; how many items count less than half."""
    suspects = 0
    for k, (group, g, table) in enumerate(zip(evidence, factors.groups, factors.tables, strict=True)):
        where = known[k][0], group.prior_mean[table.rows], group.form.population.sigma
        weights = link_weights(table, factors.Q[k], factors.h[k], link[g.dim], linked, *where, workers)
        factors.weights[k] = weights
        suspects += suspected(table, weights)
    return suspects


def start_items(
    evidence: Sequence[GroupEvidence],
    factors: Factors,
    known: Sequence[tuple[Array, Array]],
    rng: np.random.Generator,
) -> list[GroupState]:
    """Items and population of every chain: a draw of what is known by then."""
    groups = []
    for k, (group, g, (centre, covariance)) in enumerate(zip(evidence, factors.groups, known, strict=True)):
        noise = np.linalg.cholesky(symmetric(covariance)) @ rng.standard_normal((g.n_items, g.p, LANES))
        xi = np.ascontiguousarray(centre[:, :, None] + noise)
        beta = np.linalg.inv(g.design.to_user) @ group.form.population.beta
        beta = np.repeat(beta[:, :, None], LANES, axis=2)
        sigma = np.repeat(group.form.population.sigma[:, :, None], LANES, axis=2)
        mean = (g.design.X @ beta.reshape(beta.shape[0], -1)).reshape(xi.shape)
        s = GroupState(
            xi, beta, beta.copy(), sigma, np.ones((g.p, LANES)), mean, factors.parameters(k, xi, 0, g.n_items)
        )
        for c in g.model.shared:
            s.beta[0, c] += np.sqrt(group.form.population.beta_covariance[c, c]) * rng.standard_normal(LANES)
        groups.append(s)
    level_shared(factors.groups, groups)
    return groups


def scattered_links(totals: Totals, rng: np.random.Generator) -> Array:
    """Links (dimensions, periods, 2, LANES) drawn from what the pairwise linking says."""
    spread = np.stack([_root(C) for C in totals.link_covariance.reshape(-1, 2, 2)]).reshape(
        totals.link_covariance.shape
    )
    noise = np.einsum("mkab,mkbl->mkal", spread, rng.standard_normal((*totals.link_mean.shape, LANES)))
    return np.ascontiguousarray(np.swapaxes(totals.link_mean[..., None] + noise, 0, 1))


def _root(C: Array) -> Array:
    values, vectors = np.linalg.eigh(C)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
