"""One version against another: what changed, item by item and link by link, ranked by consequence for scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.consensus.result import Consensus, GroupConsensus

Array = npt.NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)


@dataclass(frozen=True)
class Comparison:
    """What changed between two versions of a bank.

    Attributes
    ----------
    items : polars DataFrame
        item_id, group, change ("new", "gone", "first answered", "changed" or "same"), n_responses, d_before, d_now,
        d_move (in the earlier posterior's SDs), log_a_before, log_a_now, sd_ratio (of d), score_shift and score_size
        (mean and root-mean-square change of the expected score over N(0, 1)); by score_size, largest first.
    links : polars DataFrame
        period, dimension, A_before, A_now, B_before, B_now for periods of both.
    """

    items: pl.DataFrame
    links: pl.DataFrame


def compare(before: Consensus, after: Consensus) -> Comparison:
    """Items and links of two versions; an item is changed where its curve moved by more than a thousandth."""
    frames = [_group(before.groups.get(name), after.groups.get(name)) for name in {**before.groups, **after.groups}]
    items = pl.concat(frames).sort("score_size", "item_id", descending=[True, False], nulls_last=True)
    keys = ["period", "dimension"]
    old, new = (
        c.links.select(*keys, pl.col("A_mean").alias("A"), pl.col("B_mean").alias("B")) for c in (before, after)
    )
    links = old.join(new, on=keys, suffix="_now", maintain_order="left").rename({"A": "A_before", "B": "B_before"})
    return Comparison(items, links.select(*keys, "A_before", "A_now", "B_before", "B_now"))


def _group(old: GroupConsensus | None, new: GroupConsensus | None) -> pl.DataFrame:
    now = new if new is not None else old
    assert now is not None
    place = {item: k for k, item in enumerate(old.item_ids)} if old is not None else {}
    at = {item: k for k, item in enumerate(new.item_ids)} if new is not None else {}
    ids = list(dict.fromkeys([*at, *place]))
    was = np.array([place.get(item, -1) for item in ids], dtype=np.int64)
    here = np.array([at.get(item, -1) for item in ids], dtype=np.int64)
    both = (was >= 0) & (here >= 0)
    blank = np.full(len(ids), np.nan)
    columns = {name: blank.copy() for name in _NUMBERS}
    change = np.where(was < 0, "new", np.where(here < 0, "gone", "same")).astype(object)
    if old is not None and new is not None and both.any():
        i, j = was[both], here[both]
        shift = _curves(new, j) - _curves(old, i)
        size = np.sqrt(np.sum(shift**2 * _SHARE, axis=1))
        columns["score_shift"][both], columns["score_size"][both] = shift @ _SHARE, size
        columns["d_move"][both] = (new.mean[j, 0] - old.mean[i, 0]) / old.sd[i, 0]
        columns["sd_ratio"][both] = new.sd[j, 0] / old.sd[i, 0]
        answered = (old.source[i] == "predicted") & (new.source[j] != "predicted")
        change[both] = np.where(answered, "first answered", np.where(size > 1e-3, "changed", "same"))
    for group, index, suffix in ((old, was, "before"), (new, here, "now")):
        if group is not None:
            known = index >= 0
            columns[f"d_{suffix}"][known] = group.mean[index[known], 0]
            columns[f"log_a_{suffix}"][known] = group.mean[index[known], 1]
    counts = np.zeros(len(ids), dtype=np.int64)
    if new is not None:
        counts[here >= 0] = new.n_responses[here[here >= 0]]
    return pl.DataFrame(
        {"item_id": ids, "group": [now.name] * len(ids), "change": change.tolist(), "n_responses": counts, **columns},
        schema_overrides={"item_id": pl.String, "change": pl.String},
    ).fill_nan(None)


_NUMBERS = ("d_before", "d_now", "d_move", "log_a_before", "log_a_now", "sd_ratio", "score_shift", "score_size")
_SHARE: Array = _WEIGHTS / _WEIGHTS.sum()


def _curves(group: GroupConsensus, index: npt.NDArray[np.int64]) -> Array:
    """Expected scores at quadrature nodes of N(0, 1), (items, nodes)."""
    return np.asarray(group.model.expected_score(_NODES, group.mean[index][:, None, :]))
