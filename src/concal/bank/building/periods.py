"""The periods of a version, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from concal.bank.acts import Acts
from concal.bank.building.stored_period import JustMade, StoredPeriod
from concal.bank.store.manifest import PeriodEntry, Snapshot
from concal.bank.store.store import Store
from concal.errors import BankError, first_few


@dataclass(frozen=True)
class Periods(Mapping[str, StoredPeriod]):
    """Periods by name, each made when it is asked for and not kept, so that memory does not grow with the past.

    Attributes
    ----------
    store : Store
    entries : dict of name -> PeriodEntry
        Oldest first.
    acts : Acts
        What was decided about single items.
    memory : dict of name -> (Calibration, PeriodFactors)
        What need not be read because it was just made.
    """

    store: Store
    entries: Mapping[str, PeriodEntry]
    acts: Acts = field(default_factory=Acts)
    memory: Mapping[str, JustMade] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot) -> Periods:
        """Those of a stored version."""
        acts = Acts.of(snapshot)
        return cls(store, {name: snapshot.periods[name] for name in acts.order}, acts)

    def __getitem__(self, name: str) -> StoredPeriod:
        if name not in self:
            raise BankError(f"there is no period {name!r}; periods: {first_few(list(self)) or 'none'}")
        return StoredPeriod(name, self.store, self.entries[name], self.acts, self.memory.get(name))

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def only(self, names: Iterable[str]) -> Periods:
        """Some of them, in the same order."""
        wanted = set(names)
        return replace(self, entries={name: entry for name, entry in self.entries.items() if name in wanted})
