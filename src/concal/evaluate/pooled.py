r"""The pooled benchmark: one fit of all periods, :math:`\theta_i \sim N(\mu_m, R_m)`, and a bank compared with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from concal.bank.bank import Bank
from concal.bank.building.progress import Clock, Progress
from concal.bank.evaluation import Evaluation
from concal.bank.jobs.calibrating import Calibrator, Task, calibrator_of, until_done
from concal.bank.jobs.cluster import Cluster, calibrate, reached
from concal.bank.jobs.travel import drop_tables
from concal.bank.store.store import Store
from concal.bank.tables.calibration import read_calibration
from concal.bank.tables.views import count_sources
from concal.calibration.period import calibrate_period
from concal.calibration.result import Calibration, mixture_moments
from concal.consensus.result import Consensus
from concal.cost import measure_cost
from concal.data.check import check_period
from concal.data.period import PeriodData
from concal.data.pool import pool_periods
from concal.data.read import Table
from concal.errors import BankError, ConcalError, DataError, counted
from concal.evaluate.agreement import ability_agreement, agreement
from concal.evaluate.distance import consensus_at, split_distance
from concal.evaluate.links import pooled_links
from concal.evaluate.recovery import recovery
from concal.spec import Spec

METHODS = ("joint", "analytic")
"""Compared unless others are asked for; "paper" is the third there is."""
Tell = Callable[[str], None]


def fit_pooled(
    responses: Mapping[str, Table],
    items: Table,
    spec: Spec,
    *,
    reference: str | None = None,
    seed: int | None = None,
    checkpoint: str | Path | None = None,
    progress: Callable[..., None] | None = None,
) -> Calibration:
    """Fit all periods at once, each with its own ability distribution; the reference's is N(0, correlation).

    Parameters
    ----------
    responses : mapping of period -> path or data frame
        Oldest first. Examinees who come back are handled as ``data.returning`` of the spec says.
    items : path or data frame
    spec : Spec
    reference : str, optional
        Default: the spec's, or the first period.
    seed : int, optional
        Default: the spec's.
    checkpoint : path, optional
        Where an interrupted run is kept; calling again with the same arguments goes on from there.
    progress : callable, optional
        See `concal.calibrate`.

    Returns
    -------
    Calibration
        On the reference metric; `abilities.population_mean` and `population_sd` have one entry per period, in the order
        of `abilities.populations`.
    """
    if not responses:
        raise DataError("no period was given; pass {period: responses}")
    used = reference or spec.bank.reference or next(iter(responses))
    data = pool_periods(check_all(responses, items, spec), used)
    return calibrate_period(
        data,
        spec,
        period="pooled",
        seed=spec.calibration.seed if seed is None else seed,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        progress=progress,
        resume=True,
    )


def check_all(responses: Mapping[str, Table], items: Table, spec: Spec) -> dict[str, PeriodData]:
    """Check the periods one after the other: features coded alike, examinees counted once."""
    designs: Mapping[str, dict[str, Any]] | None = None
    persons: dict[str, pl.Series] = {}
    found: dict[str, PeriodData] = {}
    for period, table in responses.items():
        checked = check_period(
            table,
            items,
            spec,
            period=period,
            design_states=designs,
            earlier_persons=persons,
        )
        designs = {**(designs or {}), **checked.design_states}
        persons[period] = checked.data.person_ids
        found[period] = checked.data
    return found


def evaluate_bank(
    bank: Bank,
    *,
    truth: pl.DataFrame | None = None,
    methods: Iterable[str] | None = None,
    name: str = "pooled",
    max_rhat: float = 1.1,
    seed: int | None = None,
    keep: bool = True,
    progress: Progress | None = None,
    tell: Tell | None = None,
    calibrator: Calibrator | None = None,
    cluster: Cluster | None = None,
) -> Evaluation:
    """Fit all periods of a bank at once and compare the consensus with it.

    The pooled fit can be interrupted: the same call goes on from its checkpoint in the bank's work folder.

    Parameters
    ----------
    bank : Bank
        With the responses of every period kept.
    truth : polars DataFrame, optional
        item_id, parameter, value (and period): adds recovery and coverage.
    methods : iterable of str, optional
        Consensus methods to compare, at the links of the bank: "joint" and "analytic" (default), or "paper" in a bank
        with that method.
    name : str
        Under which the evaluation is kept in the bank.
    max_rhat : float
        Of the screen.
    seed : int, optional
        Of the pooled fit; default the spec's.
    keep : bool
        Keep the result in the bank (a new version, with the same consensus).
    progress : callable, optional
        Called with ("pooled fit", the share that is done, a message) while the engine samples.
    tell : callable, optional
        Called with a line of text at each step.
    calibrator : Calibrator, optional
        What fits instead of concal's engine.
    cluster : address or distributed.Client, optional
        A Dask cluster to fit on, see `Bank.add`. The numbers are the same.
    """
    say = tell or (lambda text: None)
    periods, reference = bank.period_names, bank.reference
    if reference is None or len(periods) < 2:
        raise BankError(
            f"the bank has {counted(len(periods), 'period')}; a comparison with the pooled fit needs at least two"
        )
    run = calibrator_of(calibrator, cluster)
    data = pool_periods({p: bank.period_data(p) for p in periods}, reference)
    say(
        f"pooled fit of {data.n_responses:,} responses of {data.person_ids.len():,} examinees in {len(periods)} periods"
    )
    with reached(cluster, Store.open(bank.path)) as client:  # what may be refused comes before the fit
        own = bank.consensus_spec.method
        consensuses, failed = _consensuses(bank, methods or (METHODS if own in METHODS else (own,)))
        pooled, cost = _fit(bank, data, seed, Clock(progress), run, client)
    calibrations = {p: bank.calibration(p, draws=False) for p in periods}
    found = []
    for method, consensus in consensuses.items():
        say(f"comparing the {method} consensus")
        found.append(agreement(consensus, pooled, calibrations.values(), max_rhat=max_rhat))
    pairs = pl.concat(a.pairs for a in found)
    pooled = by_period(pooled, (reference, *(p for p in periods if p != reference)))
    populations = getattr(pooled.abilities, "populations", ()) or data.populations
    say("placing the periods where the pooled fit has them")
    implied = pooled_links(calibrations, pooled, populations)
    at_pooled = {method: consensus_at(bank, implied, method) for method in consensuses}
    evaluation = Evaluation(
        name=name,
        reference=reference,
        periods=(reference, *(p for p in periods if p != reference)),
        methods=tuple(consensuses),
        agreement=pl.concat(a.table for a in found),
        overall=pl.concat(a.overall for a in found),
        distance=split_distance(pairs, at_pooled),
        abilities=ability_agreement(
            calibrations,
            {p: bank.link(p) for p in periods},
            bank.consensus(joint=False).links,
            pooled,
            populations,
        ),
        recovery=recovery(pairs, truth, pooled) if truth is not None else _NO_RECOVERY,
        pairs=pairs,
        fallback=_fallback(consensuses),
        cost={**cost, "update_seconds": _update_seconds(bank)},
        max_rhat=max_rhat,
        warnings=(*pooled.convergence.warnings, *(f"not compared: {error}" for error in failed)),
        version=bank.version,
    )
    if keep:
        bank.add_evaluation(evaluation)
    return evaluation


def by_period(pooled: Calibration, periods: Iterable[str]) -> Calibration:
    """The pooled fit with one ability distribution per period, where periods have groups of examinees."""
    abilities, names = pooled.abilities, tuple(periods)
    if abilities is None or abilities.population is None or len(abilities.populations) == len(names):
        return pooled
    assert abilities.population_mean is not None
    assert abilities.population_sd is not None
    sizes = np.bincount(abilities.population, minlength=len(abilities.populations)).astype(np.int64)
    found = []
    for period in names:
        own = [k for k, name in enumerate(abilities.populations) if name == period or name.startswith(f"{period}/")]
        parts = abilities.population_mean[:, :, own], abilities.population_sd[:, :, own]
        found.append(mixture_moments(*parts, sizes[own]))
    mean, sd = (np.stack(values, axis=2) for values in zip(*found, strict=True))
    merged = replace(abilities, populations=names, population=None, population_mean=mean, population_sd=sd)
    return replace(pooled, abilities=merged)


def _consensuses(bank: Bank, methods: Iterable[str]) -> tuple[dict[str, Consensus], list[ConcalError]]:
    """The consensus by every method that can give one, and why others cannot; none at all is an error."""
    found: dict[str, Consensus] = {}
    failed: list[ConcalError] = []
    for method in methods:
        try:
            found[method] = bank.consensus(method, joint=False)
        except ConcalError as error:
            failed.append(error)
    if not found and failed:
        raise failed[0]
    return found, failed


def _fit(
    bank: Bank, data: PeriodData, seed: int | None, clock: Clock, run: Calibrator, cluster: Cluster | None
) -> tuple[Calibration, dict[str, Any]]:
    spec, store = bank.spec, Store.open(bank.path)
    task = Task.of(store, data, spec, spec.calibration.seed if seed is None else seed, run)
    with until_done(task.shelf):
        with measure_cost() as cost:
            files = calibrate(store, {"pooled fit": task}, run, clock, cluster)["pooled fit"]
            if cluster is not None:
                drop_tables(store, task.shelf.folder.name)
        pooled = read_calibration(task.shelf.reader(files))  # wherever it was fitted: the same bits in the same order
    convergence = pooled.convergence
    return pooled, {
        "pooled_seconds": convergence.seconds,  # of all runs, where it was interrupted
        "pooled_wall_seconds": cost.seconds,
        "pooled_cpu_seconds": cost.cpu_seconds,
        "pooled_peak_mib": cost.peak_mib,
        "pooled_responses": data.n_responses,
        "pooled_sweeps": convergence.sweeps,
        "pooled_converged": convergence.converged,
        "pooled_max_rhat": convergence.max_rhat_population,
        "pooled_min_ess": convergence.min_ess_population,
    }


def _fallback(consensuses: Mapping[str, Consensus]) -> dict[str, Any]:
    """Share and number of items with the population fallback, per method; the first method's also at the top."""
    by_method = {}
    for method, consensus in consensuses.items():
        counts = count_sources(*consensus.groups.values())
        fallen, answered = counts["fallback"], counts["fallback"] + counts["consensus"]
        by_method[method] = {"share": fallen / answered if answered else 0.0, "items": fallen}
    first = next(iter(by_method.values()), {"share": 0.0, "items": 0})
    return {**first, "by_method": by_method}


def _update_seconds(bank: Bank) -> dict[str, float | None]:
    """What each update cost beside its calibration: link, combine, files."""
    return dict(bank.periods().select("period", "update_seconds").iter_rows())


_NO_RECOVERY = pl.DataFrame(
    schema={
        "method": pl.String,
        "parameter": pl.String,
        "n": pl.Int64,
        "rmse": pl.Float64,
        "bias": pl.Float64,
        "coverage_50": pl.Float64,
        "coverage_90": pl.Float64,
        "coverage_95": pl.Float64,
    }
)
