"""The sections of the page as data: small tables the template prints, and what the page's figures read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.evaluate.attention import drifted
from concal.evaluate.paper import PAPER
from concal.evaluate.tables import notes, paper_table, to_latex, to_markdown
from concal.report.data import ReportInput
from concal.report.pack import Block

Array = npt.NDArray[np.float64]
SECTIONS = (
    ("overview", "Overview"),
    ("data", "Data and linkage plan"),
    ("calibration", "Calibration"),
    ("links", "Links"),
    ("consensus", "Consensus"),
    ("agreement", "Agreement with the pooled fit"),
    ("abilities", "Ability distributions"),
    ("drift", "Drift"),
    ("items", "Item explorer"),
)
MOST_TESTS = 20_000
SOURCES = ("consensus", "fallback", "predicted")
_WORDS = {
    "n_items": "items",
    "n_responses": "responses",
    "n_persons": "examinees",
    "n_draws": "draws",
    "max_rhat_population": "largest R-hat, population",
    "min_ess_population": "smallest ESS, population",
    "max_rhat_items": "largest R-hat, items",
    "share_items_rhat": "items within the R-hat target",
    "median_ess_items": "median ESS, items",
    "shared_with_reference": "shared with reference",
    "weakest_step": "weakest step",
    "effective_anchors": "effective anchors",
    "A_sd": "SD of A",
    "B_sd": "SD of B",
    "mean_sd": "± (mean)",
    "sd_sd": "± (SD)",
    "sd": "SD",
    "mean_difference": "mean difference",
    "sd_ratio": "SD ratio",
    "pooled_mean": "pooled mean",
    "pooled_sd": "pooled SD",
    "by_links": "of it by the links",
    "by_items": "of it by the items",
    "pairwise_mean_difference": "mean difference, pairwise link",
    "pairwise_sd_ratio": "SD ratio, pairwise link",
    "rmse": "RMSE",
    "coverage_50": "coverage 50 %",
    "coverage_90": "coverage 90 %",
    "coverage_95": "coverage 95 %",
    "period_1": "period",
    "period_2": "and",
    "rhat": "R-hat",
    "ess_bulk": "bulk ESS",
    "item_id": "item",
    "new_id": "new id",
    "mean_d_shift": "mean shift of d",
    "mean_score_shift": "mean shift of the score",
    "inflation_low": "expected from",
    "inflation_high": "to",
    "score_shift": "shift of the score",
    "score_size": "size of the shift",
    "item_q_value": "q, item",
    "movers": "moved in",
    "dropped_by": "dropped by",
    "displacement_sd": "± (displacement)",
    "influence_A": "influence on A",
    "influence_B": "influence on B",
    "mean_r": "r, means",
    "mean_rmse": "RMSE, means",
    "sd_r": "r, SDs",
    "sd_rmse": "RMSE, SDs",
    "sd_ratio_low": "SD ratio, low exposure",
    "sd_ratio_mid": "mid",
    "sd_ratio_high": "high",
    "n": "n",
}


@dataclass(frozen=True)
class Printed:
    """A table of text: heads, whether a column is numeric, rows."""

    heads: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


_DIGITS = {"seconds": 1, "min_ess_population": 0, "median_ess_items": 0, "effective_anchors": 1, "ess_bulk": 0}


def printed(table: pl.DataFrame, columns: Sequence[str] | None = None, digits: int = 3) -> Printed:
    """A table as text; columns that are not there are left out."""
    names = [name for name in (columns or table.columns) if name in table.columns]
    places = [_DIGITS.get(name, digits) for name in names]
    rows = tuple(tuple(cell(v, k) for v, k in zip(row, places, strict=True)) for row in table.select(names).iter_rows())
    heads = tuple(_WORDS.get(name, name.replace("_", " ")) for name in names)
    return Printed(heads, tuple(table.schema[name].is_numeric() for name in names), rows)


def cell(value: Any, digits: int = 3) -> str:
    """A value as people read it."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def moment(text: str) -> str:
    """A time stamp to the minute.

    >>> moment("2026-11-16T02:11:39+00:00")
    '2026-11-16 02:11 UTC'
    """
    return f"{text[:10]} {text[11:16]} UTC" if text.endswith("+00:00") else text


def tables(data: ReportInput) -> dict[str, Any]:
    """What the template prints."""
    content: dict[str, Any] = {
        "periods": printed(
            _with_moments(data.periods, "added"),
            ("period", "reference", "n_items", "n_responses", "n_persons", "engine", "converged", "added"),
        ),
        "linkage": printed(data.linkage),
        "shared": shared_matrices(data),
        "convergence": printed(data.convergence),
        "links": printed(data.links),
        "sources": printed(data.sources),
        "abilities": printed(data.abilities),
        "acts": printed(data.acts) if data.acts.height else None,
        "drift_periods": printed(data.drift_periods),
        "history": printed(_with_moments(data.history.reverse().head(10), "written")),
        "changes": printed(data.changes) if data.changes.height else None,
    }
    if data.evaluation is not None:
        evaluation = data.evaluation
        paper = paper_table(evaluation)
        numeric = (False, False, *(True for _ in paper.columns[2:]))
        content |= {
            "paper": replace(printed(paper), numeric=numeric),
            "notes": notes(evaluation),
            "detail": printed(evaluation.agreement),
            "distance": printed(evaluation.distance),
            "compared_abilities": printed(evaluation.abilities),
            "recovery": printed(evaluation.recovery) if evaluation.recovery.height else None,
            "markdown": to_markdown(paper),
            "latex": to_latex(evaluation),
        }
    return content


def _with_moments(table: pl.DataFrame, column: str) -> pl.DataFrame:
    if column not in table.columns:
        return table
    return table.with_columns(pl.col(column).map_elements(moment, return_dtype=pl.String))


def shared_matrices(data: ReportInput) -> list[tuple[str, list[str], list[list[str]]]]:
    """Shared items between periods, a matrix per dimension: (dimension, periods, cells)."""
    names = data.periods["period"].to_list()
    found = []
    for dimension in data.dimensions:
        own = {
            row["period"]: row["items"]
            for row in data.linkage.filter(pl.col("dimension") == dimension).iter_rows(named=True)
        }
        pairs = data.shared.filter(pl.col("dimension") == dimension)
        count = {(a, b): n for a, b, n in pairs.select("period_1", "period_2", "shared").iter_rows()}
        here = [p for p in names if p in own]
        if not here:
            continue
        cells = [[cell(own[a] if a == b else count.get((a, b), count.get((b, a), 0))) for b in here] for a in here]
        found.append((dimension, here, cells))
    return found


def figures(data: ReportInput) -> tuple[dict[str, Any], str]:
    """What the page's figures and the item explorer read: plain data, and the block of arrays it points into."""
    ids = [item for group in data.consensus.groups.values() for item in group.item_ids]
    block = Block(ids)
    content: dict[str, Any] = {
        "name": data.name,
        "version": data.version,
        "reference": data.reference,
        "dimensions": list(data.dimensions),
        "periods": data.periods["period"].to_list(),
        "theta": data.theta.tolist(),
        "sources": list(SOURCES),
        "words": _WORDS,
        "ids": block.text(ids),
        "groups": _groups(data, block),
        "flags": {str(k): list(data.flags[item]) for k, item in enumerate(ids) if item in data.flags},
        "movers": _movers(data.drift, {item: k for k, item in enumerate(ids)}),
        "clouds": [
            {"period": period, "dimension": dimension, "A": block.numbers(A), "B": block.numbers(B)}
            for (period, dimension), (A, B) in data.clouds.items()
        ],
        "paper": PAPER,
        "frames": {
            name: block.frame(getattr(data, name))
            for name in ("exposure", "rhat", "worst", "ability_histogram", "abilities", "history", "links")
        },
        "n_tested": data.drift.height,
    }
    content["frames"]["drift"] = block.frame(drifted(data.drift))
    content["frames"]["tests"] = block.frame(_shown_tests(data.drift), exact=False)
    content["frames"]["anchors"] = block.frame(_shown_anchors(data.anchors), exact=False)
    if data.evaluation is not None:
        content["pairs"] = _pairs(data.evaluation.pairs, block)
        content["frames"]["agreement"] = block.frame(data.evaluation.agreement)
    return content, block.encoded()


def _movers(drift: pl.DataFrame, place: Mapping[str, int]) -> dict[str, list[str]]:
    """Periods in which an item moved, by its place among the ids."""
    found: dict[str, list[str]] = {}
    moved = drifted(drift)
    for item, period in moved.select("item_id", "period").iter_rows() if moved.height else ():
        if item in place:
            found.setdefault(str(place[item]), []).append(period)
    return found


def _groups(data: ReportInput, block: Block) -> list[dict[str, Any]]:
    found = []
    for name, group in data.consensus.groups.items():
        place = {item: k for k, item in enumerate(group.item_ids)}
        periods = {}
        for period, groups in data.by_period.items():
            if name not in groups or not groups[name].item_ids:
                continue
            own = groups[name]
            periods[period] = {
                "item": block.numbers(np.array([place[item] for item in own.item_ids], dtype=np.int64)),
                "mean": block.rounded(own.mean),
                "sd": block.rounded(own.sd),
                "rhat": block.rounded(own.rhat),
                "n": block.numbers(own.n_responses),
                "score": block.rounded(own.score),
            }
            if own.by_ability is not None:
                periods[period] |= _by_ability(*own.by_ability, data.theta, block)
        curve = np.moveaxis(data.curves[name], 1, 2)  # nodes last
        found.append(
            {
                "name": name,
                "dimension": group.dimension,
                "model": group.model.name,
                "categories": group.model.n_categories,
                "parameters": list(group.model.parameters),
                "max_score": group.model.max_score,
                "n": len(group.item_ids),
                "mean": block.rounded(group.mean, 1e-5),
                "sd": block.rounded(group.sd, 1e-5),
                "source": block.codes([SOURCES.index(str(s)) for s in group.source]),
                "n_responses": block.numbers(group.n_responses),
                "n_periods": block.numbers(group.n_periods),
                "curve": block.shares(curve),
                "periods": periods,
            }
        )
    return found


def _by_ability(theta: Array, score: Array, nodes: Array, block: Block) -> dict[str, Any]:
    """Observed scores for points in a figure, to a hundredth; abilities as shares of the range curves are drawn on.

    An item with fewer responses than bins uses the first ones; the page leaves the others out.
    """
    share = (theta - nodes[0]) / (nodes[-1] - nodes[0])
    return {
        "bins": theta.shape[1],
        "bin_theta": block.shares(np.nan_to_num(share), 100),
        "bin_score": block.shares(np.nan_to_num(score), 100),
    }


def _shown_anchors(anchors: pl.DataFrame) -> pl.DataFrame:
    wanted = ("period", "item_id", "dimension", "group", "n_responses", "kept", "dropped_by", "round", "residual")
    more = ("displacement", "displacement_sd")
    return anchors.select([name for name in (*wanted, *more) if name in anchors.columns])


def _shown_tests(drift: pl.DataFrame) -> pl.DataFrame:
    """The tests a figure shows: those that drifted, and of the others those with the smallest p-values."""
    wanted = ("item_id", "period", "score_shift", "distance", "drifted")
    if "drifted" in drift.columns:
        drift = drift.sort(~pl.col("drifted"), "p_value", maintain_order=True)
    return drift.head(MOST_TESTS).select([name for name in wanted if name in drift.columns])


def _pairs(pairs: pl.DataFrame, block: Block) -> list[dict[str, Any]]:
    """The pairs the R-hat screen kept, by dimension, model and parameter; mean and SD by method."""
    found = []
    by = ["dimension", "model", "parameter"]
    methods = pairs["method"].unique(maintain_order=True).to_list()
    for key, part in pairs.filter("kept").group_by(by, maintain_order=True):
        table = part.filter(pl.col("method") == methods[0])
        columns = table.select("item_id", "tertile", "exposure", "pooled_mean", "pooled_sd")
        for method in methods:
            own = part.filter(pl.col("method") == method)
            own = own.select("item_id", pl.col("mean").alias(f"mean {method}"), pl.col("sd").alias(f"sd {method}"))
            columns = columns.join(own, on="item_id", how="left", maintain_order="left")
        label = dict(zip(by, key, strict=True))
        found.append({**label, "methods": methods, "frame": block.frame(columns, exact=False)})
    return found
