"""A version as tables: items, periods, links, abilities, history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from concal.bank.acts import Acts, in_words
from concal.bank.reading.contents import Contents
from concal.bank.tables.abilities import ABILITY_COLUMNS, ability_table
from concal.bank.tables.person_groups import group_table
from concal.bank.tables.views import (
    act_table,
    count_sources,
    history_table,
    item_table,
    link_table,
    period_table,
    wanted_items,
    wide_items,
)
from concal.consensus.links import links_in_force
from concal.errors import counted, first_few


class Tables(Contents):
    """What people look at."""

    def items(self, ids: Iterable[str] | None = None) -> pl.DataFrame:
        """Item parameters: item_id, group, dimension, model, parameter, mean, sd, source, n_responses, n_periods.

        `source` says where a number comes from: "consensus", "fallback" (the population model, because the responses
        do not identify the item) or "predicted" (nobody answered it). `unconverged` names the periods in which the
        item's chains, or those of the whole period, had not converged.
        """
        return wanted_items(item_table(self._groups(), self.unconverged()), ids)

    def parameters(self) -> pl.DataFrame:
        """One row per item with natural parameters (a, d, c, ...), the SD of a, and the means and SDs of xi."""
        return wide_items(self._groups(), self.unconverged())

    def periods(self) -> pl.DataFrame:
        """One row per period."""
        return period_table(self._snapshot)

    def person_groups(self) -> pl.DataFrame:
        """Ability distributions on the reference metric, one row per period, dimension and group of examinees.

        Columns: period, dimension, person_group ("all": everybody of the period), n_persons (with a response in the
        dimension), mean and sd of their abilities, mean_sd and sd_sd: posterior SDs of these, the link's uncertainty
        included. Periods that came without examinees (draws of another engine) are left out.
        """
        links = {name: self.link(name) for name in self.period_names}
        calibrations = {name: self.calibration(name, draws=False) for name in self.period_names}
        return group_table(calibrations, links_in_force(links, self._links()))

    def links(self) -> pl.DataFrame:
        """One row per period and dimension: A and B as the consensus has them, and the anchors they rest on."""
        return link_table(self._links(), {name: self.link(name) for name in self.period_names})

    def abilities(self, periods: Iterable[str] | None = None) -> pl.DataFrame:
        """Examinees on the reference metric, as the periods' calibrations saw them.

        Parameters
        ----------
        periods
            Default: all; those that came without examinees (draws of another engine) are left out.

        Returns
        -------
        polars DataFrame
            period, person_id, dimension, theta, sd and its parts sd_measurement and sd_link, n_responses.
        """
        asked = self.period_names if periods is None else [periods] if isinstance(periods, str) else list(periods)
        in_force = self.consensus(joint=False)
        frames = [ability_table(self.calibration(name), self.link(name), in_force) for name in asked]
        return pl.concat([pl.DataFrame(schema=ABILITY_COLUMNS), *frames])

    def anchors(self, period: str) -> pl.DataFrame:
        """Candidate anchors of a period: kept, or dropped by what."""
        return self.link(period).anchors

    def acts(self) -> pl.DataFrame:
        """What was decided about single items, oldest first, one row per act."""
        return act_table(Acts.of(self._snapshot))

    def history(self) -> pl.DataFrame:
        """One row per version up to this one."""
        numbers = [n for n in self._store.numbers() if n <= self.version]
        return history_table((self._store.snapshot(n) for n in numbers), self._store.releases())

    def show(self) -> dict[str, Any]:
        """The bank in a few words, as plain data."""
        snapshot, spec = self._snapshot, self.spec
        found: dict[str, Any] = {
            "name": spec.bank.name,
            "path": str(self.path),
            "version": snapshot.number,
            "written": snapshot.written,
            "last_action": snapshot.action,
            "reference": snapshot.reference,
            "dimensions": list(spec.bank.dimensions),
            "groups": {name: g.model for name, g in spec.groups.items()},
            "periods": list(self.period_names),
            "releases": {r.name: r.snapshot for r in self._store.releases().values()},
            "evaluations": sorted(snapshot.evaluations),
            "acts": [in_words(act) for act in snapshot.acts],
        }
        if snapshot.periods:
            consensus = self.consensus(joint=False)
            found["items"] = count_sources(*consensus.groups.values())
            found["method"] = consensus.method
            missed = [name for name in self.period_names if not snapshot.periods[name].info.get("converged", True)]
            doubts = [f"{counted(len(missed), 'period')} not converged: {first_few(missed)}"] if missed else []
            stages = [f"{name}: {text}" for name, period in self._periods.items() for text in period.doubts()]
            found["warnings"] = [*doubts, *consensus.warnings, *stages]
        return found
