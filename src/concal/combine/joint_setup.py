"""Where the joint consensus starts: layout, what holds the metric, starting values, factors that can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from concal.combine.bounded import bounded_factors
from concal.combine.factors import GroupFactors, connected_periods, sum_by_item
from concal.combine.gaussian import inverse, positive_definite, times
from concal.combine.posterior import JointPosterior, free_parameters, make_layout, prior_means, unpack
from concal.combine.sigma_scale import sigma_coordinates
from concal.combine.specification import GroupTotals
from concal.combine.start import starting_links
from concal.combine.summary import PeriodSummary
from concal.errors import DataError, LinkError, first_few

Array = npt.NDArray[np.float64]
ELIGIBLE = 0.1  # least precision of an item, in units of the population's, for it to enter


def set_up(
    summaries: Sequence[PeriodSummary],
    united: Mapping[str, GroupTotals],
    groups: Mapping[str, GroupFactors],
    ceiling: float,
    *,
    fixed_links: bool,
    fixed_population: Mapping[str, tuple[Array, Array]],
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
    if fixed_links:
        fixed = [(k, m) for k in range(K) for m in range(M)]
    theta = np.zeros(layout.size)
    links = starting_links(summaries, reference)
    for k in range(K):
        theta[layout.link(k)] = links[:, k].ravel()
    for name, total in united.items():
        beta, sigma = fixed_population.get(name, (total.population.beta, total.population.sigma))
        theta[layout.sigma[name]] = sigma_coordinates(np.asarray(sigma, dtype=np.float64))
        theta[layout.beta[name]] = np.asarray(beta, dtype=np.float64).ravel()
    free = free_parameters(layout, fixed, tuple(fixed_population))
    return identified(JointPosterior(groups, layout, center, precision, free), theta, ceiling), theta


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


def identified(posterior: JointPosterior, theta: Array, ceiling: float) -> JointPosterior:
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
