"""The numbers behind the pictures, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.version import Version
from concal.combine.result import Consensus, GroupConsensus
from concal.errors import BankError, first_few
from concal.evaluate.digest import score_curves
from concal.metric import move_items

Array = npt.NDArray[np.float64]
THETA = np.linspace(-4.0, 4.0, 81)


def only_items(consensus: Consensus, ids: Sequence[str] | None) -> list[GroupConsensus]:
    """Groups with these items only, in the bank's order; unknown ids are an error."""
    if ids is None:
        return list(consensus.groups.values())
    asked = [ids] if isinstance(ids, str) else list(ids)
    known = {item for group in consensus.groups.values() for item in group.item_ids}
    if unknown := [item for item in asked if item not in known]:
        raise BankError(f"{len(unknown)} items are not in the bank: {first_few(unknown)}; bank.items() lists all")
    found = []
    for group in consensus.groups.values():
        at = [k for k, item in enumerate(group.item_ids) if item in set(asked)]
        if at:
            parts = {name: getattr(group, name)[at] for name in group.PER_ITEM}
            found.append(replace(group, item_ids=tuple(group.item_ids[k] for k in at), **parts))
    return found


def curve_table(bank: Version, ids: Sequence[str], *, periods: bool = True) -> pl.DataFrame:
    """Expected scores by ability: item_id, period ("consensus" or a period's name), theta, expected, low, high.

    low and high are the 5 % and 95 % quantiles; a period's curve is at its posterior mean, linked, without them.
    """
    consensus = bank.consensus(joint=False)
    frames = []
    for group in only_items(consensus, ids):
        found = score_curves(group, THETA)
        frames += [_curve(item, "consensus", *found[j].T) for j, item in enumerate(group.item_ids)]
    if periods:
        frames += _period_curves(bank, consensus, [str(i) for i in ([ids] if isinstance(ids, str) else ids)])
    return pl.concat(frames)


def _curve(
    item: str, period: str, expected: Array, low: Array | None = None, high: Array | None = None
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "item_id": [item] * THETA.size,
            "period": [period] * THETA.size,
            "theta": THETA,
            "expected": expected,
            "low": expected if low is None else low,
            "high": expected if high is None else high,
        }
    )


def _period_curves(bank: Version, consensus: Consensus, ids: Sequence[str]) -> list[pl.DataFrame]:
    """Curves of single periods at their posterior means, on the reference metric."""
    links = {(r["period"], r["dimension"]): (r["A_mean"], r["B_mean"]) for r in consensus.links.iter_rows(named=True)}
    frames = []
    for period in bank.period_names:
        for group in bank.calibration(period).groups.values():
            for item in set(ids) & set(group.item_ids):
                xi = group.flat("xi")[:, group.item_ids.index(item)].mean(axis=0)
                moved = move_items(xi, *links[period, group.dimension])
                frames.append(_curve(item, period, group.model.expected_score(THETA, moved[None, :])))
    return frames


def information_table(bank: Version, ids: Sequence[str] | None = None) -> pl.DataFrame:
    """Fisher information about theta by ability, at the posterior means: item_id, dimension, theta, information.

    Without `ids` the sum over all items of a dimension, with item_id null.
    """
    rng, frames = np.random.default_rng(0), []
    for group in only_items(bank.consensus(joint=False), ids):
        n = len(group.item_ids)
        theta = np.tile(THETA, n)
        xi = np.repeat(group.mean, THETA.size, axis=0)
        any_score = group.model.simulate(theta, xi, rng)  # expected information does not depend on it
        values = group.model.derivatives(any_score, theta, xi).theta_information
        frames.append(
            pl.DataFrame(
                {
                    "item_id": np.repeat(group.item_ids, THETA.size).tolist(),
                    "dimension": [group.dimension] * theta.size,
                    "theta": theta,
                    "information": np.asarray(values, dtype=np.float64),
                }
            )
        )
    table = pl.concat(frames)
    if ids is not None:
        return table
    total = table.group_by("dimension", "theta", maintain_order=True).agg(pl.col("information").sum())
    return total.select(pl.lit(None, dtype=pl.String).alias("item_id"), "dimension", "theta", "information")
