"""Calibrate one period: from responses to draws on the period's own metric."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concal.allocator import give_back
from concal.calibration.abilities import gather_abilities
from concal.calibration.checkpoint import Checkpoint
from concal.calibration.diagnostics import diagnose
from concal.calibration.fingerprint import fingerprint
from concal.calibration.fit.period_fit import fit_period
from concal.calibration.known import KnownGroup, guide_period
from concal.calibration.layout import Layout, lay_out
from concal.calibration.others import item_points, told_by_others
from concal.calibration.result import Calibration, Convergence, GroupDraws
from concal.calibration.sampler import Report, Sampled, Sampler
from concal.calibration.streams import seed_of
from concal.calibration.tables import response_table
from concal.calibration.targets import shortfall, worst_ess, worst_rhat
from concal.calibration.trace import Trace, population_names
from concal.calibration.verdict import enough_items, good_items
from concal.calibration.workers import available_cores, one_blas_thread
from concal.data.check import check_period
from concal.data.doubts import refuse_single_responses
from concal.data.period import PeriodData
from concal.errors import counted, first_few
from concal.spec import CalibrationSpec, Spec

Array = npt.NDArray[np.float64]


def calibrate(
    responses: Any,
    items: Any,
    spec: Spec,
    *,
    period: str = "period",
    seed: int | None = None,
    wide: bool = False,
    checkpoint: str | Path | None = None,
    progress: Report | None = None,
    known: Mapping[str, KnownGroup] | None = None,
) -> Calibration:
    r"""Bayesian explanatory IRT calibration of one period, alone.

    .. math:: \theta_i \sim N(0, R), \quad \xi_j \sim N(X_j \beta_g, \Sigma_g), \quad
              y_{ij} \sim p(y \mid a_j (\theta_{i} - d_j), \text{extras}_j)

    Parameters
    ----------
    responses, items
        Data frames (pandas, polars, Arrow) or paths; see `concal.check_period`.
    spec : Spec
    period : str
    seed : int, optional
        Default: the spec's.
    wide : bool
        Responses are a table with one column per item.
    checkpoint : path, optional
        Where a run that was interrupted, or reached a limit before its targets, is kept; calling again goes on from
        there, also with another ``max_sweeps`` or ``max_minutes``.
    progress : callable, optional
        Called with a `concal.calibration.sampler.Progress` now and then.
    known : dict of group -> GroupConsensus, optional
        A consensus' `groups`: items get priors from what it knows about them (see `concal.calibration.known`).
    """
    checked = check_period(responses, items, spec, period=period, wide=wide)
    if known is None:
        refuse_single_responses(checked.data)
    data = checked.data if known is None else guide_period(checked.data, known)
    return calibrate_period(data, spec, period=period, seed=seed, checkpoint=checkpoint, progress=progress)


@one_blas_thread
def calibrate_period(
    data: PeriodData,
    spec: Spec,
    *,
    period: str | None = None,
    seed: int | None = None,
    checkpoint: str | Path | None = None,
    progress: Report | None = None,
    resume: bool = True,
) -> Calibration:
    """Calibrate checked data (one period, or several pooled with a population of examinees each)."""
    options = spec.calibration
    layout = lay_out(data)
    used_seed = options.seed if seed is None else seed
    kept = None if checkpoint is None else Checkpoint(Path(checkpoint), fingerprint(data, spec, used_seed))
    sampled = _sample(layout, options, seed_of(used_seed, data.period), kept, progress, resume=resume)
    give_back()
    result = _result(data, layout, sampled, period or data.period, used_seed)
    if kept is not None and result.convergence.converged:
        kept.path.unlink(missing_ok=True)
    return result


def _sample(
    layout: Layout,
    options: CalibrationSpec,
    seed: int,
    kept: Checkpoint | None,
    progress: Report | None,
    *,
    resume: bool,
) -> Sampled:
    """Run the chains; their state and the moves are let go with the sampler, before the result is made."""
    sampler = Sampler(layout, options, seed, options.threads or available_cores())
    give_back()
    try:
        sampler.run(kept, progress, resume=resume)
    finally:
        sampler.close()
    sampled = sampler.sampled()
    if not sampled.converged or sampled.stuck or sampled.still:
        sampler.leave(kept)  # before the result takes the draws
    return sampled


def _result(data: PeriodData, layout: Layout, sampled: Sampled, period: str, seed: int) -> Calibration:
    trace, options = sampled.trace, sampled.spec
    link = trace.final("link")
    features = {g.name: g.features for g in data.groups.values()}
    rhat, ess = _population_diagnostics(layout, trace, features, sampled.threads)
    groups, prior = {}, {}
    alone = {f.groups[0].name for f in layout.families if len(f.members) == 1}  # others' conditional means are draws
    centres: dict[str, Array] = {}
    theta_mean, theta_sd = _ability_moments(trace)
    judged = [diagnose(trace.stored_xi(k), threads=sampled.threads) for k in range(len(layout.groups))]
    trace.shrink()
    points = {g.name: item_points(trace.stored_xi(k)) for k, g in enumerate(layout.groups)}
    told = told_by_others(layout, points, theta_mean, theta_sd)
    for k, (g, moments) in enumerate(zip(layout.groups, trace.averages.means(), strict=True)):
        source, found, xi = data.groups[g.name], judged[k], trace.take_xi(k)
        T = g.design.to_user
        centres[g.name] = xi.mean(axis=(0, 1), dtype=np.float64)
        groups[g.name] = GroupDraws(
            name=g.name,
            dimension=source.dimension,
            model=g.model,
            item_ids=source.item_ids,
            features=source.features,
            X=source.X,
            xi=xi,
            beta=T @ trace.final(f"group{k}/beta"),
            sigma=trace.final(f"group{k}/sigma"),
            n_responses=np.diff(g.item_start),
            rhat=found.rhat,
            ess_bulk=found.ess_bulk,
            ess_tail=found.ess_tail,
            beta_mean=T @ trace.final(f"group{k}/beta_mean") if g.name in alone else None,
            coding=source.coding,
            lacking=source.lacking,
            moments=moments,
            **response_table(g, told[g.name])._asdict(),
            guide_mean=None if g.guide is None else g.guide.mean,
            guide_covariance=None if g.guide is None else g.guide.covariance,
            guide_link=None if g.guide is None else np.ascontiguousarray(link[:, :, g.dim]),
            population_rhat={k.split(": ", 1)[1]: v for k, v in rhat.items() if k.startswith(f"{g.name}: ")},
            population_ess={k.split(": ", 1)[1]: v for k, v in ess.items() if k.startswith(f"{g.name}: ")},
        )
        prior[g.name] = g.design.prior_precision(options.tau)
    convergence = _convergence(sampled, groups, rhat, ess, data)
    draws = {name: trace.final(name) for name in ("ability_mean", "ability_sd")} | {"R": trace.final("R")[:, :, 0]}
    abilities = gather_abilities(data, layout, theta_mean, theta_sd, draws)
    give_back()
    drawn = {name: g.last for name, g in groups.items()}
    fit = fit_period(data, layout, centres, told, theta_sd, drawn)
    return Calibration(period, data.dimensions, groups, abilities, convergence, options.tau, prior, seed, fit=fit)


def _population_diagnostics(
    layout: Layout, trace: Trace, features: dict[str, tuple[str, ...]], threads: int
) -> tuple[dict[str, float], dict[str, float]]:
    names = population_names(layout, features)
    found = diagnose(trace.judged(), kinds=("rhat", "ess_bulk"), threads=threads)
    return dict(zip(names, found.rhat, strict=True)), dict(zip(names, found.ess_bulk, strict=True))


def _convergence(
    sampled: Sampled,
    groups: dict[str, GroupDraws],
    rhat: dict[str, float],
    ess: dict[str, float],
    data: PeriodData,
) -> Convergence:
    options, trace, reached = sampled.spec, sampled.trace, sampled.trace.reached
    assert reached is not None
    good = {name: good_items(g, options) for name, g in groups.items()}
    warnings = list(data.warnings)
    if sampled.stopped_by is not None:
        missing = shortfall(reached, options, sampled.sweeps)
        warnings.append(f"stopped at {sampled.stopped_by} before the targets held: {missing}")
    if undefined := [name for name, value in rhat.items() if np.isnan(value)]:
        warnings.append(
            f"R-hat of {len(undefined)} population parameters is undefined, because their chains stand still: "
            f"{first_few(undefined)}"
        )
    if sampled.stuck:
        names = [groups[name].item_ids[j] for name, j in sampled.stuck]
        warnings.append(f"{counted(len(names), 'item')} never moved in some chain: {first_few(names)}; run longer")
        for name, j in sampled.stuck:
            good[name][j] = False
    if sampled.still:
        names = [f"{parameter} of {name}" for name, parameter in sampled.still]
        warnings.append(
            f"{counted(len(names), 'parameter')} that all items of a group share never moved in some chain: "
            f"{first_few(names)}; run longer"
        )
    every = np.concatenate(list(good.values()))
    bad = [groups[name].item_ids[j] for name, of in good.items() for j in np.flatnonzero(~of)]
    if bad:
        warnings.append(
            f"{counted(len(bad), 'item')} above R-hat {options.max_item_rhat}: {first_few(bad)}; marked, and no anchors"
        )
    return Convergence(
        converged=sampled.converged and enough_items(every, options),
        sweeps=sampled.sweeps,
        warmup=sampled.warmup,
        thin=trace.thin,
        seconds=sampled.seconds,
        max_rhat_population=worst_rhat(np.array(list(rhat.values()))),
        min_ess_population=worst_ess(np.array(list(ess.values()))),
        share_items_rhat=float(every.mean()),
        warnings=tuple(warnings),
        mean_error=reached.error.mean,
        sd_error=reached.error.sd,
    )


def _ability_moments(trace: Trace) -> tuple[Array, Array]:
    """Posterior mean and SD of every examinee, (persons, D) each."""
    n = max(trace.ability_count, 1)
    mean = trace.ability_total / n
    return mean, np.sqrt(np.maximum(trace.ability_square / n - mean**2, 0.0))
