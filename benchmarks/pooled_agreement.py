"""Consensus against the pooled fit on simulated programmes: the tables of docs/evidence/validation_tables.md.

    python benchmarks/pooled_agreement.py --design dense --programme drift --seed 1 --selection adaptive_within

Simulates four periods (items chosen adaptively from the responses so far, of the programme or of the period only),
calibrates each period alone, links and combines them (paper, analytic, joint, joint with `robust_links`), fits all
periods at once with the same engine, and prints the comparisons of the validation protocol with recovery of the truth.
Programmes: `plain` (2pl, gpcm and ordered_beta on two dimensions), `drift` (20 % of the items jump by .6), `flat` (log
a around -1.5), `models` (3pl, grm and beta). `--prior bank` calibrates every period but the first with priors from the
joint consensus before it. `--keep DIR` writes the programme's files and every compared pair (consensus and pooled mean
and SD) there, so that another version of the package can be judged by the same pooled fit on the same responses.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl

import concal
from concal.calibration.known import guide_period
from concal.calibration.period import calibrate_period
from concal.calibration.result import Calibration
from concal.consensus.combine import combine, place
from concal.consensus.factors.make import make_factors
from concal.data.pool import pool_periods
from concal.evaluate.agreement import agreement
from concal.evaluate.pairs import compare_pairs
from concal.evaluate.pooled import check_all
from concal.evaluate.recovery import recovery
from concal.linking.result import identity_link
from concal.spec import ConsensusSpec

DESIGNS = {
    "dense": {"items": 600, "examinees": 3000, "responses_per_examinee": 36},
    "mid": {"items": 300, "examinees": 2000, "responses_per_examinee": 30},
    "sparse": {"items": 2000, "examinees": 3000, "responses_per_examinee": 24},
    "tiny": {"items": 120, "examinees": 400, "responses_per_examinee": 24, "periods": 2},
}
PROGRAMMES: dict[str, dict[str, float]] = {
    "plain": {},
    "drift": {"drift_share": 0.2, "drift_size": 0.6},
    "flat": {"log_a": -1.5},
    "models": {},
}
CONSENSUS = {
    "analytic": ConsensusSpec(method="analytic"),
    "joint": ConsensusSpec(robust_links=False),
    "joint, robust links": ConsensusSpec(robust_links=True),
}
OTHER_MODELS = {
    "bank": {"dimensions": ["comprehension", "production"]},
    "groups": {
        "choice": {"model": "3pl", "dimension": "comprehension", "features": "~ log_frequency + length"},
        "rating": {"model": "grm", "categories": 4, "dimension": "production", "features": "~ length"},
        "slider": {"model": "beta", "dimension": "comprehension", "features": "~ length"},
    },
}


def main() -> None:
    """Run one programme."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--design", choices=DESIGNS, default="tiny")
    parser.add_argument("--programme", choices=PROGRAMMES, default="plain")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--selection", choices=("adaptive", "adaptive_within"), default="adaptive_within")
    parser.add_argument("--prior", choices=("population", "bank"), default="population")
    parser.add_argument("--purify", choices=("paper", "score"), default="paper", help="rule for anchors")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--max-sweeps", type=int, help="of a period; the pooled fit has twice as many")
    parser.add_argument("--csv", type=Path, help="also write the tables here")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the programme and all compared pairs here")
    options = parser.parse_args()
    programme = simulate(options)
    if options.keep:
        programme.write(options.keep, overwrite=True)
    limit = {} if options.max_sweeps is None else {"max_sweeps": options.max_sweeps}
    spec = with_draws(programme.spec, options.draws, **limit)
    started = time.monotonic()
    data = check_all(programme.responses, programme.items, spec)
    reference = next(iter(data))
    linking = spec.linking.model_copy(update={"purify": options.purify})
    fits: dict[str, Calibration] = {}
    pairs, placed = [], []
    for period, checked in data.items():
        prepared = checked
        if options.prior == "bank" and placed:
            prepared = guide_period(prepared, combine(placed, method="joint").groups)
        fit = fits[period] = calibrate_period(prepared, spec, period=period, seed=options.seed)
        say(f"{period}: {prepared.n_responses} responses, {fit.convergence.sweeps} sweeps", started)
        first = period == reference
        link = (
            identity_link(period, fit.dimensions, fit.n_draws)
            if first
            else concal.link(fit, fits[reference], spec=linking)
        )
        pairs.append((fit, link))
        placed.append(place(make_factors(fit), link))
    results = {} if options.prior == "bank" else {"paper": combine(pairs, method="paper")}
    for name, consensus in CONSENSUS.items():
        results[name] = combine(placed, spec=consensus)
        say(f"{name} combined", started)
    longer = {"min_ess": 0.8 * options.draws} | {name: 2 * value for name, value in limit.items()}
    pooled_spec = with_draws(programme.spec, 2 * options.draws, **longer)
    pooled = calibrate_period(pool_periods(data, reference), pooled_spec, period="pooled", seed=options.seed + 100)
    say(f"pooled: {pooled.convergence.sweeps} sweeps", started)
    show(results, pooled, fits, programme.truth.items, reference, options)


def simulate(options: argparse.Namespace) -> concal.simulate.Programme:
    """The programme the options name."""
    plan = {"periods": 4, **DESIGNS[options.design], **PROGRAMMES[options.programme]}
    spec = concal.Spec.parse(OTHER_MODELS) if options.programme == "models" else None
    return concal.simulate_programme(spec, seed=options.seed, selection=options.selection, **plan)


def with_draws(spec: concal.Spec, draws: int, **targets: float) -> concal.Spec:
    """The programme's spec; periods stop at the default targets, the yardstick runs longer."""
    content = spec.model_dump(mode="json", exclude_none=True)
    content["calibration"] |= {"draws": draws, **targets}
    return concal.Spec.parse(content)


def show(
    results: dict[str, concal.Consensus],
    pooled: Calibration,
    fits: dict[str, Calibration],
    truth: pl.DataFrame,
    reference: str,
    options: argparse.Namespace,
) -> None:
    """Print agreement, recovery, and distances in pooled SDs, of items that drift and of the others."""
    drifting: set[str] = set()
    if "period" in truth.columns:
        located = truth.filter(pl.col("parameter") == "d").group_by("item_id").agg(pl.col("value").n_unique())
        drifting = set(located.filter(pl.col("value") > 1)["item_id"])
        truth = truth.filter(pl.col("period") == reference)
    tables, compared = [], []
    with pl.Config(tbl_rows=100, tbl_cols=20, tbl_width_chars=200, float_precision=4):
        for name, consensus in results.items():
            found = agreement(consensus, pooled, fits.values())
            tables.append(found.overall.with_columns(pl.lit(name).alias("method")))
            print(name, "warnings:", consensus.warnings, "fallback:", consensus.fallback_share)
            print(found.table.with_columns(pl.lit(name).alias("method")))
            pairs = compare_pairs(consensus, pooled, fits.values())
            compared.append(pairs.with_columns(pl.lit(name).alias("method")))
            print(recovery(pairs, truth, pooled))
            distances(pairs, drifting)
        print(pl.concat(tables))
    if options.csv:
        pl.concat(tables).write_csv(options.csv)
    if options.keep:
        pl.concat(compared).write_parquet(options.keep / "pairs.parquet")


def distances(pairs: pl.DataFrame, drifting: set[str]) -> None:
    """Root-mean-square distance of the means in pooled SDs."""
    z = pairs.with_columns(
        ((pl.col("mean") - pl.col("pooled_mean")) / pl.col("pooled_sd")).alias("z"),
        pl.col("item_id").is_in(list(drifting)).alias("drifts"),
    )
    rms = pl.col("z").pow(2).mean().sqrt().alias("distance in pooled SDs")
    print(z.group_by("parameter", "drifts", maintain_order=True).agg(rms, pl.len()))


def say(text: str, started: float) -> None:
    """A line with the time so far."""
    print(f"[{time.monotonic() - started:7.1f} s] {text}", flush=True)


if __name__ == "__main__":
    np.seterr(all="warn", under="ignore")
    main()
