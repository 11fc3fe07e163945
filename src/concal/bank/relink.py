"""Putting periods on the reference metric again: another reference, a period gone, a period replaced."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.draft import Draft
from concal.combine.totals import Totals, sum_periods
from concal.data.linkage import CONSENSUS, linkage
from concal.link.result import Link, identity_link

Array = npt.NDArray[np.float64]


def relink(draft: Draft, names: Collection[str]) -> tuple[str, ...]:
    """Link these periods anew, those nearest to the reference first; returns them in that order.

    A period that shares too few items with the reference goes through what is linked by then.
    """
    assert draft.reference is not None
    items = {name: draft.answered(name) for name in draft.periods}
    plan = linkage(items, draft.reference, draft.spec.linking.min_anchors)

    def distance(name: str) -> int:
        chains = [plan.chains[key] for key in plan.chains if key[1] == name]
        return max((len(c) if c and CONSENSUS not in c else 10**6 for c in chains), default=0)

    order = sorted(names, key=distance)
    done = [name for name in draft.periods if name not in names]
    for name in order:
        draft.link_one(name, tuple(done), partial(_sum, draft, tuple(done)))
        done.append(name)
    return tuple(order)


def _sum(draft: Draft, names: tuple[str, ...]) -> Totals:
    return sum_periods([draft.summary(name) for name in names])


def dependents(draft: Draft, period: str) -> tuple[str, ...]:
    """Periods whose link went through a period (or through a consensus it may have been part of)."""
    found = []
    for name in draft.periods:
        if name in (period, draft.reference):
            continue
        steps = {step for path in draft.link(name).path.values() for step in path[1:]}
        if period in steps or CONSENSUS in steps:
            found.append(name)
    return tuple(found)


def map_links(draft: Draft, reference: str) -> None:
    r"""Make another period the reference without linking again.

    With :math:`\theta_{old} = A_r\theta_r + B_r` the link of the new reference r, every other link becomes
    :math:`A_p / A_r,\ (B_p - B_r) / A_r`, draw by draw.
    """
    base = draft.link(reference)
    for name in draft.periods:
        calibration = draft.calibration(name)
        if name == reference:
            draft.put_link(identity_link(name, calibration.dimensions, calibration.n_draws), calibration)
        else:
            draft.put_link(_mapped(draft.link(name), base, reference), calibration)


def _mapped(link: Link, base: Link, reference: str) -> Link:
    rows = np.arange(link.A.shape[0]) % base.A.shape[0]  # draw s with draw s; a shorter one from its start again
    columns = [base.dimensions.index(d) if d in base.dimensions else -1 for d in link.dimensions]
    A_r = np.stack([base.A[rows, k] if k >= 0 else np.ones(rows.size) for k in columns], axis=1)
    B_r = np.stack([base.B[rows, k] if k >= 0 else np.zeros(rows.size) for k in columns], axis=1)
    A, B = link.A / A_r, (link.B - B_r) / A_r
    path = {d: (*link.path.get(d, (link.period,)), reference) for d in link.dimensions}
    return replace(
        link, reference=reference, A=A, B=B, path=path, diagnostics=_diagnostics(link, A, B), methods=pl.DataFrame()
    )


def _diagnostics(link: Link, A: Array, B: Array) -> pl.DataFrame:
    """Means and SDs on the new metric; counts of anchors stay those of the link that was solved."""
    moved = pl.DataFrame(
        {
            "dimension": list(link.dimensions),
            "A_mean": A.mean(axis=0),
            "A_sd": A.std(axis=0, ddof=1),
            "B_mean": B.mean(axis=0),
            "B_sd": B.std(axis=0, ddof=1),
        }
    )
    kept = [c for c in ("path", "candidates", "anchors", "effective_anchors", "hops") if c in link.diagnostics.columns]
    if "dimension" not in link.diagnostics.columns or not kept:
        return moved
    return moved.join(link.diagnostics.select("dimension", *kept), on="dimension", how="left")
