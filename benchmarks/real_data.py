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

Builds a bank (add, period by period), evaluates it against the pooled fit of the same engine under the default
targets, writes the report, and prints the agreement as Markdown; then what drifted, and the alarms.

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

import concal
from concal.bank.bank import Bank
from concal.evaluate.pooled import evaluate_bank
from concal.evaluate.tables import notes, paper_table, to_markdown
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


def assist(data: Path, *, in_order: bool = False) -> Study:
    """Four cohorts of students: by their number modulo four, or in the order of their numbers."""
    responses = pl.read_parquet(data / "assist2017" / "responses.parquet").rename(NAMES)
    responses = responses.filter(pl.col("attempt") == 1)
    students = pl.col("person_id").rank("dense") - 1
    cohort = (students * 4 // pl.col("person_id").n_unique() if in_order else pl.col("person_id") % 4).alias("cohort")
    by_cohort = responses.with_columns(cohort).partition_by("cohort", as_dict=True)
    items = pl.read_parquet(data / "assist2017" / "items.parquet").rename({"item": "item_id"})
    items = items.select("item_id", pl.lit("all").alias("group"))
    return spec("~ 1"), items, {f"cohort-{k + 1}": frame for (k,), frame in sorted(by_cohort.items())}


def by_cohort(responses: pl.DataFrame, n: int) -> dict[str, pl.DataFrame]:
    """Examinees by their rank modulo n: nothing can have changed between them."""
    ranked = responses.with_columns((pl.col("person_id").rank("dense") % n).alias("cohort"))
    parts = sorted(ranked.partition_by("cohort", as_dict=True).items())
    return {f"cohort-{k + 1}": frame for k, (_, frame) in enumerate(parts)}


def timss(data: Path) -> Study:
    """Right/wrong items and items worth two points, in one group."""
    text = pl.col("item_id").cast(pl.String)
    responses = pl.read_parquet(data / "timss07_rus" / "responses.parquet").rename(NAMES).with_columns(text)
    items = pl.read_parquet(data / "timss07_rus" / "items.parquet").rename({"item": "item_id"}).with_columns(text)
    highest = responses.group_by("item_id").agg(pl.col("score").max().alias("highest"))
    items = items.join(highest, on="item_id").with_columns((pl.col("highest") + 1).cast(pl.Int64).alias("categories"))
    groups = {"all": {"model": "gpcm", "dimension": "ability", "features": "~ C(content) + C(cognitive)"}}
    model = concal.Spec.parse({"bank": {"dimensions": ["ability"]}, "groups": groups, "calibration": {"seed": 1}})
    return model, items, by_cohort(responses, 3)


def vas(data: Path) -> Study:
    """Ratings in millimetres, declared as such; five items are all the anchors there are."""
    responses = pl.read_csv(data / "continuous_vas" / "epia.csv").rename(NAMES)
    group = {"model": "ordered_beta", "dimension": "ability", "max_score": 112}
    model = concal.Spec.parse(
        {
            "bank": {"dimensions": ["ability"]},
            "groups": {"all": group},
            "linking": {"min_anchors": 3},
            "calibration": {"seed": 1},
        }
    )
    return model, responses.select("item_id").unique(), by_cohort(responses, 3)


def matura(data: Path) -> Study:
    """School types as periods; items worth several points that are scored nothing or all have two categories."""
    periods = {}
    for name in ("gymnasium", "lyceum", "vocational"):
        wide = pl.read_csv(data / "cz_matura" / f"{name}.csv")
        long = wide.unpivot(index="pid", variable_name="item_id", value_name="score").drop_nulls()
        person = (pl.lit(name) + "-" + pl.col("pid").cast(pl.String)).alias("person_id")
        periods[name] = long.with_columns(person, pl.col("score").cast(pl.Float64))
    scores = (
        pl.concat(periods.values())
        .group_by("item_id")
        .agg(pl.col("score").max().alias("max_score"), pl.col("score").n_unique().alias("n_scores"))
    )
    categories = pl.when(pl.col("n_scores") == 2).then(2).otherwise(pl.col("max_score").cast(pl.Int64) + 1)
    items = scores.select("item_id", "max_score", categories.alias("categories"))
    groups = {"tasks": {"model": "gpcm", "dimension": "ability"}}
    model = concal.Spec.parse({"bank": {"dimensions": ["ability"]}, "groups": groups, "calibration": {"seed": 1}})
    return model, items, periods


def livecodebench(data: Path) -> Study:
    """Systems as examinees: few, each answering everything, so slopes of single items cannot be told apart."""
    folder = data / "livecodebench"
    responses = pl.read_parquet(folder / "responses.parquet").rename(NAMES)
    items = pl.read_parquet(folder / "items.parquet").rename({"item": "item_id"})
    items = items.filter(pl.col("scenario") == "execution").select("item_id", "item_date")
    # trained up to when; the two systems without a date are earlier ones
    dates = pl.read_parquet(folder / "examinees.parquet").select(person_id="examinee", until="release_date")
    later = (pl.col("until") > pl.datetime(2023, 1, 31)).fill_null(False).alias("later")
    right = (pl.col("score") >= 0.5).cast(pl.Float64).alias("score")
    answers = responses.join(items, on="item_id", how="semi").join(dates, on="person_id", how="left")
    parts = answers.with_columns(right, later).partition_by("later", as_dict=True)
    group = {"model": "1pl", "dimension": "ability"}
    model = concal.Spec.parse(
        {"bank": {"dimensions": ["ability"]}, "groups": {"execution": group}, "calibration": {"seed": 1}}
    )
    return model, items.select("item_id"), {"until-2023-01": parts[(False,)], "later": parts[(True,)]}


def verbagg(data: Path) -> Study:
    """Three ordered answers; items are a design of behaviour, situation and whether one would do it."""
    table = pl.read_csv(data / "classics" / "verbagg.csv").rename(NAMES).with_columns(pl.col("item_id").cast(pl.String))
    items = table.select("item_id", "do", "other", "scold", "shout").unique()
    features = "~ do + other + scold + shout"
    group = {"model": "gpcm", "categories": 3, "dimension": "ability", "features": features}
    model = concal.Spec.parse(
        {"bank": {"dimensions": ["ability"]}, "groups": {"all": group}, "calibration": {"seed": 1}}
    )
    return model, items, by_cohort(table.select("person_id", "item_id", "score"), 2)


def classic(data: Path, name: str, model: str, *, lowest: int = 0) -> Study:
    """A handful of items in two cohorts of examinees; all of them are anchors."""
    table = pl.read_csv(data / "classics" / f"{name}.csv").rename(NAMES)
    score = (pl.col("score") - lowest).cast(pl.Float64)
    table = table.select(pl.col("person_id").cast(pl.String).str.zfill(4), "item_id", score)
    group = {"model": model, "dimension": "ability"} | ({"categories": 4} if model == "grm" else {})
    options = {"linking": {"min_anchors": 3}, "calibration": {"seed": 1}}
    whole = concal.Spec.parse({"bank": {"dimensions": ["ability"]}, "groups": {"all": group}, **options})
    return whole, table.select("item_id").unique(), by_cohort(table, 2)


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
        done = bank.add(period, frame.select("person_id", "item_id", "score"), items)
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
