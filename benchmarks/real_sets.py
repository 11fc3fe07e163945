"""Conversions of the sets of `real_data.py`: what is answered, the items, and the periods."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import concal

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
