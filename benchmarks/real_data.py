"""Consensus against the pooled fit on real responses: tables of docs/evidence/.

    python benchmarks/real_data.py DATASET --data FOLDER --out FOLDER [--no-pooled] [--seed N] [--sd-error E]

cloze    478 learners, 144 statistics cloze items; first attempts; periods are the calendar weeks (2015) in which a
         learner appeared first; items' text gives the features
cloze2   the same in two periods: learners who appeared before 23 November, and after
assist   ASSISTments 2017: 1,705 students, 3,162 problems; first attempts; four cohorts of students, by their number
         modulo four: nothing can have changed between them
assist_order   the same with cohorts in the order of the students' numbers
timss    TIMSS 2007, grade 8, Russia: 4,472 students, 437 items in booklets, right/wrong and partial credit, content and
         cognitive domain as features; three cohorts of students, by their number modulo three
vas      1,033 people rated five statements on a line of 112 mm (nobody at an end); three cohorts; ordered_beta
livecodebench   37 systems run 479 programs in their heads (scenario execution); right in at least half of the samples;
         systems trained on text up to January 2023, and later ones; one slope
verbagg  316 people, 24 items of verbal aggression with three ordered answers; behaviour, situation and mode as
         features; two cohorts
matura   three school types of a national examination in mathematics, one after the other; 30 items worth 1 to 4 points
         in one group, each with its own number of categories
lsat6, lsat7   1,000 examinees and five items of a law school test, as 1pl and 2pl; two cohorts
spelling 658 examinees spelled four words; 2pl; two cohorts
science  392 people and four statements with four ordered answers; grm; two cohorts
kb36     two forms of a 36-item test, 12 items in common, 1,638 and 1,655 examinees; 3pl; a form is a period
mathexam 729 students, 13 exercises in two batches, which are the periods; 1pl
msatb    1,407 applicants, 20 items of an admission test in biology; 2pl; two cohorts
bfi      2,800 people, five scales of five statements with six answers; grm, five dimensions; two cohorts

Builds a bank (add, period by period), evaluates it against the pooled fit of the same engine under the default
targets, writes the report, and prints the agreement as Markdown; then what drifted, the alarms, and where others
published something of the set (`real_published.py`) what it says beside the bank's answer.
With a handful of items the Monte Carlo error of the default targets (3 % of an SD in every fit, and all items share it)
is as large as what is compared: `--sd-error 0.01` samples longer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs
from real_packages import bfi, kb36, mathexam, msatb
from real_published import PUBLISHED
from real_sets import Study, assist, classic, cloze, livecodebench, matura, timss, vas, verbagg

import concal
from concal.bank.bank import Bank
from concal.evaluate.pooled import evaluate_bank
from concal.evaluate.tables import notes, paper_table, to_markdown
from concal.report.page import write_report

STUDIES: dict[str, Callable[[Path], Study]] = {
    "lsat6": lambda data: classic(data, "lsat6", "1pl"),
    "lsat7": lambda data: classic(data, "lsat7", "2pl"),
    "spelling": lambda data: classic(data, "spelling", "2pl"),
    "science": lambda data: classic(data, "science", "grm", lowest=1),
    "cloze": cloze,
    "cloze2": lambda data: cloze(data, weeks=3),
    "assist": assist,
    "assist_order": lambda data: assist(data, in_order=True),
    "timss": timss,
    "vas": vas,
    "livecodebench": livecodebench,
    "verbagg": verbagg,
    "matura": matura,
    "kb36": kb36,
    "mathexam": mathexam,
    "msatb": msatb,
    "bfi": bfi,
}


def main() -> None:
    """One data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=sorted(STUDIES))
    parser.add_argument("--data", type=Path, required=True, help="folder with cloze_stats/, assist2017/, ...")
    parser.add_argument("--out", type=Path, required=True, help="a new folder for bank and report")
    parser.add_argument("--no-pooled", action="store_true", help="no pooled fit, only the bank and its drift")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sd-error", type=float, help="of every fit, instead of the default; at most 60,000 sweeps")
    given = parser.parse_args()
    model, items, periods = STUDIES[given.dataset](given.data)
    content = model.model_dump(exclude_unset=True)
    content["calibration"]["seed"] = given.seed
    if given.sd_error is not None:
        content["calibration"] |= {"sd_error": given.sd_error, "mean_error": 1.5 * given.sd_error, "max_sweeps": 60_000}
    model = concal.Spec.parse(content)
    bank = Bank.create(given.out / "bank", model)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", flush=True)

    for period, frame in periods.items():
        columns = ["person_id", "item_id", "score", *(["person_group"] if "person_group" in frame.columns else [])]
        done = bank.add(period, frame.select(columns), items)
        c = done.convergence
        say(
            f"{period}: {frame.height:,} responses of {frame['person_id'].n_unique():,} examinees; converged "
            f"{c.converged if c else None}, {c.sweeps if c else 0} sweeps, {len(done.warnings)} warnings"
        )
        for warning in done.warnings:
            say(f"  {warning}")
    if not given.no_pooled:
        compare(bank, say)
    write_report(bank, given.out / "report.html")
    say("report written")
    show_drift(bank)
    if given.dataset in PUBLISHED:
        print("\n".join(f"published: {line}" for line in PUBLISHED[given.dataset](bank, given.data)))
    if bank.parameters().height <= 10:
        show_items(bank)


def compare(bank: Bank, say: Callable[[str], None]) -> None:
    """Agreement with the pooled fit."""
    found = evaluate_bank(bank, tell=say)
    print(to_markdown(paper_table(found)))
    print(to_markdown(found.agreement.with_columns(cs.float().round(4))))
    print(to_markdown(found.distance.with_columns(cs.float().round(3))))
    print(to_markdown(found.abilities))
    print("\n".join([*notes(found), *found.warnings]))


def show_items(bank: Bank) -> None:
    """Slopes and intercepts -a d, as they are published: means over the consensus' draws."""
    for item in bank.parameters()["item_id"].sort():
        xi = bank.draws([item])["xi"].to_numpy()[0, :, 0]
        a, c = np.exp(xi[:, 1]), -np.exp(xi[:, 1]) * xi[:, 0]
        print(f"{item}: a {a.mean():.3f} (SD {a.std():.3f}), intercept {c.mean():.3f} (SD {c.std():.3f})")


def show_drift(bank: Bank) -> None:
    """What moved."""
    found = bank.drift_result()
    tested = found.items.filter(pl.col("item_df") > 0)
    moved = tested.filter("drifted")
    p = tested.unique("item_id")["item_p_value"]
    print(
        f"{moved['item_id'].n_unique()} of {p.len()} tested items moved, p < .05 in {(p < 0.05).mean():.1%}; "
        f"largest shift of the expected score {moved['score_shift'].abs().max() or 0:.2f}"
    )
    with pl.Config(tbl_rows=-1, tbl_cols=-1, float_precision=3, tbl_hide_column_data_types=True):
        print(found.periods)
    print("\n".join(alarm.text for alarm in bank.alarms()))


if __name__ == "__main__":
    main()
