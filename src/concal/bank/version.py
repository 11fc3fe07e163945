"""One version of a bank, read-only: results, tables, draws, predictions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from concal.bank.building.coding import design_rows
from concal.bank.reading.diagnosis import Diagnosis
from concal.bank.reading.people import People
from concal.bank.reading.tables import Tables
from concal.bank.tables.views import item_table, wide_items
from concal.consensus.draws import item_draws
from concal.consensus.predict import predict_items
from concal.data.findings import Findings
from concal.data.items import read_items
from concal.data.read import Table
from concal.shown import shown

if TYPE_CHECKING:
    import xarray

    from concal.bank.exchange.export import Exported


@shown
class Version(Tables, Diagnosis, People):
    """A bank as it was at one version; nothing here writes to the bank."""

    def draws(self, ids: Iterable[str], *, draws: int | None = None) -> xarray.Dataset:
        """Consensus draws of some items on the reference metric, with dimensions (chain, draw, item, parameter).

        Parameters of other response models are NaN. The same bank and item give the same draws.
        """
        from concal.bank.exchange.arviz import item_dataset

        asked = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
        consensus, spec = self.consensus(joint=False), self.consensus_spec
        found = item_draws(consensus, asked, draws=draws or spec.draws, seed=spec.seed)
        return item_dataset(consensus, found)

    def period_draws(self, period: str, ids: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
        """Draws of some items in one period, on its own metric: (chain, draw, parameter) by item."""
        return dict(self._periods[period].item_draws(ids))

    def predict(self, items: Table, *, long: bool = True) -> pl.DataFrame:
        """Parameters for items nobody has answered, from their features.

        Parameters
        ----------
        items
            Path or data frame: item_id, group, feature columns.
        long
            One row per parameter, columns as in `items`; False: one row per item, columns as in `parameters`.
        """
        spec, consensus = self.spec, self.consensus(joint=False)
        found = Findings("items")
        table = read_items(items, spec, found)
        found.stop_if_bad()
        groups = []
        for name in table["group"].unique(maintain_order=True).to_list():
            ids, X = design_rows(self._periods, name, table, spec.data.unseen_level)
            groups.append(predict_items(consensus, name, ids, X))
        return item_table(groups) if long else wide_items(groups)

    def export(self, to: str | Path, *, format: str | None = None, period: str | None = None) -> Exported:
        """Write the items of this version for other software; see `concal.bank.exchange.formats`."""
        from concal.bank.exchange.export import export

        return export(self, Path(to), format=format, period=period)
