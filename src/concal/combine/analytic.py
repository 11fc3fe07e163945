r"""The paper's consensus, in closed form for all items at once.

.. math:: \Lambda_c = \sum_m\Lambda_m - \sum_m\Omega_m + \Omega^*, \qquad
          b_c = \sum_m\Lambda_m\mu_m - \sum_m\Omega_m m_m + \Omega^* m^*, \qquad \mu_c = \Lambda_c^{-1} b_c

Where Lambda_c is not positive definite the item is flagged and gets the population prediction. Two things go beyond
the paper, neither of which needs more than sums over the periods: means see the third order of the periods' posteriors
(`concal.combine.cubic`), and the uncertainty of the reference's metric, which all periods share, is counted once
(`concal.combine.totals`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.combine.cubic import CubicSums, corrected_mean
from concal.combine.gaussian import inverse, positive_definite, times
from concal.combine.result import Consensus, GroupConsensus
from concal.combine.specification import GroupTotals, NewItems, unite_forms
from concal.combine.totals import Totals
from concal.combine.wobble import add_wobble

Array = npt.NDArray[np.float64]


def consensus_from_totals(
    totals: Totals, *, items: Mapping[str, NewItems] | None = None, literal: bool = False, third_order: bool = True
) -> Consensus:
    """Every item's consensus from the totals; the cost does not depend on how many periods went into them.

    Parameters
    ----------
    items : dict of group -> (item ids, design rows)
        Items to include even if nobody has answered them.
    literal : bool
        The paper's plug-in replacement prior, Omega* = (Sigma*)^-1, and its Gaussian means.
    third_order : bool
        Correct the means for the shape of the periods' posteriors.
    """
    order = {m: i for i, m in enumerate(totals.periods)}
    united, groups = {}, {}
    for name, forms in totals.groups.items():
        C = totals.metric_of(forms[0].dimension)
        united[name] = unite_forms(forms, order, (items or {}).get(name), C, literal=literal)
        groups[name] = combine_group(united[name], C, third_order=third_order and not literal)
    answered = sum(int((g.source != "predicted").sum()) for g in groups.values())
    fallen = sum(int((g.source == "fallback").sum()) for g in groups.values())
    return Consensus(
        "analytic",
        totals.reference,
        totals.dimensions,
        totals.periods,
        groups,
        links=link_table(totals.links, totals.dimensions),
        fallback_share=fallen / answered if answered else 0.0,
        warnings=(*totals.warnings, *(w for g in united.values() for w in g.warnings)),
    )


def combine_group(group: GroupTotals, C: Array, *, third_order: bool = True) -> GroupConsensus:
    """Corrected natural parameters, eligibility and fallback for one group; C is the metric's shared uncertainty."""
    total = group.precision + group.prior_precision
    shift = group.shift + times(group.prior_precision, group.prior_mean)
    answered = group.n_periods > 0
    eligible = answered & positive_definite(total, group.population.sigma)
    mean, covariance = group.prior_mean.copy(), group.prior_covariance.copy()
    covariance[eligible] = inverse(total[eligible])
    mean[eligible] = times(covariance[eligible], shift[eligible])
    if third_order:
        sums = CubicSums(group.cubic.third[eligible], group.cubic.second[eligible], group.cubic.first[eligible])
        mean[eligible] = corrected_mean(mean[eligible], covariance[eligible], sums)
    covariance = add_wobble(mean, covariance, C, group.shared)
    source = np.where(eligible, "consensus", np.where(answered, "fallback", "predicted"))
    return GroupConsensus(
        group.name,
        group.dimension,
        group.model,
        group.item_ids,
        group.features,
        group.X,
        mean,
        covariance,
        source,
        group.n_responses,
        group.n_periods,
        group.population.beta,
        group.population.sigma,
        group.population.beta_covariance,
    )


def link_table(links: Mapping[str, tuple[Array, Array]], dimensions: tuple[str, ...]) -> pl.DataFrame:
    """Mean and SD of A and B per period and dimension; A is log-normal given the moments of log A."""
    rows = []
    for period, (mean, covariance) in links.items():
        for k, dimension in enumerate(dimensions):
            variance = float(covariance[k, 0, 0])
            A = float(np.exp(mean[k, 0] + 0.5 * variance))
            rows.append(
                {
                    "period": period,
                    "dimension": dimension,
                    "A_mean": A,
                    "A_sd": A * float(np.sqrt(np.expm1(variance))),
                    "B_mean": float(mean[k, 1]),
                    "B_sd": float(np.sqrt(covariance[k, 1, 1])),
                }
            )
    return pl.DataFrame(rows)
