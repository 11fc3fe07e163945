r"""Totals of one form of a group: the sums over periods that share its response model and its features.

.. math:: \sum_m w_m(\Lambda_m - \Omega_m),\quad \sum_m w_m(\Lambda_m\mu_m - \Omega_m m_m),\quad
          \sum_m w_m(V_m^{-1} - T_m),\quad \sum_m w_m V_m^{-1} b_m,\ \dots

Every linked posterior is uncertain about the reference's metric in the same way (see `concal.combine.wobble`). Summed
as if independent, that part would average out; so it is taken out of the covariances behind Lambda_m and Omega_m here,
and the consensus gets it back once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from concal.combine.cubic import cubic_terms
from concal.combine.gaussian import inverse, log_cholesky, times
from concal.combine.summary import GroupSummary
from concal.combine.wobble import add_wobble, removable_share, without_wobble
from concal.errors import first_few
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
Number = TypeVar("Number", np.float64, np.int64)


@dataclass(frozen=True)
class FormTotals:
    """Totals of one form of a group: the periods that share its response model and its features.

    Attributes
    ----------
    name, dimension : str
    model : ResponseModel
    features, item_ids : tuple of str
    X : (items, features)
    precision, shift : (items, p, p), (items, p)
        Weighted sums of the likelihood factors.
    prior_precision, prior_shift : (items, p, p), (items, p)
        Weighted sums of the prior contributions, for the item-level replacement prior.
        Guided periods have none: what they had for a prior is the bank's own knowledge.
    weight : (items,)
        Sum of weights of the periods that saw the item.
    prior_weight : (items,)
        Sum of weights behind the prior contributions; None in banks written before it existed: all of `weight`.
    shared : (items,)
        Weighted sum of the share of the metric's uncertainty that was taken out: nearly always the weight itself.
    cubic : (items, 2, 2, 2)
    cubic_second : (items, 2, 2)
    cubic_first : (items, 2)
        Weighted sums of the third order terms, see `concal.combine.cubic`. These four are None in banks written before
        they existed.
    n_responses, n_periods : (items,) int64
    beta_precision, beta_shift : (features * p, same), (features * p,)
    hyperprior : (features, features)
        Weighted sum of the periods' hyperprior precisions.
    sigma, sigma_draws : (p (p + 1) / 2,)
        Item-count-weighted sums of log-Cholesky coordinates: of the mean Sigma, and mean over draws.
    item_weight, period_weight : float
    periods : tuple of str
    """

    name: str
    dimension: str
    model: ResponseModel
    features: tuple[str, ...]
    item_ids: tuple[str, ...]
    X: Array
    precision: Array
    shift: Array
    prior_precision: Array
    prior_shift: Array
    weight: Array
    n_responses: npt.NDArray[np.int64]
    n_periods: npt.NDArray[np.int64]
    beta_precision: Array
    beta_shift: Array
    hyperprior: Array
    sigma: Array
    sigma_draws: Array
    item_weight: float
    period_weight: float
    periods: tuple[str, ...]
    shared: Array | None = None
    cubic: Array | None = None
    cubic_second: Array | None = None
    cubic_first: Array | None = None
    prior_weight: Array | None = None

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.item_ids)


def same_form(form: FormTotals, group: GroupSummary) -> bool:
    """Whether a period's group has the form's parameters and features, so that their populations can be combined."""
    return form.model == group.model and form.features == group.features


def empty_form(group: GroupSummary) -> FormTotals:
    """A form like a period's group, without periods."""
    p, F = len(group.model.parameters), len(group.features)
    k = p * (p + 1) // 2
    none = np.zeros(0, dtype=np.int64)
    return FormTotals(
        group.name,
        group.dimension,
        group.model,
        group.features,
        (),
        np.zeros((0, F)),
        np.zeros((0, p, p)),
        np.zeros((0, p)),
        np.zeros((0, p, p)),
        np.zeros((0, p)),
        np.zeros(0),
        none,
        none,
        np.zeros((F * p, F * p)),
        np.zeros(F * p),
        np.zeros((F, F)),
        np.zeros(k),
        np.zeros(k),
        0.0,
        0.0,
        (),
        np.zeros(0),
        np.zeros((0, 2, 2, 2)),
        np.zeros((0, 2, 2)),
        np.zeros((0, 2)),
        np.zeros(0),
    )


_WEIGHTED = (
    "precision",
    "shift",
    "prior_precision",
    "prior_shift",
    "weight",
    "beta_precision",
    "beta_shift",
    "hyperprior",
    "sigma",
    "sigma_draws",
    "shared",
    "cubic",
    "cubic_second",
    "cubic_first",
    "prior_weight",
)


def scale_form(form: FormTotals, fade: float) -> FormTotals:
    """The form with all its periods discounted."""
    if fade == 1.0:
        return form
    form = replace(form, prior_weight=prior_weight(form))
    values = {name: getattr(form, name) * fade for name in _WEIGHTED}
    return replace(form, **values, item_weight=form.item_weight * fade, period_weight=form.period_weight * fade)


def prior_weight(form: FormTotals) -> Array:
    """Weights behind the prior contributions; before there were guided periods, every period had one."""
    return form.weight if form.prior_weight is None else form.prior_weight


def _grown(values: npt.NDArray[Number], n: int) -> npt.NDArray[Number]:
    out = np.zeros((n, *values.shape[1:]), dtype=values.dtype)
    out[: values.shape[0]] = values
    return out


def accumulate(
    form: FormTotals, group: GroupSummary, period: str, weight: float, C: Array, doubts: list[str]
) -> FormTotals:
    """Add (weight > 0) or subtract (weight < 0) a period; C is the shared uncertainty of the metric.

    A guided period adds to the items' factors only: it was told about the population.
    """
    form = replace(form, prior_weight=prior_weight(form))
    place = {item: j for j, item in enumerate(form.item_ids)}
    new = [item for item in group.item_ids if item not in place]
    for item in new:
        place[item] = len(place)
    rows = np.fromiter((place[item] for item in group.item_ids), dtype=np.intp, count=group.n_items)
    n, sign = len(place), 1 if weight > 0 else -1
    X = _grown(form.X, n)
    if sign > 0:
        known = rows < form.n_items
        changed = np.flatnonzero(known & (X[rows] != group.X).any(axis=1))
        if changed.size:
            names = [group.item_ids[j] for j in changed]
            doubts.append(f"group {group.name!r}: features of {first_few(names)} changed in period {period!r}")
        X[rows] = group.X
    seen = group.seen
    into = rows[seen]
    mu, m = group.mu[seen], group.m[seen]
    Lambda, Omega = group.Lambda[seen], group.Omega[seen]
    shared = np.zeros(mu.shape[0])
    if C.any():
        covariance = inverse(Lambda)
        shared = removable_share(mu, covariance, C)
        Lambda = inverse(add_wobble(mu, covariance, C, -shared))
        Omega = inverse(without_wobble(m, inverse(Omega), C))
    prior_shift = times(Omega, m)
    cubic = cubic_terms(mu, Lambda, None if group.curvature is None else group.curvature[seen])
    terms: dict[str, Any] = {
        "precision": Lambda - Omega,
        "shift": times(Lambda, mu) - prior_shift,
        "prior_precision": 0.0 if group.guided else Omega,
        "prior_shift": 0.0 if group.guided else prior_shift,
        "prior_weight": 0.0 if group.guided else 1.0,
        "weight": 1.0,
        "shared": shared,
        "cubic": cubic.third,
        "cubic_second": cubic.second,
        "cubic_first": cubic.first,
    }
    out: dict[str, Any] = {}
    for name, term in terms.items():
        out[name] = _grown(getattr(form, name), n)
        out[name][into] += weight * term
    n_responses, n_periods = _grown(form.n_responses, n), _grown(form.n_periods, n)
    n_responses[into] += sign * group.n_responses[seen]
    n_periods[into] += sign
    if sign < 0:
        for values in out.values():
            values[n_periods == 0] = 0.0
    form = replace(
        form,
        item_ids=(*form.item_ids, *new),
        X=X,
        n_responses=n_responses,
        n_periods=n_periods,
        periods=(*form.periods, period) if sign > 0 else tuple(m for m in form.periods if m != period),
        **out,
    )
    return form if group.guided else _accumulate_population(form, group, weight)


def _accumulate_population(form: FormTotals, group: GroupSummary, weight: float) -> FormTotals:
    hyperprior = np.kron(group.hyperprior, np.eye(len(group.model.parameters)))
    scale = weight * int(group.seen.sum())
    return replace(
        form,
        beta_precision=form.beta_precision + weight * (group.beta_precision - hyperprior),
        beta_shift=form.beta_shift + weight * (group.beta_precision @ group.b.ravel()),
        hyperprior=form.hyperprior + weight * group.hyperprior,
        sigma=form.sigma + scale * log_cholesky(group.sigma),
        sigma_draws=form.sigma_draws + scale * group.sigma_coordinates,
        item_weight=form.item_weight + scale,
        period_weight=form.period_weight + weight,
    )
