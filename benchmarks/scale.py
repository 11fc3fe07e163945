"""How time and memory of a calibration grow: formulae fitted to measured points.

    python benchmarks/scale.py

Calibrates simulated 2pl periods of different sizes, 400 sweeps each, every one in a process of its own; prints CPU
milliseconds a sweep and peak memory, and the coefficients that fit them best (non-negative least squares, each point
weighted by its own size):

    ms a sweep   = a responses + b examinees + c items + e items x features
    peak MiB     = m + n responses + q examinees + r items x kept draws

`--point K` measures one of them and prints its line; `--fit FILE` fits the lines in a file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
from scipy.optimize import nnls

from concal.calibration.period import calibrate_period
from concal.cost import measure_cost
from concal.data.period import GroupData, PeriodData
from concal.response import make_model
from concal.spec import Spec

SWEEPS = 400
POINTS = [  # responses, examinees, items, features, draws
    (100_000, 5_000, 500, 1, 1000),
    (300_000, 15_000, 500, 1, 1000),
    (100_000, 25_000, 500, 1, 1000),
    (100_000, 5_000, 5_000, 1, 1000),
    (100_000, 5_000, 20_000, 1, 1000),
    (100_000, 5_000, 5_000, 20, 1000),
    (100_000, 5_000, 5_000, 1, 250),
    (300_000, 60_000, 5_000, 1, 1000),
    (600_000, 30_000, 2_000, 5, 500),
]


def simulate(responses: int, examinees: int, items: int, features: int) -> PeriodData:
    """One period: items at random, features of plain noise beside the intercept."""
    rng, model = np.random.default_rng(1), make_model("2pl")
    xi = np.column_stack([rng.normal(0, 1, items), rng.normal(0, 0.3, items)])
    person = np.repeat(np.arange(examinees, dtype=np.int32), responses // examinees)
    item = rng.integers(0, items, person.size, dtype=np.int32)
    score = model.simulate(rng.normal(size=examinees)[person], xi[item], rng)
    X = np.column_stack([np.ones(items), rng.normal(size=(items, features - 1))])
    names = ("1", *(f"x{k}" for k in range(1, features)))
    group = GroupData("g", "ability", model, tuple(f"i{j}" for j in range(items)), names, X, person, item, score)
    persons = pl.Series("person_id", [f"p{i}" for i in range(examinees)])
    return PeriodData("P", ("ability",), persons, {"g": group}, ("P",), np.zeros(examinees, np.int32))


def measure(k: int) -> dict[str, float]:
    """One point."""
    responses, examinees, items, features, draws = POINTS[k]
    data = simulate(responses, examinees, items, features)
    limits = {"max_sweeps": SWEEPS, "draws": draws, "min_ess": 1e9}
    content = {"bank": {"dimensions": ["ability"]}, "groups": {"g": {"model": "2pl", "dimension": "ability"}}}
    spec = Spec.parse({**content, "calibration": limits})
    calibrate_period(simulate(600, 60, 30, 1), Spec.parse({**content, "calibration": {"max_sweeps": 100}}))  # compiled
    with measure_cost() as cost:
        calibrate_period(data, spec)
    return {
        "responses": responses,
        "examinees": examinees,
        "items": items,
        "features": features,
        "draws": draws,
        "cpu_ms_a_sweep": round(1000 * cost.cpu_seconds / SWEEPS, 2),
        "peak_mib": round(cost.peak_mib, 1),
    }


def fit(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Coefficients per million of each quantity, and the largest relative error."""
    n, persons, items, features, draws, time, memory = (np.array([row[key] for row in rows]) for key in rows[0])
    found = {}
    for name, y, terms in (
        (
            "cpu_ms_a_sweep",
            time,
            {"responses": n, "examinees": persons, "items": items, "items_x_features": items * features},
        ),
        (
            "peak_mib",
            memory,
            {"1": 1e6 + 0 * n, "responses": n, "examinees": persons, "items_x_draws": items * draws},
        ),
    ):
        A = np.column_stack(list(terms.values())) / 1e6
        coefficients, _ = nnls(A / y[:, None], np.ones(len(y)))
        worst = float(np.abs(A @ coefficients / y - 1.0).max())
        found[name] = {**dict(zip(terms, coefficients.round(4).tolist(), strict=True)), "worst_error": round(worst, 3)}
    return found


def main() -> None:
    """Measure and fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--point", type=int)
    parser.add_argument("--fit", type=Path)
    given = parser.parse_args()
    if given.point is not None:
        print(json.dumps(measure(given.point)))
        return
    if given.fit is not None:
        lines = given.fit.read_text().splitlines()
    else:
        command = [sys.executable, __file__, "--point"]
        runs = (
            subprocess.run([*command, str(k)], check=True, capture_output=True, text=True) for k in range(len(POINTS))
        )
        lines = [run.stdout.strip() for run in runs]
    print("\n".join(lines))
    print(json.dumps(fit([json.loads(line) for line in lines])))


if __name__ == "__main__":
    main()
