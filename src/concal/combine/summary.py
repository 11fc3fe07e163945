"""From one period's draws and its link to the plain arrays every combination works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from concal.calibrate.result import Calibration, GroupDraws
from concal.combine.checks import check_period, collapsed, effective_draws
from concal.combine.coefficients import PopulationMoments, population_moments
from concal.combine.conditional import conditional_factors
from concal.combine.curved import settle
from concal.combine.gaussian import (
    corrected_inverse,
    effective_covariance_draws,
    feature_quadratic,
    inverse,
    precision_shrinkage,
    symmetric,
    times,
)
from concal.combine.guided import guide_contribution
from concal.combine.moments import Moments, item_moments
from concal.combine.sharpened import likelihood_factors, sharpen, sharpen_linked
from concal.combine.wobble import metric_wobble, without_wobble
from concal.link.result import Link
from concal.link.transform import used_draws
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
PAPER_DRAWS = 200


@dataclass(frozen=True)
class GroupSummary:
    r"""What one period says about one group's items and population.

    Attributes
    ----------
    name, dimension : str
    model : ResponseModel
    item_ids, features : tuple of str
    X : (items, features)
    n_responses : (items,) int64
    mu, Lambda : (items, p), (items, p, p)
        Mean and precision of the linked posterior. Items without a response carry their prior here.
    m, Omega : (items, p), (items, p, p)
        Mean and precision of the period's prior contribution, linked.
    Q, h : (items, p, p), (items, p)
        Likelihood factor :math:`\exp(-x'Qx/2 + h'x)` on the period's own metric, metric wobble taken out.
    b, V : (features, p), (features * p, same)
        Mean and covariance of linked beta, vectorised feature-major.
    beta_precision : (features * p, same)
        V^-1, corrected for the finite number of draws.
    sigma : (p, p)
        E[D Sigma D].
    sigma_coordinates : (p (p + 1) / 2,)
        Draw mean of the log-Cholesky coordinates of D Sigma D.
    hyperprior : (features, features)
        Precision of the hyperprior of each column of beta.
    ess : (items,)
        Effective number of draws behind each item's covariance.
    skewness, kurtosis : (items, p)
        Of the draws, on the period's own metric (excess kurtosis).
    worst_rhat : (items,)
    own_mean, own_precision : (items, p), (items, p, p)
        The posterior on the period's own metric, metric wobble taken out.
    curvature : (items, 3)
        Shape of that posterior beyond its Gaussian, see `concal.combine.curved`. These three are None in banks written
        before they existed.
    guided : bool
        The items had priors of their own instead of the population model, so the period says nothing about it.
    """

    name: str
    dimension: str
    model: ResponseModel
    item_ids: tuple[str, ...]
    features: tuple[str, ...]
    X: Array
    n_responses: npt.NDArray[np.int64]
    mu: Array
    Lambda: Array
    m: Array
    Omega: Array
    Q: Array
    h: Array
    b: Array
    V: Array
    beta_precision: Array
    sigma: Array
    sigma_coordinates: Array
    hyperprior: Array
    ess: Array
    skewness: Array
    kurtosis: Array
    worst_rhat: Array
    own_mean: Array | None = None
    own_precision: Array | None = None
    curvature: Array | None = None
    guided: bool = False

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.item_ids)

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Which items had a response in this period."""
        return np.asarray(self.n_responses > 0)


@dataclass(frozen=True)
class PeriodSummary:
    """What one period contributes to the bank: Gaussian summaries, and nothing that grows with responses or draws.

    Attributes
    ----------
    period, reference : str
    dimensions : tuple of str
    groups : dict of group name -> GroupSummary
    link_mean : (dimensions, 2)
        Mean of (log A, B) over the linked draws; zero for the reference.
    link_covariance : (dimensions, 2, 2)
    wobble : (dimensions, 2, 2)
        Covariance of the period's own metric in (log A, B), from the finite sample of examinees.
    linked : bool
        False when the period came without a link: only the joint method can place it.
    n_draws : int
        Linked draws.
    warnings : tuple of str
    """

    period: str
    reference: str
    dimensions: tuple[str, ...]
    groups: Mapping[str, GroupSummary]
    link_mean: Array
    link_covariance: Array
    wobble: Array
    linked: bool = True
    n_draws: int = 0
    warnings: tuple[str, ...] = field(default=())


def summarise_period(
    calibration: Calibration,
    link: Link | None = None,
    *,
    reference: str | None = None,
    finite_draw_correction: bool = True,
    literal: bool = False,
    wobble: bool = True,
) -> PeriodSummary:
    r"""Reduce a calibrated period to its Gaussian summaries, on the reference metric and on its own.

    Per item: mean and precision of the linked draws; the prior contribution
    :math:`E[D\Sigma D] + Var[D X\beta + t]`; and on the period's own metric the likelihood factor
    :math:`Q = \Lambda - \Omega,\ h = \Lambda\mu - \Omega m` with the metric wobble removed.

    Parameters
    ----------
    calibration : Calibration
    link : Link or None
        None: the period is the reference itself, or (with `reference` naming another period) not linked.
    finite_draw_correction : bool
        Correct precisions for the finite effective number of draws.
    literal : bool
        The paper's plug-in moments: 200 linked draws, plain covariances, no correction.
    wobble : bool
        Estimate the metric wobble and take it out of the factors (own metric only; the linked summaries keep it).
    """
    check_period(calibration, link)
    correct = finite_draw_correction and not literal
    draws, rows = linked_draws(calibration, link, literal)
    which = None if draws.size == calibration.n_draws else draws
    warnings: list[str] = []
    own: dict[str, Moments] = {}
    linked: dict[str, Moments] = {}
    constants: dict[str, tuple[Array, Array] | None] = {}
    ess: dict[str, Array] = {}
    for name, group in calibration.groups.items():
        constants[name] = _constants(link, group.dimension, rows)
        ess[name] = effective_draws(group, group.n_draws, warnings)
        own[name], linked[name] = item_moments(group, constants[name], which, calibration.period)
    seen = {name: (g.n_responses > 0).astype(np.float64) for name, g in calibration.groups.items()}
    shared = np.zeros((len(calibration.dimensions), 2, 2))
    if wobble:
        shared = metric_wobble(calibration, own, seen)
    groups = {}
    for name, group in calibration.groups.items():
        C = shared[calibration.dimensions.index(group.dimension)]
        hyperprior = np.asarray(calibration.beta_prior_precision[name], dtype=np.float64)
        if group.guide_mean is None:
            warnings.extend(collapsed(group))
        groups[name] = _summarise_group(
            group, hyperprior, constants[name], which, own[name], linked[name], ess[name], C, correct, literal
        )
    mean, covariance = _link_moments(link, len(calibration.dimensions))
    target = reference or (calibration.period if link is None else link.reference)
    return PeriodSummary(
        calibration.period,
        target,
        calibration.dimensions,
        groups,
        mean,
        covariance,
        shared,
        linked=link is not None or target == calibration.period,
        n_draws=draws.size,
        warnings=tuple(warnings),
    )


def linked_draws(
    calibration: Calibration, link: Link | None, literal: bool
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Which kept draws the linked moments use, and the rows of the link that belong to them.

    All linked draws; with the paper's option 200 of them, evenly spread.
    """
    n = calibration.n_draws
    draws = np.arange(n) if link is None else used_draws(link, n)
    rows = np.arange(draws.size)
    if literal and draws.size > PAPER_DRAWS:
        rows = np.arange(PAPER_DRAWS) * draws.size // PAPER_DRAWS
    return np.asarray(draws[rows], dtype=np.intp), np.asarray(rows, dtype=np.intp)


def _constants(link: Link | None, dimension: str, rows: npt.NDArray[np.intp]) -> tuple[Array, Array] | None:
    if link is None:
        return None
    k = link.dimensions.index(dimension)
    A, B = link.A[rows, k], link.B[rows, k]
    return None if np.all(A == 1.0) and np.all(B == 0.0) else (np.asarray(A), np.asarray(B))


def _summarise_group(
    group: GroupDraws,
    hyperprior: Array,
    link: tuple[Array, Array] | None,
    which: npt.NDArray[np.intp] | None,
    own: Moments,
    linked: Moments,
    ess: Array,
    C: Array,
    correct: bool,
    literal: bool,
) -> GroupSummary:
    all_draws = group.n_draws
    s = all_draws if which is None else which.shape[0]
    p = own.mean.shape[1]
    population = population_moments(group, hyperprior, link, which, correct=correct, literal=literal)
    same = link is None and which is None
    alone = population if same else population_moments(group, hyperprior, None, None, correct=correct, literal=literal)
    guided = group.guide_mean is not None
    if guided:
        m, Omega = guide_contribution(group, link, which, None)
        own_m, own_Omega = guide_contribution(group, None, None, C)
    else:
        m, Omega = prior_contribution(group.X, population, correct, None)
        own_m, own_Omega = prior_contribution(group.X, alone, correct, C)
    sharp = sharpen(group, own, ess) if correct else None
    exact = exact_linked = np.zeros(group.n_items, dtype=bool)
    own_mean, own_covariance, mean, covariance = own.mean, own.covariance, linked.mean, linked.covariance
    if sharp is not None:
        own_mean, own_covariance, exact = sharp.mean, sharp.covariance, sharp.fine
        mean, covariance, exact_linked = sharpen_linked(sharp, own, linked, None if link is None else link[0])
    n_linked = np.minimum(ess, s)
    Lambda = _precision(covariance, n_linked, s, p, correct, exact_linked)
    own_covariance = without_wobble(own_mean, own_covariance, C)
    own_Lambda = _precision(own_covariance, ess, all_draws, p, correct, exact)
    seen = group.n_responses > 0
    Lambda = np.where(seen[:, None, None], Lambda, Omega)
    Q = np.where(seen[:, None, None], own_Lambda - own_Omega, 0.0)
    h = np.where(seen[:, None], times(own_Lambda, own_mean) - times(own_Omega, own_m), 0.0)
    if not literal and not guided:
        Q, h, _ = conditional_factors(group, alone.b, own_mean, own_Lambda, Q, h, seen & ~exact)
    if sharp is not None:
        sharp_Q, sharp_h = likelihood_factors(sharp, own_covariance)
        Q, h = np.where(exact[:, None, None], sharp_Q, Q), np.where(exact[:, None], sharp_h, h)
    return GroupSummary(
        name=group.name,
        dimension=group.dimension,
        model=group.model,
        item_ids=group.item_ids,
        features=group.features,
        X=np.asarray(group.X, dtype=np.float64),
        n_responses=np.asarray(group.n_responses, dtype=np.int64),
        mu=np.where(seen[:, None], mean, m),
        Lambda=Lambda,
        m=m,
        Omega=Omega,
        Q=symmetric(Q),
        h=h,
        b=population.b,
        V=population.V,
        beta_precision=population.precision,
        sigma=population.sigma,
        sigma_coordinates=population.sigma_coordinates,
        hyperprior=hyperprior,
        ess=effective_covariance_draws(s, n_linked),
        skewness=own.skewness,
        kurtosis=own.kurtosis,
        worst_rhat=group.worst_rhat,
        own_mean=own_mean,
        own_precision=own_Lambda,
        curvature=settle(own.curvature, ess, own_mean, own_covariance, Q),
        guided=guided,
    )


def _precision(
    covariance: Array, ess: Array, n_draws: int, p: int, correct: bool, exact: npt.NDArray[np.bool_]
) -> Array:
    """Inverse covariances; when asked, those from draws made unbiased for `ess` effective ones, `exact` ones kept."""
    if not correct:
        return inverse(covariance)
    unbiased = (1.0 - 1.0 / n_draws) / (1.0 - 1.0 / np.maximum(ess, 2.0))
    factor = precision_shrinkage(effective_covariance_draws(n_draws, ess), p) / unbiased
    return inverse(covariance) * np.where(exact, 1.0, factor)[:, None, None]


def prior_contribution(
    X: Array, population: PopulationMoments, correct: bool, wobble: Array | None
) -> tuple[Array, Array]:
    """Mean and precision of the population's prediction for every item, by the law of total variance."""
    p = population.sigma.shape[0]
    m = X @ population.b
    total = population.sigma + feature_quadratic(X, population.V, p)
    if wobble is not None:
        total = without_wobble(m, total, wobble)
    if not correct:
        return m, inverse(total)
    return m, corrected_inverse(total, feature_quadratic(X, population.V_estimated, p), population.n_effective)


def _link_moments(link: Link | None, n_dimensions: int) -> tuple[Array, Array]:
    mean, covariance = np.zeros((n_dimensions, 2)), np.zeros((n_dimensions, 2, 2))
    if link is not None:
        for k in range(n_dimensions):
            values = np.stack([np.log(link.A[:, k]), link.B[:, k]])
            mean[k], covariance[k] = values.mean(axis=1), np.cov(values)
    return mean, covariance
