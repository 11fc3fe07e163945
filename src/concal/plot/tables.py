"""The numbers behind the pictures, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.version import Version
from concal.consensus.result import Consensus, GroupConsensus
from concal.errors import BankError, counted, first_few
from concal.evaluate.digest import score_curves
from concal.metric import move_items

Array = npt.NDArray[np.float64]
THETA = np.linspace(-4.0, 4.0, 81)
BAND = 1.645  # standard deviations of the 90 % band


def only_items(consensus: Consensus, ids: Sequence[str]) -> list[GroupConsensus]:
    """Groups with these items only, in the bank's order; unknown ids are an error."""
    asked = list(ids)
    known = {item for group in consensus.groups.values() for item in group.item_ids}
    if unknown := [item for item in asked if item not in known]:
        raise BankError(
            f"{counted(len(unknown), 'item')} not in the bank: {first_few(unknown)}; bank.items() lists all"
        )
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
        curve, logit_sd = score_curves(group.model, group.mean, group.covariance, THETA)
        logit = np.log(np.clip(curve, 1e-9, 1 - 1e-9)) - np.log1p(-np.clip(curve, 1e-9, 1 - 1e-9))
        low, high = (1 / (1 + np.exp(-(logit + z * logit_sd))) for z in (-BAND, BAND))
        frames += [_curve(item, "consensus", curve[j], low[j], high[j]) for j, item in enumerate(group.item_ids)]
    if periods:
        frames += _period_curves(bank, consensus, list(ids))
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
