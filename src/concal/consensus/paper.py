r"""The published method, from linked draws: one file to lay beside the paper.

Names in brackets are the paper's own labels of its equations and sections. Everything is plug-in: plain moments of
draws, no correction for their finite number, a replacement prior that ignores the uncertainty of the population.

====================== ===============================================================================================
`linked_draws`         draws on the reference metric [eq:scale], a few hundred of each period but the reference
`item_posteriors`      :math:`\hat\mu_m, \Lambda_m`, the factors of the product [eq:product]
`population_posterior` :math:`b_m, V_m` and :math:`\Sigma_m`, linked; the latter's coordinates [app:logchol]
`prior_contribution`   :math:`m_m, \Omega_m`, the prior each period brought [eq:Lc]
`consensus_population` :math:`\beta^\star` [eq:betastar] and :math:`\Sigma^\star` [app:logchol]
`item_level_prior`     the replacement prior where the population model changed between periods [sec:consensus]
`combine_group`        :math:`\Lambda_c, b_c` [eq:Lc, app:deriv], eligibility and the population fallback [sec:fallback]
====================== ===============================================================================================

The links come from `concal.link` [eq:haebara]; ``linking.weights`` and ``linking.purify_of`` hold what the paper leaves
open there. Added here, and neutral when not used: a half-life, and items nobody has answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.calibration.priors import beta_moments
from concal.calibration.result import Calibration, GroupDraws
from concal.consensus.analytic.forms import NewItems, checked_rows
from concal.consensus.gaussian import from_log_cholesky, inverse, times
from concal.consensus.result import Consensus, GroupConsensus
from concal.consensus.shared import with_group_values
from concal.errors import DataError, LinkError, counted, first_few
from concal.linking.result import Link
from concal.linking.transform import used_draws
from concal.response import ResponseModel
from concal.spec import ConsensusSpec

Array = npt.NDArray[np.float64]

_BLOCK = 4096  # items whose draws are in float64 at the same time
_RIDGE = 1e-10  # share of V's diagonal added before it is inverted, so that a fixed population has an inverse
_ROUNDING = 1e-9  # smallest eigenvalue of Lambda_c, in units of the replacement prior's, that is not rounding
_FORGOTTEN = 1e-12  # weight below which a half-life has taken a period away


@dataclass(frozen=True)
class GroupSummary:
    """One group in one period on the reference metric: the Gaussian summaries the method works on (assumption iv).

    `item_ids`, `X` and `n_responses` name all its items; `mu`, `Lambda`, `m`, `Omega` have a row for each of the
    `answered` ones. `b` (features * p,) and V^-1 are vectorised feature-major; `psi` are the log-Cholesky coordinates
    of Sigma, averaged over draws; `hyperprior` is the mean b_0 of beta's prior and its precision T, tau in the units of
    the features and of the items' typical spread.
    """

    dimension: str
    model: ResponseModel
    features: tuple[str, ...]
    form: tuple[object, ...]  # features and their coding: equal forms have comparable beta
    lacking: tuple[str, ...]  # columns of the formula that no item had
    item_ids: tuple[str, ...]
    X: Array
    n_responses: npt.NDArray[np.int64]
    answered: npt.NDArray[np.intp]
    mu: Array
    Lambda: Array
    m: Array
    Omega: Array
    b: Array
    V_inverse: Array
    psi: Array
    hyperprior: tuple[Array, Array]


@dataclass(frozen=True)
class PeriodSummary:
    """One period: its groups, and the moments of its linking constants (rows of `Consensus.links`)."""

    period: str
    reference: str
    dimensions: tuple[str, ...]
    groups: Mapping[str, GroupSummary]
    links: pl.DataFrame


def combine_paper(
    periods: Iterable[tuple[Calibration, Link | None]],
    spec: ConsensusSpec,
    *,
    items: Mapping[str, NewItems] | None = None,
) -> Consensus:
    """The published consensus of calibrated and linked periods.

    Parameters
    ----------
    periods : iterable of (Calibration, Link or None)
        Oldest first; None, or a link of a period to itself, marks the reference. May be lazy: the draws of a period are
        let go before the next one is asked for.
    spec : ConsensusSpec
        Read are `paper_draws` (linked draws of a period but the reference) and `half_life`.
    items : dict of group -> (item ids, design rows)
        Items to include even if nobody has answered them; the rows follow the newest period's features.

    Raises
    ------
    DataError
        A period the method does not know (items with priors from the bank), too few draws, draws without spread.
    LinkError
        Periods that are not linked to one and the same reference.
    """
    summaries = list(starmap(partial(summarise_period, n_linked=spec.paper_draws), periods))
    reference = _common_reference(summaries)
    groups: dict[str, GroupConsensus] = {}
    warnings: list[str] = []
    newest, wanted = len(summaries) - 1, dict(items or {})
    for name in dict.fromkeys([name for s in summaries for name in s.groups] + list(wanted)):
        ages = [newest - k for k, s in enumerate(summaries) if name in s.groups]
        having = [s.groups[name] for s in summaries if name in s.groups]
        if any(s.answered.size for s in having):
            groups[name], doubts = combine_group(name, having, ages, spec.half_life, wanted.get(name))
            warnings += doubts
        else:
            warnings.append(f"group {name!r} is left out: no period has a response to it, so nothing tells its items")
    sources = np.concatenate([np.zeros(0, dtype="U1"), *(g.source for g in groups.values())])
    fallen, answered = (sources == "fallback").sum(), (sources != "predicted").sum()
    return Consensus(
        method="paper",
        reference=reference,
        dimensions=summaries[0].dimensions,
        periods=tuple(s.period for s in summaries),
        groups=groups,
        links=pl.concat([s.links for s in summaries]),
        fallback_share=float(fallen / max(answered, 1)),
        warnings=tuple(warnings),
    )


# one period: linked draws and their Gaussian summaries


def linked_draws(
    calibration: Calibration, link: Link | None, n_linked: int
) -> tuple[npt.NDArray[np.int64], metric.Constants]:
    """Which draws of a period are used, and their (A, B), (draws, dimensions) [eq:scale].

    All draws of the reference, with (1, 0); of another period `n_linked`, evenly spread over the link's.
    """
    if link is None or link.period == link.reference:
        shape = (calibration.n_draws, len(calibration.dimensions))
        return np.arange(shape[0]), metric.Constants(np.ones(shape), np.zeros(shape))
    n = link.A.shape[0]
    rows = np.arange(n) if n <= n_linked else np.arange(n_linked) * n // n_linked
    return used_draws(link, calibration.n_draws)[rows], metric.Constants(link.A[rows], link.B[rows])


def summarise_period(calibration: Calibration, link: Link | None, n_linked: int) -> PeriodSummary:
    """A period's Gaussian summaries on the reference metric; nothing of it grows with draws or responses."""
    period = calibration.period
    if link is not None and (link.period != period or link.dimensions != calibration.dimensions):
        raise LinkError(
            f"period {period!r} with dimensions {list(calibration.dimensions)} was given the link of period "
            f"{link.period!r} with {list(link.dimensions)}; pair every period with its own link"
        )
    draws, (A, B) = linked_draws(calibration, link, n_linked)
    groups = {}
    for name, group in calibration.groups.items():
        k = calibration.dimensions.index(group.dimension)
        answered = np.flatnonzero(group.n_responses > 0)
        _check(period, group, draws.size)
        mu, covariance = item_posteriors(group, answered, draws, A[:, k], B[:, k])
        b, V, sigma, psi = population_posterior(group, draws, A[:, k], B[:, k])
        m, Omega = prior_contribution(group.X[answered], b, V, sigma)
        groups[name] = GroupSummary(
            dimension=group.dimension,
            model=group.model,
            form=(group.features, group.coding),
            lacking=group.lacking,
            features=group.features,
            item_ids=group.item_ids,
            X=np.asarray(group.X, dtype=np.float64),
            n_responses=np.asarray(group.n_responses, dtype=np.int64),
            answered=answered,
            mu=mu,
            Lambda=inverse(covariance),
            m=m,
            Omega=Omega,
            b=b,
            V_inverse=coefficient_precision(V, _coefficients(group.model, len(group.features))),
            psi=psi,
            hyperprior=beta_moments(calibration.beta_prior_precision[name], group.model.prior),
        )
    columns = {"A_mean": A.mean(axis=0), "A_sd": A.std(axis=0, ddof=1)}
    columns |= {"B_mean": B.mean(axis=0), "B_sd": B.std(axis=0, ddof=1)}
    links = pl.DataFrame({"period": period, "dimension": list(calibration.dimensions), **columns})
    return PeriodSummary(period, period if link is None else link.reference, calibration.dimensions, groups, links)


def item_posteriors(
    group: GroupDraws, which: npt.NDArray[np.intp], draws: npt.NDArray[np.int64], A: Array, B: Array
) -> tuple[Array, Array]:
    """Mean and covariance of the linked draws of some items: mu_m and the inverse of Lambda_m [eq:product]."""
    p = len(group.model.parameters)
    xi = group.xi.reshape(-1, group.n_items, p)
    mean, covariance = np.empty((which.size, p)), np.empty((which.size, p, p))
    for start in range(0, which.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        moved = metric.move_items(xi[np.ix_(draws, which[block])], A[:, None], B[:, None])
        mean[block] = moved.mean(axis=0)
        deviations = np.ascontiguousarray((moved - mean[block]).transpose(1, 2, 0))
        covariance[block] = deviations @ deviations.transpose(0, 2, 1) / (draws.size - 1)
    return mean, covariance


def population_posterior(
    group: GroupDraws, draws: npt.NDArray[np.int64], A: Array, B: Array
) -> tuple[Array, Array, Array, Array]:
    """Mean b_m and covariance V_m of linked beta; linked Sigma's mean, and that of its log-Cholesky coordinates."""
    beta = metric.move_beta(group.flat("beta")[draws], A, B).reshape(draws.size, -1)
    sigma = metric.move_item_covariance(group.flat("sigma")[draws], A)
    return beta.mean(axis=0), np.cov(beta, rowvar=False), sigma.mean(axis=0), log_cholesky(sigma).mean(axis=0)


def _coefficients(model: ResponseModel, n_features: int) -> npt.NDArray[np.bool_]:
    """Which of beta's entries there are, (features * p,): equal slopes or steps have an intercept and no features."""
    exist = np.ones((n_features, len(model.parameters)), dtype=bool)
    exist[1:, list(model.shared)] = False
    return exist.ravel()


def coefficient_precision(V: Array, exist: npt.NDArray[np.bool_]) -> Array:
    """V_m^-1 of the coefficients there are; what does not exist does not vary, and has no precision either."""
    own = V[np.ix_(exist, exist)]
    out = np.zeros_like(V)
    out[np.ix_(exist, exist)] = inverse(own + _RIDGE * np.diag(np.maximum(np.diag(own), _RIDGE)))
    return out


def prior_contribution(X: Array, b: Array, V: Array, sigma: Array) -> tuple[Array, Array]:
    r"""Mean and precision of the period's population prediction for its items, m_m and Omega_m [eq:Lc].

    .. math:: m = X b, \qquad \Omega^{-1} = E[D\Sigma D] + Var[D X\beta + t] = E[D\Sigma D] + X V X' .
    """
    p = sigma.shape[0]
    spread = [[((X @ V[i::p, k::p]) * X).sum(axis=1) for k in range(p)] for i in range(p)]
    return X @ b.reshape(-1, p), inverse(sigma + np.moveaxis(np.array(spread), 2, 0))


# the population layer


def log_cholesky(sigma: Array) -> Array:
    """Coordinates of covariances (..., p, p): L_11, L_21, L_22, ..., logarithms on the diagonal [app:logchol]."""
    # those of `concal.consensus.gaussian` lie otherwise in memory: sums over draws would differ in the last bit
    root = np.linalg.cholesky(sigma)
    rows, columns = np.tril_indices(sigma.shape[-1])
    values = np.asarray(root[..., rows, columns], dtype=np.float64)
    values[..., rows == columns] = np.log(values[..., rows == columns])
    return values


def consensus_population(
    name: str, periods: Sequence[GroupSummary], weights: Array, shares: Array
) -> tuple[Array, Array, Array]:
    r"""One population for all periods: beta* (features, p), its covariance, and Sigma*.

    .. math:: \beta^\star = b_0 + \Big(\sum_m V_m^{-1} - (M-1) T\Big)^{-1} \sum_m V_m^{-1} (b_m - b_0)

    [eq:betastar], the hyperprior N(b_0, T^-1) counted once (the paper's has b_0 = 0 and T = tau I); Sigma* is the mean
    of the periods' Sigma in log-Cholesky coordinates, weighted by their items [app:logchol]. `shares` are the weights
    divided by their sum.
    """
    p = len(periods[0].model.parameters)
    b_0 = periods[0].hyperprior[0].ravel()
    once = sum(share * s.hyperprior[1] for share, s in zip(shares, periods, strict=True))
    precision = once + sum(w * (s.V_inverse - s.hyperprior[1]) for w, s in zip(weights, periods, strict=True))
    exist = _coefficients(periods[0].model, len(periods[0].features))
    precision = precision[np.ix_(exist, exist)]
    if np.linalg.eigvalsh(precision)[0] <= 0:
        raise DataError(
            f"group {name!r}: the combined precision of its coefficients is not positive definite; some features are "
            'told by no period. Take them out of the formula, or use method "analytic" or "joint"'
        )
    covariance = np.zeros((exist.size, exist.size))
    covariance[np.ix_(exist, exist)] = inverse(precision)
    beta = b_0 + covariance @ sum(w * (s.V_inverse @ (s.b - b_0)) for w, s in zip(weights, periods, strict=True))
    counts = shares * [s.answered.size for s in periods]
    psi = sum(n * s.psi for n, s in zip(counts / counts.sum(), periods, strict=True))
    return beta.reshape(-1, p), covariance, from_log_cholesky(np.asarray(psi), p)


# the item layer


def combine_group(
    name: str, periods: Sequence[GroupSummary], ages: Sequence[int], half_life: float | None, new: NewItems | None
) -> tuple[GroupConsensus, list[str]]:
    r"""Consensus of a group's items and what its users should be told.

    .. math:: \Lambda_c = \sum_m\Lambda_m - \sum_m\Omega_m + \Omega^\star, \qquad
              b_c = \sum_m\Lambda_m\hat\mu_m - \sum_m\Omega_m m_m + \Omega^\star m^\star, \qquad
              \mu_c = \Lambda_c^{-1} b_c

    [eq:Lc], sums over the periods that saw the item. An item whose Lambda_c is not positive definite is not identified
    beyond the population model and gets the replacement prior itself [sec:fallback]; so does one nobody answered.
    A period that is `age` periods old counts 0.5^(age / half_life).
    """
    newest = _in_force([s for s in periods if s.answered.size])
    ids, X, warnings = _items(name, periods, newest, new)
    place = {item: j for j, item in enumerate(ids)}
    counting = [(age, s) for age, s in zip(ages, periods, strict=True) if s.answered.size and s.model == newest.model]
    if lost := {s.item_ids[j] for s in periods if s.model != newest.model for j in s.answered}:
        # thresholds over another number of categories are other parameters
        warnings.append(
            f"group {name!r}: {counted(len(lost), 'item')} ({first_few(sorted(lost))}) answered under another response "
            "model; only the newest scoring counts, and items without an answer under it are predicted"
        )
    n, p = len(ids), len(newest.model.parameters)
    precision, shift, n_periods = np.zeros((n, p, p)), np.zeros((n, p)), np.zeros(n, dtype=np.int64)
    n_responses = np.zeros(n, dtype=np.int64)
    rows = [np.array([place[s.item_ids[j]] for j in s.answered], dtype=np.intp) for _, s in counting]
    weights, _ = _weights([age for age, _ in counting], half_life)
    for w, at, (_, s) in zip(weights, rows, counting, strict=True):
        precision[at] += w * (s.Lambda - s.Omega)
        shift[at] += w * (times(s.Lambda, s.mu) - times(s.Omega, s.m))
        n_periods[at] += 1
        n_responses[at] += s.n_responses[s.answered]

    alike = [(age, s) for age, s in counting if s.form == newest.form]
    beta, beta_covariance, sigma = consensus_population(
        name, [s for _, s in alike], *_weights([age for age, _ in alike], half_life)
    )
    prior_mean, prior_covariance = _predictions(X, beta, sigma)
    if len(alike) < len(counting):
        warnings.append(
            f"group {name!r}: its features or their coding changed between periods; replacement priors come from the "
            "periods' predictions for the items"
        )
        item_level_prior(prior_mean, prior_covariance, [s for _, s in counting], rows, weights)
    Omega = inverse(prior_covariance)

    Lambda_c, b_c = precision + Omega, shift + times(Omega, prior_mean)
    answered = n_periods > 0
    eligible = answered & _positive_definite(Lambda_c, prior_covariance)
    mean, covariance = prior_mean.copy(), prior_covariance.copy()
    covariance[eligible] = inverse(Lambda_c[eligible])
    mean[eligible] = times(covariance[eligible], b_c[eligible])
    if newest.model.shared:
        variances = np.diagonal(beta_covariance)[: mean.shape[1]]
        mean, covariance = with_group_values(newest.model, mean, covariance, beta[0], variances)
    consensus = GroupConsensus(
        name=name,
        dimension=newest.dimension,
        model=newest.model,
        item_ids=ids,
        features=newest.features,
        X=X,
        mean=mean,
        covariance=covariance,
        source=np.where(eligible, "consensus", np.where(answered, "fallback", "predicted")),
        n_responses=n_responses,
        n_periods=n_periods,
        beta=beta,
        sigma=sigma,
        beta_covariance=beta_covariance,
    )
    return consensus, warnings


def _in_force(periods: Sequence[GroupSummary]) -> GroupSummary:
    """The newest period; one whose items lacked a column of the formula only if no other has its response model."""
    alike = [s for s in reversed(periods) if s.model == periods[-1].model]
    return next((s for s in alike if not s.lacking), alike[0])


def item_level_prior(
    mean: Array,
    covariance: Array,
    periods: Sequence[GroupSummary],
    rows: Sequence[npt.NDArray[np.intp]],
    weights: Array,
) -> None:
    """Replacement priors under a changed specification: the periods' predictions for an item, averaged in place.

    [sec:consensus] leaves the average open; it is that of the natural parameters, over the periods that saw the item.
    """
    total, precision, shift = np.zeros(len(mean)), np.zeros_like(covariance), np.zeros_like(mean)
    for w, at, s in zip(weights, rows, periods, strict=True):
        total[at] += w
        precision[at] += w * s.Omega
        shift[at] += w * times(s.Omega, s.m)
    known = total > _FORGOTTEN
    covariance[known] = inverse(precision[known] / total[known, None, None])
    mean[known] = times(covariance[known], shift[known] / total[known, None])


def _weights(ages: Sequence[int], half_life: float | None) -> tuple[Array, Array]:
    """0.5^(age / half_life), and the same divided by their sum (also where all of them underflow)."""
    age = np.asarray(ages, dtype=np.float64)
    if half_life is None:
        return np.ones(age.size), np.full(age.size, 1.0 / age.size)
    relative = 0.5 ** ((age - age.min()) / half_life)
    return np.asarray(0.5 ** (age / half_life)), np.asarray(relative / relative.sum())


def _items(
    name: str, periods: Sequence[GroupSummary], newest: GroupSummary, new: NewItems | None
) -> tuple[tuple[str, ...], Array, list[str]]:
    """All items with their rows of the newest period's design, NaN where it does not describe them."""
    new_ids = list(new[0]) if new else []
    ids = list(dict.fromkeys([item for s in periods for item in s.item_ids] + new_ids))
    place = {item: j for j, item in enumerate(ids)}
    X = np.full((len(ids), len(newest.features)), np.nan)
    for s in periods:
        if s.form == newest.form:
            X[[place[item] for item in s.item_ids]] = s.X
    if new and new_ids:
        X[[place[item] for item in new_ids]] = checked_rows(name, newest.features, new)
    bare = [item for item, row in zip(ids, X, strict=True) if np.isnan(row[0])]
    if not bare:
        return tuple(ids), X, []
    text = f"group {name!r}: {counted(len(bare), 'item')} ({first_few(bare)}) without features under the newest formula"
    return tuple(ids), X, [f"{text}; unless a period saw them they are predicted from the group as a whole"]


def _predictions(X: Array, beta: Array, sigma: Array) -> tuple[Array, Array]:
    """X beta* and Sigma* for every item; without features, the group's mean and its total spread."""
    bare = np.isnan(X[:, 0])
    mean = np.where(bare[:, None], 0.0, X) @ beta
    covariance = np.repeat(sigma[None], len(X), axis=0)
    if bare.any():
        covariance[bare] += np.cov(mean[~bare], rowvar=False, bias=True)
        mean[bare] = mean[~bare].mean(axis=0)
    return mean, covariance


# what cannot be combined


def _common_reference(summaries: Sequence[PeriodSummary]) -> str:
    """The reference all periods share; periods must differ in name and agree in dimensions."""
    if not summaries:
        raise DataError("nothing to combine: no period was given")
    names, first = [s.period for s in summaries], summaries[0]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"periods given more than once: {first_few(twice)}; keep one of each")
    if strange := [s.period for s in summaries if s.reference != first.reference]:
        raise LinkError(
            f"{first_few(strange)} are not on the metric of {first.reference!r}, as {first.period!r} is; link every "
            "period but one to the same reference"
        )
    if strange := [s.period for s in summaries if s.dimensions != first.dimensions]:
        raise DataError(f"{first_few(strange)} do not have the dimensions {list(first.dimensions)} of {first.period!r}")
    return first.reference


def _check(period: str, group: GroupDraws, n_draws: int) -> None:
    """Refuse priors from the bank, fewer draws than coefficients, and draws that have no Gaussian summary."""
    where = f"period {period!r}, group {group.name!r}"
    if group.guide_mean is not None:
        raise DataError(
            f'{where}: its items had priors from the bank (calibration.prior = "bank"), which the published method '
            'does not know; use consensus method "joint" or "analytic", or calibrate the period with its own population'
        )
    size = len(group.features) * len(group.model.parameters)
    if n_draws < size + 2:
        raise DataError(
            f"{where}: {n_draws} linked draws cannot give the covariance of {size} coefficients; raise "
            f'consensus.paper_draws to some hundreds above {size}, or use method "analytic" or "joint"'
        )
    if not np.isfinite(group.beta).all() or not np.linalg.eigvalsh(np.nan_to_num(group.sigma)).min() > 0:
        raise DataError(
            f"{where}: some draws of the population model are not finite, or of Sigma not positive definite; calibrate "
            "the period again"
        )
    varies = np.isfinite(group.xi).all(axis=(0, 1, 3)) & (np.ptp(group.xi, axis=(0, 1)) > 0).all(axis=1)
    bad = [item for item, fine, n in zip(group.item_ids, varies, group.n_responses, strict=True) if n and not fine]
    if bad:
        raise DataError(
            f"{where}: the draws of {counted(len(bad), 'item')} ({first_few(bad)}) are not finite or do not vary, so "
            "they have no Gaussian summary; take these items out or calibrate the period again"
        )


def _positive_definite(x: Array, unit: Array) -> npt.NDArray[np.bool_]:
    root = np.linalg.cholesky(unit)
    return np.asarray(np.linalg.eigvalsh(np.swapaxes(root, -1, -2) @ x @ root)[..., 0] > _ROUNDING)
