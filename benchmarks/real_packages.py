"""Conversions of sets that R packages on CRAN bring: each reads what write.csv made of the user's own copy.

write.csv(SNSequate::KB36$KBformX, "kb36/form_x.csv")             write.csv(difNLR::MSATB, "msatb.csv")
write.csv(SNSequate::KB36$KBformY, "kb36/form_y.csv")             write.csv(psychTools::bfi, "bfi.csv")
write.csv(SNSequate::KB36$KBformX_par, "kb36/published_x.csv")
write.csv(SNSequate::KB36$KBformY_par, "kb36/published_y.csv")
with(psychotools::MathExam14W, write.csv(data.frame(as.matrix(solved), gender, group), "mathexam.csv"))
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
from real_sets import Study, by_cohort

import concal

FACTORS = {"A": "agree", "C": "conscientious", "E": "extraversion", "N": "neuroticism", "O": "openness"}
REVERSED = ("A1", "C4", "C5", "E1", "E2", "O2", "O5")
"""The key of psychTools (bfi.keys)."""


def read_wide(path: Path, who: str = "") -> pl.DataFrame:
    """A table with row names first, as text: they are the examinees; `who` tells two files' row numbers apart."""
    table = pl.read_csv(path, null_values="NA")
    person = (pl.lit(who) + pl.col(table.columns[0]).cast(pl.String)).alias("person_id")
    return table.select(person, pl.exclude(table.columns[0]))


def long(wide: pl.DataFrame, *, index: tuple[str, ...] = ("person_id",)) -> pl.DataFrame:
    """One row per response."""
    rows = wide.unpivot(index=index, variable_name="item_id", value_name="score").drop_nulls("score")
    return rows.with_columns(pl.col("score").cast(pl.Float64))


def parsed(groups: dict[str, dict[str, object]], dimensions: list[str], **options: dict[str, object]) -> concal.Spec:
    """A spec with the seed that `--seed` replaces."""
    calibration = {"seed": 1, **options.pop("calibration", {})}
    content = {"bank": {"dimensions": dimensions}, "groups": groups, "calibration": calibration, **options}
    return concal.Spec.parse(content)


def form_item(position: int, form: str) -> str:
    """Every third item is common to both forms."""
    return f"C{position:02}" if position % 3 == 0 else f"{form}{position:02}"


def kb36(data: Path) -> Study:
    """Form Y, then form X: other examinees, 12 items in common."""
    periods = {}
    for form in ("Y", "X"):
        wide = read_wide(data / "kb36" / f"form_{form.lower()}.csv", form)
        names = {f"It{k}": form_item(k, form) for k in range(1, 37)}
        periods[f"form-{form}"] = long(wide.rename(names))
    items = pl.concat(frame.select("item_id") for frame in periods.values()).unique(maintain_order=True)
    # 20,000 sweeps do not suffice for form Y: guessing of easy items hardly shows
    sweeps: dict[str, object] = {"max_sweeps": 60_000}
    model = parsed({"all": {"model": "3pl", "dimension": "ability"}}, ["ability"], calibration=sweeps)
    return model, items, periods


def mathexam(data: Path) -> Study:
    """Two batches as periods: exercises of the same kind, some with other stories."""
    wide = read_wide(data / "mathexam.csv")
    rows = long(wide, index=("person_id", "gender", "group")).rename({"gender": "person_group"})
    parts = sorted(rows.partition_by("group", as_dict=True).items())
    model = parsed({"all": {"model": "1pl", "dimension": "ability"}}, ["ability"])
    return model, rows.select("item_id").unique(), {f"batch-{k}": frame for (k,), frame in parts}


def msatb(data: Path) -> Study:
    """Two cohorts at random; men (0) and women (1) are groups of examinees."""
    rows = long(read_wide(data / "msatb.csv"), index=("person_id", "gender")).rename({"gender": "person_group"})
    model = parsed({"all": {"model": "2pl", "dimension": "ability"}}, ["ability"])
    return model, rows.select("item_id").unique(), by_cohort(rows, 2)


def bfi(data: Path) -> Study:
    """Five scales of five statements with six answers, scored by the published key; two cohorts at random."""
    wide = read_wide(data / "bfi.csv").drop("gender", "education", "age")
    turned = pl.when(pl.col("item_id").is_in(REVERSED)).then(6 - pl.col("score")).otherwise(pl.col("score") - 1)
    rows = long(wide).with_columns(turned.alias("score"))
    items = rows.select("item_id").unique()
    items = items.with_columns(group=pl.col("item_id").str.slice(0, 1).replace_strict(FACTORS))
    groups = {name: {"model": "grm", "categories": 6, "dimension": name} for name in FACTORS.values()}
    return parsed(groups, list(FACTORS.values()), linking={"min_anchors": 3}), items, by_cohort(rows, 2)
