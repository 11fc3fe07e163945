"""Consensus against the pooled fit on real responses: the tables of "Real responses" in docs/evidence/validation.md.

    python benchmarks/real_data.py {cloze,cloze2,assist} --data FOLDER --out FOLDER

cloze    478 learners, 144 statistics cloze items; first attempts; periods are the calendar weeks (2015) in which a
         learner appeared first; items' text gives the features
cloze2   the same in two periods: learners who appeared before 23 November, and after
assist   ASSISTments 2017: 1,705 students, 3,162 problems; first attempts; four cohorts of students

Builds a bank (add, period by period), evaluates it against the pooled fit of the same engine under the default
targets, writes the report, and prints the agreement as Markdown.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import polars as pl

import concal
from concal.bank.bank import Bank
from concal.evaluate.pooled import evaluate_bank
from concal.evaluate.tables import detail_table, notes, paper_table, to_markdown
from concal.report.page import write_report

NAMES = {"examinee": "person_id", "item": "item_id"}


def spec(features: str) -> concal.Spec:
    """One dimension, one group of 2PL items."""
    groups = {"all": {"model": "2pl", "dimension": "ability", "features": features}}
    return concal.Spec.parse({"bank": {"dimensions": ["ability"]}, "groups": groups, "calibration": {"seed": 1}})


Study = tuple[concal.Spec, pl.DataFrame, dict[str, pl.DataFrame]]


def cloze(data: Path, weeks: int = 1) -> Study:
    """Weeks of first appearance; the first three (104 + 4 learners) count as one. Or runs of several weeks."""
    responses = pl.read_parquet(data / "cloze_stats" / "responses.parquet").rename(NAMES)
    responses = responses.filter(pl.col("attempt") == 1)
    first = responses.group_by("person_id").agg(pl.col("time").min().dt.truncate("1w").dt.date().alias("week"))
    second = first["week"].unique().sort()[2]
    since = (pl.max_horizontal("week", pl.lit(second)) - second).dt.total_days() // (7 * weeks) * (7 * weeks)
    first = first.with_columns((pl.lit(second) + pl.duration(days=since)).cast(pl.Date).cast(pl.String).alias("week"))
    by_week = responses.join(first, on="person_id").partition_by("week", as_dict=True)
    items = pl.read_parquet(data / "cloze_stats" / "items.parquet").rename({"item": "item_id"})
    items = items.select("item_id", pl.lit("all").alias("group"), "n_words", "answer_len")
    periods = {str(week): frame for (week,), frame in sorted(by_week.items())}
    return spec("~ n_words + log(answer_len)"), items, periods


def assist(data: Path) -> Study:
    """Four cohorts of students, by their number."""
    responses = pl.read_parquet(data / "assist2017" / "responses.parquet").rename(NAMES)
    responses = responses.filter(pl.col("attempt") == 1)
    cohort = (pl.col("person_id") % 4).alias("cohort")
    by_cohort = responses.with_columns(cohort).partition_by("cohort", as_dict=True)
    items = pl.read_parquet(data / "assist2017" / "items.parquet").rename({"item": "item_id"})
    items = items.select("item_id", pl.lit("all").alias("group"))
    return spec("~ 1"), items, {f"cohort-{k + 1}": frame for (k,), frame in sorted(by_cohort.items())}


def main() -> None:
    """One data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=("cloze", "cloze2", "assist"))
    parser.add_argument("--data", type=Path, required=True, help="folder with cloze_stats/ and assist2017/")
    parser.add_argument("--out", type=Path, required=True, help="a new folder for bank and report")
    given = parser.parse_args()
    studies = {"cloze": cloze, "cloze2": lambda data: cloze(data, weeks=3), "assist": assist}
    model, items, periods = studies[given.dataset](given.data)
    bank = Bank.create(given.out / "bank", model)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", flush=True)

    for period, frame in periods.items():
        done = bank.add(period, frame.select("person_id", "item_id", "score"), items)
        c = done.convergence
        say(
            f"{period}: {frame.height:,} responses of {frame['person_id'].n_unique():,} examinees; converged "
            f"{c.converged if c else None}, {c.sweeps if c else 0} sweeps, {len(done.warnings)} warnings"
        )
        for warning in done.warnings:
            say(f"  {warning}")
    found = evaluate_bank(bank, tell=say)
    write_report(bank, given.out / "report.html")
    say("report written")
    print(to_markdown(paper_table(found)))
    print(to_markdown(detail_table(found)))
    print(to_markdown(found.abilities))
    print("\n".join([*notes(found), *found.warnings]))


if __name__ == "__main__":
    main()
