"""The fit of a period's items as Parquet files, and over all periods as one table."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from concal import metric
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.calibration.fit.period_fit import PeriodFit
from concal.calibration.fit.pvalues import benjamini_hochberg
from concal.consensus.links import InForce

_FRAMES = ("items", "bins", "pairs", "groups")
TESTS = {
    "item_id": pl.String, "group": pl.String, "dimension": pl.String, "period": pl.String, "n_responses": pl.Int64,
    "flagged": pl.Boolean, "misfit": pl.Float64, "p_value": pl.Float64, "q_value": pl.Float64,
}  # fmt: skip

BINS = {
    "item_id": pl.String, "group": pl.String, "period": pl.String, "bin": pl.Int64, "theta": pl.Float64,
    "n_responses": pl.Int64, "observed": pl.Float64, "se": pl.Float64, "expected": pl.Float64,
}  # fmt: skip
PAIRS = {
    "item_id": pl.String, "other_id": pl.String, "dimension": pl.String, "period": pl.String, "n_common": pl.Int64,
    "q3": pl.Float64, "t": pl.Float64, "p_value": pl.Float64, "q_value": pl.Float64,
}  # fmt: skip


def write_fit(writer: FolderWriter, fit: PeriodFit) -> None:
    """``fit_items``, ``fit_bins``, ``fit_pairs`` and what else there is to say."""
    for name in _FRAMES:
        writer.frame(f"fit_{name}", getattr(fit, name))
    writer.json("fit", {"n_pairs": fit.n_pairs})


def read_fit(reader: FolderReader) -> PeriodFit | None:
    """The fit of a period; None where it came without responses."""
    if "fit" not in reader:
        return None
    items, bins, pairs, groups = (reader.frame(f"fit_{name}") for name in _FRAMES)
    return PeriodFit(items, bins, pairs, int(reader.json("fit")["n_pairs"]), groups)


def responses_by_group(reader: FolderReader) -> dict[str, dict[str, int]]:
    """Item -> group of examinees -> responses; empty where the period has one group or came without responses."""
    if "fit_groups" not in reader:
        return {}
    found: dict[str, dict[str, int]] = {}
    for item, group, n in reader.frame("fit_groups", ["item_id", "person_group", "n_responses"]).iter_rows():
        found.setdefault(item, {})[group] = n
    return found


def item_fit_table(fits: Mapping[str, PeriodFit], fdr: float) -> pl.DataFrame:
    """Every item and period, those flagged at this false discovery rate first, by size."""
    frames = [fit.items.with_columns(pl.lit(period).alias("period")) for period, fit in fits.items()]
    if not frames:
        return pl.DataFrame(schema=TESTS)
    table = pl.concat(frames).with_row_index("order")
    tested = table.filter(pl.col("p_value").is_not_null())
    q = tested.select("order", q_value=pl.Series(benjamini_hochberg(tested["p_value"].to_numpy())))
    table = table.join(q, on="order", how="left", maintain_order="left")
    table = table.with_columns(flagged=(pl.col("q_value") <= fdr).fill_null(False))
    order = table.sort("flagged", "misfit", descending=True, nulls_last=True, maintain_order=True)
    return order.select(*TESTS, pl.exclude(*TESTS, "order"))


def bin_table(fits: Mapping[str, PeriodFit], links: InForce) -> pl.DataFrame:
    """Observed and expected mean scores by ability, abilities moved by the links (A, B) of period and dimension."""
    frames = []
    for period, fit in fits.items():
        here = fit.items.select("item_id", "dimension").unique()
        constants = pl.DataFrame(
            [(dimension, A, B) for (name, dimension), (A, B) in links.items() if name == period],
            schema={"dimension": pl.String, "A": pl.Float64, "B": pl.Float64},
            orient="row",
        )
        table = fit.bins.join(here, on="item_id", maintain_order="left").join(
            constants, on="dimension", how="left", maintain_order="left"
        )
        moved = metric.move_theta(table["theta"].to_numpy(), table["A"].to_numpy(), table["B"].to_numpy())
        frames.append(table.with_columns(period=pl.lit(period), theta=pl.Series(moved)))
    return pl.concat(frames).select(*BINS) if frames else pl.DataFrame(schema=BINS)


def pair_table(fits: Mapping[str, PeriodFit]) -> pl.DataFrame:
    """The pairs of items that stand out most in each period, by q3."""
    frames = [fit.pairs.with_columns(pl.lit(period).alias("period")) for period, fit in fits.items()]
    if not frames:
        return pl.DataFrame(schema=PAIRS)
    return pl.concat(frames).sort("q3", descending=True, maintain_order=True).select(*PAIRS)
