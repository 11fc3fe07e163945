"""The joint consensus: links, populations and items estimated together from the periods' likelihood factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.combine.bounded import CEILINGS, bounded_factors
from concal.combine.factors import GroupFactors, arrange_factors, connected_periods, sum_by_item
from concal.combine.gaussian import inverse, positive_definite, symmetric, times
from concal.combine.mixture import ItemMixture
from concal.combine.newton import Mode, find_mode
from concal.combine.posterior import (
    Evaluation,
    JointPosterior,
    Layout,
    evaluate,
    free_parameters,
    make_buffers,
    make_layout,
    prior_means,
    unpack,
    with_weights,
)
from concal.combine.result import Consensus, GroupConsensus
from concal.combine.robust import drifting, robust_weights
from concal.combine.sampler import Chains, sample_joint, sample_laplace
from concal.combine.sigma_scale import sigma_coordinates, sigma_root
from concal.combine.specification import GroupTotals, NewItems, unite_forms
from concal.combine.start import starting_links
from concal.combine.summary import PeriodSummary
from concal.combine.tilting import tilt_factors, tilt_together
from concal.combine.totals import sum_periods
from concal.errors import ConvergenceError, DataError, LinkError, first_few
from concal.spec import ConsensusSpec

Array = npt.NDArray[np.float64]
Tell = Callable[[float, str], None]
"""Hears the share of the work that is done and what is going on."""

MODE_SHARE = 0.3  # of the time, about; the rest is sampling
ELIGIBLE = 0.1  # least precision of an item, in units of the population's, for it to enter


@dataclass(frozen=True)
class JointOptions:
    """How the joint consensus is computed.

    Attributes
    ----------
    draws : int or None
        Draws of links and population; None: between 100 and 800, fewer for larger banks.
    sampler : "hmc" or "laplace"
        Exact sampling of the marginal posterior, or the Gaussian at its mode.
    robust : bool
        Keep item-by-period factors that look like drift from pulling the links.
    fixed_links : bool
        Take the links' means as known.
    fixed_population : dict of group -> (beta, Sigma)
        Populations that are known.
    keep_draws : bool
        Keep joint draws across items in the result.
    """

    draws: int | None = None
    sampler: str = "hmc"
    robust: bool = True
    fixed_links: bool = False
    fixed_population: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)
    keep_draws: bool = True


def combine_jointly(
    summaries: Sequence[PeriodSummary],
    *,
    spec: ConsensusSpec,
    options: JointOptions | None = None,
    items: Mapping[str, NewItems] | None = None,
    progress: Tell | None = None,
) -> Consensus:
    """Joint consensus of several periods.

    Parameters
    ----------
    summaries : sequence of PeriodSummary
        Oldest first. Periods that were not linked are placed by the items they share with the others.
    progress : function (share done, message)
    """
    options = options or JointOptions()
    tell = progress or (lambda share, message: None)
    if options.sampler not in ("hmc", "laplace"):
        raise DataError(f'sampler must be "hmc" or "laplace", not {options.sampler!r}')
    totals = sum_periods(summaries, spec.half_life, need_links=False)
    order = {m: i for i, m in enumerate(totals.periods)}
    united = {n: unite_forms(forms, order, (items or {}).get(n)) for n, forms in totals.groups.items()}
    groups = arrange_factors(summaries, united, [totals.weights[s.period] for s in summaries])
    posterior, together, mode, tilted, doubts = _tilted_mode(summaries, united, groups, options, spec.tilt, tell)
    mixture, chains = _sample(posterior, together, mode, options, spec.seed, tell)
    return _result(summaries, united, posterior, mixture, chains, tilted, [*totals.warnings, *doubts], options)


def _tilted_mode(
    summaries: Sequence[PeriodSummary],
    united: Mapping[str, GroupTotals],
    groups: Mapping[str, GroupFactors],
    options: JointOptions,
    passes: int,
    tell: Tell,
) -> tuple[JointPosterior, JointPosterior, Mode, pl.DataFrame, list[str]]:
    """Mode of the posterior with tilted factors, factors that do not bound mended as little as will do.

    The second posterior has the factors that items' own moments come from.
    """
    for ceiling in CEILINGS:
        try:
            tell(0.0, "searching for the mode")
            posterior, theta = _set_up(summaries, united, groups, options, ceiling)
            posterior, mode = _fit(posterior, theta, options)
            tilted, base = pl.DataFrame(), posterior
            for k in range(passes):
                tell(MODE_SHARE * (k + 1) / (passes + 1), f"refitting factors, pass {k + 1} of {passes}")
                refined = tilt_factors(posterior, base, mode, summaries)
                posterior, tilted = _identified(refined.posterior, mode.theta, ceiling), refined.table
                posterior, mode = _fit(posterior, mode.theta, options)
            together = tilt_together(posterior, base, mode, summaries) if passes else posterior
        except ConvergenceError:
            if ceiling == CEILINGS[-1]:
                raise
            continue
        break
    doubts = []
    if ceiling > 0.0:
        doubts.append(
            "some items pull hard on little information; their factors were strengthened to find the mode, which makes "
            "posteriors of hardly answered items a little too narrow"
        )
    return posterior, together, mode, tilted, doubts


def _set_up(
    summaries: Sequence[PeriodSummary],
    united: Mapping[str, GroupTotals],
    groups: Mapping[str, GroupFactors],
    options: JointOptions,
    ceiling: float,
) -> tuple[JointPosterior, Array]:
    """Layout, link priors and starting values."""
    M, K = len(summaries), len(summaries[0].dimensions)
    layout = make_layout(groups, M, K)
    reference = next((m for m, s in enumerate(summaries) if s.period == s.reference), None)
    if reference is None:
        raise LinkError(
            f"the reference period {summaries[0].reference!r} is not among the periods; its factors set the metric"
        )
    center, precision = np.zeros((K, M, 2)), np.zeros((K, M, 2, 2))
    fixed: list[tuple[int, int]] = []
    for k, dimension in enumerate(summaries[0].dimensions):
        parts = connected_periods(groups, M, k)
        if not parts:
            raise DataError(f"dimension {dimension!r}: no period has an item with a response")
        holders = {reference: (np.zeros(2), summaries[reference].wobble[k])}
        for part in parts:
            if reference not in part:
                m = _linked_holder(summaries, parts, part, k)
                holders[m] = (summaries[m].link_mean[k], summaries[m].link_covariance[k])
        for m, (mean, covariance) in holders.items():
            if np.trace(covariance) > 1e-10:
                center[k, m] = mean
                precision[k, m] = inverse(covariance + 1e-4 * np.trace(covariance) * np.eye(2))
            else:
                fixed.append((k, m))
        present = {m for part in parts for m in part}
        fixed += [(k, m) for m in range(M) if m not in present]
    if options.fixed_links:
        fixed = [(k, m) for k in range(K) for m in range(M)]
    theta = np.zeros(layout.size)
    links = starting_links(summaries, reference)
    for k in range(K):
        theta[layout.link(k)] = links[:, k].ravel()
    for name, total in united.items():
        beta, sigma = options.fixed_population.get(name, (total.population.beta, total.population.sigma))
        theta[layout.sigma[name]] = sigma_coordinates(np.asarray(sigma, dtype=np.float64))
        theta[layout.beta[name]] = np.asarray(beta, dtype=np.float64).ravel()
    free = free_parameters(layout, fixed, tuple(options.fixed_population))
    return _identified(JointPosterior(groups, layout, center, precision, free), theta, ceiling), theta


def _linked_holder(summaries: Sequence[PeriodSummary], parts: list[list[int]], part: list[int], k: int) -> int:
    """The best linked period of a set that shares no item with the reference's: its link holds the set in place."""
    linked = [m for m in part if summaries[m].linked]
    if not linked:
        sets = "; ".join(first_few([summaries[m].period for m in p]) for p in parts)
        raise LinkError(
            f"dimension {summaries[0].dimensions[k]!r}: periods fall into {len(parts)} sets without a common item "
            f"({sets}) and no link joins them; add a period or items that bridge them"
        )
    return min(linked, key=lambda m: float(np.trace(summaries[m].link_covariance[k])))


def _reference_precision(group: GroupFactors, u: Array, B: Array) -> tuple[Array, Array]:
    """Every factor on the reference metric: E Q E (pairs, p, p) and E (h - Q e) (pairs, p)."""
    E = np.ones((group.n_pairs, group.p))
    E[:, 0] = np.exp(-u[group.period])
    e = np.zeros((group.n_pairs, group.p))
    e[:, 0], e[:, 1] = -B[group.period] * E[:, 0], u[group.period]
    return E[:, :, None] * group.Q * E[:, None, :], E * (group.h - times(group.Q, e))


def _identified(posterior: JointPosterior, theta: Array, ceiling: float) -> JointPosterior:
    """Mend factors that do not bound; leave out items whose precision is still not positive definite."""
    groups = {}
    for name, group in posterior.groups.items():
        u, B, L, Omega, beta = unpack(posterior.layout, name, group, theta)
        if posterior.free[posterior.layout.sigma[name]].any():  # with a known prior nothing can run away
            Q, s = _reference_precision(group, u, B)
            mean = prior_means(group, beta)
            group = bounded_factors(group, sum_by_item(group, Q), sum_by_item(group, s), L, mean, u, B, ceiling)
        Q, _ = _reference_precision(group, u, B)
        total = sum_by_item(group, group.weight[:, None, None] * Q) + Omega
        own = group.own_prior > 0
        total[own] += group.prior_precision[group.own_prior[own] - 1] - Omega
        fine = positive_definite(total, L @ L.T, ELIGIBLE)
        groups[name] = replace(group, active=fine & (np.diff(group.start) > 0))
    return replace(posterior, groups=groups)


def _fit(posterior: JointPosterior, theta: Array, options: JointOptions) -> tuple[JointPosterior, Mode]:
    """Mode, with drifting factors weighted down: weights at the start links (already robust), then twice more."""
    if not options.robust:
        return posterior, find_mode(posterior, theta)
    posterior = with_weights(posterior, robust_weights(posterior, theta))
    mode = find_mode(posterior, theta)
    for _ in range(5):
        weights = robust_weights(posterior, mode.theta)
        change = max(float(np.abs(weights[n] - g.weight).max(initial=0.0)) for n, g in posterior.groups.items())
        if change < 0.05:
            break
        posterior = with_weights(posterior, weights)
        mode = find_mode(posterior, mode.theta)
    return posterior, mode


def _default_draws(posterior: JointPosterior) -> int:
    work = sum((g.n_pairs + g.n_items) * g.p for g in posterior.groups.values())
    return int(np.clip(2.5e7 // max(work, 1), 100, 800)) // 4 * 4


def _sample(
    posterior: JointPosterior, together: JointPosterior, mode: Mode, options: JointOptions, seed: int, tell: Tell
) -> tuple[ItemMixture, Chains]:
    """Draws of links and population, each with the items' conditional moments (drifting factors counted in full)."""
    draws = options.draws or _default_draws(posterior)
    mixture = ItemMixture(posterior, np.random.default_rng([seed, 1]), draws if options.keep_draws else 0, together)
    rng = np.random.default_rng([seed, 2])
    done = 0

    def visit(theta: Array, at: Evaluation) -> None:
        nonlocal done
        done += 1
        tell(MODE_SHARE + (1.0 - MODE_SHARE) * done / draws, f"draw {done} of {draws}")
        mixture.visit(theta, at)

    if not posterior.free.any():
        at = evaluate(posterior, mode.theta, make_buffers(posterior))
        for _ in range(draws if options.keep_draws else 1):
            mixture.visit(mode.theta, at)
        return mixture, Chains(mode.theta[None, None], 1.0, 0.0, 1.0)
    if options.sampler == "laplace":
        return mixture, sample_laplace(posterior, mode, visit, draws=draws, rng=rng)
    return mixture, sample_joint(posterior, mode, visit, draws=draws, rng=rng)


def _result(
    summaries: Sequence[PeriodSummary],
    united: Mapping[str, GroupTotals],
    posterior: JointPosterior,
    mixture: ItemMixture,
    chains: Chains,
    tilted: pl.DataFrame,
    warnings: Sequence[str],
    options: JointOptions,
) -> Consensus:
    theta = chains.theta.reshape(-1, chains.theta.shape[-1])
    layout = posterior.layout
    groups, answered, fallen = {}, 0, 0
    for name, total in united.items():
        factors = posterior.groups[name]
        mean, covariance = mixture.moments(name)
        seen = np.diff(factors.start) > 0
        source = np.where(factors.active, "consensus", np.where(seen, "fallback", "predicted"))
        answered, fallen = answered + int(seen.sum()), fallen + int((seen & ~factors.active).sum())
        beta = theta[:, layout.beta[name]]
        roots = sigma_root(theta[:, layout.sigma[name]], factors.p)
        groups[name] = GroupConsensus(
            name,
            total.dimension,
            total.model,
            total.item_ids,
            total.features,
            total.X,
            mean,
            covariance,
            source,
            total.n_responses,
            total.n_periods,
            beta.mean(axis=0).reshape(-1, factors.p),
            symmetric((roots @ np.swapaxes(roots, 1, 2)).mean(axis=0)),
            symmetric(np.atleast_2d(np.cov(beta, rowvar=False))) if theta.shape[0] > 1 else None,
        )
    doubts = [*warnings, *(w for t in united.values() for w in t.warnings)]
    plain = [s.period for s in summaries if any(g.curvature is None for g in s.groups.values())]
    if plain:
        doubts.append(
            f"summaries of {first_few(plain)} are of an older kind and their factors were not refitted; "
            "`concal add --replace` renews a period"
        )
    if chains.max_rhat > 1.1:
        doubts.append(f"joint sampler: split R-hat is {chains.max_rhat:.2f}; ask for more draws (JointOptions.draws)")
    n_drifting = sum(v.size for v in drifting(posterior).values())
    if n_drifting:
        doubts.append(f"{n_drifting} item-by-period factors look drifted and do not inform the links")
    return Consensus(
        "joint",
        summaries[0].reference,
        summaries[0].dimensions,
        tuple(s.period for s in summaries),
        groups,
        links=_links(theta, layout, summaries),
        fallback_share=fallen / answered if answered else 0.0,
        diagnostics=tilted,
        joint=mixture.draws() if options.keep_draws else None,
        warnings=tuple(doubts),
    )


def _links(theta: Array, layout: Layout, summaries: Sequence[PeriodSummary]) -> pl.DataFrame:
    rows = []
    for k, dimension in enumerate(summaries[0].dimensions):
        links = theta[:, layout.link(k)].reshape(theta.shape[0], -1, 2)
        for m, summary in enumerate(summaries):
            A, B = np.exp(links[:, m, 0]), links[:, m, 1]
            rows.append(
                {
                    "period": summary.period,
                    "dimension": dimension,
                    "A_mean": float(A.mean()),
                    "A_sd": float(A.std()),
                    "B_mean": float(B.mean()),
                    "B_sd": float(B.std()),
                }
            )
    return pl.DataFrame(rows).sort("period", maintain_order=True)
