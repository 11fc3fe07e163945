"""What a report shows: numbers that exist, gathered from a bank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.bank.bank import Bank
from concal.bank.version import Version
from concal.calibrate.result import Calibration
from concal.combine.drift.alarms import raise_alarms
from concal.combine.factors.period import PeriodFactors
from concal.combine.result import Consensus
from concal.errors import BankError
from concal.evaluate.attention import attention, drifted
from concal.evaluate.digest import (
    ability_histogram,
    ability_table,
    consensus_changes,
    convergence_table,
    exposure_histogram,
    observed_scores,
    rhat_histogram,
    score_curves,
    scores_by_ability,
    source_table,
    worst_items,
)
from concal.evaluate.links import constants, links_in_force
from concal.evaluate.misfit import misfit_flags
from concal.evaluate.notice import Notice
from concal.evaluate.pooled import stored_evaluation
from concal.evaluate.result import Evaluation
from concal.link.result import Link

Array = npt.NDArray[np.float64]
THETA = np.round(np.linspace(-4.0, 4.0, 21), 4)
CLOUD = 400  # draws of (A, B) a plot shows


@dataclass(frozen=True)
class PeriodItems:
    """One period's posteriors of one group's items, on the reference metric at the links in force.

    Attributes
    ----------
    item_ids : tuple of str
    mean, sd : (items, p)
    rhat : (items,)
        The item's worst.
    n_responses : (items,)
    score : (items,)
        Mean score, divided by the largest; NaN where the responses were not kept.
    by_ability : (items, bins), (items, bins), or None
        Abilities and mean scores of groups of examinees, see `concal.evaluate.digest.scores_by_ability`.
    """

    item_ids: tuple[str, ...]
    mean: Array
    sd: Array
    rhat: Array
    n_responses: npt.NDArray[np.int64]
    score: Array
    by_ability: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class ReportInput:
    """Everything on the page.

    Attributes
    ----------
    name, reference, written, concal, changed : str
        `changed` says what made the consensus what it is.
    version : int
    dimensions : tuple of str
    notices : tuple of Notice
    changes, history, periods, linkage, shared, exposure, convergence, rhat, worst, links, anchors, sources : DataFrame
    drift, drift_periods, acts : DataFrame
        As the functions of bank, data and evaluate that they are named after give them.
    ability_histogram, abilities : DataFrame
    clouds : dict of (period, dimension) -> (A, B)
        Some of the draws, evenly spaced.
    consensus : Consensus
    curves : dict of group -> (items, nodes, 3)
        On the nodes `theta`.
    by_period : dict of period -> group -> PeriodItems
    flags : dict of item id -> tuple of str
    evaluation : Evaluation or None
    """

    name: str
    reference: str
    version: int
    written: str
    concal: str
    changed: str
    changes: pl.DataFrame
    dimensions: tuple[str, ...]
    notices: tuple[Notice, ...]
    history: pl.DataFrame
    periods: pl.DataFrame
    linkage: pl.DataFrame
    shared: pl.DataFrame
    exposure: pl.DataFrame
    convergence: pl.DataFrame
    rhat: pl.DataFrame
    worst: pl.DataFrame
    links: pl.DataFrame
    anchors: pl.DataFrame
    sources: pl.DataFrame
    drift: pl.DataFrame
    drift_periods: pl.DataFrame
    acts: pl.DataFrame
    ability_histogram: pl.DataFrame
    abilities: pl.DataFrame
    clouds: Mapping[tuple[str, str], tuple[Array, Array]]
    consensus: Consensus
    curves: Mapping[str, Array]
    by_period: Mapping[str, Mapping[str, PeriodItems]]
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    theta: Array = field(default_factory=lambda: THETA)


def gather(bank: Version, evaluation: str = "pooled") -> ReportInput:
    """Read what the report of this version shows; the bank's periods are read one at a time."""
    if bank.reference is None:
        raise BankError(f"bank {str(bank.path)!r} has no period yet; there is nothing to report")
    compared = stored_evaluation(bank, evaluation) if evaluation in bank.evaluations() else None
    consensus, plan, found = bank.consensus(joint=False), bank.linkage(), bank.drift_result()
    drift, fit, pairs = found.items, bank.fit(), bank.fit_pairs()
    assert plan is not None
    calibrations: dict[str, Calibration] = {}
    by_period: dict[str, dict[str, PeriodItems]] = {}
    for period in bank.period_names:
        calibrations[period] = _without_draws(bank.calibration(period))
        by_period[period] = _period_items(bank.factors(period), consensus.links, _scores(bank, period))
    links = {period: bank.link(period) for period in bank.period_names}
    in_force = links_in_force(links, consensus.links)
    snapshot = bank.snapshot
    changed, changes = _changes(bank, consensus)
    return ReportInput(
        name=bank.spec.bank.name,
        reference=bank.reference,
        version=bank.version,
        written=snapshot.written,
        concal=snapshot.concal,
        changed=changed,
        changes=changes,
        dimensions=bank.spec.bank.dimensions,
        notices=attention(
            calibrations,
            links,
            consensus,
            plan,
            drift,
            compared,
            version=bank.version,
            acts=bank.acts(),
            fit=fit,
            pairs=pairs,
            alarms=raise_alarms(bank.placed(), consensus, bank.consensus_spec, found),
        ),
        history=bank.history(),
        periods=bank.periods(),
        linkage=plan.table(),
        shared=plan.pairs(),
        exposure=exposure_histogram(calibrations),
        convergence=convergence_table(calibrations),
        rhat=rhat_histogram(calibrations),
        worst=worst_items(calibrations),
        links=bank.links(),
        anchors=_anchors(links),
        sources=source_table(consensus),
        drift=drift,
        drift_periods=found.periods,
        acts=bank.acts(),
        ability_histogram=ability_histogram(calibrations, in_force),
        abilities=ability_table(calibrations, in_force),
        clouds=_clouds(links),
        consensus=consensus,
        curves={name: score_curves(group, THETA) for name, group in consensus.groups.items()},
        by_period=by_period,
        flags=_flags(consensus, drift, bank.acts(), misfit_flags(fit, pairs)),
        evaluation=compared,
    )


def _without_draws(calibration: Calibration) -> Calibration:
    """The report shows no draws of items; a view of one zero keeps their shape without their memory."""
    groups = {n: replace(g, xi=np.broadcast_to(np.float32(0), g.xi.shape)) for n, g in calibration.groups.items()}
    return replace(calibration, groups=groups)


def _changes(bank: Version, consensus: Consensus) -> tuple[str, pl.DataFrame]:
    """The last action that made the consensus what it is, and what it changed."""
    steps = bank.history().filter(~pl.col("action").str.starts_with("evaluate"))
    last = steps.row(-1, named=True)
    said = f"{last['action']} (version {last['version']})" + (f": {last['reason']}" if last["reason"] else "")
    before = steps.filter(pl.col("periods") > 0)
    if before.height < 2:
        return said, pl.DataFrame()
    try:
        old = Bank(bank.path).at(int(before["version"][-2])).consensus(joint=False)
    except BankError:  # an old version that was pruned
        return said, pl.DataFrame()
    return said, consensus_changes(old, consensus)


def _scores(bank: Version, period: str) -> dict[str, dict[str, float]]:
    """Mean observed scores by group and item; none where the responses were not kept."""
    try:
        data = bank.period_data(period)
    except BankError:
        return {}
    return {name: dict(zip(ids, mean.tolist(), strict=True)) for name, (ids, mean) in observed_scores(data).items()}


def _period_items(
    factors: PeriodFactors, links: pl.DataFrame, scores: Mapping[str, Mapping[str, float]]
) -> dict[str, PeriodItems]:
    found = {}
    for name, group in factors.groups.items():
        A, B = constants(links, factors.period, group.dimension)
        seen = np.flatnonzero(group.seen)
        ids = tuple(group.item_ids[j] for j in seen)
        known, observed = scores.get(name, {}), scores_by_ability(group, A, B)
        covariance = metric.move_item_covariance(group.covariance[seen], A)
        found[name] = PeriodItems(
            item_ids=ids,
            mean=metric.move_items(group.mean[seen], A, B),
            sd=np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)),
            rhat=group.worst_rhat[seen],
            n_responses=group.n_responses[seen],
            score=np.array([known.get(item, np.nan) for item in ids]),
            by_ability=None if observed is None else (observed[0][seen], observed[1][seen]),
        )
    return found


def _anchors(links: Mapping[str, Link]) -> pl.DataFrame:
    frames = [
        link.anchors.select(pl.lit(period).alias("period"), pl.all())
        for period, link in links.items()
        if link.anchors.height
    ]
    return pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()


def _clouds(links: Mapping[str, Link]) -> dict[tuple[str, str], tuple[Array, Array]]:
    clouds = {}
    for period, link in links.items():
        if period == link.reference:
            continue
        every = np.unique(np.linspace(0, link.A.shape[0] - 1, CLOUD).astype(int))
        for k, dimension in enumerate(link.dimensions):
            clouds[period, dimension] = (link.A[every, k], link.B[every, k])
    return clouds


def _flags(
    consensus: Consensus, drift: pl.DataFrame, acts: pl.DataFrame, misfits: Iterable[tuple[str, str]]
) -> dict[str, tuple[str, ...]]:
    """What is worth knowing about single items, in words."""
    found: dict[str, list[str]] = {}
    for group in consensus.groups.values():
        for item, source in zip(group.item_ids, group.source, strict=True):
            if source == "fallback":
                found.setdefault(item, []).append("population fallback: the responses do not identify the item")
            elif source == "predicted":
                found.setdefault(item, []).append("predicted from its features: nobody has answered it")
    if drift.width:
        for item, period, way in drifted(drift).select("item_id", "period", "direction").iter_rows():
            found.setdefault(item, []).append(f"drift in {period}: {way}")
    for item, text in misfits:
        found.setdefault(item, []).append(text)
    for act in acts.filter(~pl.col("idle")).iter_rows(named=True):
        why = f": {act['reason']}" if act["reason"] else ""
        if act["act"] == "exclude":
            found.setdefault(act["item_id"], []).append(f"excluded in {act['periods']}{why}")
        else:
            found.setdefault(act["item_id"], []).append(f"{act['new_id']} in {act['periods']}{why}")
            found.setdefault(act["new_id"], []).append(f"split from {act['item_id']}{why}")
    return {item: tuple(dict.fromkeys(texts)) for item, texts in found.items()}
