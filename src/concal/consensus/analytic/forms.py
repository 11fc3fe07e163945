"""The forms of a group brought together: one list of items with its factor sums and the prior each of them gets.

A group's features, their coding or its number of categories may change between periods. Factors say what responses
said, whatever the features were, so they go on; the population of the form in force is everybody's prior where its
item tables describe the item, that of the newest form that knows it otherwise.

In force is the newest form, but periods whose items lacked a column of the formula have forms without it, and these
count only where there is no other: they tell about items of which the feature is not known.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.calibration.state import pinned
from concal.consensus.analytic.population import Population, consensus_population, with_common_evidence
from concal.consensus.analytic.totals import FormTotals
from concal.consensus.gaussian import inverse, times
from concal.errors import DataError, counted, first_few
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
NewItems = tuple[Sequence[str], Array]
"""Item ids, and their design rows under the form in force."""


@dataclass(frozen=True)
class Form:
    """What a form of a group predicts its items by.

    Attributes
    ----------
    features : tuple of str
    coding : str
    X : (items, features)
        Of the group's items; NaN rows for those that follow another form.
    population : Population
    hyperprior : (features, features)
    """

    features: tuple[str, ...]
    coding: str
    X: Array
    population: Population
    hyperprior: Array

    @property
    def describes(self) -> npt.NDArray[np.bool_]:
        """Which of the group's items follow it, (items,)."""
        return ~np.isnan(self.X[:, 0])


@dataclass(frozen=True)
class GroupEvidence:
    """One group as the item layer reads it.

    Attributes
    ----------
    name, dimension : str
    model : ResponseModel
    item_ids : tuple of str
    Q, h : factor sums
    prior_mean, prior_covariance : (items, p), (items, p, p)
    n_responses, n_periods : (items,)
    form : Form
        That in force.
    others : tuple of Form
        Forms that describe items the form in force does not, oldest first; of an item, the newest.
    warnings : tuple of str
    """

    name: str
    dimension: str
    model: ResponseModel
    item_ids: tuple[str, ...]
    Q: Array
    h: Array
    prior_mean: Array
    prior_covariance: Array
    n_responses: npt.NDArray[np.int64]
    n_periods: npt.NDArray[np.int64]
    form: Form
    others: tuple[Form, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def item_prior_covariance(self) -> Array:
        """Spread of the items around their prediction; none in what belongs to the group."""
        return pinned(self.prior_covariance, self.model)

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Items somebody answered."""
        return np.asarray(self.n_periods > 0)


def form_in_force(forms: Sequence[FormTotals]) -> FormTotals:
    """The newest form of a group, one whose periods lacked a column of the formula only if there is no other."""
    newest = max(forms, key=lambda form: form.last)
    # another number of categories has other thresholds: of those only the newest counts
    return max((form for form in forms if form.model == newest.model), key=lambda form: (form.whole, form.last))


def unite_forms(forms: Sequence[FormTotals], items: NewItems | None = None) -> GroupEvidence:
    """Factor sums and prior of every item of a group; `items` come in even if nobody answered them."""
    forms = with_common_evidence(forms)
    newest = form_in_force(forms)
    ordered = [*sorted((form for form in forms if form is not newest), key=lambda form: form.last), newest]
    ids = list(dict.fromkeys(i for form in reversed(ordered) for i in form.item_ids))
    fresh = [i for i in (items[0] if items else ()) if i not in set(ids)]
    ids += fresh
    place = {item: j for j, item in enumerate(ids)}
    n, p = len(ids), len(newest.model.parameters)
    Q, h = np.zeros((n, p, p)), np.zeros((n, p))
    prior_mean, prior_covariance = np.zeros((n, p)), np.zeros((n, p, p))
    X = np.full((n, len(newest.features)), np.nan)
    counts, described_by = np.zeros((2, n), dtype=np.int64), np.full(n, -1)
    warnings: list[str] = []
    populations = {id(form): consensus_population(form) for form in ordered if form.population_weight > 0}
    if id(newest) not in populations:
        populations[id(newest)] = consensus_population(newest)  # says what is wrong
    alike = [form for form in forms if form.model == newest.model]
    rescored = {i for form in alike for i, seen in zip(form.item_ids, form.n_periods > 0, strict=True) if seen}
    for k, form in enumerate(ordered):  # that in force last: its prior is the one that stays
        rows = np.array([place[i] for i in form.item_ids], dtype=np.intp)
        part, use = embedded(form, populations.get(id(form)), newest.model, rescored, warnings)
        Q[rows[use]] += part[0][use]
        h[rows[use]] += part[1][use]
        counts[0, rows[use]] += form.n_responses[use]
        counts[1, rows[use]] += form.n_periods[use]
        if form.model == newest.model and id(form) in populations:
            prior_mean[rows], prior_covariance[rows] = populations[id(form)].predict(form.X)
            described_by[rows] = k
    at = np.array([place[i] for i in newest.item_ids], dtype=np.intp)
    X[at] = newest.X
    if items is not None and len(items[0]):
        X[[place[i] for i in items[0]]] = checked_rows(newest.name, newest.features, items)
    population = populations[id(newest)]
    known = ~np.isnan(X[:, 0])
    prior_mean[known], prior_covariance[known] = population.predict(X[known])
    bare = ~known & (prior_covariance[:, 0, 0] == 0.0)
    if bare.any():
        _predict_bare(population, newest.X, bare, prior_mean, prior_covariance)
        names = [ids[j] for j in np.flatnonzero(bare)]
        warnings.append(
            f"group {newest.name!r}: {counted(len(names), 'item')} ({first_few(names)}) without features under "
            "the newest formula; they are predicted from the group as a whole"
        )
    others = []
    for k, form in enumerate(ordered[:-1]):
        if (rows := np.flatnonzero((described_by == k) & ~known)).size:
            own, described = {item: j for j, item in enumerate(form.item_ids)}, np.full((n, len(form.features)), np.nan)
            described[rows] = form.X[[own[ids[j]] for j in rows]]
            others.append(_form(form, described, populations[id(form)]))
            warnings += _say_lacking(form, [ids[j] for j in rows])
    return GroupEvidence(
        name=newest.name,
        dimension=newest.dimension,
        model=newest.model,
        item_ids=tuple(ids),
        Q=Q,
        h=h,
        prior_mean=prior_mean,
        prior_covariance=prior_covariance,
        n_responses=counts[0],
        n_periods=counts[1],
        form=_form(newest, X, population),
        others=tuple(others),
        warnings=tuple(warnings),
    )


def _form(form: FormTotals, X: Array, population: Population) -> Form:
    return Form(form.features, form.coding, X, population, form.hyperprior / form.population_weight)


def _say_lacking(form: FormTotals, names: Sequence[str]) -> list[str]:
    if form.whole >= 0:
        return []
    return [
        f"group {form.name!r}: {counted(len(names), 'item')} ({first_few(names)}) of which no period has every feature "
        "of the formula; their prior is a population that does not know it, and wider (put "
        "such a period in again with the features filled in)"
    ]


def checked_rows(group: str, features: Sequence[str], items: NewItems) -> Array:
    """Design rows of items to predict; refused where they do not fit the group's features."""
    new_ids, rows = list(items[0]), np.asarray(items[1], dtype=np.float64)
    if rows.shape != (len(new_ids), len(features)) or not np.isfinite(rows).all():
        raise DataError(
            f"group {group!r}: items to predict ({first_few(new_ids)}) need finite features of shape "
            f"{(len(new_ids), len(features))}, got {rows.shape}; the columns are {list(features)}"
        )
    return rows


def _predict_bare(population: Population, X: Array, bare: npt.NDArray[np.bool_], mean: Array, cov: Array) -> None:
    """Items without features: the group's mean and total spread."""
    known, spread = population.predict(X)
    mean[bare] = known.mean(axis=0)
    cov[bare] = spread.mean(axis=0) + np.atleast_2d(np.cov(known, rowvar=False, bias=True))


def embedded(
    form: FormTotals, population: Population | None, model: ResponseModel, rescored: Set[str], warnings: list[str]
) -> tuple[tuple[Array, Array], npt.NDArray[np.bool_]]:
    """A form's factors in phi of the newest form's `model`, and which of its items they may be used for.

    Thresholds centred over another number of categories are other parameters: of such a form only slope and intercept
    are carried over, and only for items that no form of the newest model has seen (`rescored` are those that one has).
    """
    use = form.n_periods > 0
    if form.model == model:
        return (form.Q, form.h), use
    again = use & np.array([i in rescored for i in form.item_ids], dtype=bool)
    use = use & ~again
    if again.any():
        names = [form.item_ids[j] for j in np.flatnonzero(again)]
        warnings.append(
            f"group {form.name!r}: {counted(len(names), 'item')} ({first_few(names)}) scored with another number of "
            "categories in earlier periods; only the newest scoring counts for them"
        )
    if use.any():
        warnings.append(
            f"group {form.name!r}: {counted(int(use.sum()), 'item')} only seen under an earlier number of categories; "
            "d and log a are carried over, further parameters come from the population"
        )
    return carry_slope(form.Q, form.h, population, form.X, len(model.parameters)), use


def carry_slope(Q: Array, h: Array, population: Population | None, X: Array, p: int) -> tuple[Array, Array]:
    """Factors about slope and intercept alone, in p coordinates: the old extras integrated over their prediction."""
    out = np.zeros((Q.shape[0], p, p)), np.zeros((Q.shape[0], p))
    if Q.shape[-1] == 2 or population is None:
        out[0][:, :2, :2], out[1][:, :2] = Q[:, :2, :2], h[:, :2]
        return out
    mean, covariance = population.predict(X)
    prior = inverse(covariance[:, 2:, 2:])
    inner = inverse(Q[:, 2:, 2:] + prior)
    gain = Q[:, :2, 2:] @ inner
    out[0][:, :2, :2] = Q[:, :2, :2] - gain @ Q[:, 2:, :2]
    out[1][:, :2] = h[:, :2] - times(gain, h[:, 2:] + times(prior, mean[:, 2:]))
    return out
