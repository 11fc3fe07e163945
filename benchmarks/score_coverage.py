"""Do intervals of scores hold the true ability? Simulated programmes, banks calibrated from their data.

    python benchmarks/score_coverage.py [--programmes 12] [--first 0] [--banks young old] [--to rows.csv]

Every programme has its own items, two periods with different ability distributions and random tests of 30 items. A
young bank is calibrated from so few examinees that an item has 20 responses (10 a period), an old one from ten times as
many. 2,000 other examinees of the second period are scored with either; their prior is that period's. An interval is
estimate -+ z SE. The truth comes from the simulation, never from the bank. Beside each share: its standard error over
programmes. Programmes of several runs, of either bank, are put together in the file of `--to`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

import concal
from concal.simulate import simulate_programme

SPEC = concal.Spec.parse(
    {"bank": {"dimensions": ["ability"]}, "groups": {"item": {"model": "2pl", "dimension": "ability"}}}
)
ITEMS, LENGTH, SCORED = 150, 30, 2000
BANKS = {"young": 50, "old": 500}  # examinees a period: 20 and 200 responses an item in all
LEVELS = ("mean", "soft", "draws")
Z = {"50": 0.6744898, "90": 1.6448536}


def some(frame: pl.DataFrame, first: int, n: int) -> pl.DataFrame:
    """Responses of n examinees, from the first one on."""
    return frame[LENGTH * first : LENGTH * (first + n)]


def programme_rows(seed: int, banks: Sequence[str]) -> list[dict[str, object]]:
    """Coverage of one programme, a row per bank and level."""
    made = simulate_programme(
        SPEC, periods=2, items=ITEMS, examinees=max(BANKS.values()) + SCORED, responses_per_examinee=LENGTH, seed=seed,
        selection="random", turnover=0.0, new_item_exposure=1.0, exposure_spread=0.0,
    )  # fmt: skip
    people = some(made.responses["2026Q2"], max(BANKS.values()), SCORED)
    truth = made.truth.abilities.filter(period="2026Q2").select("person_id", truth="ability")
    rows: list[dict[str, object]] = []
    for age in banks:
        n = BANKS[age]
        with tempfile.TemporaryDirectory() as folder:
            bank = concal.Bank.create(Path(folder) / "bank", SPEC)
            for period, frame in made.responses.items():
                bank.add(period, some(frame, 0, n), made.items, accept_unconverged=True)
            for level in LEVELS:
                table = bank.score(people, items=level, prior="2026Q2").join(truth, on="person_id")  # type: ignore[arg-type]
                error = (table["theta_ability"] - table["truth"]).to_numpy()
                se = table["se_ability"].to_numpy()
                row: dict[str, object] = {"programme": seed, "bank": age, "items": level}
                row |= {f"cover{name}": float((np.abs(error) < z * se).mean()) for name, z in Z.items()}
                row |= {"rmse": float(np.sqrt((error**2).mean())), "se": float(np.sqrt((se**2).mean()))}
                if level == "draws":
                    for part in ("measurement", "items", "link"):
                        row[f"share_{part}"] = float((table[f"se_{part}_ability"] ** 2).mean() / (se**2).mean())  # type: ignore[operator]
                rows.append(row)
    return rows


def main() -> None:
    """Programme after programme, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programmes", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--to", type=Path, help="add the rows to this CSV file and show what is in it")
    parser.add_argument("--banks", nargs="+", choices=BANKS, default=list(BANKS))
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    if given.to is not None and given.to.exists():
        rows = pl.read_csv(given.to).to_dicts()
    for seed in range(given.first, given.first + given.programmes):
        start = time.perf_counter()
        rows += programme_rows(seed, given.banks)
        print(f"programme {seed}: {time.perf_counter() - start:.0f} s", flush=True)
        if given.to is not None:
            pl.DataFrame(rows, infer_schema_length=None).write_csv(given.to)
    table = pl.DataFrame(rows, infer_schema_length=None)
    for age in table["bank"].unique(maintain_order=True):
        n = table.filter(bank=age)["programme"].n_unique()
        print(f"{age} bank, {n} programmes")
        for level in LEVELS:
            own = table.filter(bank=age, items=level)
            cover = {name: own[f"cover{name}"].to_numpy() for name in Z}
            shown = [f"{name} % {c.mean():.3f} ({c.std() / np.sqrt(max(n - 1, 1)):.3f})" for name, c in cover.items()]
            print(f"  {level}: {', '.join(shown)}; RMSE {own['rmse'].mean():.3f}, SE {own['se'].mean():.3f}")
        parts = table.filter(bank=age, items="draws").select(pl.col("^share_.*$").mean()).row(0)
        print(f"  variance: measurement {parts[0]:.3f}, items {parts[1]:.3f}, link {parts[2]:.3f}")


if __name__ == "__main__":
    main()
