r"""One period from shards of its examinees, each calibrated alone.

The examinees of a period are dealt to shards at random, so all shards have the same population
:math:`\theta \sim N(0, R)`, and that population is what fixes the period's metric. Given items and R the likelihood of
the period is the product of its shards'. A shard's own metric differs from the period's only because finitely many
examinees fix origin and unit: by a link (log A, B) whose prior is the shard's wobble, :math:`N(0, C_s)`. So the shards
are put together by the joint consensus of `concal.consensus.joint`, with every link held by such a prior instead of one
reference and free others:

.. math:: \prod_{js} f_{js}(M_s\phi_j) \prod_j N(\xi_j; X_j\beta_g, \Sigma_g)\; p(\beta, \Sigma)
          \prod_s N((\log A_s, B_s); 0, C_s) .

What comes out is a calibration like any other: draws of items and population, abilities at the period's items,
response tables and fit of the whole period, and averages of gradients that give back the product of the shards'
factors, :math:`Q = \sum_s M_s'Q_sM_s` and :math:`h = \sum_s M_s'h_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.abilities import abilities_given
from concal.calibration.diagnostics import diagnose
from concal.calibration.fit.period_fit import fit_period
from concal.calibration.kernels import LANES
from concal.calibration.layout import Layout, lay_out
from concal.calibration.moments import ItemMoments, put_together
from concal.calibration.others import Told, item_points, told_by_others
from concal.calibration.result import Calibration, Convergence, GroupDraws
from concal.calibration.streams import seed_of
from concal.calibration.tables import response_table
from concal.calibration.workers import available_cores
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.factors.make import make_factors
from concal.consensus.factors.moments import item_moments
from concal.consensus.factors.period import PeriodFactors, Placed
from concal.consensus.factors.wobble import metric_wobble, without_wobble
from concal.consensus.gaussian import times
from concal.consensus.joint.consensus import sample_jointly
from concal.consensus.joint.links import prior_pull
from concal.consensus.joint.result import JointSample
from concal.consensus.joint.sampler import TARGET_ESS, TARGET_RHAT
from concal.data.period import PeriodData
from concal.spec import ConsensusSpec, Spec

Array = npt.NDArray[np.float64]
Number = TypeVar("Number", np.float32, np.float64)


def unite_shards(
    shards: Sequence[Calibration], data: PeriodData, spec: Spec, *, seed: int, factors: Sequence[PeriodFactors] = ()
) -> Calibration:
    """The calibration of a period from those of its shards.

    Parameters
    ----------
    shards
        In the order of `concal.data.deal.deal`; each on its own metric, all with all items.
    data
        The whole period.
    spec
        The programme's.
    seed
        Of the second stage, and what the result is said to be made with.
    factors
        The shards', where they were made already.
    """
    made = list(factors) or [make_factors(shard) for shard in shards]
    named = [replace(f, period=f"shard {k + 1}") for k, f in enumerate(made)]
    placed = [_held(f, named[0].period) for f in named]
    own = seed_of(seed, data.period)
    options = ConsensusSpec(seed=own % 2**31)
    sample = sample_jointly(placed, sum_periods(placed), options, keep=spec.calibration.draws)
    links = sample.draws.links  # (draws, dimensions, shards, 2)
    layout, xi = lay_out(data), _items(data, sample)
    threads = spec.calibration.threads or available_cores()
    abilities = abilities_given(data, layout, xi, seed=own, threads=threads)
    points = {name: item_points(draws) for name, draws in xi.items()}
    told = told_by_others(layout, points, abilities.mean, abilities.sd)
    groups = _groups(data, layout, xi, sample, shards, told)
    drawn = {name: group.last for name, group in groups.items()}
    calibration = Calibration(
        period=data.period,
        dimensions=data.dimensions,
        groups=groups,
        abilities=abilities,
        convergence=_convergence(shards, data, sample, groups),
        tau=shards[0].tau,
        beta_prior_precision=shards[0].beta_prior_precision,
        seed=seed,
        engine=f"concal, {len(shards)} shards",
        fit=fit_period(data, layout, _centres(groups), told, abilities.sd, drawn),
    )
    return _with_moments(calibration, named, links.mean(axis=0))


def _held(factors: PeriodFactors, reference: str) -> Placed:
    """A shard whose metric is the period's but for its wobble, and for the pull of the prior that it has counted."""
    pulls = np.stack([prior_pull(factors, dimension) for dimension in factors.dimensions])
    mean = -np.einsum("kab,kb->ka", factors.wobble, pulls)
    return Placed(factors, reference, mean, factors.wobble, held=True)


def _items(data: PeriodData, sample: JointSample) -> dict[str, npt.NDArray[np.float32]]:
    """Draws of the items (chain, draw, item, parameter), in the order of the data."""
    found = {}
    for k, evidence in enumerate(sample.evidence):
        place = {evidence.item_ids[row]: j for j, row in enumerate(sample.tables[k].rows)}
        order = [place[item] for item in data.groups[evidence.name].item_ids]
        found[evidence.name] = np.ascontiguousarray(_by_chain(sample.draws.xi[k])[:, :, order])
    return found


def _groups(
    data: PeriodData,
    layout: Layout,
    items: Mapping[str, npt.NDArray[np.float32]],
    sample: JointSample,
    shards: Sequence[Calibration],
    told: Mapping[str, Told],
) -> dict[str, GroupDraws]:
    """Draws of items and populations, and the response tables of the whole period."""
    layouts = {g.name: g for g in layout.groups}
    found = {}
    for k, evidence in enumerate(sample.evidence):
        source, g, T = data.groups[evidence.name], layouts[evidence.name], sample.layouts[k].design.to_user
        xi = items[evidence.name]
        at = sample.draws.kept
        beta, beta_mean = (_by_chain(T @ values[at]) for values in (sample.draws.beta[k], sample.draws.beta_mean[k]))
        sigma = _by_chain(sample.draws.sigma[k][at])
        judged = diagnose(xi)
        names = [f"beta[{source.features[f]},{g.model.parameters[c]}]" for f, c in np.argwhere(g.coefficients)]
        all_beta = _by_chain(sample.draws.beta[k][:, g.coefficients])
        population = diagnose(all_beta, kinds=("rhat", "ess_bulk"))
        found[evidence.name] = GroupDraws(
            name=evidence.name,
            dimension=source.dimension,
            model=g.model,
            item_ids=source.item_ids,
            features=source.features,
            X=source.X,
            xi=xi,
            beta=beta,
            sigma=sigma,
            n_responses=np.diff(g.item_start),
            rhat=np.maximum(judged.rhat, _worst(shards, evidence.name)),
            ess_bulk=judged.ess_bulk,
            ess_tail=judged.ess_tail,
            beta_mean=beta_mean if k in sample.alone else None,  # strata's conditional means are draws
            coding=source.coding,
            lacking=source.lacking,
            population_rhat=dict(zip(names, population.rhat.tolist(), strict=True)),
            population_ess=dict(zip(names, population.ess_bulk.tolist(), strict=True)),
            **response_table(g, told[g.name])._asdict(),
        )
    return {name: found[name] for name in data.groups}


def _by_chain(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """(sweep x chain, ...) as (chain, sweep, ...)."""
    return np.ascontiguousarray(np.swapaxes(values.reshape(-1, LANES, *values.shape[1:]), 0, 1))


def _centres(groups: dict[str, GroupDraws]) -> dict[str, Array]:
    return {name: group.xi.mean(axis=(0, 1), dtype=np.float64) for name, group in groups.items()}


def _worst(shards: Sequence[Calibration], name: str) -> Array:
    """Largest R-hat over the shards that had a response to the item."""
    found = [np.where(s.groups[name].n_responses[:, None] > 0, s.groups[name].rhat, 1.0) for s in shards]
    return np.asarray(np.max(found, axis=0))


def _with_moments(calibration: Calibration, factors: Sequence[PeriodFactors], link: Array) -> Calibration:
    """The calibration with averages of gradients that give back the product of the shards' factors.

    For a quadratic likelihood the gradient is l = h - Q phi; the wobble is taken out of Var(phi) where `make_factors`
    takes it out.
    """
    own = {name: item_moments(group, calibration.period)[2] for name, group in calibration.groups.items()}
    wobble = metric_wobble(calibration, own)
    groups = {}
    for name, group in calibration.groups.items():
        k = calibration.dimensions.index(group.dimension)
        Q, h = (sum(parts) for parts in zip(*(_moved(f, name, link[k, m]) for m, f in enumerate(factors)), strict=True))
        mean, covariance = own[name]
        cross = -without_wobble(mean[:, 1], covariance, wobble[k]) @ Q
        moments = put_together(ItemMoments(mean, covariance, h - times(Q, mean), cross))
        groups[name] = replace(group, moments=moments)
    return replace(calibration, groups=groups)


def _moved(factors: PeriodFactors, name: str, link: Array) -> tuple[Array, Array]:
    group = factors.groups[name]
    return metric.move_factor(group.Q, group.h, float(np.exp(link[0])), float(link[1]))


def _convergence(
    shards: Sequence[Calibration], data: PeriodData, sample: JointSample, groups: dict[str, GroupDraws]
) -> Convergence:
    """As good as the worst shard and the stage that puts them together."""
    each, draws = [shard.convergence for shard in shards], sample.draws
    warnings = [*data.warnings]
    for k, found in enumerate(each):
        warnings += [f"shard {k + 1} of {len(each)}: {text}" for text in found.warnings]
    done = draws.min_ess >= TARGET_ESS and draws.max_rhat <= TARGET_RHAT
    if not done:
        warnings.append(
            f"putting {len(each)} shards together ended with R-hat {draws.max_rhat:.2f} and {draws.min_ess:.0f} "
            "effective draws of links and population; use fewer shards"
        )
    worst = np.concatenate([group.worst_rhat for group in groups.values()])
    return Convergence(
        converged=done and all(found.converged for found in each),
        sweeps=max(found.sweeps for found in each),
        warmup=max(found.warmup for found in each),
        thin=max(found.thin for found in each),
        seconds=float(sum(found.seconds for found in each)),
        max_rhat_population=max(draws.max_rhat, *(found.max_rhat_population for found in each)),
        min_ess_population=min(draws.min_ess, *(found.min_ess_population for found in each)),
        share_items_rhat=float(np.mean(worst <= 1.05)),
        warnings=tuple(warnings),
        mean_error=max(found.mean_error for found in each),
        sd_error=max(found.sd_error for found in each),
    )
