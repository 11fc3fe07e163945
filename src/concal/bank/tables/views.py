"""Tables people look at: items, periods, links, history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from concal.bank.acts import Acts
from concal.bank.store.manifest import Release, Snapshot
from concal.consensus.result import GroupConsensus
from concal.errors import BankError, counted, first_few
from concal.linking.result import Link

ITEM_COLUMNS = {
    "item_id": pl.String,
    "group": pl.String,
    "dimension": pl.String,
    "model": pl.String,
    "parameter": pl.String,
    "mean": pl.Float64,
    "sd": pl.Float64,
    "source": pl.String,
    "n_responses": pl.Int64,
    "n_periods": pl.Int64,
    "unconverged": pl.String,
}

WIDE_COLUMNS = {
    "item_id": pl.String,
    "group": pl.String,
    "dimension": pl.String,
    "model": pl.String,
    "categories": pl.Int64,
    "source": pl.String,
    "n_responses": pl.Int64,
    "n_periods": pl.Int64,
    "unconverged": pl.String,
}
"""Columns of `wide_items` whatever the models are; parameters follow."""


def count_sources(*groups: GroupConsensus) -> dict[str, int]:
    """How many items have their numbers from where."""
    sources = [str(source) for group in groups for source in group.source]
    return {kind: sources.count(kind) for kind in ("consensus", "fallback", "predicted")}


Marks = Mapping[str, str]
"""Item id -> the periods in which its chains had not converged."""


def item_table(groups: Iterable[GroupConsensus], unconverged: Marks | None = None) -> pl.DataFrame:
    """One row per item and parameter."""
    frames = [_group_table(group, unconverged or {}) for group in groups]
    return pl.concat(frames) if frames else pl.DataFrame(schema=ITEM_COLUMNS)


def _marked(item_ids: Iterable[str], unconverged: Marks) -> pl.Series:
    return pl.Series([unconverged.get(item) for item in item_ids], dtype=pl.String)


def _group_table(group: GroupConsensus, unconverged: Marks) -> pl.DataFrame:
    n, p = group.mean.shape
    every = np.repeat(np.arange(n), p)
    return pl.DataFrame(
        {
            "item_id": pl.Series(group.item_ids, dtype=pl.String).gather(every),
            "group": [group.name] * (n * p),
            "dimension": [group.dimension] * (n * p),
            "model": [group.model.kind] * (n * p),
            "parameter": list(group.model.parameters) * n,
            "mean": group.mean.ravel(),
            "sd": group.sd.ravel(),
            "source": pl.Series([str(s) for s in group.source], dtype=pl.String).gather(every),
            "n_responses": np.repeat(group.n_responses, p),
            "n_periods": np.repeat(group.n_periods, p),
            "unconverged": _marked(group.item_ids, unconverged).gather(every),
        },
        schema=ITEM_COLUMNS,
    )


def wanted_items(table: pl.DataFrame, ids: Iterable[str] | None) -> pl.DataFrame:
    """Rows of some items, in the order asked for; unknown ids are an error."""
    if ids is None:
        return table
    asked = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
    known = set(table["item_id"].to_list())
    unknown = [item for item in asked if item not in known]
    if unknown:
        raise BankError(
            f"{counted(len(unknown), 'item')} not in the bank: {first_few(unknown)}; `concal items BANK` lists all"
        )
    order = pl.DataFrame({"item_id": asked}, schema={"item_id": pl.String})
    return order.join(table, on="item_id", how="left", maintain_order="left")


def wide_items(groups: Iterable[GroupConsensus], unconverged: Marks | None = None) -> pl.DataFrame:
    """One row per item: natural parameters (a, d, ...) at the posterior mean of xi, the SD of a, means and SDs of xi.

    The SD of the slope is a SD(log a), to first order.
    """
    from concal.response.natural import natural_from_xi

    frames = []
    for group in groups:
        n = len(group.item_ids)
        natural = natural_from_xi(group.model, group.mean)
        names = group.model.parameters
        frames.append(
            pl.DataFrame(
                {
                    "item_id": pl.Series(group.item_ids, dtype=pl.String),
                    "group": pl.Series([group.name] * n, dtype=pl.String),
                    "dimension": pl.Series([group.dimension] * n, dtype=pl.String),
                    "model": pl.Series([group.model.kind] * n, dtype=pl.String),
                    "categories": pl.Series([group.model.n_categories] * n, dtype=pl.Int64),
                    "source": pl.Series([str(s) for s in group.source], dtype=pl.String),
                    "n_responses": group.n_responses,
                    "n_periods": group.n_periods,
                    "unconverged": _marked(group.item_ids, unconverged or {}),
                    **natural,
                    "a_sd": natural["a"] * group.sd[:, names.index("log_a")],
                    **_logits(group),
                    **{f"{name}_mean": group.mean[:, k] for k, name in enumerate(names)},
                    **{f"{name}_sd": group.sd[:, k] for k, name in enumerate(names)},
                }
            )
        )
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema=WIDE_COLUMNS)


def _logits(group: GroupConsensus) -> dict[str, np.ndarray[Any, Any]]:
    """Difficulty a d in logits, as Rasch programs report it, and its SD to first order, for groups with one slope."""
    if group.model.slopes != "equal":
        return {}
    a, d, V = np.exp(group.mean[:, 1]), group.mean[:, 0], group.covariance
    variance = V[:, 0, 0] + 2.0 * d * V[:, 0, 1] + d * d * V[:, 1, 1]
    return {"d_logit": a * d, "d_logit_sd": a * np.sqrt(np.maximum(variance, 0.0))}


def period_table(snapshot: Snapshot) -> pl.DataFrame:
    """One row per period, in the order they were added."""
    rows = [
        {"period": name, "reference": name == snapshot.reference, **snapshot.periods[name].info}
        for name in snapshot.ordered_periods()
    ]
    return pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame(schema={"period": pl.String})


def link_table(found: pl.DataFrame, links: Mapping[str, Link]) -> pl.DataFrame:
    """One row per period and dimension: A and B as the consensus has them, anchors and way of the period's own link.

    Parameters
    ----------
    found
        `Consensus.links`: period, dimension, A_mean, A_sd, B_mean, B_sd.
    links
        Links of the periods, found one at a time.
    """
    rows = []
    for row in found.iter_rows(named=True):
        link, dimension = links[row["period"]], row["dimension"]
        solved = link.diagnostics.filter(pl.col("dimension") == dimension) if link.diagnostics.width else pl.DataFrame()
        counts = solved.row(0, named=True) if solved.height else {}
        rows.append(
            {
                "period": row["period"],
                "dimension": dimension,
                "reference": link.reference,
                "A": row["A_mean"],
                "A_sd": row["A_sd"],
                "B": row["B_mean"],
                "B_sd": row["B_sd"],
                "candidates": counts.get("candidates"),
                "anchors": counts.get("anchors"),
                "effective_anchors": counts.get("effective_anchors"),
                "path": " > ".join(link.path.get(dimension, ())) or None,
            }
        )
    schema = {
        "period": pl.String, "dimension": pl.String, "reference": pl.String, "A": pl.Float64, "A_sd": pl.Float64,
        "B": pl.Float64, "B_sd": pl.Float64, "candidates": pl.Int64, "anchors": pl.Int64,
        "effective_anchors": pl.Float64, "path": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)


def act_table(acts: Acts) -> pl.DataFrame:
    """One row per act; idle: none of the periods it names is in the bank, so it does nothing."""
    rows = [
        {
            "act": act.kind,
            "item_id": act.item,
            "periods": ", ".join(act.periods) + (" and later" if act.onwards else ""),
            "person_group": act.person_group or None,
            "new_id": act.new_id or None,
            "reason": act.reason,
            "idle": acts.idle(act),
        }
        for act in acts.acts
    ]
    schema = {
        "act": pl.String, "item_id": pl.String, "periods": pl.String, "person_group": pl.String,
        "new_id": pl.String, "reason": pl.String, "idle": pl.Boolean,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)


def history_table(snapshots: Iterable[Snapshot], releases: Mapping[str, Release]) -> pl.DataFrame:
    """One row per version, newest last."""
    named: dict[int, list[str]] = {}
    for release in releases.values():
        named.setdefault(release.snapshot, []).append(release.name)
    rows = [
        {
            "version": s.number,
            "written": s.written,
            "author": s.author,
            "action": s.action,
            "reason": s.reason,
            "periods": len(s.periods),
            "reference": s.reference,
            "releases": ", ".join(named.get(s.number, [])) or None,
            "concal": s.concal,
        }
        for s in snapshots
    ]
    schema = {
        "version": pl.Int64, "written": pl.String, "author": pl.String, "action": pl.String, "reason": pl.String,
        "periods": pl.Int64, "reference": pl.String, "releases": pl.String, "concal": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)
