"""Bring the forms of a group together when its features or its number of categories changed between periods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.combine.cubic import CubicSums
from concal.combine.form_totals import FormTotals, prior_weight
from concal.combine.gaussian import inverse, symmetric, times
from concal.combine.population import NO_WEIGHT, Population, consensus_population
from concal.combine.wobble import add_wobble, removable_share
from concal.errors import DataError, first_few
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
NewItems = tuple[Sequence[str], Array]


@dataclass(frozen=True)
class GroupTotals:
    """One group as the item layer reads it: factor sums and the replacement prior of every item.

    The shared uncertainty of the reference's metric is taken out of all of it.

    Attributes
    ----------
    name, dimension, model, features, item_ids : as in FormTotals, of the newest form
    X : (items, features)
        NaN rows for items the newest formula does not describe.
    precision, shift : factor sums
    cubic : CubicSums
    shared : (items,)
        Share of the metric's uncertainty to give back.
    prior_mean, prior_covariance, prior_precision : the replacement prior
    n_responses, n_periods : (items,)
    population : Population
    warnings : list of str
    """

    name: str
    dimension: str
    model: ResponseModel
    features: tuple[str, ...]
    item_ids: tuple[str, ...]
    X: Array
    precision: Array
    shift: Array
    cubic: CubicSums
    shared: Array
    prior_mean: Array
    prior_covariance: Array
    prior_precision: Array
    n_responses: npt.NDArray[np.int64]
    n_periods: npt.NDArray[np.int64]
    population: Population
    warnings: tuple[str, ...] = ()


def unite_forms(
    forms: Sequence[FormTotals], order: Mapping[str, int], items: NewItems | None, C: Array, *, literal: bool = False
) -> GroupTotals:
    """Factor sums and replacement prior of every item of a group.

    One form: the prior is the consensus population's prediction. One period alone: that period's own prediction,
    so that it is given back unchanged. Several forms: the item-level predictions, averaged in natural parameters over
    the periods that saw the item. C is the shared uncertainty of the reference's metric.
    """
    newest = max(forms, key=lambda f: max(order[m] for m in f.periods))
    population = consensus_population(newest, literal=literal)
    ids, X, extra = _items(forms, newest, items)
    n, p = len(ids), len(newest.model.parameters)
    place = {item: j for j, item in enumerate(ids)}
    precision, shift = np.zeros((n, p, p)), np.zeros((n, p))
    own_precision, own_shift, weight = np.zeros((n, p, p)), np.zeros((n, p)), np.zeros(n)
    own_weight = np.zeros(n)
    cubic = CubicSums(np.zeros((n, 2, 2, 2)), np.zeros((n, 2, 2)), np.zeros((n, 2)))
    shared = np.zeros(n)
    n_responses, n_periods = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    same = [f for f in forms if f.model == newest.model]
    for form in same:
        rows = np.fromiter((place[i] for i in form.item_ids), dtype=np.intp, count=form.n_items)
        precision[rows] += form.precision
        shift[rows] += form.shift
        own_precision[rows] += form.prior_precision
        own_shift[rows] += form.prior_shift
        weight[rows] += form.weight
        own_weight[rows] += prior_weight(form)
        n_responses[rows] += form.n_responses
        n_periods[rows] += form.n_periods
        if form.shared is not None:
            shared[rows] += form.shared
        if form.cubic is not None and form.cubic_second is not None and form.cubic_first is not None:
            cubic.third[rows] += form.cubic
            cubic.second[rows] += form.cubic_second
            cubic.first[rows] += form.cubic_first
    prior_mean, prior_covariance = _predict(population, X, newest)
    known = weight > 0
    shared = np.where(known, shared / np.where(known, weight, 1.0), 0.0)
    if C.any():
        removable = removable_share(prior_mean, prior_covariance, C)
        prior_covariance = add_wobble(prior_mean, prior_covariance, C, -removable)
        shared = np.where(known, shared, removable)
    prior_precision = inverse(prior_covariance)
    item_level = len(forms) > 1 or (sum(len(f.periods) for f in forms) == 1 and not literal)
    told = own_weight > NO_WEIGHT
    if item_level and told.any():
        mean_precision = own_precision[told] / own_weight[told, None, None]
        prior_precision[told] = mean_precision
        prior_covariance[told] = inverse(mean_precision)
        prior_mean[told] = times(prior_covariance[told], own_shift[told] / own_weight[told, None])
    doubts = list(extra)
    for form in forms:
        if form.model != newest.model:
            doubts += _carry_location(form, newest, place, weight, precision, shift, n_responses, n_periods)
    return GroupTotals(
        newest.name,
        newest.dimension,
        newest.model,
        newest.features,
        ids,
        X,
        precision,
        shift,
        cubic,
        shared,
        prior_mean,
        prior_covariance,
        prior_precision,
        n_responses,
        n_periods,
        population,
        tuple(doubts),
    )


def _items(
    forms: Sequence[FormTotals], newest: FormTotals, items: NewItems | None
) -> tuple[tuple[str, ...], Array, list[str]]:
    """Union of the items, with their rows of the newest design."""
    ids = list(newest.item_ids)
    known = set(ids)
    for form in forms:
        for item in form.item_ids:
            if item not in known:
                known.add(item)
                ids.append(item)
    rows = [newest.X]
    place = {item: j for j, item in enumerate(ids)}
    F = len(newest.features)
    X = np.full((len(ids), F), np.nan)
    for form in forms:
        if form.features == newest.features:
            X[[place[i] for i in form.item_ids]] = form.X
    X[: newest.n_items] = rows[0]
    if items is not None:
        new_ids, new_X = list(items[0]), np.asarray(items[1], dtype=np.float64)
        if new_X.shape != (len(new_ids), F) or not np.isfinite(new_X).all():
            raise DataError(
                f"group {newest.name!r}: items to predict ({first_few(new_ids)}) need finite features of shape "
                f"{(len(new_ids), F)}, got {new_X.shape}; the columns are {list(newest.features)}"
            )
        fresh = [i for i in new_ids if i not in place]
        for item in fresh:
            place[item] = len(place)
        X = np.vstack([X, np.full((len(fresh), F), np.nan)])
        X[[place[i] for i in new_ids]] = new_X
        ids += fresh
    missing = [i for i, row in zip(ids, X, strict=True) if np.isnan(row[0])] if np.isnan(X).any() else []
    doubts = []
    if missing:
        doubts.append(
            f"group {newest.name!r}: {len(missing)} items ({first_few(missing)}) have no features under the newest "
            "formula; they are predicted from the group as a whole"
        )
    return tuple(ids), X, doubts


def _predict(population: Population, X: Array, newest: FormTotals) -> tuple[Array, Array]:
    """Population prediction; items without features get the group's mean and total spread."""
    bare = np.isnan(X[:, 0])
    if not bare.any():
        return population.predict(X)
    mean, covariance = population.predict(np.where(np.isnan(X), 0.0, X))
    known, spread = population.predict(newest.X)
    mean[bare] = known.mean(axis=0)
    covariance[bare] = spread.mean(axis=0) + np.atleast_2d(np.cov(known, rowvar=False, bias=True))
    return mean, covariance


def _form_priors(form: FormTotals, rows: npt.NDArray[np.intp]) -> tuple[Array, Array]:
    """Precisions and means of the priors of some items: their periods' average, or the form's population."""
    weight = prior_weight(form)
    told = weight[rows] > NO_WEIGHT
    mean, covariance = consensus_population(form).predict(form.X[rows])
    precision, at = inverse(covariance), rows[told]
    precision[told] = form.prior_precision[at] / weight[at, None, None]
    mean[told] = times(inverse(precision[told]), form.prior_shift[at] / weight[at, None])
    return precision, mean


def _carry_location(
    form: FormTotals,
    newest: FormTotals,
    place: Mapping[str, int],
    weight: Array,
    precision: Array,
    shift: Array,
    n_responses: npt.NDArray[np.int64],
    n_periods: npt.NDArray[np.int64],
) -> list[str]:
    """Take over what an older form (another number of categories) says about (d, log a).

    Thresholds centred over another number of categories are other parameters, so only the two coordinates every
    model shares are carried, and only for items the newest form has not seen: an item scored anew is judged by its
    new scores.
    """
    old = np.flatnonzero(form.weight > 0)
    rows = np.array([place[form.item_ids[j]] for j in old], dtype=np.intp)
    use = weight[rows] == 0 if rows.size else np.zeros(0, dtype=bool)
    dropped = [form.item_ids[j] for j in old[~use]] if rows.size else []
    old, rows = old[use], rows[use]
    doubts = []
    if dropped:
        doubts.append(
            f"group {form.name!r}: {len(dropped)} items ({first_few(dropped)}) were also scored in "
            f"{len(form.model.parameters) - len(newest.model.parameters):+d} parameters in earlier periods; "
            "only the newest scoring counts for them"
        )
    if not rows.size:
        return doubts
    prior, prior_mean = _form_priors(form, old)
    total = form.precision[old] + prior
    fine = np.linalg.eigvalsh(symmetric(total))[:, 0] > 0
    old, rows, prior, prior_mean, total = old[fine], rows[fine], prior[fine], prior_mean[fine], total[fine]
    covariance = inverse(total)
    mean = times(covariance, form.shift[old] + times(prior, prior_mean))
    narrow, broad = inverse(covariance[:, :2, :2]), inverse(inverse(prior)[:, :2, :2])
    precision[rows, :2, :2] += narrow - broad
    shift[rows, :2] += times(narrow, mean[:, :2]) - times(broad, prior_mean[:, :2])
    n_responses[rows] += form.n_responses[old]
    n_periods[rows] += form.n_periods[old]
    doubts.append(
        f"group {form.name!r}: {len(rows)} items were only seen under an earlier number of categories; "
        "d and log a are carried over, further parameters come from the population"
    )
    return doubts
