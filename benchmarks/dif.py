"""Differential item functioning: false flags and power through the whole way, from responses with groups to `Bank.dif`.

Two groups of examinees, the second of lower ability; a share of the items is harder for the second group by a number of
population SDs of ability.

    python benchmarks/dif.py            # the tables of docs/guides/dif.md
    python benchmarks/dif.py --quick
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

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


def responses(model_name: str, persons: int, share: float, size: float, seed: int) -> tuple[pl.DataFrame, list[str]]:
    """Responses of two groups of examinees, and the items that differ."""
    rng = np.random.default_rng(seed)
    model = make_model(model_name, 4 if model_name == "gpcm" else None)
    xi = np.array(model.prior.mean) + 0.7 * np.array(model.prior.sd) * rng.standard_normal((ITEMS, len(model.prior.sd)))
    focal = np.arange(persons) % 2 == 1
    theta = np.where(focal, FOCAL_MEAN + FOCAL_SD * rng.standard_normal(persons), rng.standard_normal(persons))
    item = np.argsort(rng.random((persons, ITEMS)), axis=1)[:, :LENGTH].ravel()
    person = np.repeat(np.arange(persons), LENGTH)
    moved = xi[item].copy()
    differs = np.arange(ITEMS) < round(share * ITEMS)
    moved[:, 0] += size * (differs[item] & focal[person])
    table = {
        "person_id": [f"p{i:05d}" for i in person],
        "item_id": [f"i{j:03d}" for j in item],
        "score": model.simulate(theta[person], moved, rng),
        "person_group": np.where(focal[person], "focal", "reference"),
    }
    return pl.DataFrame(table), [f"i{j:03d}" for j in np.flatnonzero(differs)]


def run(model: str, persons: int, share: float, size: float, seed: int) -> tuple[pl.DataFrame, list[str], np.ndarray]:
    """The table of one simulated period, the items that differ, and the focal group's ability mean and SD."""
    table, differ = responses(model, persons, share, size, seed)
    items = pl.DataFrame({"item_id": [f"i{j:03d}" for j in range(ITEMS)], "group": "g"})
    with tempfile.TemporaryDirectory() as folder:
        bank = Bank.create(Path(folder) / "bank", spec_of(model))
        bank.add("2026Q1", table, items, seed=seed)
        abilities = bank.calibration("2026Q1").abilities
        assert abilities is not None
        assert abilities.population_mean is not None
        assert abilities.population_sd is not None
        k = abilities.populations.index("focal")
        moments = [float(v[:, :, k].mean()) for v in (abilities.population_mean, abilities.population_sd)]
        return bank.dif(), differ, np.array(moments)


def main() -> None:
    """A line per model, number of examinees, share and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--periods", type=int, default=5)
    parser.add_argument("--design", nargs=4, metavar=("MODEL", "EXAMINEES", "SHARE", "SIZE"), help="Only this one.")
    options = parser.parse_args()
    designs = [("2pl", 2000, 0.0, 0.0)]
    if options.design:
        model, examinees, share, size = options.design
        designs = [(model, int(examinees), float(share), float(size))]
    elif not options.quick:
        designs += [("gpcm", 2000, 0.0, 0.0), ("2pl", 2000, 0.2, 0.4), ("2pl", 2000, 0.2, 0.8), ("2pl", 6000, 0.2, 0.4)]
    print("| model | responses a group | differ | by | p <= .05 of others | found | wrong | focal mean, SD | shift |")
    for model, persons, share, size in designs:
        p, hits, flags, wrong, moments, shifts = [], 0, 0, 0, [], []
        n = 1 if options.quick else options.periods
        for seed in range(1, n + 1):
            table, differ, moment = run(model, persons, share, size, seed)
            moments.append(moment)
            innocent = table.filter(~pl.col("item_id").is_in(differ)).unique("item_id")
            p += innocent["item_p_value"].drop_nulls().to_list()
            named = table.filter(pl.col("flagged"))
            found = set(named["item_id"])
            hits, flags, wrong = hits + len(found & set(differ)), flags + len(found), wrong + len(found - set(differ))
            shifts += named.filter(pl.col("item_id").is_in(differ))["score_shift"].to_list()
        center, level = np.mean(np.array(moments), axis=0), np.mean(np.array(p) <= 0.05)
        found_text = f"{hits} of {round(share * ITEMS) * n} | {wrong} of {flags}"
        print(
            f"| {model} | {persons * LENGTH // ITEMS // 2} | {share:.0%} | {size} | {level:.3f} | {found_text} | "
            f"{center[0]:.3f}, {center[1]:.3f} | {np.mean(shifts) if shifts else float('nan'):.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
