"""Differential item functioning: false flags, power and the size of the difference, from responses to `Bank.dif`.

Two groups of examinees, the second of lower ability; a share of the items is harder for the second group by a number of
population SDs of ability, or has another slope there (every other one a steeper, the rest a flatter one), or both.

    python benchmarks/dif.py            # the tables of docs/guides/dif.md, about 15 minutes
    python benchmarks/dif.py --quick
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from concal.bank.bank import Bank
from concal.response import make_model
from concal.spec import Spec

ITEMS, LENGTH = 100, 30
FOCAL_MEAN, FOCAL_SD = -0.5, 0.9


def spec_of(model: str) -> Spec:
    """One group of items, one dimension."""
    group = {"model": model, "dimension": "x", **({"categories": 4} if model == "gpcm" else {})}
    return Spec.parse(
        {
            "bank": {"name": "dif", "dimensions": ["x"]},
            "groups": {"g": group},
            "calibration": {"max_sweeps": 1500},
            "consensus": {"method": "analytic"},
            "data": {"reference_group": "reference"},
        }
    )


class Design(NamedTuple):
    """A simulated programme: `share` of the items differ by `d` and `log_a`; `slopes` is the SD of the items' log a."""

    model: str
    examinees: int
    share: float = 0.0
    d: float = 0.0
    log_a: float = 0.0
    slopes: float = 0.21


DESIGNS = (
    Design("2pl", 2000),
    Design("2pl", 2000, slopes=0.05),
    Design("gpcm", 2000),
    Design("2pl", 2000, 0.2, 0.4),
    Design("2pl", 2000, 0.2, 0.8),
    Design("2pl", 6000, 0.2, 0.4),
    Design("2pl", 2000, 0.2, 0.0, 0.92),
    Design("2pl", 2000, 0.2, 0.0, 0.92, slopes=0.05),
    Design("2pl", 2000, 0.2, 0.4, 0.6),
    Design("gpcm", 2000, 0.2, 0.4, 0.6),
)


class Simulated(NamedTuple):
    """Responses of two groups of examinees; the ids of the items, those that differ, and by how much in (d, log a)."""

    responses: pl.DataFrame
    ids: list[str]
    differs: np.ndarray
    moves: np.ndarray


def simulate(design: Design, seed: int) -> Simulated:
    """A period of the design."""
    rng = np.random.default_rng(seed)
    model = make_model(design.model, 4 if design.model == "gpcm" else None)
    spread = 0.7 * np.array(model.prior.sd)
    spread[1] = design.slopes
    xi = np.array(model.prior.mean) + spread * rng.standard_normal((ITEMS, spread.size))
    persons = design.examinees
    focal = np.arange(persons) % 2 == 1
    theta = np.where(focal, FOCAL_MEAN + FOCAL_SD * rng.standard_normal(persons), rng.standard_normal(persons))
    item = np.argsort(rng.random((persons, ITEMS)), axis=1)[:, :LENGTH].ravel()
    person = np.repeat(np.arange(persons), LENGTH)
    differs = np.arange(ITEMS) < round(design.share * ITEMS)
    moves = np.where(differs[:, None], [design.d, design.log_a], 0.0)
    moves[::2, 1] *= -1.0
    moved = xi[item].copy()
    moved[:, :2] += moves[item] * focal[person][:, None]
    ids = [f"i{j:03d}" for j in range(ITEMS)]
    table = {
        "person_id": [f"p{i:05d}" for i in person],
        "item_id": pl.Series(ids).gather(item),
        "score": model.simulate(theta[person], moved, rng),
        "person_group": np.where(focal[person], "focal", "reference"),
    }
    return Simulated(pl.DataFrame(table), ids, differs, moves)


def run(design: Design, seed: int) -> tuple[pl.DataFrame, np.ndarray]:
    """The focal group's rows, beside what is true of their items; and the group's ability mean and SD."""
    made = simulate(design, seed)
    with tempfile.TemporaryDirectory() as folder:
        bank = Bank.create(Path(folder) / "bank", spec_of(design.model))
        bank.add("2026Q1", made.responses, pl.DataFrame({"item_id": made.ids, "group": "g"}), seed=seed)
        group = bank.person_groups().row(by_predicate=pl.col("person_group") == "focal", named=True)
        table = bank.dif()
    known = {"item_id": made.ids, "differs": made.differs, "d": made.moves[:, 0], "log_a": made.moves[:, 1]}
    flagged = table.group_by("item_id").agg(found=pl.col("flagged").any())
    own = table.filter(person_group="focal").join(pl.DataFrame(known), on="item_id").join(flagged, on="item_id")
    return own, np.array([group["mean"], group["sd"]])


def covers(rows: pl.DataFrame, name: str) -> str:
    """Share of 90 % intervals that hold the truth, of rows with a shift."""
    told = rows.filter(pl.col(f"{name}_shift").is_not_null())
    if not told.height:
        return "-"
    inside = (told[f"{name}_shift"] - told[name]).abs() < 1.645 * told[f"{name}_shift_sd"]
    return f"{inside.mean():.0%}"


def line(design: Design, periods: int) -> str:
    """A row of the table."""
    runs = [run(design, seed) for seed in range(1, periods + 1)]
    rows, (mean, sd) = pl.concat(table for table, _ in runs), np.mean([moments for _, moments in runs], axis=0)
    differ, others, flags = rows.filter("differs"), rows.filter(~pl.col("differs")), rows.filter("found")
    level = (others["item_p_value"].drop_nulls() <= 0.05).mean()
    cells = (
        f"{design.model}, slopes SD {design.slopes}",
        design.examinees * LENGTH // ITEMS // 2,
        f"{design.share:.0%}",
        f"{design.d}, {design.log_a}",
        f"{level:.3f}",
        f"{differ['found'].sum()} of {differ.height}",
        f"{flags.filter(~pl.col('differs')).height} of {flags.height}",
        f"{covers(differ, 'd')}, {covers(differ, 'log_a')}",
        f"{covers(others, 'd')}, {covers(others, 'log_a')}",
        f"{mean:.3f}, {sd:.3f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """A line per design."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--periods", type=int, default=4)
    parser.add_argument(
        "--design", nargs=6, metavar=("MODEL", "EXAMINEES", "SHARE", "D", "LOG_A", "SLOPES"), help="Only this one."
    )
    options = parser.parse_args()
    designs = DESIGNS[:1] if options.quick else DESIGNS
    if options.design:
        model, examinees, *numbers = options.design
        designs = (Design(model, int(examinees), *map(float, numbers)),)
    print(
        "| model | responses a group | differ | by d, log a | p <= .05 of others | found | wrong | 90 % holds d, log a "
        "| of others | focal mean, SD |"
    )
    for design in designs:
        print(line(design, 1 if options.quick else options.periods), flush=True)


if __name__ == "__main__":
    main()
