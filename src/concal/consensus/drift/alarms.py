"""What contradicts itself in a bank, said loudly: where, by how much, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from concal.consensus.drift.drift import Drift, find_drift
from concal.consensus.drift.outside import outside_range
from concal.consensus.factors.period import Placed
from concal.consensus.result import Consensus
from concal.errors import first_few
from concal.spec import ConsensusSpec

MANY = 0.05
"""Share of a dimension's tested items that drift, above which links and population are in doubt, not single items."""
FEW = 20
"""Tested items of a dimension below which a share of them says nothing."""
CONFLICT = 1.25
"""Inflation of a period from which on it is a conflict and not small misfit: SDs are then 12 % too small. Random parts
of real data (students of a tutoring system dealt to four periods) have 1.03 to 1.14."""
FAR = 3.0
"""Standard deviations between a period's own link and the link in force."""


@dataclass(frozen=True)
class Alarm:
    """One contradiction.

    Attributes
    ----------
    kind : "outside", "drift", "period" or "link"
    section : str
        Of the report.
    text : str
        What, where, what to do.
    """

    kind: str
    section: str
    text: str


def raise_alarms(
    placed: Sequence[Placed], consensus: Consensus, spec: ConsensusSpec, drift: Drift | None = None
) -> tuple[Alarm, ...]:
    """Everything that contradicts itself, the whole bank before single periods.

    Parameters
    ----------
    placed : the periods the consensus was made of, in the same order
    consensus : Consensus
    spec : ConsensusSpec
        How it was made.
    drift : Drift
        If it is at hand.
    """
    found = drift or find_drift(placed, consensus, fdr=spec.drift_fdr, half_life=spec.half_life)
    return (*_outside(placed, consensus), *_drift(found), *_periods(found), *_links(placed, consensus))


def _outside(placed: Sequence[Placed], consensus: Consensus) -> Iterator[Alarm]:
    table = outside_range(placed, consensus)
    if not table.height:
        return
    ids, worst = table["item_id"].unique(maintain_order=True).to_list(), table.row(0, named=True)
    yield Alarm(
        "outside",
        "consensus",
        f"{_who(len(ids))} own periods by more than the uncertainty allows: "
        f"{first_few(ids)} (worst: {worst['parameter']} of {worst['item_id']!r} is {worst['mean']:.2f}, its periods "
        f"have {worst['lowest']:.2f} to {worst['highest']:.2f}); do not use them before looking at their periods "
        "(`concal drift BANK`, the report's item page) and excluding or splitting what does not belong "
        "(`concal exclude`, `concal split`)",
    )


def _drift(drift: Drift) -> Iterator[Alarm]:
    if not drift.items.height:
        return
    tested = drift.items.filter(pl.col("item_df") > 0)
    counts = tested.group_by("dimension", maintain_order=True).agg(
        tested=pl.col("item_id").n_unique(),
        drifted=pl.col("item_id").filter(pl.col("drifted")).n_unique(),
        period=pl.col("period").filter(pl.col("drifted")).mode().sort().first(),
    )
    for row in counts.sort("dimension").iter_rows(named=True):
        share = row["drifted"] / row["tested"]
        if row["tested"] >= FEW and share > MANY:
            yield Alarm(
                "drift",
                "drift",
                f"dimension {row['dimension']!r}: {row['drifted']:,} of {row['tested']:,} tested items drift "
                f"({share:.1%}, more than {MANY:.0%}), most of them in {row['period']!r}; the population is "
                "pulled along, and the links too unless `robust_links` is on: look at `concal drift BANK`, take out or "
                "split what moved (`concal exclude`, `concal split`), or retract the period",
            )


def _periods(drift: Drift) -> Iterator[Alarm]:
    if not drift.periods.height:
        return
    above = (pl.col("inflation") > pl.col("inflation_high")) & (pl.col("inflation") > CONFLICT)
    for row in drift.periods.filter(above).iter_rows(named=True):
        yield Alarm(
            "period",
            "drift",
            f"period {row['period']!r}, {row['dimension']!r}: its items as a whole conflict with what other periods "
            f"say of them: inflation {row['inflation']:.2f}, expected {row['inflation_low']:.2f} to "
            f"{row['inflation_high']:.2f} with {row['judged']:,} tests; the link may be off or the period different "
            "(other examinees, another mode, miskeyed): look at `concal links BANK --period`, its data, and at "
            "`concal drift BANK`",
        )


def _links(placed: Sequence[Placed], consensus: Consensus) -> Iterator[Alarm]:
    """A period's own link against the one in force; they are the same unless items and links were estimated jointly."""
    for row in consensus.links.iter_rows(named=True):
        period = next((p for p in placed if p.period == row["period"]), None)
        if period is None or not period.linked or period.period == period.reference:
            continue
        k = period.factors.dimensions.index(row["dimension"])
        own, sd = period.link_mean[k], np.sqrt(np.diagonal(period.link_covariance[k]))
        given = np.array([np.log(row["A_mean"]), row["B_mean"]])
        if not (sd > 0).all():
            continue
        far = np.abs(own - given) / np.hypot(sd, [row["A_sd"] / row["A_mean"], row["B_sd"]])
        if far.max() > FAR:
            yield Alarm(
                "link",
                "links",
                f"period {row['period']!r}, {row['dimension']!r}: its anchors alone give A = {np.exp(own[0]):.3f}, "
                f"B = {own[1]:.3f}, all items together A = {row['A_mean']:.3f}, B = {row['B_mean']:.3f}: "
                f"{far.max():.1f} standard deviations apart; anchors or other common items moved: look at "
                f"`concal links BANK --period {row['period']}` and `concal drift BANK`, exclude or split what moved",
            )


def _who(n: int) -> str:
    return "1 item lies outside the range of its" if n == 1 else f"{n:,} items lie outside the range of their"
