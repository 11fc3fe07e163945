"""Every period on the reference metric, in one order that depends on the periods alone.

The reference comes first, then the others by position; a period that shares too few items with those already linked
waits until it does. Each is linked to the reference or, with too few anchors there, through the consensus or a chain of
those before it. A link is kept under a key of everything it was made from: while the key is the same, so is the link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial

import polars as pl

from concal.bank.building.evidence import evidence_of, sum_totals
from concal.bank.building.periods import Periods
from concal.bank.building.stored_period import hash_of
from concal.bank.store.folder import FolderWriter
from concal.bank.store.manifest import PeriodEntry
from concal.bank.store.transaction import Transaction
from concal.bank.tables.results import write_link
from concal.consensus.analytic.totals import TOTALS
from concal.consensus.combine import consensus_of
from concal.consensus.result import GroupConsensus
from concal.errors import LinkError, first_few
from concal.linking.period import LINKING, link_sources
from concal.linking.result import Link, identity_link
from concal.spec import Spec

Made = dict[str, Link]
"""Links by the key they are kept under: what was linked need not be linked again when a commit has to be repeated."""


def link_periods(
    periods: Periods, reference: str, spec: Spec, transaction: Transaction, made: Made
) -> tuple[Periods, tuple[str, ...]]:
    """The periods with their links, and the names of those that were linked anew, in that order."""
    linker = _Linker(periods, reference, spec, transaction, made)
    left = [name for name in periods if name != reference]
    linker.put_reference()
    while left:
        errors: list[LinkError] = []
        for name in linker.in_turn(left):
            try:
                linker.put(name)
            except LinkError as error:
                errors.append(error)
            else:
                left.remove(name)
                break
        else:
            raise errors[0]
    return linker.done, tuple(linker.anew)


class _Linker:
    """The periods linked so far, and how the next one is linked to them."""

    def __init__(self, periods: Periods, reference: str, spec: Spec, transaction: Transaction, made: Made) -> None:
        self.periods, self.reference, self.spec = periods, reference, spec
        self.transaction, self.made = transaction, made
        self.entries: dict[str, PeriodEntry] = {}  # in the order they were linked
        self.anew: list[str] = []
        self.answered = cache(partial(_answered, periods))  # each period's are read once

    @property
    def done(self) -> Periods:
        """The periods linked so far, oldest first."""
        ordered = {name: self.entries[name] for name in self.periods if name in self.entries}
        return replace(self.periods, entries=ordered)

    def in_turn(self, left: list[str]) -> Iterator[str]:
        """Those that share enough items first, asked one by one (the last one need not be), then the others."""
        waiting = []
        for name in left:
            if len(left) == 1 or self.is_ready(name):
                yield name
            else:
                waiting.append(name)
        yield from waiting

    def is_ready(self, name: str) -> bool:
        """Whether a period shares enough items with those linked so far, in every dimension."""
        if self.periods.entries[name].link_key == self._direct_key(name):
            return True
        enough = self.spec.linking.min_anchors
        for dimension, ids in self.answered(name).items():
            shared = {item for other in self.entries for item in ids & self.answered(other).get(dimension, set())}
            if len(shared) < enough:
                return False
        return True

    def put_reference(self) -> None:
        """The period that sets the metric; refused where nothing could be linked to it in some dimension."""
        if lacking := [d for d in self.spec.bank.dimensions if not self.answered(self.reference).get(d)]:
            raise LinkError(
                f"period {self.reference!r} cannot be the reference: no item of {first_few(lacking)} was answered in "
                "it, so no other period could be linked there; begin with a period that measures every dimension, or "
                "make such a one the reference (concal rereference)"
            )
        entry, key = self.periods.entries[self.reference], hash_of("reference", self.reference)
        if entry.link_key == key:
            self.entries[self.reference] = entry
        else:
            n_draws = int(str(entry.info["n_draws"]))
            self._write(identity_link(self.reference, self.spec.bank.dimensions, n_draws), key)

    def put(self, name: str) -> None:
        """Link one period, unless the link it has was made from the same."""
        entry, direct, so_far = self.periods.entries[name], self._direct_key(name), self.done
        before = [(n, period.content_key(), period.entry.link_key) for n, period in so_far.items()]
        through = hash_of(direct, TOTALS, self.spec.consensus.half_life, before)
        if entry.link_key in (direct, through):
            self.entries[name] = entry
            return
        key = next((key for key in (direct, through) if key in self.made), None)
        if key is None:
            link = link_sources(
                self.periods[name].source(),
                self.periods[self.reference].source(),
                spec=self.spec.linking_in_force,
                consensus=lambda: self._consensus(so_far),
                others=lambda: ((seen.source(), seen.link()) for seen in so_far.values()),
                threads=self.spec.calibration.threads,
            )
            key = direct if is_direct(link, self.spec.linking.min_anchors) else through
            self.made[key] = link
        self._write(self.made[key], key)

    def _consensus(self, so_far: Periods) -> Mapping[str, GroupConsensus]:
        """The analytic consensus of the periods linked so far."""
        spec = self.spec.consensus.model_copy(update={"method": "analytic"})
        return consensus_of(
            evidence_of(so_far, lambda: sum_totals(so_far, self.reference, spec.half_life)), spec
        ).groups

    def _direct_key(self, name: str) -> str:
        return direct_key(self.periods, name, self.reference, self.spec)

    def _write(self, link: Link, key: str) -> None:
        writer = FolderWriter(self.transaction, link.period)
        write_link(writer, link)
        entry = self.periods.entries[link.period]
        self.entries[link.period] = entry.model_copy(update={"link": writer.files, "link_key": key})
        self.anew.append(link.period)


def _answered(periods: Periods, name: str) -> dict[str, set[str]]:
    """A period's items with responses, by dimension."""
    return {dimension: set(ids) for dimension, ids in periods[name].answered().items()}


def direct_key(periods: Periods, name: str, reference: str, spec: Spec) -> str:
    """Of a link that depends on the period and the reference alone."""
    linking = spec.linking_in_force.model_dump_json()
    return hash_of(LINKING, name, *(periods[n].content_key() for n in (name, reference)), reference, linking)


def is_direct(link: Link, min_anchors: int) -> bool:
    """Whether the reference alone had enough anchors in every dimension, so that no other period mattered."""
    if any(len(path) > 2 for path in link.path.values()):
        return False
    usable = link.anchors.filter(pl.col("kept") | (pl.col("dropped_by") == "purification"))
    counts = dict(usable.group_by("dimension").len().iter_rows())
    return all(counts.get(dimension, 0) >= min_anchors for dimension in link.path)
