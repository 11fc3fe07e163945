"""Consensus against the pooled fit on simulated programmes: the tables of docs/validation.md.

    python benchmarks/pooled_agreement.py --design dense --seed 1 --selection adaptive_within

Simulates four periods (two dimensions, 2pl + gpcm + ordered_beta, items chosen adaptively from the responses so far, of
the programme or of the period only), calibrates each period alone, links and combines them (the paper's literal
choices, `analytic`, `joint`), fits all periods at once with the same engine, and prints the comparisons of the
validation protocol with recovery of the truth. `--prior bank` calibrates every period but the first with priors from
the joint consensus of the periods before.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import polars as pl

import concal
from concal.calibrate.known import guide_period
from concal.calibrate.period import calibrate_period
from concal.data.pool import pool_periods
from concal.evaluate.agreement import agreement
from concal.evaluate.pairs import compare_pairs
from concal.evaluate.pooled import check_all
from concal.evaluate.recovery import recovery
from concal.link.result import identity_link

DESIGNS = {
    "dense": {"items": 600, "examinees": 3000, "responses_per_examinee": 36},
    "sparse": {"items": 2000, "examinees": 3000, "responses_per_examinee": 24},
    "tiny": {"items": 150, "examinees": 600, "responses_per_examinee": 24},
}


def main() -> None:
    """Run one programme."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--design", choices=DESIGNS, default="tiny")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--selection", choices=("adaptive", "adaptive_within"), default="adaptive")
    parser.add_argument("--prior", choices=("population", "bank"), default="population")
    parser.add_argument("--tilt", type=int, default=2, help="tilting passes of the joint method")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--grid-metric", default="ref")
    parser.add_argument("--csv", type=Path, help="also write the tables here")
    options = parser.parse_args()
    design = DESIGNS[options.design]
    programme = concal.simulate_programme(periods=4, seed=options.seed, selection=options.selection, **design)
    spec = with_options(programme.spec, options)
    started = time.monotonic()
    data = check_all(programme.responses, programme.items, spec)
    periods = list(data)
    reference = periods[0]
    fits, pairs = {}, []
    for period in periods:
        prepared = data[period]
        if options.prior == "bank" and pairs:
            prepared = guide_period(prepared, concal.combine(pairs, method="joint", spec=spec.consensus).groups)
        fit = fits[period] = calibrate_period(prepared, spec, period=period, seed=options.seed)
        say(f"{period}: {prepared.n_responses} responses, {fit.convergence}", started)
        first = period == reference
        link = identity_link(period, fit.dimensions, fit.n_draws) if first else None
        pairs.append((fit, link or concal.link(fit, fits[reference], spec=spec.linking)))
    results = {
        "literal": concal.combine(pairs, method="analytic", literal=True),
        "analytic": concal.combine(pairs, method="analytic"),
        "joint": concal.combine(pairs, method="joint", spec=spec.consensus),
    }
    say("combined", started)
    longer = with_options(programme.spec, options, factor=2)
    pooled = calibrate_period(pool_periods(data, reference), longer, period="pooled", seed=options.seed + 100)
    say(f"pooled: {pooled.convergence}", started)
    truth = programme.truth.items
    if "period" in truth.columns:
        truth = truth.filter(pl.col("period") == reference)
    tables = []
    if options.prior == "bank":
        del results["literal"]  # the paper's method has no such periods
    with pl.Config(tbl_rows=100, tbl_cols=20, tbl_width_chars=200, float_precision=4):
        for name, consensus in results.items():
            found = agreement(consensus, pooled, fits.values())
            overall = found.overall.with_columns(pl.lit(name).alias("method"))
            tables.append(overall)
            print(name, "warnings:", consensus.warnings, "fallback:", consensus.fallback_share)
            print(found.table.with_columns(pl.lit(name).alias("method")))
            screened = compare_pairs(consensus, pooled, fits.values())
            print(recovery(screened, truth, pooled))
        print(pl.concat(tables))
    if options.csv:
        pl.concat(tables).write_csv(options.csv)


def with_options(spec: concal.Spec, options: argparse.Namespace, factor: int = 1) -> concal.Spec:
    """The programme's spec with longer runs, so that Monte Carlo error does not decide."""
    content = spec.model_dump(mode="json", exclude_none=True)
    content["calibration"] |= {"draws": factor * options.draws, "min_ess": 0.4 * factor * options.draws}
    content["consensus"] |= {"tilt": options.tilt}
    content["linking"] |= {"grid_metric": options.grid_metric}
    return concal.Spec.parse(content)


def say(text: str, started: float) -> None:
    """A line with the time so far."""
    print(f"[{time.monotonic() - started:7.1f} s] {text}", flush=True)


if __name__ == "__main__":
    main()
