"""The analytic consensus: every item's posterior from the totals, whatever the number of periods behind them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.consensus.analytic.forms import GroupEvidence, NewItems, unite_forms
from concal.consensus.analytic.population import Population
from concal.consensus.analytic.totals import Totals
from concal.consensus.item_posterior import item_posterior
from concal.consensus.result import Consensus, GroupConsensus
from concal.consensus.shared import with_group_values

Array = npt.NDArray[np.float64]


def consensus_from_totals(totals: Totals, items: Mapping[str, NewItems] | None = None) -> Consensus:
    """Every item's posterior: the summed factor times the population's prediction.

    Parameters
    ----------
    items : dict of group -> (item ids, design rows)
        Items to include even if nobody has answered them.
    """
    evidence = {name: unite_forms(totals.forms(name), (items or {}).get(name)) for name in totals.group_names}
    groups = {}
    for name, group in evidence.items():
        wobble = totals.wobble[totals.dimensions.index(group.dimension)]
        groups[name] = combine_group(group, wobble)
    return Consensus(
        "analytic",
        totals.reference,
        totals.dimensions,
        totals.periods,
        groups,
        links=link_table(totals),
        warnings=(*totals.warnings, *(w for group in evidence.values() for w in group.warnings)),
    )


def combine_group(group: GroupEvidence, wobble: Array) -> GroupConsensus:
    """Posteriors of a group's items; the wobble of the reference's metric, which they share, comes on top."""
    mean, covariance, population = group.prior_mean.copy(), group.prior_covariance.copy(), group.form.population
    seen = group.answered
    own = group.item_prior_covariance[seen]
    mean[seen], covariance[seen] = item_posterior(group.Q[seen], group.h[seen], mean[seen], own)
    P = metric.location_patterns(mean[seen, 0], mean.shape[1])
    if group.model.shared:  # the reference's unit and the group's slope are one thing: its uncertainty counts once
        variances = np.diagonal(population.beta_covariance)[: mean.shape[1]].copy()
        variances[1] = max(variances[1] - wobble[0, 0], 0.0)
        mean[seen], covariance[seen] = with_group_values(
            group.model, mean[seen], covariance[seen], population.beta[0], variances
        )
    covariance[seen] += P @ wobble @ np.swapaxes(P, 1, 2)
    return group_consensus(group, mean, covariance, population)


def group_consensus(group: GroupEvidence, mean: Array, covariance: Array, population: Population) -> GroupConsensus:
    """A group's items and population as a result."""
    return GroupConsensus(
        name=group.name,
        dimension=group.dimension,
        model=group.model,
        item_ids=group.item_ids,
        features=group.form.features,
        coding=group.form.coding,
        X=group.form.X,
        mean=mean,
        covariance=covariance,
        source=np.where(group.answered, "consensus", "predicted"),
        n_responses=group.n_responses,
        n_periods=group.n_periods,
        beta=population.beta,
        sigma=population.sigma,
        beta_covariance=population.beta_covariance,
    )


def link_table(totals: Totals) -> pl.DataFrame:
    """Mean and SD of A and B per period and dimension; A is log-normal given the moments of log A."""
    rows = []
    for m, period in enumerate(totals.periods):
        for k, dimension in enumerate(totals.dimensions):
            mean, covariance = totals.link_mean[m, k], totals.link_covariance[m, k]
            A = float(np.exp(mean[0] + 0.5 * covariance[0, 0]))
            rows.append(
                {
                    "period": period,
                    "dimension": dimension,
                    "A_mean": A,
                    "A_sd": A * float(np.sqrt(np.expm1(covariance[0, 0]))),
                    "B_mean": float(mean[1]),
                    "B_sd": float(np.sqrt(covariance[1, 1])),
                }
            )
    return pl.DataFrame(rows)
