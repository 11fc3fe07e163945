"""What others published of the sets of `real_data.py`, beside what the bank says.

Estimates of the classics: `published.json`, from the tests of R mirt 1.45.1. Form parameters and links of `kb36`: Kolen
and Brennan (2004), table 6.5, as R SNSequate brings them, and the R plink vignette (Weeks 2010). `mathexam`, `msatb`,
`bfi`: the help of R psychotools 0.7-4, difNLR 1.5.2 and the overview of psychTools 2.5.3. `matura`: scores by
examinee, R ShinyItemAnalysis. `livecodebench`: the leaderboard's score is the mean over programs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from real_packages import FACTORS, form_item

from concal.bank.bank import Bank

SCALES = (
    (0.36, 0.63, -0.245, 0.23),
    (0.35, -0.305, 0.30),
    (-0.284, 0.32),
    (-0.12,),
)
"""psychTools: correlations of the bfi's scales in the order of FACTORS, corrected for attenuation."""
D = 1.7
"""Kolen and Brennan's slopes are of a logistic with this constant."""


def r(x: pl.Series, y: pl.Series) -> str:
    """Pearson correlation with three decimals."""
    return f"{np.corrcoef(x.to_numpy(), y.to_numpy())[0, 1]:.3f}"


def matura(bank: Bank, data: Path) -> list[str]:
    """Abilities against the published IRT scores."""
    theirs = pl.read_csv(data / "cz_matura" / "examinees.csv")
    theirs = theirs.select(person_id=pl.col("cohort") + "-" + pl.col("pid"), published="IRTscore")
    both = bank.abilities().join(theirs, on="person_id")
    within = [f"{period} {r(part['theta'], part['published'])}" for (period,), part in both.group_by("period")]
    return [
        f"abilities of {both.height:,}: r {r(both['theta'], both['published'])}; within {', '.join(sorted(within))}"
    ]


def classic(key: str) -> Callable[[Bank, Path], list[str]]:
    """Slopes and intercepts by maximum likelihood; the intercepts of an item with steps are averaged."""

    def compare(bank: Bank, data: Path) -> list[str]:
        published = json.loads((data / "published.json").read_text())[key]
        answer = published if "a" in published and "items" in published else published["recomputed_here"]
        own = bank.parameters().sort("item_id")
        intercept = np.array(answer["d"]).reshape(len(answer["items"]), -1).mean(axis=1)
        slope = np.broadcast_to(np.array(answer["a"]), intercept.shape)
        theirs = pl.DataFrame({"item_id": answer["items"], "slope": slope, "intercept": intercept}).sort("item_id")
        ours = own.select("item_id", "a", intercept=-pl.col("a") * pl.col("d"))
        off = (ours["intercept"] - theirs["intercept"]).abs().max()
        a, b = ours["a"], theirs["slope"]
        return [
            f"intercepts: r {r(ours['intercept'], theirs['intercept'])}, largest difference {off:.3f}",
            f"slopes: published {b.min():.2f} to {b.max():.2f}, here {a.min():.2f} to {a.max():.2f}",
        ]

    return compare


def livecodebench(bank: Bank, data: Path) -> list[str]:
    """Abilities against the leaderboard, where a system's score is the mean of its pass rates over the programs."""
    scores = pl.read_parquet(data / "livecodebench" / "responses.parquet").rename({"examinee": "person_id"})
    scores = scores.join(bank.parameters().select(item="item_id"), on="item", how="semi")
    board = scores.group_by("person_id").agg(pl.col("score").mean())
    both = bank.abilities().join(board, on="person_id")
    ranks = both.select(pl.col("theta").rank(), pl.col("score").rank())
    logit = (both["score"] / (1.0 - both["score"])).log()
    return [
        f"abilities of {both.height} systems and the leaderboard: r of ranks {r(ranks['theta'], ranks['score'])}, "
        f"with the logit of its score {r(both['theta'], logit)}"
    ]


def kb36(bank: Bank, data: Path) -> list[str]:
    """Items against the estimates of each form alone, form X's moved by the published Stocking-Lord link."""
    links = json.loads((data / "published.json").read_text())["KB04_linking"]
    A, B = links["stocking_lord"]
    forms = []
    for form in ("Y", "X"):
        table = pl.read_csv(data / "kb36" / f"published_{form.lower()}.csv").tail(36)
        position, slope, location, guessing = table.columns
        ids = [form_item(k, form) for k in table[position]]
        scale, shift = (A, B) if form == "X" else (1.0, 0.0)
        log_a, d = (D * pl.col(slope) / scale).log(), scale * pl.col(location) + shift
        forms.append(table.select(pl.Series("item_id", ids), their_log_a=log_a, their_d=d, their_c=guessing))
    theirs = pl.concat(forms).unique("item_id", keep="first", maintain_order=True)
    both = bank.parameters().join(theirs, on="item_id")
    own = bank.links().filter(pl.col("path").is_not_null()).row(0, named=True)
    said = [f"{name} {links[name][0]:.3f}, {links[name][1]:.3f}" for name in ("haebara", "stocking_lord", "mean_sigma")]
    return [
        f"{both.height} items: r of d {r(both['d'], both['their_d'])}, "
        f"of log a {r(both['a'].log(), both['their_log_a'])}, of c {r(both['c'], both['their_c'])}",
        f"A, B of form X: here {own['A']:.3f} (SD {own['A_sd']:.3f}), {own['B']:.3f} (SD {own['B_sd']:.3f}); "
        f"published {'; '.join(said)}",
    ]


def mathexam(bank: Bank, data: Path) -> list[str]:
    """Items that differ between the batches."""
    moved = bank.drift().filter(pl.col("drifted") & (pl.col("period") == "batch-2"))
    found = {way: sorted(moved.filter(pl.col("direction") == way)["item_id"]) for way in ("harder", "easier")}
    return [
        f"of {bank.parameters().height} items found in batch-2: {found}; published: payflow, planning, quad easier for "
        "the first batch, hesse for the second"
    ]


def msatb(bank: Bank, data: Path) -> list[str]:
    """Items that differ between men and women."""
    found = sorted(bank.dif().filter("flagged")["item_id"].unique())
    return [f"of {bank.parameters().height} items found: {found}; published: Item49"]


def bfi(bank: Bank, data: Path) -> list[str]:
    """Correlations of the dimensions, means over the periods' draws, against the scales' corrected ones."""
    order = [bank.spec.bank.dimensions.index(name) for name in FACTORS.values()]
    draws = [bank.calibration(period).abilities.correlation.mean(axis=(0, 1)) for period in bank.period_names]
    ours = np.mean(draws, axis=0)[np.ix_(order, order)][np.triu_indices(len(order), 1)]
    theirs = np.concatenate(SCALES)
    return [f"{theirs.size} correlations: r {np.corrcoef(ours, theirs)[0, 1]:.3f}, here {ours.round(2).tolist()}, "
            f"published {theirs.round(2).tolist()}"]  # fmt: skip


PUBLISHED: dict[str, Callable[[Bank, Path], list[str]]] = {
    "matura": matura,
    "lsat6": classic("lsat6_rasch_ml"),
    "lsat7": classic("lsat7_2pl_ml"),
    "science": classic("science_graded_ml"),
    "livecodebench": livecodebench,
    "kb36": kb36,
    "mathexam": mathexam,
    "msatb": msatb,
    "bfi": bfi,
}
