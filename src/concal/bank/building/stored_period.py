"""A period as the bank has it: what is needed of it is read on demand, and acts on single items are applied to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
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
from concal.bank.store.codec import decode_model, read_layout
from concal.bank.store.files import sha256
from concal.bank.store.folder import FolderReader
from concal.bank.store.manifest import Act, PeriodEntry
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
from concal.linking.anchors import Source, period_source
from concal.linking.result import Link
from concal.names import split_stratum

_CONTENT = ("draws", "population", "calibration", "factors")
JustMade = tuple[Calibration, PeriodFactors]
"""What need not be read of a period, because it was just made; the draws of its items are in its files."""


class GroupModel(NamedTuple):
    """What a group keeps for good: its response model in words, and its dimension."""

    kind: str
    dimension: str


@dataclass(frozen=True)
class StoredPeriod:
    """A period with its files.

    Attributes
    ----------
    name : str
    store : Store
    entry : PeriodEntry
    acts : Acts
        What was decided about single items; everything read below has it applied. Without them: as stored.
    made : (Calibration, PeriodFactors) or None
    """

    name: str
    store: Store
    entry: PeriodEntry
    acts: Acts
    made: JustMade | None = None

    @property
    def reader(self) -> FolderReader:
        """What was stored with its calibration."""
        return FolderReader(self.store, self.entry.files)

    @cached_property
    def adjustment(self) -> Adjustment:
        """What the acts do to it; its items are looked up only if one may concern it."""
        if not self.acts.concern(self.name):
            return NOTHING
        answered = responses_by_group(self.reader) if self.acts.concern_groups(self.name) else {}
        items = self.reader.frame("answered", ["item_id"])["item_id"].to_list()
        return self.acts.adjustment(self.name, items, answered)

    def lapsed(self) -> tuple[Act, ...]:
        """Exclusions of groups of examinees that leave nobody out of it."""
        if not self.acts.concern_groups(self.name):
            return ()
        return self.acts.lapsed(self.name, responses_by_group(self.reader))

    @cached_property
    def _rests(self) -> Rests:
        """What other groups of examinees say, where acts leave some out."""
        if not self.adjustment.left_out:
            return {}
        return rests_of(self._stored_calibration(draws=False), self._stored_factors(), self.adjustment)

    def _stored_calibration(self, *, draws: bool) -> Calibration:
        return self.made[0] if self.made and not draws else read_calibration(self.reader, draws=draws)

    def _stored_factors(self) -> PeriodFactors:
        return self.made[1] if self.made else read_factors(self.reader)

    def calibration(self, *, draws: bool = True) -> Calibration:
        """What it found; without `draws` of its items, views of one zero stand in their place."""
        found, rests = self._stored_calibration(draws=draws), self._rests
        if draws and rests:
            moved = {n: replace(found.groups[n], xi=moved_draws(found.groups[n].xi, rest)) for n, rest in rests.items()}
            found = replace(found, groups={**found.groups, **moved})
        return adjust_calibration(found, self.adjustment, rests)

    def source(self) -> Source:
        """As linking sees it: draws are read when a link asks for them."""
        return stored_source(self.reader, self.calibration(draws=False), self._rests)

    def factors(self) -> PeriodFactors:
        """What its responses said."""
        return adjust_factors(self._stored_factors(), self.adjustment, self._rests)

    def fit(self) -> PeriodFit | None:
        """Whether its items fit; None where it came without responses."""
        found = self.made[0].fit if self.made else read_fit(self.reader)
        return None if found is None else adjust_fit(found, self.adjustment)

    def person_groups(self) -> GroupsOfPeriod | None:
        """What its groups of examinees said about the items; None where there is one group or no responses."""
        fit = self.fit()
        if fit is None or not fit.groups.width:
            return None
        abilities = read_ability_groups(self.reader)
        return None if abilities is None else GroupsOfPeriod(fit.groups, *abilities)

    def link(self) -> Link:
        """Its link to the reference."""
        return read_link(FolderReader(self.store, self.entry.link))

    def doubts(self) -> tuple[str, ...]:
        """What its calibration and its link warned of."""
        link = FolderReader(self.store, self.entry.link).json("link")
        return (*self.reader.json("convergence")["warnings"], *link["warnings"])

    def placed(self) -> Placed:
        """Its factors with its link."""
        return place(self.factors(), self.link())

    def coding(self) -> dict[str, Any]:
        """How it coded the features of its groups; None where draws came without saying so."""
        return self.reader.json("coding")

    def calibrated(self) -> pl.DataFrame:
        """item_id, group, dimension, n_responses and converged of the items of its calibration."""
        return adjust_table(self.reader.frame("answered"), self.adjustment)

    def strata(self) -> dict[str, dict[str, Any]]:
        """Response models of its groups as they are stored, stratum by stratum."""
        found: dict[str, dict[str, Any]] = {}
        for name, plain in read_layout(self.reader, "calibration").groups.items():
            found.setdefault(split_stratum(name)[0], {})[name] = plain["model"]
        return found

    def models(self) -> dict[str, GroupModel]:
        """Response model and dimension of its groups; strata of one have the same."""
        groups = read_layout(self.reader, "calibration").groups
        found = {split_stratum(name)[0]: plain for name, plain in groups.items()}
        return {name: GroupModel(decode_model(g["model"]).kind, g["dimension"]) for name, g in found.items()}

    def categories(self) -> dict[str, int | None]:
        """Numbers of categories of its strata, by name."""
        groups = read_layout(self.reader, "calibration").groups
        return {name: decode_model(plain["model"]).n_categories for name, plain in groups.items()}

    def unconverged(self) -> list[str]:
        """Items whose chains did not agree in it: all of them where the period itself has not converged."""
        info = self.entry.info
        if info.get("converged", True) and not info.get("n_unconverged"):
            return []
        table = self.calibrated()
        return (table.filter(~pl.col("converged")) if info.get("converged", True) else table)["item_id"].to_list()

    def listed(self, *columns: str) -> pl.DataFrame:
        """The item table it came with: item_id, group and those of the columns that it has."""
        wanted = {"item_id", "group", *columns}
        there = [name for name in self.reader.part("items").columns if name in wanted]
        return adjust_ids(self.reader.frame("items", there), self.adjustment)

    def answered(self) -> dict[str, list[str]]:
        """Items with responses that count, by dimension."""
        table = self.calibrated().filter(pl.col("n_responses") > 0)
        return {
            str(key[0]): part["item_id"].to_list() for key, part in table.group_by("dimension", maintain_order=True)
        }

    def data(self) -> PeriodData:
        """Its responses, as far as they count."""
        return adjust_data(read_period_data(self.reader, self.name), self.adjustment)

    def item_draws(self, ids: Iterable[str]) -> dict[str, npt.NDArray[np.float32]]:
        """Draws of some items on its own metric, by the bank's ids: (chain, draw, parameter)."""
        stored = {self.adjustment.stored(item): item for item in ids}
        found = read_item_draws(self.reader, [item for item in stored if item is not None])
        for rest in self._rests.values():
            found |= {item: moved_item(found[item], rest, item) for item in rest.item_ids if item in found}
        return {str(stored[item]): draws for item, draws in found.items()}

    def content_key(self) -> str:
        """Hash of everything of its calibration that a link or the consensus depends on, acts included."""
        content = sorted((key, e.sha256) for key, e in self.entry.files.items() if key.startswith(_CONTENT))
        return hash_of(content) if self.adjustment == NOTHING else hash_of(content, self.adjustment.key)


def stored_source(reader: FolderReader, calibration: Calibration, rests: Rests | None = None) -> Source:
    """A calibration without draws, as linking sees it: they are read group by group, and moved as `rests` say."""
    layout = read_layout(reader, "calibration")

    def draws(group: str) -> npt.NDArray[np.float32]:
        found = read_draws(reader, "draws", layout, group)
        return moved_draws(found, rests[group]) if rests and group in rests else found

    return period_source(calibration, draws)


def hash_of(*parts: Any) -> str:
    """A short name for plain data: equal data, equal name."""
    return sha256(repr(parts).encode())[:32]
