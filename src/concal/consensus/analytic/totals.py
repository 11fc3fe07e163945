r"""Sums over periods: what the analytic consensus needs of the past, one type with zero and +.

Per item of a form (a group's response model, features and their coding), on the reference metric,

.. math:: \sum_m w_m M_m'Q_mM_m, \qquad \sum_m w_m M_m'h_m ,

and for its population :math:`\sum w_m(V_m^{-1} - T_m)`, :math:`\sum w_m V_m^{-1} b_m` and the item-weighted sum of
Sigma's log-Cholesky coordinates. Links stand at their means; what is not known of them (beyond the wobble of the two
metrics they join, which is counted elsewhere) widens the factors. Weights are one, or halve every `half_life` periods.

Totals are always built period by period in order, so adding one to what was kept gives the same bits as summing anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.priors import beta_moments
from concal.consensus.factors.period import GroupFactors, Placed
from concal.consensus.gaussian import positive_part, widen
from concal.errors import DataError, LinkError, SpecError, first_few
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]

TOTALS = 2
"""Raised when the same factors and links give other sums: a bank then sums its periods again."""
FORGOTTEN = 1e-100  # weight of periods long past, beside which any response counts


@dataclass(frozen=True)
class FormTotals:
    """Totals of one form of a group: the periods that share its response model, its features and their coding.

    Attributes
    ----------
    name, dimension, coding : str
    model : ResponseModel
    features, item_ids : tuple of str
    X : (items, features)
    Q, h : (items, p, p), (items, p)
        Sums of the factors in phi.
    n_responses, n_periods : (items,) int64
    beta_precision, beta_shift : (features * p, same), (features * p,)
    hyperprior : (features, features)
    sigma : (p (p + 1) / 2,)
    population_weight, item_weight : float
        Sum of weights of the periods that tell the population, and of weight times answered items.
    last, whole : int
        Numbers of the newest period of this form, and of the newest that had all columns of its formula; -1: none.
    """

    name: str
    dimension: str
    coding: str
    model: ResponseModel
    features: tuple[str, ...]
    item_ids: tuple[str, ...]
    X: Array
    Q: Array
    h: Array
    n_responses: npt.NDArray[np.int64]
    n_periods: npt.NDArray[np.int64]
    beta_precision: Array
    beta_shift: Array
    hyperprior: Array
    sigma: Array
    population_weight: float
    item_weight: float
    last: int
    whole: int

    PER_ITEM: ClassVar[tuple[str, ...]] = (*("X", "Q", "h"), *("n_responses", "n_periods"))
    POPULATION: ClassVar[tuple[str, ...]] = (
        *("beta_precision", "beta_shift", "hyperprior", "sigma"),
        *("population_weight", "item_weight"),
    )

    @property
    def form_key(self) -> tuple[object, ...]:
        """What periods of one form have in common; see `GroupFactors`."""
        return self.name, self.dimension, self.model, self.features, self.coding

    def faded(self, share: float) -> FormTotals:
        """Everything but counts times `share`; what counts next to nothing stays, a population needs some weight."""
        if any(0 < share * weight < FORGOTTEN for weight in (self.population_weight, self.item_weight)):
            return self
        return replace(self, **{name: share * getattr(self, name) for name in ("Q", "h", *self.POPULATION)})

    def __add__(self, other: FormTotals) -> FormTotals:
        place = {item: j for j, item in enumerate(self.item_ids)}
        new = [item for item in other.item_ids if item not in place]
        place |= {item: len(place) + j for j, item in enumerate(new)}
        rows = np.fromiter((place[i] for i in other.item_ids), dtype=np.intp, count=len(other.item_ids))

        def put(name: str, *, sum_up: bool = True) -> Any:
            mine, theirs = getattr(self, name), getattr(other, name)
            out = np.concatenate([mine, np.zeros((len(new), *mine.shape[1:]), dtype=mine.dtype)])
            out[rows] = out[rows] + theirs if sum_up else theirs
            return out

        items: dict[str, Any] = {name: put(name) for name in ("Q", "h", "n_responses", "n_periods")}
        population: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in self.POPULATION}
        return replace(
            self,
            item_ids=(*self.item_ids, *new),
            X=put("X", sum_up=False),  # the newest item table counts
            last=max(self.last, other.last),
            whole=max(self.whole, other.whole),
            **items,
            **population,
        )


@dataclass(frozen=True)
class Totals:
    """Totals of a bank.

    Attributes
    ----------
    reference : str
    dimensions : tuple of str
    groups : dict of "name:k" -> FormTotals
        The k-th form of a group, in the order they came up.
    periods : tuple of str
        In the order they were added.
    link_mean, link_covariance : (periods, dimensions, 2), (periods, dimensions, 2, 2)
        Moments of (log A, B).
    wobble : (dimensions, 2, 2)
        Covariance of the reference's metric, which all linked periods share.
    warnings : tuple of str
        Of all periods.
    """

    reference: str
    dimensions: tuple[str, ...]
    groups: Mapping[str, FormTotals]
    periods: tuple[str, ...]
    link_mean: Array
    link_covariance: Array
    wobble: Array
    warnings: tuple[str, ...] = field(default=())

    def forms(self, name: str) -> tuple[FormTotals, ...]:
        """The forms of a group, oldest first."""
        return tuple(form for form in self.groups.values() if form.name == name)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Groups in the order they came up."""
        return tuple(dict.fromkeys(form.name for form in self.groups.values()))

    def faded(self, half_life: float | None) -> Totals:
        """One period older."""
        if half_life is None:
            return self
        share = float(0.5 ** (1.0 / half_life))
        return replace(self, groups={key: form.faded(share) for key, form in self.groups.items()})

    def __add__(self, other: Totals) -> Totals:
        groups = dict(self.groups)
        for form in other.groups.values():
            key = next((k for k, mine in groups.items() if mine.form_key == form.form_key), None)
            before = len(self.periods)
            moved = replace(form, last=form.last + before, whole=form.whole + before if form.whole >= 0 else -1)
            if key is None:
                groups[f"{form.name}:{len(self.forms(form.name))}"] = moved
            else:
                groups[key] = groups[key] + moved
        return replace(
            self,
            groups=groups,
            periods=(*self.periods, *other.periods),
            link_mean=np.concatenate([self.link_mean, other.link_mean]),
            link_covariance=np.concatenate([self.link_covariance, other.link_covariance]),
            warnings=(*self.warnings, *(w for w in other.warnings if w not in self.warnings)),
        )


def no_totals(reference: str, dimensions: tuple[str, ...], wobble: Array) -> Totals:
    """Zero: the totals of no period, on the metric of a reference."""
    k = len(dimensions)
    return Totals(reference, dimensions, {}, (), np.zeros((0, k, 2)), np.zeros((0, k, 2, 2)), wobble)


def sum_periods(placed: Sequence[Placed], half_life: float | None = None) -> Totals:
    """Totals of several periods, oldest first."""
    if not placed:
        raise DataError("nothing to combine: no period was given")
    reference = placed[0].reference
    first = next((p.factors for p in placed if p.period == reference), None)
    k = len(placed[0].factors.dimensions)
    totals = no_totals(reference, placed[0].factors.dimensions, np.zeros((k, 2, 2)) if first is None else first.wobble)
    for period in placed:
        totals = add_period(totals, period, half_life)
    return totals


def add_period(totals: Totals, placed: Placed, half_life: float | None = None) -> Totals:
    """Totals with one more period; the others are one period older."""
    check_fits(totals, placed)
    return totals.faded(half_life) + period_totals(placed, totals.wobble)


def period_totals(placed: Placed, wobble: Array) -> Totals:
    """Totals of one period alone; `wobble` (dimensions, 2, 2) is the reference's."""
    factors = placed.factors
    groups = {}
    for group in factors.groups.values():
        k = factors.dimensions.index(group.dimension)
        A, B = float(np.exp(placed.link_mean[k, 0])), float(placed.link_mean[k, 1])
        own = metric.move_change(factors.wobble[k], A, B)
        noise = positive_part(metric.move_change(placed.link_covariance[k], 1.0, B) - own - wobble[k])
        if placed.period == placed.reference:
            noise = np.zeros((2, 2))
        groups[f"{group.name}:0"] = form_totals(group, A, B, noise)
    return Totals(
        placed.reference,
        factors.dimensions,
        groups,
        (placed.period,),
        placed.link_mean[None],
        placed.link_covariance[None],
        wobble,
        tuple(f"period {placed.period!r}: {w}" for w in factors.warnings),
    )


def form_totals(group: GroupFactors, A: float, B: float, noise: Array) -> FormTotals:
    """One group of one period on the reference metric."""
    Q, h = metric.move_factor(group.Q, group.h, A, B)
    slope = np.exp(group.mean[:, 1]) / A
    Q, h = widen(Q, h, metric.patterns(slope, h.shape[1]), noise)
    p = h.shape[1]
    b = metric.move_beta(group.b, A, B)
    unscale = metric.move_beta_covariance(group.beta_precision, 1.0 / A, p)
    b_0, T = beta_moments(group.hyperprior, group.model.prior)
    precision, shift = widen(unscale, unscale @ (b - b_0).ravel(), metric.beta_patterns(b), noise)
    weight = 0.0 if group.guided else 1.0  # of a guided group the population tells nothing
    answered = float(group.seen.sum())
    return FormTotals(
        name=group.name,
        dimension=group.dimension,
        coding=group.coding,
        model=group.model,
        features=group.features,
        item_ids=group.item_ids,
        X=group.X,
        Q=Q,
        h=h,
        n_responses=group.n_responses,
        n_periods=group.seen.astype(np.int64),
        beta_precision=weight * (precision - T),
        beta_shift=weight * shift,
        hyperprior=weight * group.hyperprior,
        sigma=weight * answered * metric.move_log_cholesky(group.sigma_coordinates, A),
        population_weight=weight,
        item_weight=weight * answered,
        last=0,
        whole=-1 if group.lacking else 0,
    )


def check_fits(totals: Totals, placed: Placed) -> None:
    """Refuse a period that cannot be combined with the others, naming what differs."""
    factors = placed.factors
    if placed.period in totals.periods:
        raise DataError(f"period {placed.period!r} is there twice; a period counts once")
    if factors.dimensions != totals.dimensions:
        raise DataError(
            f"period {placed.period!r} has dimensions {list(factors.dimensions)}, the others have "
            f"{list(totals.dimensions)}; all periods of a bank share the same dimensions"
        )
    if placed.reference != totals.reference:
        raise LinkError(
            f"period {placed.period!r} is linked to {placed.reference!r}, the others to {totals.reference!r}; "
            "relink it to the same reference"
        )
    owner = {item: form.name for form in totals.groups.values() for item in form.item_ids}
    for name, group in factors.groups.items():
        moved = [i for i in group.item_ids if owner.get(i, name) != name]
        if moved:
            raise DataError(
                f"period {placed.period!r}: items {first_few(moved)} are in group {name!r}, but earlier periods have "
                "them in another; an item keeps its group (give it a new id if it changed)"
            )
        for form in totals.forms(name):
            if form.dimension != group.dimension or form.model.kind != group.model.kind:
                raise SpecError(
                    f"period {placed.period!r}, group {name!r}: {group.model.kind} on {group.dimension!r}, but earlier "
                    f"periods have {form.model.kind} on {form.dimension!r}; give the new task type a group of its own"
                )
