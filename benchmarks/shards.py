"""What splitting a period by examinees costs: the period put together from shards against the unsplit fit.

    python benchmarks/shards.py --design dense --shards 2 4 8

Simulates one period (2pl, items at random for every examinee), calibrates it whole, whole again with another seed (what
two samplers differ by), and in shards that are put together; prints per parameter: correlation and root-mean-square
difference of posterior means (in units of the whole fit's SDs), correlation and mean ratio of posterior SDs, coverage
of 90 % intervals; and per number of shards the agreement of abilities and the CPU time.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import polars as pl

from concal.calibration.period import calibrate_period
from concal.calibration.result import Calibration
from concal.consensus.shards import unite_shards
from concal.data.deal import deal
from concal.data.period import GroupData, PeriodData
from concal.response import make_model
from concal.spec import Spec

DESIGNS = {
    "dense": {"items": 200, "examinees": 4000, "per_examinee": 30},
    "sparse": {"items": 1500, "examinees": 4000, "per_examinee": 24},
    "tiny": {"items": 60, "examinees": 1600, "per_examinee": 15},
}


def simulate(items: int, examinees: int, per_examinee: int, seed: int) -> tuple[PeriodData, np.ndarray]:
    """One period and the true xi."""
    rng, model = np.random.default_rng(seed), make_model("2pl")
    xi = np.column_stack([rng.normal(0, 1, items), rng.normal(0, 0.3, items)])
    theta = rng.normal(size=examinees)
    item = np.argsort(rng.random((examinees, items)), axis=1)[:, :per_examinee].ravel().astype(np.int32)
    person = np.repeat(np.arange(examinees, dtype=np.int32), per_examinee)
    score = model.simulate(theta[person], xi[item], rng)
    ids = tuple(f"i{j:05d}" for j in range(items))
    group = GroupData("g", "ability", model, ids, ("1",), np.ones((items, 1)), person, item, score)
    persons = pl.Series("person_id", [f"p{i}" for i in range(examinees)])
    return PeriodData("P", ("ability",), persons, {"g": group}, ("P",), np.zeros(examinees, np.int32)), xi


def moments(calibration: Calibration) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means and SDs of xi."""
    xi = calibration.groups["g"].flat("xi")
    return xi.mean(axis=0), xi.std(axis=0, ddof=1)


def compare(found: Calibration, whole: Calibration, truth: np.ndarray) -> list[dict[str, float | str]]:
    """One row per parameter."""
    (mean, sd), (mean_w, sd_w) = moments(found), moments(whole)
    rows: list[dict[str, float | str]] = []
    for k, name in enumerate(("d", "log_a")):
        inside = np.abs(mean[:, k] - truth[:, k]) < 1.645 * sd[:, k]
        rows.append(
            {
                "parameter": name,
                "mean_r": float(np.corrcoef(mean[:, k], mean_w[:, k])[0, 1]),
                "rmse_in_sd": float(np.sqrt(np.mean(((mean[:, k] - mean_w[:, k]) / sd_w[:, k]) ** 2))),
                "sd_r": float(np.corrcoef(sd[:, k], sd_w[:, k])[0, 1]),
                "sd_ratio": float(np.mean(sd[:, k] / sd_w[:, k])),
                "coverage_90": float(inside.mean()),
            }
        )
    return rows


def abilities(found: Calibration, whole: Calibration) -> str:
    """Correlation of the examinees' means, their difference in SDs, and the mean ratio of SDs."""
    mine, theirs = found.abilities, whole.abilities
    assert mine is not None
    assert theirs is not None
    r = np.corrcoef(mine.mean[:, 0], theirs.mean[:, 0])[0, 1]
    rmse = np.sqrt(np.mean(((mine.mean - theirs.mean) / theirs.sd) ** 2))
    return f"r {r:.5f}, {rmse:.3f} SDs, SD ratio {np.mean(mine.sd / theirs.sd):.3f}"


def main() -> None:
    """Run one design."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--design", choices=DESIGNS, default="dense")
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    data, truth = simulate(**DESIGNS[given.design], seed=given.seed)
    content = {"bank": {"dimensions": ["ability"]}, "groups": {"g": {"model": "2pl", "dimension": "ability"}}}
    spec = Spec.parse(content)
    print(f"{given.design}: {data.n_responses:,} responses, {len(truth)} items, {data.person_ids.len():,} examinees")
    start = time.process_time()
    whole = calibrate_period(data, spec, seed=1)
    cpu = time.process_time() - start
    again = calibrate_period(data, spec, seed=2)
    for row in (*compare(whole, whole, truth), *compare(again, whole, truth)):
        print(json.dumps({"shards": 1, **row}))
    print(f"  another seed: abilities {abilities(again, whole)}")
    for n in given.shards:
        parts, seconds = [], []
        for k, shard in enumerate(deal(data, n)):
            start = time.process_time()
            parts.append(calibrate_period(shard, spec, seed=100 * n + k))
            seconds.append(time.process_time() - start)
        start = time.process_time()
        united = unite_shards(parts, data, spec, seed=1)
        uniting = time.process_time() - start
        for row in compare(united, whole, truth):
            print(json.dumps({"shards": n, **row}))
        print(
            f"  {n} shards: abilities {abilities(united, whole)}, CPU s whole {cpu:.1f}, largest shard "
            f"{max(seconds):.1f}, together {uniting:.1f}; {list(united.convergence.warnings)}"
        )


if __name__ == "__main__":
    main()
