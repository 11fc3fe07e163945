"""Combine periods: the one function users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from concal.calibrate.result import Calibration
from concal.combine.analytic import consensus_from_totals
from concal.combine.joint import JointOptions, Tell, combine_jointly
from concal.combine.result import Consensus
from concal.combine.specification import NewItems
from concal.combine.summary import PeriodSummary, summarise_period
from concal.combine.totals import sum_periods
from concal.errors import DataError, LinkError
from concal.link.result import Link
from concal.spec import ConsensusSpec

Period = PeriodSummary | tuple[Calibration, Link | None]


def combine(
    periods: Sequence[Period],
    *,
    method: str | None = None,
    spec: ConsensusSpec | None = None,
    items: Mapping[str, NewItems] | None = None,
    literal: bool = False,
    options: JointOptions | None = None,
    progress: Tell | None = None,
) -> Consensus:
    """Combine calibrated, linked periods into the posterior of one pooled analysis.

    Parameters
    ----------
    periods : sequence of PeriodSummary or of (Calibration, Link)
        Oldest first (the order matters only for a half-life and for which specification is the newest). The
        reference's link may be None.
    method : "analytic" or "joint"
        Default: what `spec` says.
    spec : ConsensusSpec
        Options; default `ConsensusSpec()`.
    items : dict of group -> (item ids, design rows)
        Items to include even if nobody has answered them.
    literal : bool
        The paper's plug-in choices, for comparison: 200 linked draws, plain covariances, Omega* = (Sigma*)^-1, no
        correction of any kind. Analytic method only.
    options : JointOptions
        Of the joint method.
    progress : function (share done, message)
        Told how far the joint method is; the analytic one takes no time worth telling.

    Returns
    -------
    Consensus
    """
    spec = spec or ConsensusSpec.model_validate({})
    method = method or spec.method
    if method not in ("analytic", "joint"):
        raise DataError(f'method must be "analytic" or "joint", not {method!r}')
    summaries = summarise_all(periods, spec, literal=literal)
    if method == "joint":
        joint = combine_jointly(summaries, spec=spec, options=options, items=items, progress=progress)
        return _with_diagnostics(joint, summaries)
    totals = sum_periods(summaries, spec.half_life, shared_metric=spec.shared_metric and not literal)
    consensus = consensus_from_totals(totals, items=items, literal=literal, third_order=spec.tilt > 0)
    return _with_diagnostics(consensus, summaries)


def summarise_all(periods: Sequence[Period], spec: ConsensusSpec, *, literal: bool = False) -> list[PeriodSummary]:
    """Summaries of every period, made here where calibrations were given."""
    reference = _reference(periods)
    out = []
    for entry in periods:
        if isinstance(entry, PeriodSummary):
            out.append(entry)
            continue
        calibration, link = entry
        out.append(
            summarise_period(
                calibration,
                link,
                reference=reference,
                finite_draw_correction=spec.finite_draw_correction,
                literal=literal,
            )
        )
    return out


def _reference(periods: Sequence[Period]) -> str:
    for entry in periods:
        link = entry if isinstance(entry, PeriodSummary) else entry[1]
        if link is not None:
            return link.reference
    if len(periods) > 1:
        raise LinkError("none of the periods is linked; link all but the reference first")
    if not periods:
        raise DataError("nothing to combine: no period was given")
    first = periods[0]
    return first.period if isinstance(first, PeriodSummary) else first[0].period


def _with_diagnostics(consensus: Consensus, summaries: Sequence[PeriodSummary]) -> Consensus:
    table = gaussianity(summaries)
    if not consensus.diagnostics.is_empty():
        keys = ["item_id", "group", "period"]
        table = consensus.diagnostics.join(table, on=keys, how="full", coalesce=True).sort(keys)
    return replace(
        consensus,
        diagnostics=table,
        warnings=(*consensus.warnings, *(f"period {s.period!r}: {w}" for s in summaries for w in s.warnings)),
    )


def gaussianity(summaries: Sequence[PeriodSummary], *, skewness: float = 1.0, kurtosis: float = 2.0) -> pl.DataFrame:
    """Items whose draws in some period are far from Gaussian, by skewness or excess kurtosis of any coordinate.

    The factors of such items are rough; tilting (method "joint") refits them where the consensus lies.
    """
    frames = []
    for summary in summaries:
        for name, group in summary.groups.items():
            worst_skewness = np.abs(group.skewness).max(axis=1)
            worst_kurtosis = np.abs(group.kurtosis).max(axis=1)
            bad = np.flatnonzero(group.seen & ((worst_skewness > skewness) | (worst_kurtosis > kurtosis)))
            frames.append(
                pl.DataFrame(
                    {
                        "item_id": [group.item_ids[j] for j in bad],
                        "group": [name] * bad.size,
                        "period": [summary.period] * bad.size,
                        "n_responses": group.n_responses[bad],
                        "skewness": worst_skewness[bad],
                        "kurtosis": worst_kurtosis[bad],
                        "worst_rhat": group.worst_rhat[bad],
                    },
                    schema={
                        "item_id": pl.String,
                        "group": pl.String,
                        "period": pl.String,
                        "n_responses": pl.Int64,
                        "skewness": pl.Float64,
                        "kurtosis": pl.Float64,
                        "worst_rhat": pl.Float64,
                    },
                )
            )
    return pl.concat(frames) if frames else pl.DataFrame()
