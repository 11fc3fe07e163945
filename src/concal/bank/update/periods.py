"""The periods of a version, in order: what is needed of them is read on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from concal.bank.store.files import sha256
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import PeriodEntry, Snapshot
from concal.bank.store.store import Store
from concal.bank.tables.calibration import read_calibration
from concal.bank.tables.results import read_factors, read_link
from concal.calibrate.result import Calibration
from concal.combine.combine import place
from concal.combine.factors.period import PeriodFactors, Placed
from concal.errors import BankError, first_few
from concal.link.result import Link

_CONTENT = ("draws", "population", "calibration", "factors")


@dataclass(frozen=True)
class Periods:
    """Periods with their files.

    Attributes
    ----------
    store : Store
    entries : dict of name -> PeriodEntry
        Oldest first.
    memory : dict of name -> (Calibration, PeriodFactors)
        What need not be read because it was just made.
    """

    store: Store
    entries: Mapping[str, PeriodEntry]
    memory: Mapping[str, tuple[Calibration, PeriodFactors]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot) -> Periods:
        """Those of a stored version."""
        return cls(store, {name: snapshot.periods[name] for name in snapshot.ordered_periods()})

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def only(self, names: Iterable[str]) -> Periods:
        """Some of them, in the same order."""
        wanted = set(names)
        return replace(self, entries={name: entry for name, entry in self.entries.items() if name in wanted})

    def reader(self, period: str) -> FolderReader:
        """What was stored with its calibration."""
        if period not in self.entries:
            raise BankError(f"there is no period {period!r}; periods: {first_few(list(self.entries)) or 'none'}")
        return FolderReader(self.store, self.entries[period].files)

    def calibration(self, period: str) -> Calibration:
        """Its draws; stored ones are not kept in memory."""
        return self.memory[period][0] if period in self.memory else read_calibration(self.reader(period))

    def factors(self, period: str) -> PeriodFactors:
        """What its responses said."""
        return self.memory[period][1] if period in self.memory else read_factors(self.reader(period))

    def link(self, period: str) -> Link:
        """Its link to the reference."""
        self.reader(period)
        return read_link(FolderReader(self.store, self.entries[period].link))

    def placed(self, period: str) -> Placed:
        """Its factors with its link."""
        return place(self.factors(period), self.link(period))

    def coding(self, period: str) -> dict[str, Any]:
        """How it coded the features of its groups; None where draws came without saying so."""
        return self.reader(period).json("coding")

    def answered(self, period: str) -> dict[str, list[str]]:
        """Items with responses, by dimension."""
        table = self.reader(period).frame("answered").filter(pl.col("n_responses") > 0)
        return {
            str(key[0]): part["item_id"].to_list() for key, part in table.group_by("dimension", maintain_order=True)
        }

    def content_key(self, period: str) -> str:
        """Hash of everything of its calibration that a link or the consensus depends on."""
        files = self.entries[period].files
        return hash_of(sorted((key, e.sha256) for key, e in files.items() if key.startswith(_CONTENT)))


def hash_of(*parts: Any) -> str:
    """A short name for plain data: equal data, equal name."""
    return sha256(repr(parts).encode())[:32]
