"""Scoring: speed against PyPI mirt on its home ground, a million examinees on a large bank, and coverage.

    python benchmarks/scoring.py [--quick] [--mirt PYTHON] [--only home large live coverage]

`--mirt` names an interpreter that has PyPI mirt installed (its dependencies are not ours). Times are CPU seconds of the
whole process, which other programs on the machine disturb less than the clock; the clock is given beside.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from concal.response import make_model
from concal.score.items import GroupItems, ScoringItems
from concal.score.prior import Abilities, Population
from concal.score.responses import Examinees
from concal.score.rows import Answered
from concal.score.score import ScoreOptions, ScoringBank, score_examinees
from concal.score.scorer import Scorer
from concal.spec import Spec

MIRT = """
import json, sys, time, numpy as np, mirt
folder, repeat = sys.argv[1], int(sys.argv[2])
scores = np.load(folder + "/scores.npy")
fit = mirt.fit_mirt(scores[:1000], model="2PL", n_factors=1, max_iter=5)
mirt.fscores(fit, scores[:100])
best = [1e9, 1e9]
for _ in range(repeat):
    cpu, clock = time.process_time(), time.perf_counter()
    mirt.fscores(fit, scores)
    best = min(best, [time.process_time() - cpu, time.perf_counter() - clock])
print(json.dumps({"version": mirt.__version__, "cpu": best[0], "clock": best[1]}))
"""


def make_bank(
    n_items: int, dimensions: int, n_draws: int, sd: tuple[float, float], wobble: float, seed: int
) -> tuple[ScoringBank, list[Any]]:
    """A calibrated bank of 2pl items, and the truth drawn from its posterior: items and metric."""
    rng = np.random.default_rng(seed)
    names = tuple(f"dim{k}" for k in range(dimensions))
    links = wobble * rng.standard_normal((n_draws + 1, 1, dimensions, 2))
    groups, truth, each = [], [], n_items // dimensions
    for k in range(dimensions):
        mean = np.column_stack([rng.normal(0, 1, each), rng.normal(0, 0.3, each)])
        draws = mean + np.array(sd) * rng.standard_normal((n_draws + 1, each, 2))
        log_A, B = links[:, 0, k, 0, None], links[:, 0, k, 1, None]
        draws[..., 0] = np.exp(log_A) * draws[..., 0] + B
        draws[..., 1] -= log_A
        covariance = np.tile(np.diag(np.square(sd)) + wobble**2 * np.eye(2), (each, 1, 1))
        groups.append(
            GroupItems(f"g{k}", k, make_model("2pl"), k * each, mean, covariance, draws[1:].astype(np.float32))
        )
        truth.append(draws[0])
    R = np.full((1, dimensions, dimensions), 0.6)
    R[0, range(dimensions), range(dimensions)] = 1.0
    ones = np.ones((1, dimensions))
    abilities = Abilities.of_links([Population("P", None, 1, 0 * ones[0], ones[0])], R, ones, 0 * ones, links[1:])
    spec = Spec.parse(
        {
            "bank": {"dimensions": list(names)},
            "groups": {f"g{k}": {"model": "2pl", "dimension": n} for k, n in enumerate(names)},
        }
    )
    ids = tuple(f"item-{j}" for j in range(each * dimensions))
    return ScoringBank(ScoringItems(names, tuple(groups), ids, 1), abilities, spec), [truth, links[0, 0]]


def sit(
    bank: ScoringBank, n: int, per_dimension: int, xi: list[Any], seed: int, link: Any = None
) -> tuple[Any, Examinees]:
    """Examinees of the period's population, random items, scores at the items given."""
    rng = np.random.default_rng(seed)
    D = len(bank.items.dimensions)
    theta = rng.multivariate_normal(np.zeros(D), bank.abilities.covariance[0], n)
    if link is not None:
        theta = np.exp(link[:, 0]) * theta + link[:, 1]
    items, scores = [], []
    for k, g in enumerate(bank.items.groups):
        item = np.sort(rng.integers(0, g.n_items, (n, per_dimension)), axis=1)
        eta = np.exp(xi[k][item, 1]) * (theta[:, k, None] - xi[k][item, 0])
        items.append((g.first + item).astype(np.int32))
        scores.append((rng.random(item.shape) < 1 / (1 + np.exp(-eta))).astype(np.float64))
    item, score = np.concatenate(items, axis=1), np.concatenate(scores, axis=1)
    start = np.arange(0, item.size + 1, item.shape[1])
    ids = pl.Series("person_id", np.arange(n)).cast(pl.String).str.zfill(8)
    return theta, Examinees(ids, Answered(start, item.ravel(), score.ravel()))


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and clock seconds."""
    cpu, clock = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - clock


def home(mirt: str | None, quick: bool) -> None:
    """20,000 examinees x 30 items, dense, one dimension: PyPI mirt's home ground."""
    n = 2000 if quick else 20_000
    bank, (truth, _) = make_bank(30, 1, 2, (0.1, 0.1), 0.0, 1)
    rng = np.random.default_rng(2)
    theta = rng.normal(size=n)
    scores = (rng.random((n, 30)) < 1 / (1 + np.exp(-np.exp(truth[0][:, 1]) * (theta[:, None] - truth[0][:, 0])))) * 1.0
    item = np.tile(np.arange(30, dtype=np.int32), n)
    people = Examinees(
        pl.Series("person_id", np.arange(n)).cast(pl.String),
        Answered(np.arange(0, 30 * n + 1, 30), item, scores.ravel()),
    )
    options = ScoreOptions(items="mean")
    score_examinees(bank, people, options)
    ours = min(timed(lambda: score_examinees(bank, people, options)) for _ in range(5))
    print(f"home ground, {n:,} x 30: concal {ours[0]:.3f} CPU s, {ours[1]:.3f} s; {n / ours[0]:,.0f} a CPU second")
    if mirt:
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/scores.npy", scores.astype(np.int64))
            Path(folder, "run.py").write_text(MIRT)
            done = subprocess.run([mirt, f"{folder}/run.py", folder, "5"], capture_output=True, text=True, check=True)
        other = json.loads(done.stdout.splitlines()[-1])
        ratio = other["cpu"] / ours[0]
        print(f"  PyPI mirt {other['version']}: {other['cpu']:.3f} CPU s, {other['clock']:.3f} s; ratio {ratio:.2f}")


def large(quick: bool) -> None:
    """Sparse responses to a bank of 20,000 items, two dimensions: point and soft by size, draws, memory."""
    sizes, n_draws = ((50_000,), 5) if quick else ((300_000, 600_000, 1_000_000), 100)
    bank, (truth, _) = make_bank(20_000, 2, n_draws, (0.3, 0.2), 0.02, 3)
    _, few = sit(bank, 2000, 15, truth, 5)
    for level in ("mean", "soft", "draws"):
        score_examinees(bank, few, ScoreOptions(items=level, draws=2))  # type: ignore[arg-type]
    for n in sizes:
        _, people = sit(bank, n, 15, truth, 4)
        rounds = {"mean": 2, "soft": 2, **({"draws": 1} if n == sizes[-1] else {})}
        point = 0.0
        for level, times in rounds.items():
            options = ScoreOptions(items=level, draws=n_draws)  # type: ignore[arg-type]
            cpu, clock = min(timed(lambda o=options, p=people: score_examinees(bank, p, o)) for _ in range(times))
            point = point or cpu
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            took = f"{cpu:.1f} CPU s, {clock:.1f} s, {cpu / point:.2f} of point, peak {peak:,.0f} MiB"
            print(f"{n:,} x 30 of 20,000 items, {level}: {took}", flush=True)


def live(quick: bool) -> None:
    """One examinee at a time from a bank of 20,000 items."""
    bank, (truth, _) = make_bank(20_000, 2, 2, (0.3, 0.2), 0.02, 3)
    _, people = sit(bank, 500, 15, truth, 6)
    asked = []
    for p in range(500):
        a, b = people.answered.start[p : p + 2]
        pairs = zip(people.answered.item[a:b], people.answered.score[a:b], strict=True)
        asked.append({bank.items.item_ids[j]: float(y) for j, y in pairs})
    for level in ("mean", "soft"):
        Scorer(bank, items=level).score(asked[0])  # type: ignore[arg-type]
        made = timed(lambda level=level: Scorer(bank, items=level))
        scorer = Scorer(bank, items=level)  # type: ignore[arg-type]
        each = [timed(lambda r=r, scorer=scorer: scorer.score(r))[1] for r in asked]
        print(
            f"live, {level}: tables made in {made[0]:.2f} CPU s; an examinee takes {1e3 * np.median(each):.3f} ms "
            f"(95 %: {1e3 * np.quantile(each, 0.95):.3f})"
        )


def coverage(quick: bool) -> None:
    """Intervals of true theta; truth (items, metric, examinees) drawn from what a young and an old bank believe."""
    banks = {"young (about 20 responses an item)": ((0.55, 0.28), 0.06), "old": ((0.05, 0.03), 0.01)}
    worlds, n = (3, 2000) if quick else (20, 5000)
    z50, z90 = 0.6745, 1.6449
    for name, (sd, wobble) in banks.items():
        hits: dict[str, list[Any]] = {}
        for w in range(worlds):
            bank, (truth, link) = make_bank(600, 1, 100, sd, wobble, 100 + w)
            theta, people = sit(bank, n, 25, truth, 200 + w, link)
            for level in ("mean", "soft", "draws"):
                table = score_examinees(bank, people, ScoreOptions(items=level, prior="P"))  # type: ignore[arg-type]
                error = np.abs(table["theta_dim0"].to_numpy() - theta[:, 0]) / table["se_dim0"].to_numpy()
                rmse = np.sqrt(np.mean((table["theta_dim0"].to_numpy() - theta[:, 0]) ** 2))
                hits.setdefault(level, []).append([(error < z50).mean(), (error < z90).mean(), rmse])
                if level == "draws":
                    parts = [np.mean(table[f"se_{p}_dim0"].to_numpy() ** 2) for p in ("measurement", "items", "link")]
                    hits.setdefault("parts", []).append(np.array(parts) / sum(parts))
        for level in ("mean", "soft", "draws"):
            m = np.mean(hits[level], axis=0)
            print(f"coverage, {name}, {level}: 50 % {m[0]:.3f}, 90 % {m[1]:.3f}; RMSE {m[2]:.3f}")
        shares = np.mean(hits["parts"], axis=0)
        print(f"  shares of the variance: measurement {shares[0]:.3f}, items {shares[1]:.3f}, link {shares[2]:.3f}")


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--mirt", metavar="PYTHON")
    parser.add_argument("--only", nargs="+", choices=("home", "large", "live", "coverage"))
    given = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "home": lambda: home(given.mirt, given.quick),
        "large": lambda: large(given.quick),
        "live": lambda: live(given.quick),
        "coverage": lambda: coverage(given.quick),
    }
    for name in given.only or parts:
        parts[name]()


if __name__ == "__main__":
    main()
