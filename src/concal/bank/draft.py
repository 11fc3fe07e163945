"""The next version while it is put together: reads what the head has, writes only what changes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import polars as pl
import tomli_w

from concal.bank.catalogue import unanswered_items
from concal.bank.folder import FolderReader, FolderWriter
from concal.bank.manifest import FileEntry, PeriodEntry, Snapshot
from concal.bank.parquet import read_bytes
from concal.bank.progress import Clock
from concal.bank.results import (
    read_link,
    read_summary,
    read_totals,
    write_consensus,
    write_link,
    write_summary,
    write_totals,
)
from concal.bank.store import Store, Transaction
from concal.bank.tables import read_calibration
from concal.calibrate.result import Calibration
from concal.combine.analytic import consensus_from_totals
from concal.combine.periods import combine, gaussianity
from concal.combine.result import Consensus, GroupConsensus
from concal.combine.specification import NewItems
from concal.combine.summary import PeriodSummary, summarise_period
from concal.combine.totals import Totals, add_period, sum_periods
from concal.link.period import link as link_period
from concal.link.result import Link, identity_link
from concal.spec import ConsensusSpec, Spec

_CONSENSUS_KEYS = ("consensus", "totals")


def read_spec(store: Store, entry: FileEntry) -> Spec:
    """A spec kept in the bank."""
    return Spec.parse(tomllib.loads(read_bytes(store, entry).decode("utf-8")))


def spec_bytes(spec: Spec) -> bytes:
    """A spec as TOML, every default written out."""
    return tomli_w.dumps(spec.model_dump(mode="json", exclude_none=True)).encode("utf-8")


class Draft:
    """What the next version will be.

    Attributes
    ----------
    periods : dict of name -> PeriodEntry
        In the order they were added.
    spec, options, reference
        As the next version will have them.
    """

    def __init__(self, store: Store, head: Snapshot, transaction: Transaction, spec: Spec | None = None) -> None:
        self.store, self.head, self.transaction = store, head, transaction
        self.spec_entry = head.spec
        self.spec = spec or read_spec(store, head.spec)
        self.options: dict[str, Any] = dict(head.options) if spec is None else {}
        self.reference = head.reference
        self.periods = {name: head.periods[name] for name in head.ordered_periods()}
        self.state: dict[str, FileEntry] = dict(head.state)
        self._calibrations: dict[str, Calibration] = {}
        self._links: dict[str, Link] = {}
        self._summaries: dict[str, PeriodSummary] = {}
        self._coding: tuple[dict[str, Any], pl.DataFrame] | None = None

    # what there is

    @property
    def consensus_spec(self) -> ConsensusSpec:
        """The consensus section with the options of the last `combine` on top."""
        return ConsensusSpec.model_validate({**self.spec.consensus.model_dump(), **self.options})

    def reader(self, period: str) -> FolderReader:
        """Files of a period the head has."""
        return FolderReader(self.store, self.periods[period].files)

    def calibration(self, period: str) -> Calibration:
        """Draws of a period, new or stored; stored ones are not kept in memory."""
        return self._calibrations.get(period) or read_calibration(self.reader(period))

    def answered(self, period: str) -> dict[str, list[str]]:
        """Items with responses in a period, by dimension."""
        if period not in self._calibrations:
            return answered_items(self.reader(period))
        found: dict[str, list[str]] = {}
        for group in self._calibrations[period].groups.values():
            ids = [item for item, n in zip(group.item_ids, group.n_responses, strict=True) if n > 0]
            if ids:
                found.setdefault(group.dimension, []).extend(ids)
        return found

    def link(self, period: str) -> Link:
        """The link of a period."""
        return self._links.get(period) or read_link(self.reader(period))

    def summary(self, period: str) -> PeriodSummary:
        """The summary of a period."""
        return self._summaries.get(period) or read_summary(self.reader(period))

    @cached_property
    def head_totals(self) -> Totals:
        """The totals the head ended with."""
        return read_totals(FolderReader(self.store, self.head.state))

    # what changes

    def set_spec(self, spec: Spec) -> None:
        """Keep a changed spec."""
        self.spec = spec
        writer = FolderWriter(self.transaction, "spec")
        writer.text("spec", "bank.toml", spec_bytes(spec))
        self.spec_entry = writer.files["spec"]

    def put_period(self, calibration: Calibration, entry: PeriodEntry) -> None:
        """A new or replaced period; its link comes later."""
        name = calibration.period
        self._calibrations[name] = calibration
        self.periods[name] = entry

    def put_link(self, link: Link, calibration: Calibration) -> PeriodSummary:
        """A new link: the period's summary is made again from its draws."""
        name = link.period
        is_reference = name == link.reference
        summary = summarise_period(
            calibration,
            None if is_reference else link,
            reference=link.reference,
            finite_draw_correction=self.consensus_spec.finite_draw_correction,
        )
        writer = FolderWriter(self.transaction, name)
        write_link(writer, link)
        write_summary(writer, summary)
        entry = self.periods[name]
        old = {k: v for k, v in entry.files.items() if not k.startswith(("link", "factors"))}
        self.periods[name] = entry.model_copy(update={"files": {**old, **writer.files}})
        self._links[name], self._summaries[name] = link, summary
        return summary

    def link_one(self, period: str, linked: tuple[str, ...], totals: Callable[[], Totals]) -> PeriodSummary:
        """Link one period to the reference, directly or through what is linked already."""
        calibration = self.calibration(period)
        if period == self.reference:
            found = identity_link(period, calibration.dimensions, calibration.n_draws)
        else:
            assert self.reference is not None
            found = link_period(
                calibration,
                self.calibration(self.reference),
                spec=self.spec.linking,
                consensus=LazyConsensus(totals) if linked else None,
                others=LazyPeriods(self, linked),
                threads=self.spec.calibration.threads,
            )
        return self.put_link(found, calibration)

    def sum(self) -> Totals:
        """Totals of all periods, from their summaries."""
        spec, summaries = self.consensus_spec, [self.summary(name) for name in self.periods]
        return sum_periods(summaries, spec.half_life, shared_metric=spec.shared_metric)

    def add_to_head(self, summary: PeriodSummary) -> Totals:
        """The head's totals with one period more: nothing of the past is read but these sums.

        A bank of an earlier version may lack some of them, or have them without the metric's share taken out; then,
        once, all periods are summed again.
        """
        if not self.head.periods or not self.head_totals.complete:
            return self.sum()
        assert self.head_totals.metric is not None
        assert self.reference is not None
        taken_out = bool(self.head_totals.metric.any())
        wanted = self.consensus_spec.shared_metric
        # a reference without wobble leaves nothing to take out: only then is its summary looked at
        if taken_out != wanted and (taken_out or self.summary(self.reference).wobble.any()):
            return self.sum()
        return add_period(self.head_totals, summary)

    def combine(self, totals: Totals, fresh: tuple[str, ...], clock: Clock) -> Consensus:
        """Consensus of the present periods; `fresh` are those whose summaries changed."""
        spec = self.consensus_spec
        items = self.unanswered(totals)
        if spec.method != "analytic":
            consensus = combine(
                [self.summary(n) for n in self.periods],
                method=spec.method,
                spec=spec,
                items=items,
                progress=lambda share, message: clock.tell("combine", share, message),
            )
        else:
            consensus = consensus_from_totals(totals, items=items, third_order=spec.tilt > 0)
            consensus = _with_diagnostics(consensus, self._kept_diagnostics(fresh), [self.summary(n) for n in fresh])
        self.keep(consensus, totals)
        return consensus

    def _kept_diagnostics(self, fresh: tuple[str, ...]) -> pl.DataFrame:
        """Diagnostics of periods that did not change, from the head's consensus."""
        unchanged = [name for name in self.periods if name not in fresh]
        if not unchanged or "consensus_diagnostics" not in self.head.state:
            return pl.DataFrame()
        table = FolderReader(self.store, self.head.state).frame("consensus_diagnostics")
        return table.filter(pl.col("period").is_in(unchanged)) if "period" in table.columns else pl.DataFrame()

    def keep(self, consensus: Consensus | None, totals: Totals | None) -> None:
        """Write consensus and totals (None: the bank has no period left)."""
        self.state = {k: v for k, v in self.state.items() if not k.startswith(_CONSENSUS_KEYS)}
        if consensus is not None and totals is not None:
            writer = FolderWriter(self.transaction, "consensus")
            write_consensus(writer, consensus)
            write_totals(writer, totals)
            self.state |= writer.files

    def unanswered(self, totals: Totals) -> dict[str, NewItems]:
        """Items of the item tables nobody has answered yet, with their design rows."""
        if self._coding is None:
            reader = FolderReader(self.store, self.head.state)
            self._coding = (reader.json("designs") if "designs" in reader else {}, reader.frame("catalogue"))
        designs, catalogue = self._coding
        return unanswered_items(catalogue, designs, self.spec, totals)

    def keep_designs(self, designs: Mapping[str, Any], catalogue: pl.DataFrame) -> None:
        """How features are coded, and the items known but not answered."""
        self._coding = (dict(designs), catalogue)
        writer = FolderWriter(self.transaction, "designs")
        writer.json("designs", designs)
        writer.frame("catalogue", catalogue)
        self.state = {k: v for k, v in self.state.items() if k not in ("designs", "catalogue")} | writer.files

    def changes(self) -> dict[str, Any]:
        """Fields of the next snapshot."""
        return {
            "spec": self.spec_entry,
            "reference": self.reference,
            "periods": self.periods,
            "state": self.state,
            "options": self.options,
        }


def _with_diagnostics(consensus: Consensus, kept: pl.DataFrame, fresh: list[PeriodSummary]) -> Consensus:
    frames = [table for table in (kept, gaussianity(fresh)) if table.width]
    doubts = tuple(f"period {s.period!r}: {w}" for s in fresh for w in s.warnings)
    return replace(
        consensus,
        diagnostics=pl.concat(frames) if frames else pl.DataFrame(),
        warnings=(*consensus.warnings, *doubts),
    )


def answered_items(reader: FolderReader) -> dict[str, list[str]]:
    """Items with responses in a stored period, by dimension."""
    groups = reader.json("calibration")["groups"]
    table = reader.frame("calibration_items", ["item_id", "group", "n_responses"]).filter(pl.col("n_responses") > 0)
    found: dict[str, list[str]] = {}
    for name, described in groups.items():
        ids = table.filter(pl.col("group") == name)["item_id"].to_list()
        if ids:
            found.setdefault(described["plain"]["dimension"], []).extend(ids)
    return found


class LazyConsensus:
    """The consensus so far, computed only if a link has to go through it."""

    def __init__(self, totals: Callable[[], Totals]) -> None:
        self._totals = totals

    @cached_property
    def groups(self) -> Mapping[str, GroupConsensus]:
        """See `concal.link.path.ConsensusLike`."""
        return consensus_from_totals(self._totals()).groups


class LazyPeriods(Mapping[str, tuple[Calibration, Link]]):
    """Linked periods, read one at a time and only if a link has to go through them."""

    def __init__(self, draft: Draft, names: tuple[str, ...]) -> None:
        self._draft, self._names = draft, names

    def __getitem__(self, name: str) -> tuple[Calibration, Link]:
        if name not in self._names:
            raise KeyError(name)
        return self._draft.calibration(name), self._draft.link(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
