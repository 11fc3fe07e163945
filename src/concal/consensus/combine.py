"""Combine periods: the one function users call, and the pure function behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from concal.calibration.result import Calibration
from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.forms import NewItems
from concal.consensus.analytic.totals import Totals, sum_periods
from concal.consensus.factors.make import make_factors
from concal.consensus.factors.period import PeriodFactors, Placed
from concal.consensus.joint.consensus import combine_jointly
from concal.consensus.paper import combine_paper
from concal.consensus.result import Consensus
from concal.errors import DataError, LinkError, counted, first_few
from concal.linking.result import Link
from concal.spec import ConsensusSpec

Period = Placed | tuple[Calibration, Link | None]
Tell = Callable[[float, str], None]
"""Hears the share of the work that is done and what is going on."""


LEAST_VARIANCE = 1e-18
"""Of an item's posterior: responses of a million examinees leave 1e-5, a coordinate that is held 1e-10."""


@dataclass(frozen=True)
class Evidence:
    """What a consensus may ask for, read only if it does.

    Attributes
    ----------
    placed : function without arguments -> sequence of Placed
        Factors and links of all periods, oldest first (joint).
    totals : function without arguments -> Totals
        Their sums (analytic, and where joint starts).
    linked_draws : function without arguments -> iterable of (Calibration, Link)
        One period in memory at a time (paper).
    """

    placed: Callable[[], Sequence[Placed]]
    totals: Callable[[], Totals]
    linked_draws: Callable[[], Iterable[tuple[Calibration, Link | None]]]


def consensus_of(
    evidence: Evidence,
    spec: ConsensusSpec,
    *,
    items: Mapping[str, NewItems] | None = None,
    progress: Tell | None = None,
) -> Consensus:
    """The consensus: a function of factors, links and options, and of nothing else. One without numbers is refused."""
    if spec.method == "paper":
        found = combine_paper(evidence.linked_draws(), spec, items=items)
    elif spec.method == "analytic":
        found = consensus_from_totals(evidence.totals(), items)
    else:
        found = combine_jointly(evidence.placed(), evidence.totals(), spec, items=items, progress=progress)
    refuse_no_numbers(found)
    return found


def refuse_no_numbers(consensus: Consensus) -> None:
    """Refuse a consensus in which an item's mean or SD is no number, naming group and items."""
    for name, group in consensus.groups.items():
        variance = np.diagonal(group.covariance, axis1=1, axis2=2)
        fine = np.isfinite(group.mean).all(axis=1) & np.isfinite(group.covariance).all(axis=(1, 2))
        fine &= (variance > LEAST_VARIANCE).all(axis=1)
        if bad := [group.item_ids[j] for j in np.flatnonzero(~fine)]:
            raise DataError(
                f"group {name!r}: the consensus ({consensus.method}) of {counted(len(bad), 'item')} ({first_few(bad)}) "
                "is no number or has no spread; look at these items' draws, at the links and at the population's "
                "spread in the periods that have them, and take the period out that is beyond measure"
            )


def combine(
    periods: Sequence[Period],
    *,
    method: str | None = None,
    spec: ConsensusSpec | None = None,
    items: Mapping[str, NewItems] | None = None,
    progress: Tell | None = None,
) -> Consensus:
    """Combine calibrated, linked periods into the posterior of one pooled analysis.

    Parameters
    ----------
    periods : sequence of (Calibration, Link), or of Placed
        Oldest first (the order matters only for a half-life and for which specification is the newest). The
        reference's link may be None. The method "paper" needs calibrations.
    method : "joint", "analytic" or "paper"
        Default: what `spec` says.
    spec : ConsensusSpec
        Options; default `ConsensusSpec()`.
    items : dict of group -> (item ids, design rows)
        Items to include even if nobody has answered them.
    progress : function (share done, message)
        Told how far the joint method is; the others take no time worth telling.

    Returns
    -------
    Consensus
    """
    options = (spec or ConsensusSpec()).model_dump() | ({} if method is None else {"method": method})
    if options["method"] not in ("joint", "analytic", "paper"):
        raise DataError(f'method must be "joint", "analytic" or "paper", not {method!r}')
    chosen = ConsensusSpec.model_validate(options)
    if not periods:
        raise DataError("nothing to combine: no period was given")
    if chosen.method == "paper":
        given = [p for p in periods if not isinstance(p, Placed)]
        if len(given) < len(periods):
            raise DataError('method "paper" works on linked draws: give (Calibration, Link) for every period')
        return consensus_of(Evidence(lambda: (), _no_totals, lambda: given), chosen, items=items)
    reference = _reference(periods)
    placed = [p if isinstance(p, Placed) else place(make_factors(p[0]), p[1], reference=reference) for p in periods]
    totals = sum_periods(placed, chosen.half_life)
    return consensus_of(Evidence(lambda: placed, lambda: totals, lambda: ()), chosen, items=items, progress=progress)


def _no_totals() -> Totals:
    raise AssertionError("the paper's method reads draws")


def place(factors: PeriodFactors, link: Link | None, *, reference: str | None = None) -> Placed:
    """A period's factors with its link; without one it is the reference itself, or not linked to it."""
    k = len(factors.dimensions)
    if link is None:
        target = reference or factors.period
        return Placed(factors, target, np.zeros((k, 2)), np.zeros((k, 2, 2)), linked=target == factors.period)
    _check_link(factors, link)
    mean, covariance = link.moments()
    return Placed(factors, link.reference, mean, covariance)


def _check_link(factors: PeriodFactors, link: Link) -> None:
    period = factors.period
    if link.period != period:
        raise LinkError(f"period {period!r} was given the link of period {link.period!r}")
    if link.dimensions != factors.dimensions:
        raise LinkError(f"period {period!r}: link has dimensions {link.dimensions}, period {factors.dimensions}")
    if not (np.isfinite(link.A).all() and np.isfinite(link.B).all() and (link.A > 0).all()):
        raise LinkError(f"period {period!r}: link constants must be finite with A > 0; relink the period")


def _reference(periods: Sequence[Period]) -> str:
    for entry in periods:
        link = entry if isinstance(entry, Placed) else entry[1]
        if link is not None:
            return link.reference
    if len(periods) > 1:
        raise LinkError("none of the periods is linked; link all but the reference first")
    first = periods[0]
    return first.period if isinstance(first, Placed) else first[0].period
