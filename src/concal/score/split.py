"""Items that were split: which of its items a response table means by an id.

An item that changed is split: its old id stays with the item as it was, and from a period on (or in some periods) it is
another one under an id of its own. Response tables go on naming the old id. Responses of a period are scored with the
item as it was in that period; without a period, with the item as it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from concal.data.findings import some
from concal.errors import DataError, counted
from concal.spec import nearest


@dataclass(frozen=True)
class SplitItems:
    """Ids in responses and the items they mean.

    Attributes
    ----------
    now : dict of id -> id in the bank
        In a period that would be added next; ids that mean themselves are left out.
    periods : dict of period -> the same
        In every period of the bank.
    """

    now: Mapping[str, str] = field(default_factory=dict)
    periods: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def within(self, period: str | None) -> Mapping[str, str]:
        """What ids mean in a period, or now (None)."""
        if period is None:
            return self.now
        if period not in self.periods:
            raise DataError(f"the bank has no period {period!r}{nearest(period, self.periods)}; name one of its own")
        return self.periods[period]

    def resolve(self, rows: pl.DataFrame, period: str | None, named: pl.DataFrame | None) -> tuple[pl.DataFrame, str]:
        """Responses (person_id, item_id, ...) with the items they mean, and what was done, in words.

        Parameters
        ----------
        rows
            Responses.
        period
            The period of all of them.
        named
            person_id and prior: the period each examinee belongs to, where its name is one of the bank's.
        """
        if period is not None or named is None:
            meant = _renamed(rows["item_id"], self.within(period))
        else:
            whose = rows.select("person_id").join(
                named.unique("person_id"), on="person_id", how="left", maintain_order="left"
            )["prior"]
            meant = rows["item_id"]
            for name in whose.unique().to_list():
                own = whose.eq_missing(pl.Series([name], dtype=pl.String))
                meant = meant.zip_with(~own, _renamed(rows["item_id"], self.periods.get(name, self.now)))
        moved = rows["item_id"].ne_missing(meant)
        if not moved.any():
            return rows, ""
        pairs = pl.DataFrame({"old": rows["item_id"], "new": meant}).filter(moved).unique(maintain_order=True)
        told = (
            f"responses: {counted(pairs.height, 'item')} of the bank were split, {counted(int(moved.sum()), 'row')}: "
            f"{some(pairs['old'])} scored as {some(pairs['new'])}"
        )
        return rows.with_columns(meant.alias("item_id")), told


def _renamed(ids: pl.Series, names: Mapping[str, str]) -> pl.Series:
    return ids.replace(dict(names)) if names else ids
