r"""Refit factors where the consensus lies, from stored draws.

A Gaussian fitted to a whole period posterior is not the best Gaussian factor near the consensus when the posterior is
skewed. For item j and period m the cavity (consensus without that factor) replaces the period's prior contribution:
draws are weighted by cavity / prior, and the factor becomes weighted posterior over cavity. For Gaussian draws that
changes nothing, so only the difference to a Gaussian twin of the same draws is added,

.. math:: \Delta Q = \Lambda_{tilted} - \Lambda_{tilted}^{twin}, \qquad
          \Delta h = \Lambda_{tilted}\mu_{tilted} - \Lambda_{tilted}^{twin}\mu_{tilted}^{twin},

in which the Monte Carlo noise of the weighted moments and their finite-draw bias cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import cpu_count

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import norm

from concal.calibrate.result import Calibration, GroupDraws
from concal.combine.coefficients import population_moments
from concal.combine.factors import GroupFactors
from concal.combine.gaussian import inverse, precision_shrinkage, symmetric, times
from concal.combine.moments import block_draws
from concal.combine.newton import Mode
from concal.combine.pareto import gaussian_twin, tilt_pass
from concal.combine.posterior import JointPosterior
from concal.combine.summary import PeriodSummary, prior_contribution
from concal.combine.wobble import patterns

Array = npt.NDArray[np.float64]
DAMPING = 0.9
MIN_SIZE = 100.0
MAX_SHAPE = 0.7
BLOCK_BYTES = 48 * 2**20


@dataclass(frozen=True)
class Tilted:
    """The posterior with refitted factors, and what happened to each of them.

    `table` has one row per item and period: effective size of the weights, Pareto k, and whether the factor was refit.
    """

    posterior: JointPosterior
    table: pl.DataFrame


def tilt_factors(
    posterior: JointPosterior,
    base: JointPosterior,
    mode: Mode,
    summaries: Sequence[PeriodSummary],
    calibrations: Mapping[str, Calibration],
) -> Tilted:
    """One pass over all factors whose period's draws are at hand, every cavity taken at the mode.

    `base` holds the factors as they were before any tilting: what a pass finds is added to them.
    """
    groups, frames = {}, []
    for name, group in posterior.groups.items():
        Q, h = group.Q.copy(), group.h.copy()
        for m, summary in enumerate(summaries):
            calibration = calibrations.get(summary.period)
            pairs = np.flatnonzero((group.period == m) & group.active[group.item])
            if calibration is None or not pairs.size:
                continue
            draws = calibration.groups[name]
            if len(draws.model.parameters) != group.p:
                continue
            links = mode.theta[posterior.layout.link(group.dimension)].reshape(-1, 2)[m]
            hyperprior = np.asarray(calibration.beta_prior_precision[name])
            frames.append(
                _tilt_period(group, base.groups[name], mode, name, pairs, links, summary, draws, hyperprior, Q, h)
            )
        groups[name] = replace(group, Q=Q, h=h)
    table = pl.concat(frames) if frames else pl.DataFrame()
    return Tilted(replace(posterior, groups=groups), table)


def _tilt_period(
    group: GroupFactors,
    base: GroupFactors,
    mode: Mode,
    name: str,
    pairs: npt.NDArray[np.intp],
    link: Array,
    summary: PeriodSummary,
    draws: GroupDraws,
    hyperprior: Array,
    Q: Array,
    h: Array,
) -> pl.DataFrame:
    p = group.p
    items, rows = group.item[pairs], group.row[pairs]
    wobble = summary.wobble[group.dimension]
    cavity_mean, cavity_covariance, proper = _cavities(group, mode, name, pairs, link)
    W = _wobble(cavity_mean, p, wobble)
    to_precision = inverse(cavity_covariance + W)
    population = population_moments(draws, hyperprior, None, None, correct=True, literal=False)
    from_mean, from_precision = prior_contribution(draws.X[rows], population, True, None)
    n = pairs.size
    real, twin = _room(n, p), _room(n, p)
    scores = np.asarray(norm.ppf((np.arange(draws.n_draws) + 0.5) / draws.n_draws))

    def work(part: slice) -> None:
        x = block_draws(draws, rows[part], None)
        y = np.empty_like(x)
        gaussian_twin(x, scores, y)
        for values, out in ((x, real), (y, twin)):
            tilt_pass(
                values,
                cavity_mean[part],
                to_precision[part],
                from_mean[part],
                from_precision[part],
                *(array[part] for array in out),
            )

    step = max(1, BLOCK_BYTES // (16 * draws.n_draws * p))
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        list(pool.map(work, [slice(i, i + step) for i in range(0, n, step)]))
    shape = real[3]
    effective = np.minimum(real[2], twin[2]) * summary.groups[name].ess[rows] / draws.n_draws
    fine = proper & (effective > MIN_SIZE) & (shape < MAX_SHAPE)
    k = np.flatnonzero(fine)
    factor = precision_shrinkage(effective[k], p)[:, None, None]
    T, T_twin = inverse(real[1][k]) * factor, inverse(twin[1][k]) * factor
    at = pairs[k]
    Q[at] += DAMPING * (base.Q[at] + T - T_twin - Q[at])
    h[at] += DAMPING * (base.h[at] + times(T, real[0][k]) - times(T_twin, twin[0][k]) - h[at])
    return pl.DataFrame(
        {
            "item_id": [group.item_ids[j] for j in items],
            "group": [name] * n,
            "period": [summary.period] * n,
            "tilt_size": effective,
            "pareto_k": shape,
            "tilted": fine,
        }
    )


def _room(n: int, p: int) -> tuple[Array, Array, Array, Array]:
    """Weighted mean, covariance, effective size and Pareto k of every factor."""
    return np.empty((n, p)), np.empty((n, p, p)), np.empty(n), np.empty(n)


def _cavities(
    group: GroupFactors, mode: Mode, name: str, pairs: npt.NDArray[np.intp], link: Array
) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Consensus at the mode without the factor, on the period's own metric; and where it is a proper Gaussian."""
    p = group.p
    items = group.item[pairs]
    u, B = float(link[0]), float(link[1])
    E, e = np.ones(p), np.zeros(p)
    E[0], e[0], e[1] = np.exp(-u), -B * np.exp(-u), u
    P = inverse(mode.C[name][items])
    s = times(P, mode.xi[name][items])
    w = group.weight[pairs]
    P = P - w[:, None, None] * (E[:, None] * group.Q[pairs] * E)
    s = s - w[:, None] * E * (group.h[pairs] - group.Q[pairs] @ e)
    scale = np.sqrt(np.abs(np.diagonal(P, axis1=1, axis2=2)))
    proper = np.linalg.eigvalsh(symmetric(P / scale[:, :, None] / scale[:, None, :]))[:, 0] > 1e-3
    P[~proper], s[~proper] = np.eye(p), 0.0
    covariance = inverse(P)
    mean = times(covariance, s)
    return E * mean + e, E[:, None] * covariance * E, np.asarray(proper)


def _wobble(mean: Array, p: int, C: Array) -> Array:
    P = patterns(mean[:, 0], p)
    return np.asarray(P @ C @ np.swapaxes(P, 1, 2))
