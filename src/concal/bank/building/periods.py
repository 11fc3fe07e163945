"""The periods of a version, in order: what is needed of them is read on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.acts import NOTHING, Acts, Adjustment
from concal.bank.building.adjust import (
    Rests,
    adjust_calibration,
    adjust_data,
    adjust_factors,
    adjust_fit,
    adjust_ids,
    adjust_table,
    rests_of,
)
from concal.bank.store.codec import decode_model
from concal.bank.store.files import sha256
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import Act, PeriodEntry, Snapshot
from concal.bank.store.store import Store
from concal.bank.tables.calibration import read_ability_groups, read_calibration, read_draws, read_item_draws
from concal.bank.tables.fit import read_fit, responses_by_group
from concal.bank.tables.responses import read_period_data
from concal.bank.tables.results import read_factors, read_link
from concal.calibration.fit.period_fit import PeriodFit
from concal.calibration.result import Calibration
from concal.consensus.combine import place
from concal.consensus.drift.dif import GroupsOfPeriod
from concal.consensus.factors.period import PeriodFactors, Placed
from concal.consensus.factors.without_groups import moved_draws, moved_item
from concal.data.period import PeriodData
from concal.errors import BankError, first_few
from concal.linking.anchors import Source, period_source
from concal.linking.result import Link
from concal.names import split_stratum

_CONTENT = ("draws", "population", "calibration", "factors")


class GroupModel(NamedTuple):
    """What a group keeps for good: its response model in words, and its dimension."""

    kind: str
    dimension: str


@dataclass(frozen=True)
class Periods:
    """Periods with their files.

    Attributes
    ----------
    store : Store
    entries : dict of name -> PeriodEntry
        Oldest first.
    memory : dict of name -> (Calibration, PeriodFactors)
        What need not be read because it was just made; the draws of items are in its files.
    acts : Acts
        What was decided about single items; everything read below has it applied. Without them: as stored.
    """

    store: Store
    entries: Mapping[str, PeriodEntry]
    memory: Mapping[str, tuple[Calibration, PeriodFactors]] = field(default_factory=dict)
    acts: Acts = field(default_factory=Acts)

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot) -> Periods:
        """Those of a stored version."""
        order = snapshot.ordered_periods()
        return cls(store, {name: snapshot.periods[name] for name in order}, acts=Acts(snapshot.acts, order))

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

    def adjustment(self, period: str) -> Adjustment:
        """What the acts do to a period; its items are looked up only if one may concern it."""
        if not self.acts.concern(period):
            return NOTHING
        reader = self.reader(period)
        answered = responses_by_group(reader) if self.acts.concern_groups(period) else {}
        return self.acts.adjustment(period, reader.frame("answered", ["item_id"])["item_id"].to_list(), answered)

    def lapsed(self, period: str) -> tuple[Act, ...]:
        """Exclusions of groups of examinees that leave nobody out of the period."""
        if not self.acts.concern_groups(period):
            return ()
        return self.acts.lapsed(period, responses_by_group(self.reader(period)))

    def _rests(self, period: str, by: Adjustment) -> Rests:
        """What other groups of examinees say, where acts leave some out."""
        if not by.left_out:
            return {}
        return rests_of(self._stored_calibration(period, draws=False), self._stored_factors(period), by)

    def _stored_calibration(self, period: str, *, draws: bool) -> Calibration:
        known = period in self.memory and not draws
        return self.memory[period][0] if known else read_calibration(self.reader(period), draws=draws)

    def _stored_factors(self, period: str) -> PeriodFactors:
        return self.memory[period][1] if period in self.memory else read_factors(self.reader(period))

    def calibration(self, period: str, *, draws: bool = True) -> Calibration:
        """What it found; without `draws` of its items, views of one zero stand in their place."""
        by, found = self.adjustment(period), self._stored_calibration(period, draws=draws)
        rests = self._rests(period, by)
        if draws and rests:
            moved = {n: replace(found.groups[n], xi=moved_draws(found.groups[n].xi, rest)) for n, rest in rests.items()}
            found = replace(found, groups={**found.groups, **moved})
        return adjust_calibration(found, by, rests)

    def source(self, period: str) -> Source:
        """As linking sees it: draws are read when a link asks for them."""
        rests = self._rests(period, self.adjustment(period))
        return stored_source(self.reader(period), self.calibration(period, draws=False), rests)

    def factors(self, period: str) -> PeriodFactors:
        """What its responses said."""
        by = self.adjustment(period)
        return adjust_factors(self._stored_factors(period), by, self._rests(period, by))

    def fit(self, period: str) -> PeriodFit | None:
        """Whether its items fit; None where it came without responses."""
        found = self.memory[period][0].fit if period in self.memory else read_fit(self.reader(period))
        return None if found is None else adjust_fit(found, self.adjustment(period))

    def person_groups(self, period: str) -> GroupsOfPeriod | None:
        """What its groups of examinees said about the items; None where there is one group or no responses."""
        fit = self.fit(period)
        if fit is None or not fit.groups.width:
            return None
        abilities = read_ability_groups(self.reader(period))
        return None if abilities is None else GroupsOfPeriod(fit.groups, *abilities)

    def link(self, period: str) -> Link:
        """Its link to the reference."""
        self.reader(period)
        return read_link(FolderReader(self.store, self.entries[period].link))

    def doubts(self, period: str) -> tuple[str, ...]:
        """What its calibration and its link warned of."""
        link = FolderReader(self.store, self.entries[period].link).json("link")
        return (*self.reader(period).json("convergence")["warnings"], *link["warnings"])

    def placed(self, period: str) -> Placed:
        """Its factors with its link."""
        return place(self.factors(period), self.link(period))

    def coding(self, period: str) -> dict[str, Any]:
        """How it coded the features of its groups; None where draws came without saying so."""
        return self.reader(period).json("coding")

    def calibrated(self, period: str) -> pl.DataFrame:
        """item_id, group, dimension, n_responses and converged of the items of its calibration."""
        return adjust_table(self.reader(period).frame("answered"), self.adjustment(period))

    def strata(self, period: str) -> dict[str, dict[str, Any]]:
        """Response models of its groups as they are stored, stratum by stratum."""
        found: dict[str, dict[str, Any]] = {}
        for name, content in self.reader(period).json("calibration")["groups"].items():
            found.setdefault(split_stratum(name)[0], {})[name] = content["plain"]["model"]
        return found

    def models(self, period: str) -> dict[str, GroupModel]:
        """Response model and dimension of its groups; strata of one have the same."""
        groups = self.reader(period).json("calibration")["groups"]
        found = {split_stratum(name)[0]: content["plain"] for name, content in groups.items()}
        return {name: GroupModel(decode_model(g["model"]).kind, g["dimension"]) for name, g in found.items()}

    def categories(self, period: str) -> dict[str, int | None]:
        """Numbers of categories of its strata, by name."""
        groups = self.reader(period).json("calibration")["groups"]
        return {name: decode_model(content["plain"]["model"]).n_categories for name, content in groups.items()}

    def unconverged(self, period: str) -> list[str]:
        """Items whose chains did not agree in the period: all of them where the period itself has not converged."""
        info = self.entries[period].info
        if info.get("converged", True) and not info.get("n_unconverged"):
            return []
        table = self.calibrated(period)
        return (table.filter(~pl.col("converged")) if info.get("converged", True) else table)["item_id"].to_list()

    def listed(self, period: str, columns: Iterable[str] | None = None) -> pl.DataFrame:
        """The item table it came with: item_id, group and all its columns, or those of `columns` that it has."""
        reader = self.reader(period)
        if columns is not None:
            wanted = {"item_id", "group", *columns}
            columns = [name for name in reader.part("items").columns if name in wanted]
        return adjust_ids(reader.frame("items", columns), self.adjustment(period))

    def answered(self, period: str) -> dict[str, list[str]]:
        """Items with responses that count, by dimension."""
        table = self.calibrated(period).filter(pl.col("n_responses") > 0)
        return {
            str(key[0]): part["item_id"].to_list() for key, part in table.group_by("dimension", maintain_order=True)
        }

    def data(self, period: str) -> PeriodData:
        """Its responses, as far as they count."""
        return adjust_data(read_period_data(self.reader(period), period), self.adjustment(period))

    def item_draws(self, period: str, ids: Iterable[str]) -> dict[str, npt.NDArray[np.float32]]:
        """Draws of some items on its own metric, by the bank's ids: (chain, draw, parameter)."""
        adjustment = self.adjustment(period)
        stored = {adjustment.stored(item): item for item in ids}
        found = read_item_draws(self.reader(period), [item for item in stored if item is not None])
        for rest in self._rests(period, adjustment).values():
            found |= {item: moved_item(found[item], rest, item) for item in rest.item_ids if item in found}
        return {str(stored[item]): draws for item, draws in found.items()}

    def content_key(self, period: str) -> str:
        """Hash of everything of its calibration that a link or the consensus depends on, acts included."""
        files = self.entries[period].files
        content = sorted((key, e.sha256) for key, e in files.items() if key.startswith(_CONTENT))
        adjustment = self.adjustment(period)
        return hash_of(content) if adjustment == NOTHING else hash_of(content, adjustment.key)


def stored_source(reader: FolderReader, calibration: Calibration, rests: Rests | None = None) -> Source:
    """A calibration without draws, as linking sees it: they are read group by group, and moved as `rests` say."""
    content = reader.json("calibration")

    def draws(group: str) -> npt.NDArray[np.float32]:
        found = read_draws(reader, "draws", content, group)
        return moved_draws(found, rests[group]) if rests and group in rests else found

    return period_source(calibration, draws)


def hash_of(*parts: Any) -> str:
    """A short name for plain data: equal data, equal name."""
    return sha256(repr(parts).encode())[:32]
