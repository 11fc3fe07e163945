"""What the consensus of some periods is made from, read only as far as the method asks; and the sums over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from concal.bank.building.periods import Periods
from concal.bank.building.stored_period import hash_of
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import Snapshot
from concal.bank.tables.results import read_totals
from concal.calibration.result import Calibration
from concal.consensus.analytic.totals import TOTALS, Totals, add_period, no_totals
from concal.consensus.combine import Evidence
from concal.linking.result import Link


def evidence_of(periods: Periods, totals: Callable[[], Totals]) -> Evidence:
    """The periods as a consensus method sees them."""

    def linked_draws() -> Iterator[tuple[Calibration, Link]]:
        return ((period.calibration(), period.link()) for period in periods.values())

    return Evidence(cache(lambda: [period.placed() for period in periods.values()]), totals, linked_draws)


def sum_totals(periods: Periods, reference: str, half_life: float | None) -> Totals:
    """Totals of the periods, oldest first, one period in memory at a time."""
    first = periods[reference].factors()
    totals = no_totals(reference, first.dimensions, first.wobble)
    for period in periods.values():
        totals = add_period(totals, period.placed(), half_life)
    return totals


def totals_key(periods: Periods, reference: str, half_life: float | None) -> str:
    """Hash of everything that goes into the totals."""
    parts = [(name, period.content_key(), period.entry.link["links"].sha256) for name, period in periods.items()]
    return hash_of(TOTALS, parts, reference, half_life)


def next_totals(periods: Periods, reference: str, half_life: float | None, head: Snapshot) -> Totals:
    """Totals of the periods: the head's with one period more where they fit, otherwise summed again."""
    *before, last = periods
    kept = FolderReader(periods.store, head.state)
    if head.totals_key == totals_key(periods, reference, half_life):
        return read_totals(kept)
    if head.totals_key == totals_key(periods.only(before), reference, half_life):
        return add_period(read_totals(kept), periods[last].placed(), half_life)
    return sum_totals(periods, reference, half_life)
