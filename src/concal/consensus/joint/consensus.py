r"""The joint consensus: one posterior of items, links and populations given the factors of all periods.

.. math:: \prod_{jm} f_{jm}(M_m\phi_j) \prod_j N(\xi_j; X_j\beta_g, \Sigma_g)\; p(A, B)\; p(\beta, \Sigma)

Every item that any two periods share informs their links, items and links keep their dependence, and the population is
estimated once, under the priors of a calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.calibration.family import families
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout
from concal.calibration.standardise import group_rows
from concal.calibration.state import GroupState, level_shared
from concal.calibration.workers import Workers, available_cores
from concal.consensus.analytic.consensus import group_consensus
from concal.consensus.analytic.forms import GroupEvidence, NewItems, unite_forms
from concal.consensus.analytic.items import item_posterior
from concal.consensus.analytic.population import Population, consensus_population
from concal.consensus.analytic.totals import Totals
from concal.consensus.draws import with_noise
from concal.consensus.factors.period import Placed
from concal.consensus.factors.population import conditional_covariance
from concal.consensus.gaussian import symmetric
from concal.consensus.joint.arrange import GroupTables, answered_rows, arrange, group_layout
from concal.consensus.joint.likelihood import Factors
from concal.consensus.joint.links import LinkPriors
from concal.consensus.joint.robust import link_weights, suspected
from concal.consensus.joint.sampler import KEPT, TARGET_ESS, TARGET_RHAT, JointDraws, JointSampler
from concal.consensus.joint.state import JointState
from concal.consensus.result import Consensus, GroupConsensus
from concal.spec import ConsensusSpec

Array = npt.NDArray[np.float64]
Tell = Callable[[float, str], None]
_AT_A_TIME = 50  # draws of predicted items made together, in double precision
SETTLING = 1  # rounds of linearising the tables before the chains start; the warm-up has another


def combine_jointly(
    placed: Sequence[Placed],
    totals: Totals,
    spec: ConsensusSpec,
    *,
    items: Mapping[str, NewItems] | None = None,
    progress: Tell | None = None,
) -> Consensus:
    """Joint consensus of several periods.

    Parameters
    ----------
    placed : sequence of Placed
        Oldest first. Periods that were not linked are placed by the items they share with the others.
    totals : Totals
        Of the same periods: the chains start from the analytic consensus.
    """
    sample = sample_jointly(placed, totals, spec, items=items, progress=progress)
    evidence, tables, layouts, draws = sample.evidence, sample.tables, sample.layouts, sample.draws
    suspects = sample.suspects
    alone = {family.lead for family in families(layouts) if len(family.members) == 1}
    groups = {
        group.name: _result(group, layouts[k], tables[k], draws, k, alone=k in alone)
        for k, group in enumerate(evidence)
    }
    warnings = [*totals.warnings, *(w for group in evidence for w in group.warnings)]
    if draws.min_ess < TARGET_ESS or draws.max_rhat > TARGET_RHAT:
        warnings.append(
            f"the joint sampler ended after {draws.sweeps} sweeps with R-hat {draws.max_rhat:.2f} and "
            f"{draws.min_ess:.0f} effective draws of links and population (aimed for: {TARGET_RHAT}, {TARGET_ESS:.0f})"
        )
    if suspects:
        n_items = sum(t.rows.size for t in tables)
        warnings.append(
            f"{suspects:,} of {n_items:,} items differ between periods and hardly count for the links (robust_links)"
        )
    return Consensus(
        "joint",
        totals.reference,
        totals.dimensions,
        totals.periods,
        groups,
        links=_link_table(draws, totals),
        joint=_joint_draws(groups, tables, draws, sample.rng),
        joint_links=np.swapaxes(draws.kept_links, 1, 2).copy(),
        warnings=tuple(warnings),
    )


@dataclass(frozen=True)
class JointSample:
    """What was sampled, from what: evidence, factors and layout by group, and the draws.

    `suspects` counts the items that hardly count for the links.
    """

    evidence: list[GroupEvidence]
    tables: list[GroupTables]
    layouts: list[GroupLayout]
    draws: JointDraws
    suspects: int
    rng: np.random.Generator


def sample_jointly(
    placed: Sequence[Placed],
    totals: Totals,
    spec: ConsensusSpec,
    *,
    items: Mapping[str, NewItems] | None = None,
    progress: Tell | None = None,
    keep: int = KEPT,
) -> JointSample:
    """Draws of items, links and populations together; of the items' draws `keep` are kept."""
    tell = progress or (lambda share, message: None)
    evidence = {name: unite_forms(totals.forms(name), (items or {}).get(name)) for name in totals.group_names}
    populations = {f.form: consensus_population(f) for f in totals.groups.values() if f.population_weight > 0}
    tables = [arrange(placed, group, populations, spec.half_life) for group in evidence.values()]
    whole = group_rows({g.name: answered_rows(g, table) for g, table in zip(evidence.values(), tables, strict=True)})
    layouts = [
        group_layout(group, table, totals.dimensions.index(group.dimension), whole[group.name])
        for group, table in zip(evidence.values(), tables, strict=True)
    ]
    rng = np.random.default_rng([spec.seed, 2])
    factors = Factors(layouts, tables, [np.ones(t.n_factors) for t in tables])
    known = _settle(list(evidence.values()), factors, totals)
    linked = np.array([p.linked for p in placed])
    suspects = _protect_links(list(evidence.values()), factors, known, totals, linked) if spec.robust_links else 0
    start = _start(list(evidence.values()), factors, known, totals, rng)
    taus = [float(group.hyperprior[0, 0]) for group in evidence.values()]
    sampler = JointSampler(layouts, factors, LinkPriors(placed, layouts, tables), start, taus, spec.seed, keep)
    return JointSample(list(evidence.values()), tables, layouts, sampler.run(tell), suspects, rng)


def _settle(evidence: Sequence[GroupEvidence], factors: Factors, totals: Totals) -> list[tuple[Array, Array]]:
    """Items' means and covariances at the pairwise links and the analytic population, tables linearised there.

    Places are then .005 posterior SD from those of the tables themselves, also in a programme where items drift.
    """
    link = np.swapaxes(totals.link_mean, 0, 1)
    found = []
    with Workers(available_cores()) as workers:
        for k, (group, g, table) in enumerate(zip(evidence, factors.groups, factors.tables, strict=True)):
            prior = group.prior_mean[table.rows], group.item_prior_covariance[table.rows]
            known = item_posterior(group.Q[table.rows], group.h[table.rows], *prior)
            for _ in range(SETTLING):
                factors.relocate(k, *known, link[g.dim], workers)
                known = item_posterior(*factors.sums(k, link[g.dim]), *prior)
            found.append(known)
    factors.judge()
    return found


def _protect_links(
    evidence: Sequence[GroupEvidence],
    factors: Factors,
    known: Sequence[tuple[Array, Array]],
    totals: Totals,
    linked: npt.NDArray[np.bool_],
) -> int:
    """Weigh the factors for the links; how many items count less than half."""
    link, suspects = np.swapaxes(totals.link_mean, 0, 1), 0
    with Workers(available_cores()) as workers:
        for k, (group, g, table) in enumerate(zip(evidence, factors.groups, factors.tables, strict=True)):
            where = known[k][0], group.prior_mean[table.rows], group.population.sigma
            weights = link_weights(table, factors.Q[k], factors.h[k], link[g.dim], linked, *where, workers)
            factors.weights[k] = weights
            suspects += suspected(table, weights)
    return suspects


def _start(
    evidence: Sequence[GroupEvidence],
    factors: Factors,
    known: Sequence[tuple[Array, Array]],
    totals: Totals,
    rng: np.random.Generator,
) -> JointState:
    """Every chain at a draw of what is known by then."""
    groups = []
    for k, (group, g, (centre, covariance)) in enumerate(zip(evidence, factors.groups, known, strict=True)):
        noise = np.linalg.cholesky(symmetric(covariance)) @ rng.standard_normal((g.n_items, g.p, LANES))
        xi = np.ascontiguousarray(centre[:, :, None] + noise)
        beta = np.linalg.inv(g.design.to_user) @ group.population.beta
        beta = np.repeat(beta[:, :, None], LANES, axis=2)
        sigma = np.repeat(group.population.sigma[:, :, None], LANES, axis=2)
        mean = (g.design.X @ beta.reshape(beta.shape[0], -1)).reshape(xi.shape)
        s = GroupState(
            xi, beta, beta.copy(), sigma, np.ones((g.p, LANES)), mean, factors.parameters(k, xi, 0, g.n_items)
        )
        for c in g.model.shared:
            s.beta[0, c] += np.sqrt(group.population.beta_covariance[c, c]) * rng.standard_normal(LANES)
        groups.append(s)
    level_shared(families(factors.groups), groups)
    spread = np.stack([_root(C) for C in totals.link_covariance.reshape(-1, 2, 2)]).reshape(
        totals.link_covariance.shape
    )
    noise = np.einsum("mkab,mkbl->mkal", spread, rng.standard_normal((*totals.link_mean.shape, LANES)))
    links = np.ascontiguousarray(np.swapaxes(totals.link_mean[..., None] + noise, 0, 1))
    state = JointState(0, groups, links, [])
    state.refresh_links()
    return state


def _root(C: Array) -> Array:
    values, vectors = np.linalg.eigh(C)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _result(
    group: GroupEvidence, g: GroupLayout, table: GroupTables, draws: JointDraws, k: int, *, alone: bool
) -> GroupConsensus:
    """Moments over the draws; items nobody answered get the population's prediction.

    A group `alone` has conditional means of beta, and its conditional covariance; strata have draws.
    """
    T = g.design.to_user
    beta = T @ (draws.beta_mean[k] if alone else draws.beta[k])
    flat = beta.reshape(beta.shape[0], -1)
    V = np.atleast_2d(np.cov(flat, rowvar=False))
    if alone:
        thinned = draws.sigma[k][:: max(1, draws.sigma[k].shape[0] // 400)]
        hyperprior = g.design.prior_precision(float(group.hyperprior[0, 0]))
        V = conditional_covariance(g.design.X @ np.linalg.inv(T), hyperprior, thinned, g.model.prior.sd) + V
    V = symmetric(V)
    population = Population(flat.mean(axis=0).reshape(beta.shape[1:]), V, symmetric(draws.sigma[k].mean(axis=0)))
    mean, covariance = group.prior_mean.copy(), group.prior_covariance.copy()
    known = ~np.isnan(group.X[:, 0])
    mean[known], covariance[known] = population.predict(group.X[known])
    mean[table.rows], covariance[table.rows] = draws.mean[k], symmetric(draws.covariance[k])
    return group_consensus(group, mean, covariance, population)


def _joint_draws(
    groups: Mapping[str, GroupConsensus], tables: Sequence[GroupTables], draws: JointDraws, rng: np.random.Generator
) -> dict[str, npt.NDArray[np.float32]]:
    """Draws of all items together; items nobody answered are drawn from their prediction.

    A group's sampled draws are let go as soon as they are among those of all its items.
    """
    found = {}
    for k, (name, group) in enumerate(groups.items()):
        kept = draws.xi[k]
        draws.xi[k] = np.empty((0, *kept.shape[1:]), np.float32)
        out = np.empty((kept.shape[0], len(group.item_ids), kept.shape[2]), np.float32)
        out[:, tables[k].rows] = kept
        rest = np.flatnonzero(group.n_periods == 0)
        shared = list(group.model.shared)
        for lo in range(0, kept.shape[0] if rest.size else 0, _AT_A_TIME):
            some = slice(lo, lo + _AT_A_TIME)
            noise = rng.standard_normal((len(out[some]), rest.size, kept.shape[2]))
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


def _link_table(draws: JointDraws, totals: Totals) -> pl.DataFrame:
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
