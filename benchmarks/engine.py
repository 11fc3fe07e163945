"""How fast the calibration engine is.

Usage: python benchmarks/engine.py {sweep,models,hard,whole,scaling,compile,all} [--quick] [--threads 2]

sweep     one sweep of 3M 2PL responses, against a bare loop of the same arithmetic and loads in the same run
models    cost per response of every response model relative to 2pl
hard      half of the items with about 6 responses, 10 features: sweeps and diagnostics under the default targets
whole     3M responses end to end: read, check, sample to the default targets, diagnose, write; seconds and memory
scaling   sweep time from 0.3M to 9M responses and its exponent
compile   CPU seconds of a first start with an empty cache of compiled kernels, and of the second

The engine runs 8 chains side by side in SIMD lanes: a sweep moves all of them. "Per chain" figures are the sweep's time
divided by 8. Wall times suffer from other load on the machine; CPU times (all threads together) much less, so both are
shown, and ratios are of CPU times measured in turns within one run.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl

from concal.calibration.layout import Layout, lay_out
from concal.calibration.moves.carrying import LEARN_EVERY
from concal.calibration.sampler import Sampler
from concal.calibration.sweep import NEWTON_START
from concal.calibration.workers import Workers
from concal.compiler import LANES, kernel, put, row, splat, splat64, widen
from concal.data.period import GroupData, PeriodData
from concal.response import arithmetic, make_model, model_class, model_names
from concal.spec import CalibrationSpec, Spec

FEATURES = 3
PER_PERSON = 30
CATEGORIES = 4


# --- data ---------------------------------------------------------------------------------------------------------


def make_items(n_items: int, n_persons: int, per_person: int, rng: np.random.Generator) -> np.ndarray:
    """Different items for every examinee, (persons, per_person): a random start and a random stride."""
    stride = 1 + rng.integers(0, max(n_items // per_person - 1, 1), n_persons)
    start = rng.integers(0, n_items, n_persons)
    return (start[:, None] + np.arange(per_person) * stride[:, None]) % n_items


def make_period(model_name: str, n_items: int, n_persons: int, dimensions: int = 2) -> PeriodData:
    """One group per dimension, every examinee answers items of all dimensions, `PER_PERSON` in all."""
    rng = np.random.default_rng(1)
    names = tuple(f"dimension{k + 1}" for k in range(dimensions))
    theta = rng.multivariate_normal(np.zeros(dimensions), 0.5 + 0.5 * np.eye(dimensions), n_persons)
    model = make_model(model_name, CATEGORIES if model_class(model_name).polytomous else None)
    groups = {}
    for k, dimension in enumerate(names):
        n, each = n_items // dimensions, PER_PERSON // dimensions
        X = np.column_stack([np.ones(n), rng.standard_normal((n, FEATURES))])
        p = len(model.parameters)
        beta = np.vstack([model.prior.mean, 0.2 * rng.standard_normal((FEATURES, p)) * model.prior.sd])
        xi = X @ beta + 0.8 * np.array(model.prior.sd) * rng.standard_normal((n, p))
        item = make_items(n, n_persons, each, rng).ravel().astype(np.int32)
        person = np.repeat(np.arange(n_persons, dtype=np.int32), each)
        score = model.simulate(theta[person, k], xi[item], rng)
        ids = tuple(f"{dimension}-{j}" for j in range(n))
        features = ("1", *(f"x{f}" for f in range(FEATURES)))
        groups[dimension] = GroupData(dimension, dimension, model, ids, features, X, person, item, score)
    persons = pl.Series("person_id", np.arange(n_persons)).cast(pl.String)
    return PeriodData("period", names, persons, groups, ("period",), np.zeros(n_persons, np.int32))


# --- the floor: the same loads and arithmetic of the 2PL passes, nothing else -------------------------------------


@kernel
def bare_person_loop(start: Any, item: Any, y: Any, theta: Any, par: Any, dim: int, full: bool, out: Any) -> None:
    """By examinee: log-likelihood, and with `full` gradient and information, summed over everything."""
    ll, g, w = splat64(0.0), splat64(0.0), splat64(0.0)
    for i in range(start.shape[0] - 1):
        th = row(theta, (i, dim))
        for block in range(start[i], start[i + 1], 8):
            l8, f8, g8, w8 = splat(0.0), splat(1.0), splat(0.0), splat(0.0)
            for r in range(block, min(block + 8, start[i + 1])):
                j = item[r]
                a = row(par, (j, 0))
                eta = a * (th - row(par, (j, 1)))
                t = arithmetic.exp(arithmetic.minimum(eta, -eta))
                q = 1.0 / (1.0 + t)
                l8 = l8 + splat(y[r]) * eta - arithmetic.maximum(eta, 0.0)
                f8 = f8 * q
                if full:
                    g8 = g8 + a * (splat(y[r]) - arithmetic.where_less(eta, 0.0, t * q, q))
                    w8 = w8 + a * a * t * q * q
            ll, g, w = ll + widen(l8 + arithmetic.log(f8)), g + widen(g8), w + widen(w8)
    put(out, (0,), ll)
    put(out, (1,), g)
    put(out, (2,), w)


@kernel
def bare_item_loop(start: Any, person: Any, y: Any, theta: Any, par: Any, dim: int, full: bool, out: Any) -> None:
    """By item: log-likelihood, and with `full` two gradients and three informations, summed over everything."""
    ll, g, ge = splat64(0.0), splat64(0.0), splat64(0.0)
    w, we, wee = splat64(0.0), splat64(0.0), splat64(0.0)
    for j in range(start.shape[0] - 1):
        a, d = row(par, (j, 0)), row(par, (j, 1))
        for block in range(start[j], start[j + 1], 8):
            l8, f8, g8, ge8 = splat(0.0), splat(1.0), splat(0.0), splat(0.0)
            w8, we8, wee8 = splat(0.0), splat(0.0), splat(0.0)
            for r in range(block, min(block + 8, start[j + 1])):
                eta = a * (row(theta, (person[r], dim)) - d)
                t = arithmetic.exp(arithmetic.minimum(eta, -eta))
                q = 1.0 / (1.0 + t)
                l8 = l8 + splat(y[r]) * eta - arithmetic.maximum(eta, 0.0)
                f8 = f8 * q
                if full:
                    slope = splat(y[r]) - arithmetic.where_less(eta, 0.0, t * q, q)
                    weight = t * q * q
                    g8, ge8 = g8 + slope, ge8 + slope * eta
                    w8, we8, wee8 = w8 + weight, we8 + weight * eta, wee8 + weight * eta * eta
            ll = ll + widen(l8 + arithmetic.log(f8))
            g, ge, w = g + widen(g8), ge + widen(ge8), w + widen(w8)
            we, wee = we + widen(we8), wee + widen(wee8)
    put(out, (0,), ll)
    put(out, (1,), g + ge)
    put(out, (2,), w + we + wee)


def floor(layout: Layout, sampler: Sampler, workers: Workers) -> None:
    """Passes of one sweep: two full and one log-likelihood pass by examinee, the same by item, on the same chunks."""
    state = sampler.state

    def persons(chunk: tuple[int, int]) -> None:
        lo, hi = chunk
        out = np.empty((3, LANES))
        for full in (True, True, False):
            for g, s in zip(layout.groups, state.groups, strict=True):
                bare_person_loop(
                    g.person_start[lo : hi + 1], g.person_item, g.person_score, state.theta[lo:hi], s.par, g.dim,
                    full, out,
                )  # fmt: skip

    def items(task: tuple[Any, Any, tuple[int, int]]) -> None:
        g, s, (lo, hi) = task
        out = np.empty((3, LANES))
        for full in (True, True, False):
            bare_item_loop(
                g.item_start[lo : hi + 1], g.item_person, g.item_score, state.theta, s.par[lo:hi], g.dim, full, out
            )

    workers.map(persons, layout.person_chunks)
    tasks = [(g, s, c) for g, s in zip(layout.groups, state.groups, strict=True) for c in g.item_chunks]
    workers.map(items, tasks)


# --- measuring ----------------------------------------------------------------------------------------------------


def ready_sampler(data: PeriodData, threads: int) -> Sampler:
    """A sampler in which every kind of move has begun (warm-up has learned once)."""
    sampler = Sampler(lay_out(data), CalibrationSpec(), 1, threads)
    for _ in range(NEWTON_START + LEARN_EVERY + 2):
        sampler.sweep()
    sampler.warmup_end = sampler.state.sweep  # what is timed is a sampling sweep
    return sampler


def timed(run: Callable[[], None], times: int) -> tuple[float, float]:
    """Wall and CPU seconds of one call, averaged over a few."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        run()
    return (time.perf_counter() - wall) / times, (time.process_time() - cpu) / times


def in_turns(runs: dict[str, Callable[[], None]], rounds: int, times: int = 4) -> dict[str, tuple[float, float]]:
    """Best wall and best CPU seconds of each, measured in turns so that load meets all alike.

    Calls are even in number: many examinees are carried along in every second sweep.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(timed(run, times))
    return {name: (min(w for w, _ in seen), min(c for _, c in seen)) for name, seen in found.items()}


def load() -> str:
    """The machine's load, to be read with the figures."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {LANES} chains side by side in SIMD lanes"


def sweep(threads: int, quick: bool) -> None:
    """One sweep of 3M responses against its floor."""
    scale = 10 if quick else 1
    sampler = ready_sampler(make_period("2pl", 10_000 // scale, 100_000 // scale), threads)
    layout, millions = sampler.layout, sampler.layout.n_responses / 1e6
    found = in_turns(
        {"sweep": sampler.sweep, "floor": lambda: floor(layout, sampler, sampler.workers)}, rounds=4 if quick else 8
    )
    sampler.close()
    print(f"2PL, {millions:.1f}M responses, 2 dimensions, {threads} threads; {load()}")
    print("ms per million responses     8 chains: wall     CPU    per chain: wall    CPU")
    for name, (wall, cpu) in found.items():
        w, c = 1e3 * wall / millions, 1e3 * cpu / millions
        print(f"{name:28s} {w:14.1f} {c:7.1f} {w / LANES:15.2f} {c / LANES:7.2f}")
    ratio = [found["sweep"][k] / found["floor"][k] for k in (0, 1)]
    print(f"sweep / floor                {ratio[0]:14.2f} {ratio[1]:7.2f}")


def models(threads: int, quick: bool) -> None:
    """Cost per response of every model relative to 2pl."""
    n_items, n_persons = (400, 4_000) if quick else (2_000, 20_000)
    samplers = {}
    for name in model_names():
        samplers[name] = ready_sampler(make_period(name, n_items, n_persons), threads)
    found = in_turns({name: s.sweep for name, s in samplers.items()}, rounds=4)
    responses = samplers["2pl"].layout.n_responses
    print(f"{responses / 1e6:.2f}M responses each, K = {CATEGORIES} categories, {threads} threads; {load()}")
    print("model           CPU ns per response and sweep   per chain   relative to 2pl")
    for name, (_, cpu) in found.items():
        each = 1e9 * cpu / responses
        print(f"{name:14s} {each:31.1f} {each / LANES:11.2f} {cpu / found['2pl'][1]:17.2f}")
        samplers[name].close()


def make_sparse_period(n_items: int, n_features: int = 10) -> PeriodData:
    """2PL with many features; half of the items get about 6 responses each, the other half about 120."""
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(n_items), rng.standard_normal((n_items, n_features))])
    model = make_model("2pl")
    beta = np.vstack([model.prior.mean, 0.25 * rng.standard_normal((n_features, 2)) * model.prior.sd])
    xi = X @ beta + np.array(model.prior.sd) * rng.standard_normal((n_items, 2))
    half = n_items // 2
    n_persons = 126 * half // 15  # 15 responses each
    sparse = rng.random((n_persons, 15)) < 6.0 / 126.0
    item = np.where(sparse, half, 0) + make_items(half, n_persons, 15, rng)
    person = np.repeat(np.arange(n_persons, dtype=np.int32), 15)
    flat = item.ravel().astype(np.int32)
    score = model.simulate(rng.standard_normal(n_persons)[person], xi[flat], rng)
    ids, features = tuple(map(str, range(n_items))), ("1", *(f"x{f}" for f in range(n_features)))
    group = GroupData("items", "ability", model, ids, features, X, person, flat, score)
    persons = pl.Series("person_id", np.arange(n_persons)).cast(pl.String)
    return PeriodData("period", ("ability",), persons, {"items": group}, ("period",), np.zeros(n_persons, np.int32))


def hard(threads: int, quick: bool) -> None:
    """The sparse case to the default targets."""
    from concal.calibration.period import calibrate_period

    data = make_sparse_period(300 if quick else 2_000)
    group = data.groups["items"]
    counts = np.bincount(group.item, minlength=len(group.item_ids))
    few = counts[len(counts) // 2 :]
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["ability"]},
            "groups": {"items": {"model": "2pl", "dimension": "ability", "features": "~ x0"}},
            "calibration": {"threads": threads},
        }
    )
    print(
        f"{len(counts):,} items, half of them with {few.mean():.1f} responses on average ({few.min()} to {few.max()}), "
        f"{group.X.shape[1] - 1} features, {len(data.person_ids):,} examinees x 15; {load()}"
    )
    wall, cpu = time.perf_counter(), time.process_time()
    c = calibrate_period(data, spec).convergence
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"  converged: {c.converged}; {c.sweeps} sweeps a chain ({c.warmup} warm-up); population R-hat at most "
        f"{c.max_rhat_population:.3f}, bulk ESS at least {c.min_ess_population:.0f}; items within R-hat "
        f"{spec.calibration.max_item_rhat}: {c.share_items_rhat:.2%}; {wall:.1f} s wall, {cpu:.1f} s CPU"
    )


def scaling(threads: int, quick: bool) -> None:
    """Sweep time by the number of responses."""
    sizes = (30_000, 100_000, 300_000) if quick else (300_000, 1_000_000, 3_000_000, 9_000_000)
    print(f"2PL, items and examinees grow together, {threads} threads; {load()}")
    print("responses      wall ms a sweep    CPU ms a sweep    CPU ms per million")
    seen = []
    for size in sizes:
        sampler = ready_sampler(make_period("2pl", size // 300, size // PER_PERSON), threads)
        n = sampler.layout.n_responses
        wall, cpu = in_turns({"sweep": sampler.sweep}, rounds=5)["sweep"]
        sampler.close()
        del sampler
        seen.append((n, cpu))
        print(f"{n:10,d} {1e3 * wall:18.1f} {1e3 * cpu:17.1f} {1e9 * cpu / n:20.1f}", flush=True)
    slope = np.polyfit(*np.log(np.array(seen)).T, 1)[0]
    print(f"exponent of CPU time in responses: {slope:.3f}")


# --- end to end ---------------------------------------------------------------------------------------------------

WHOLE_SPEC = Spec.parse(
    {
        "bank": {"dimensions": ["dimension1", "dimension2"]},
        "groups": {
            name: {"model": "2pl", "dimension": name, "features": "~ x0 + x1 + x2"}
            for name in ("dimension1", "dimension2")
        },
    }
)


def write_tables(folder: Path, n_items: int, n_persons: int) -> None:
    """A period as the files a user brings."""
    data = make_period("2pl", n_items, n_persons)
    rows, items = [], []
    for g in data.groups.values():
        ids = pl.Series(g.item_ids)
        rows.append(
            pl.DataFrame({"person_id": data.person_ids[g.person], "item_id": ids[g.item], "score": g.score.astype(int)})
        )
        features = {f"x{k}": g.X[:, 1 + k] for k in range(FEATURES)}
        items.append(pl.DataFrame({"item_id": ids, "group": g.name, **features}))
    pl.concat(rows).write_parquet(folder / "responses.parquet")
    pl.concat(items).write_parquet(folder / "items.parquet")


def whole(threads: int, quick: bool) -> None:
    """3M responses from files to files, to the default targets."""
    from concal.bank.store.folder import FolderWriter
    from concal.bank.tables.calibration import write_calibration
    from concal.calibration.period import calibrate_period
    from concal.data.check import check_period

    scale = 30 if quick else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make = "import sys; sys.path.insert(0, sys.argv[1]); import engine; from pathlib import Path; "
        make += "engine.write_tables(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))"
        here = str(Path(__file__).parent)
        command = [sys.executable, "-c", make, here, name, str(10_000 // scale), str(100_000 // scale)]
        subprocess.run(command, check=True)  # in a process of its own: its memory is not the engine's
        spec = WHOLE_SPEC.model_copy(update={"calibration": CalibrationSpec(threads=threads)})
        print(f"3M responses end to end (2PL, 2 dimensions, 3 features), {threads} threads; {load()}")
        marks = [(time.perf_counter(), time.process_time())]

        def mark(what: str) -> None:
            marks.append((time.perf_counter(), time.process_time()))
            (w0, c0), (w1, c1) = marks[-2:]
            print(f"  {what:28s} {w1 - w0:8.1f} s wall {c1 - c0:8.1f} s CPU", flush=True)

        checked = check_period(folder / "responses.parquet", folder / "items.parquet", spec)
        mark("read and check")
        result = calibrate_period(checked.data, spec)
        mark("sample and diagnose")

        class Plain:
            def place(self, folder_name: str, file: str) -> tuple[Path, str]:
                return folder / file, f"data/{folder_name}-0/{file}"

        write_calibration(FolderWriter(Plain(), "draws"), result)
        mark("write draws")
        c = result.convergence
        print(
            f"  converged: {c.converged}; {c.sweeps} sweeps a chain ({c.warmup} warm-up); population R-hat "
            f"{c.max_rhat_population:.3f}, bulk ESS {c.min_ess_population:.0f}; items within R-hat "
            f"{spec.calibration.max_item_rhat}: {c.share_items_rhat:.2%}"
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        wall, cpu = marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]
        print(f"  total {wall:.1f} s wall, {cpu:.1f} s CPU; peak memory {peak:.2f} GiB; {load()}")


FIRST_USE = """
import sys
sys.path.insert(0, sys.argv[1])
import engine
from concal.calibration.sampler import Sampler
from concal.calibration.layout import lay_out
from concal.calibration.diagnostics import diagnose
for name in engine.model_names():
    engine.ready_sampler(engine.make_period(name, 60, 200), 1).close()
import numpy as np
diagnose(np.zeros((2, 8, 1)) + np.arange(8)[None, :, None])
"""


def compile_kernels(threads: int, quick: bool) -> None:
    """All six models in a fresh process with an empty kernel cache, then again."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        print(f"every response model once, tiny data; {load()}")
        for start in ("first start (compiles)", "second start (loads)"):
            before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            command = [sys.executable, "-c", FIRST_USE, str(Path(__file__).parent)]
            subprocess.run(command, check=True, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"  {start:24s} {time.perf_counter() - wall:6.1f} s wall {cpu:6.1f} s CPU", flush=True)


COMMANDS = {
    "sweep": sweep,
    "models": models,
    "hard": hard,
    "whole": whole,
    "scaling": scaling,
    "compile": compile_kernels,
}


def main() -> None:
    """Run one measurement, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*COMMANDS, "all"], nargs="?", default="all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a small size: seconds instead of minutes")
    given = parser.parse_args()
    for name, command in COMMANDS.items():
        if given.what in (name, "all"):
            print(f"== {name}")
            command(given.threads, given.quick)


if __name__ == "__main__":
    main()
