"""From a calibration to its factors: once, when the period is calibrated, and never again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.calibration.result import Calibration, GroupDraws
from concal.calibration.workers import one_blas_thread
from concal.consensus.factors.by_parts import from_draws
from concal.consensus.factors.check import check_calibration, collapsed, effective_draws
from concal.consensus.factors.gaussians import finish, from_gradients
from concal.consensus.factors.moments import PhiMoments, item_moments
from concal.consensus.factors.period import GroupFactors, PeriodFactors
from concal.consensus.factors.population import population_moments
from concal.consensus.factors.remainder import fit_remainder, table_of
from concal.consensus.factors.wobble import metric_wobble
from concal.consensus.shared import with_own_spread

Array = npt.NDArray[np.float64]


@one_blas_thread
def make_factors(calibration: Calibration) -> PeriodFactors:
    """What the period's responses said about its items: a function of the calibration alone.

    Parameters
    ----------
    calibration : Calibration
        Of this engine (gradients and response tables) or of another (draws).
    """
    check_calibration(calibration)
    warnings = collapsed(calibration.groups)
    xi: dict[str, tuple[Array, Array]] = {}
    phi: dict[str, PhiMoments] = {}
    for name, group in calibration.groups.items():
        mean, covariance, phi[name] = item_moments(group, calibration.period)
        xi[name] = mean, covariance
    wobble = metric_wobble(calibration, phi)
    groups = {}
    for name, group in calibration.groups.items():
        C = wobble[calibration.dimensions.index(group.dimension)]
        hyperprior = np.asarray(calibration.beta_prior_precision[name], dtype=np.float64)
        groups[name] = _group_factors(group, hyperprior, *xi[name], phi[name], C, warnings)
    return PeriodFactors(calibration.period, calibration.dimensions, groups, wobble, tuple(warnings))


def _group_factors(
    group: GroupDraws, hyperprior: Array, mean: Array, covariance: Array, phi: PhiMoments, C: Array, warnings: list[str]
) -> GroupFactors:
    population = population_moments(group, hyperprior)
    seen = np.asarray(group.n_responses > 0)
    table, tables = table_of(group), {}
    if group.moments is not None:
        Q, gradient, centre, spread = from_gradients(group, C)
        if table is not None:
            dQ, dh = fit_remainder(group, table, Q, gradient, centre, spread)
            rest = {"dQ": np.where(seen[:, None, None], dQ, 0.0), "dh": np.where(seen[:, None], dh, 0.0)}
            tables = {**table._asdict(), **rest}
    else:
        ess, centre = effective_draws(group, group.n_draws, warnings), phi.mean
        Q, gradient = from_draws(group, phi, covariance.mean(axis=0), ess, C, warnings)
    Q, h = finish(Q, gradient, centre, with_own_spread(group.model, population.sigma), seen)
    return GroupFactors(
        name=group.name,
        dimension=group.dimension,
        model=group.model,
        item_ids=group.item_ids,
        features=group.features,
        coding=group.coding,
        lacking=group.lacking,
        X=group.X,
        n_responses=np.asarray(group.n_responses, dtype=np.int64),
        Q=Q,
        h=h,
        mean=mean,
        covariance=covariance,
        worst_rhat=group.worst_rhat,
        b=population.b,
        V=population.V,
        beta_precision=population.precision,
        sigma=population.sigma,
        sigma_coordinates=population.sigma_coordinates,
        hyperprior=hyperprior,
        obtained="draws" if group.moments is None else "gradients",
        guided=group.guide_mean is not None,
        **tables,
    )
