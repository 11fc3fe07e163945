r"""Additive totals over periods: adding a period costs that period, retracting one subtracts it.

Everything the analytic consensus needs from the past is a sum over periods,

.. math:: \sum_m w_m(\Lambda_m - \Omega_m),\quad \sum_m w_m(\Lambda_m\mu_m - \Omega_m m_m),\quad
          \sum_m w_m(V_m^{-1} - T_m),\quad \sum_m w_m V_m^{-1} b_m,\ \dots

with weights 1, or halved every `half_life` periods. Sums do not depend on the order of the periods but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from concal.combine.gaussian import log_cholesky, times
from concal.combine.summary import GroupSummary, PeriodSummary
from concal.errors import DataError, LinkError, SpecError, first_few
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
    weight : (items,)
        Sum of weights of the periods that saw the item.
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

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.item_ids)


@dataclass(frozen=True)
class Totals:
    """Totals of a bank.

    Attributes
    ----------
    reference : str
    dimensions : tuple of str
    groups : dict of group name -> tuple of FormTotals
        One form, or several where the specification changed between periods.
    periods : tuple of str
        In the order they were added.
    weights : dict of period -> float
    links : dict of period -> ((dimensions, 2), (dimensions, 2, 2))
        Mean and covariance of (log A, B).
    half_life : float or None
    warnings : tuple of str
    """

    reference: str
    dimensions: tuple[str, ...]
    groups: Mapping[str, tuple[FormTotals, ...]]
    periods: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)
    half_life: float | None = None
    warnings: tuple[str, ...] = ()


def empty_totals(reference: str, dimensions: Sequence[str], half_life: float | None = None) -> Totals:
    """A bank without periods."""
    return Totals(reference, tuple(dimensions), {}, half_life=half_life)


def sum_periods(
    summaries: Sequence[PeriodSummary], half_life: float | None = None, *, need_links: bool = True
) -> Totals:
    """Totals of several periods, oldest first."""
    if not summaries:
        raise DataError("nothing to combine: no period was given")
    totals = empty_totals(summaries[0].reference, summaries[0].dimensions, half_life)
    for summary in summaries:
        totals = add_period(totals, summary, need_links=need_links)
    return totals


def add_period(totals: Totals, summary: PeriodSummary, *, need_links: bool = True) -> Totals:
    """Totals with one more period; the others are discounted by one step where a half-life is set."""
    check_against(totals, summary, need_links=need_links)
    if summary.period in totals.periods:
        raise DataError(f"period {summary.period!r} is already in the totals; retract it first to replace it")
    fade = 1.0 if totals.half_life is None else float(0.5 ** (1.0 / totals.half_life))
    groups = {name: tuple(_scale(f, fade) for f in forms) for name, forms in totals.groups.items()}
    doubts: list[str] = []
    for name, group in summary.groups.items():
        forms = list(groups.get(name, ()))
        place = next((i for i, f in enumerate(forms) if same_form(f, group)), None)
        if place is None:
            forms.append(_accumulate(_empty_form(group), group, summary.period, 1.0, doubts))
        else:
            forms[place] = _accumulate(forms[place], group, summary.period, 1.0, doubts)
        groups[name] = tuple(forms)
    return replace(
        totals,
        groups=groups,
        periods=(*totals.periods, summary.period),
        weights={**{m: w * fade for m, w in totals.weights.items()}, summary.period: 1.0},
        links={**totals.links, summary.period: (summary.link_mean, summary.link_covariance)},
        warnings=(*totals.warnings, *(w for w in doubts if w not in totals.warnings)),
    )


def retract_period(totals: Totals, summary: PeriodSummary) -> Totals:
    """Totals without a period: its own summary, as it was added, is subtracted.

    Exact up to rounding. Items no other period saw go back to exact zeros. With a half-life the other periods keep
    the weights they had.
    """
    if summary.period not in totals.periods:
        raise DataError(f"period {summary.period!r} is not in the totals ({first_few(totals.periods)})")
    weight = totals.weights[summary.period]
    groups: dict[str, tuple[FormTotals, ...]] = {}
    for name, forms in totals.groups.items():
        kept = []
        for form in forms:
            if summary.period in form.periods:
                form = _accumulate(form, summary.groups[name], summary.period, -weight, [])
            if form.periods:
                kept.append(form)
        if kept:
            groups[name] = tuple(kept)
    return replace(
        totals,
        groups=groups,
        periods=tuple(m for m in totals.periods if m != summary.period),
        weights={m: w for m, w in totals.weights.items() if m != summary.period},
        links={m: v for m, v in totals.links.items() if m != summary.period},
    )


def same_form(form: FormTotals, group: GroupSummary) -> bool:
    """Whether a period's group has the form's parameters and features, so that their populations can be combined."""
    return form.model == group.model and form.features == group.features


def check_against(totals: Totals, summary: PeriodSummary, *, need_links: bool = True) -> None:
    """Refuse a period that cannot be combined with the others, naming what differs."""
    if summary.dimensions != totals.dimensions:
        raise DataError(
            f"period {summary.period!r} has dimensions {list(summary.dimensions)}, the others have "
            f"{list(totals.dimensions)}; all periods of a bank share the same dimensions"
        )
    if summary.reference != totals.reference:
        raise LinkError(
            f"period {summary.period!r} is linked to {summary.reference!r}, the others to {totals.reference!r}; "
            "relink it to the same reference"
        )
    if need_links and not summary.linked:
        raise LinkError(
            f"period {summary.period!r} is not linked to {totals.reference!r}; link it first, or combine jointly"
        )
    for name, group in summary.groups.items():
        for form in totals.groups.get(name, ()):
            check_same_group(form.model, form.dimension, form.periods[-1], group, summary.period)
    owner = {item: name for name, forms in totals.groups.items() for form in forms for item in form.item_ids}
    for name, group in summary.groups.items():
        moved = [i for i in group.item_ids if owner.get(i, name) != name]
        if moved:
            raise SpecError(
                f"period {summary.period!r}: items {first_few(moved)} of group {name!r} belong to group "
                f"{owner[moved[0]]!r} in earlier periods; give them new ids"
            )


def check_same_group(model: ResponseModel, dimension: str, earlier: str, group: GroupSummary, period: str) -> None:
    """A group keeps its response model and its dimension for life; a polytomous model may gain categories."""
    if type(model) is not type(group.model):
        raise SpecError(
            f"group {group.name!r} changes its response model from {model} in period {earlier!r} to {group.model} "
            f"in period {period!r}; parameters of different models cannot be combined, start a new group"
        )
    if dimension != group.dimension:
        raise SpecError(
            f"group {group.name!r} changes its dimension from {dimension!r} in period {earlier!r} to "
            f"{group.dimension!r} in period {period!r}; start a new group"
        )


def _empty_form(group: GroupSummary) -> FormTotals:
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
)


def _scale(form: FormTotals, fade: float) -> FormTotals:
    if fade == 1.0:
        return form
    values = {name: getattr(form, name) * fade for name in _WEIGHTED}
    return replace(form, **values, item_weight=form.item_weight * fade, period_weight=form.period_weight * fade)


def _grown(values: npt.NDArray[Number], n: int) -> npt.NDArray[Number]:
    out = np.zeros((n, *values.shape[1:]), dtype=values.dtype)
    out[: values.shape[0]] = values
    return out


def _accumulate(form: FormTotals, group: GroupSummary, period: str, weight: float, doubts: list[str]) -> FormTotals:
    """Add (weight > 0) or subtract (weight < 0) a period."""
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
    Lambda, Omega = group.Lambda[seen], group.Omega[seen]
    prior_shift = times(Omega, group.m[seen])
    out: dict[str, Any] = {
        "precision": _grown(form.precision, n),
        "shift": _grown(form.shift, n),
        "prior_precision": _grown(form.prior_precision, n),
        "prior_shift": _grown(form.prior_shift, n),
        "weight": _grown(form.weight, n),
    }
    out["precision"][into] += weight * (Lambda - Omega)
    out["shift"][into] += weight * (times(Lambda, group.mu[seen]) - prior_shift)
    out["prior_precision"][into] += weight * Omega
    out["prior_shift"][into] += weight * prior_shift
    out["weight"][into] += weight
    n_responses, n_periods = _grown(form.n_responses, n), _grown(form.n_periods, n)
    n_responses[into] += sign * group.n_responses[seen]
    n_periods[into] += sign
    if sign < 0:
        for values in out.values():
            values[n_periods == 0] = 0.0
    p = len(group.model.parameters)
    hyperprior = np.kron(group.hyperprior, np.eye(p))
    scale = weight * int(seen.sum())
    return replace(
        form,
        item_ids=(*form.item_ids, *new),
        X=X,
        n_responses=n_responses,
        n_periods=n_periods,
        beta_precision=form.beta_precision + weight * (group.beta_precision - hyperprior),
        beta_shift=form.beta_shift + weight * (group.beta_precision @ group.b.ravel()),
        hyperprior=form.hyperprior + weight * group.hyperprior,
        sigma=form.sigma + scale * log_cholesky(group.sigma),
        sigma_draws=form.sigma_draws + scale * group.sigma_coordinates,
        item_weight=form.item_weight + scale,
        period_weight=form.period_weight + weight,
        periods=(*form.periods, period) if sign > 0 else tuple(m for m in form.periods if m != period),
        **out,
    )
