r"""Additive totals over periods: adding a period costs that period, retracting one subtracts it.

Everything the analytic consensus needs from the past is a sum over periods (`concal.combine.form_totals`), with weights
1, or halved every `half_life` periods. Sums do not depend on the order of the periods but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from concal.combine.form_totals import FormTotals, accumulate, empty_form, same_form, scale_form
from concal.combine.summary import GroupSummary, PeriodSummary
from concal.errors import DataError, LinkError, SpecError, first_few
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]


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
    metric : (dimensions, 2, 2) or None
        Covariance of the reference's metric in (log A, B), taken out of the sums; None in banks written before it was.
    """

    reference: str
    dimensions: tuple[str, ...]
    groups: Mapping[str, tuple[FormTotals, ...]]
    periods: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)
    half_life: float | None = None
    warnings: tuple[str, ...] = ()
    metric: Array | None = None

    @property
    def complete(self) -> bool:
        """False for totals of a bank written before they had all of today's sums."""
        forms = [form for forms in self.groups.values() for form in forms]
        return self.metric is not None and all(form.cubic is not None for form in forms)

    def metric_of(self, dimension: str) -> Array:
        """The shared uncertainty of the metric of one dimension, (2, 2)."""
        if self.metric is None:
            return np.zeros((2, 2))
        return np.asarray(self.metric[self.dimensions.index(dimension)])


def sum_periods(
    summaries: Sequence[PeriodSummary],
    half_life: float | None = None,
    *,
    need_links: bool = True,
    shared_metric: bool = True,
) -> Totals:
    """Totals of several periods, oldest first.

    `shared_metric` False leaves the linked posteriors as they are, as the paper does.
    """
    if not summaries:
        raise DataError("nothing to combine: no period was given")
    first = summaries[0]
    metric = np.zeros((len(first.dimensions), 2, 2))
    if shared_metric:
        metric = next((s.wobble for s in summaries if s.period == s.reference), metric)
    totals = Totals(first.reference, first.dimensions, {}, half_life=half_life, metric=metric)
    for summary in summaries:
        totals = add_period(totals, summary, need_links=need_links)
    return totals


def add_period(totals: Totals, summary: PeriodSummary, *, need_links: bool = True) -> Totals:
    """Totals with one more period; the others are discounted by one step where a half-life is set."""
    check_against(totals, summary, need_links=need_links)
    if summary.period in totals.periods:
        raise DataError(f"period {summary.period!r} is already in the totals; retract it first to replace it")
    fade = 1.0 if totals.half_life is None else float(0.5 ** (1.0 / totals.half_life))
    groups = {name: tuple(scale_form(f, fade) for f in forms) for name, forms in totals.groups.items()}
    doubts: list[str] = []
    for name, group in summary.groups.items():
        forms = list(groups.get(name, ()))
        place = next((i for i, f in enumerate(forms) if same_form(f, group)), None)
        C = totals.metric_of(group.dimension)
        if place is None:
            forms.append(accumulate(empty_form(group), group, summary.period, 1.0, C, doubts))
        else:
            forms[place] = accumulate(forms[place], group, summary.period, 1.0, C, doubts)
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
                C = totals.metric_of(form.dimension)
                form = accumulate(form, summary.groups[name], summary.period, -weight, C, [])
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
