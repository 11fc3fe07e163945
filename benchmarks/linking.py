"""How fast a link is: against PyPI mirt in the same run, against a bare loop, and a whole programme.

Usage: python benchmarks/linking.py [--quick] [--json FILE]

mirt is installed into an environment of its own in a temporary folder (--mirt PYTHON uses an existing one). Times are
CPU milliseconds per link on one thread (so a busy machine matters less), the smallest of several rounds, and wall
milliseconds on two. sirt's times are figures measured once elsewhere on a machine of the same kind; its ratios are
marked so. Every package solves the same links: 2PL anchors, 61 nodes on [-4, 4], normal weights, nodes on the reference
metric.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from concal import compiler
from concal.calibration.result import Calibration, Convergence, GroupDraws
from concal.compiler import LANES, call_curve, kernel
from concal.linking import kernels
from concal.linking.criteria import Anchors, make_loss, make_quadrature
from concal.linking.period import link
from concal.linking.solve import Criterion, solve
from concal.metric import move_items
from concal.response import make_model
from concal.spec import LinkingSpec

SIRT_ROBUST_MS = {1000: 184.0, 5000: 1286.0}  # CPU ms per link, sirt's robust loss, 61 nodes, one thread
NODES = np.linspace(-4.0, 4.0, 61)
put: Any = compiler.put
row: Any = compiler.row

MIRT = """
import json, sys, time
import numpy as np
from mirt.equating import link
from mirt.models import TwoParameterLogistic
data = np.load(sys.argv[1])
ref, foc, rounds = data["ref"], data["foc"], int(sys.argv[2])
n = ref.shape[1]
def model(xi):
    m = TwoParameterLogistic(n_items=n)
    m.set_parameters(discrimination=np.exp(xi[:, 1]), difficulty=xi[:, 0])
    m._is_fitted = True
    return m
pairs = [(model(r), model(f)) for r, f in zip(ref, foc)]
items = list(range(n))
def one(pair):
    return link(*pair, items, items, method="haebara", theta_range=(-4.0, 4.0), n_theta=61, compute_diagnostics=False)
one(pairs[0])
best = np.inf
for _ in range(rounds):
    t = time.process_time()
    answers = [one(p) for p in pairs]
    best = min(best, (time.process_time() - t) / len(pairs))
print(json.dumps({"ms": 1e3 * best, "A": [a.constants.A for a in answers], "B": [a.constants.B for a in answers]}))
"""


def some_draws(n_anchors: int, n_draws: int, seed: int = 1) -> Anchors:
    """Draws of anchors on two metrics, noise as some hundred responses per item leave it."""
    model = make_model("2pl")
    rng = np.random.default_rng(seed)
    xi = np.stack([rng.normal(size=n_anchors), 0.3 * rng.normal(size=n_anchors)], axis=-1)
    ref = xi + 0.1 * rng.normal(size=(n_draws, n_anchors, 2))
    foc = move_items(xi, 1 / 1.2, -0.4) + 0.1 * rng.normal(size=(n_draws, n_anchors, 2))
    return Anchors(model, model, ref, foc, np.ones(n_anchors))


def some_period(name: str, n_anchors: int, n_draws: int, seed: int) -> Calibration:
    """A calibration with two dimensions of 2PL anchors; all periods see the same items."""
    model, groups = make_model("2pl"), {}
    for k, dimension in enumerate(("x", "y")):
        truth = np.random.default_rng(k).normal(size=(n_anchors, 2)) * (1.0, 0.3)
        rng = np.random.default_rng([seed, k])
        xi = truth + 0.1 * rng.standard_normal((4, n_draws // 4, n_anchors, 2), dtype=np.float32)
        fine = np.ones((n_anchors, 2))
        ids = tuple(f"{dimension}{i}" for i in range(n_anchors))
        beta, sigma = np.zeros((4, n_draws // 4, 1, 2)), np.tile(np.eye(2), (4, n_draws // 4, 1, 1))
        counts = rng.integers(50, 500, n_anchors)
        groups[dimension] = GroupDraws(
            dimension, dimension, model, ids, ("Intercept",), fine[:, :1], xi.astype(np.float32), beta, sigma, counts,
            fine, fine, fine,
        )  # fmt: skip
    reached = Convergence(True, 0, 0, 1, 0.0, 1.0, 1e3, 1.0)
    return Calibration(name, ("x", "y"), groups, None, reached, 0.01, {}, seed)


def best(function: Any, rounds: int, clock: Any) -> float:
    """Seconds of the fastest of some rounds."""
    function()
    times = []
    for _ in range(rounds):
        begin = clock()
        function()
        times.append(clock() - begin)
    return min(times)


@kernel
def bare_loop(tag: Any, par: Any, omega: Any, nodes: Any, fixed: Any, eps: float) -> float:
    """The same curve and loss evaluations, and nothing else: one running sum in a register."""
    S, n, P = par.shape
    blocks = nodes.shape[0] // LANES
    grid = nodes.reshape(blocks, LANES)
    rows = fixed.reshape(S, n, blocks, LANES)
    scratch = np.empty((1, P, LANES), np.float32)
    out = np.zeros((1, LANES), np.float32)
    total = compiler.splat(np.float32(0.0))
    for s in range(S):
        for j in range(n):
            for k in range(P):
                put(scratch, (0, k), par[s, j, k])
            a, d = par[s, j, 0], par[s, j, 1]
            for b in range(blocks):
                level, rise = call_curve(tag, (row(grid, (b,)) - d) * a, (scratch, 0))
                r = row(rows, (s, j, b)) - level
                total = total + omega[j] * r * rise / compiler.lane_sqrt(r * r + np.float32(eps))
    put(out, (0,), total)
    return out.sum()


def bare_nanoseconds(block: Anchors, rounds: int) -> tuple[float, float]:
    """Nanoseconds per evaluation of the bare loop and of the kernel, on the same draws."""
    model, n_draws, n = block.ref_model, block.n_draws, block.omega.size
    par = model.kernel_parameters(block.foc).astype(np.float32)
    nodes = kernels.pad_nodes(NODES).astype(np.float32)
    fixed = np.empty((n_draws, n, nodes.size), np.float32)
    kernels.fixed_curves(model.tag, model.kernel_parameters(block.ref).astype(np.float32), nodes, fixed)
    omega, which = block.omega.astype(np.float32), np.arange(n_draws)
    moved = np.repeat(nodes[None], n_draws, axis=0)
    out = np.zeros((3, n_draws, nodes.size))
    evaluations = n_draws * n * NODES.size
    clock = time.process_time
    bare = best(lambda: bare_loop(model.tag, par, omega, nodes, fixed, 0.0025), rounds, clock)
    full = best(
        lambda: kernels.curve_sums(model.tag, par, omega, moved, fixed, which, kernels.ROOT, 0.0025, out), rounds, clock
    )
    return 1e9 * bare / evaluations, 1e9 * full / evaluations


def mirt_python(folder: Path) -> str:
    """An interpreter with mirt, in an environment of its own."""
    venv.create(folder / "mirt", with_pip=True)
    python = str(folder / "mirt" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "mirt"], check=True)
    return python


def run_mirt(python: str, block: Anchors, rounds: int, folder: Path) -> dict[str, Any]:
    """Mirt's Haebara links of the block's draws."""
    np.savez(folder / "draws.npz", ref=block.ref, foc=block.foc)
    command = [python, "-c", MIRT, str(folder / "draws.npz"), str(rounds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Measure, print, and say which goals were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no whole programme")
    parser.add_argument("--mirt", help="interpreter that has mirt")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds = 3 if options.quick else 7
    squared = Criterion("haebara", make_loss("squared"), make_quadrature(NODES))
    robust = Criterion("haebara", make_loss("pseudo_huber"), make_quadrature(NODES))
    results: dict[str, Any] = {}
    missed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = options.mirt or mirt_python(folder)
        for n in (100, 1000, 5000):
            block = some_draws(n, 64)
            few = Anchors(block.ref_model, block.foc_model, block.ref[:6], block.foc[:6], block.omega)
            mirt = run_mirt(python, few, rounds, folder)
            ours = solve([few], squared)
            difference = max(np.abs(ours.A - mirt["A"]).max(), np.abs(ours.B - mirt["B"]).max())
            if difference > 1e-5:
                sys.exit(f"the two programs disagree by {difference:.1e}: not the same criterion")
            line: dict[str, float] = {"mirt_squared_ms": mirt["ms"]}
            for label, criterion in (("squared", squared), ("robust", robust)):
                one = best(lambda c=criterion, b=block: solve([b], c, threads=1), rounds, time.process_time)
                two = best(lambda c=criterion, b=block: solve([b], c, threads=2), rounds, time.perf_counter)
                line[f"{label}_ms"] = 1e3 * one / block.n_draws
                line[f"{label}_two_threads_wall_ms"] = 1e3 * two / block.n_draws
            line["times_mirt"] = line["mirt_squared_ms"] / line["squared_ms"]
            if n in SIRT_ROBUST_MS:
                line["times_sirt_robust_elsewhere"] = SIRT_ROBUST_MS[n] / line["robust_ms"]
                if line["times_mirt"] < 30:
                    missed.append(f"{n} anchors: {line['times_mirt']:.0f} x mirt instead of 30 x")
                if line["times_sirt_robust_elsewhere"] < 60:
                    missed.append(f"{n} anchors: {line['times_sirt_robust_elsewhere']:.0f} x sirt instead of 60 x")
            bare, full = bare_nanoseconds(block, rounds)
            line |= {"bare_ns": bare, "kernel_ns": full, "kernel_share_of_bare": bare / full}
            if n >= 1000 and bare / full < 0.5:
                missed.append(f"{n} anchors: kernel at {100 * bare / full:.0f} % of the bare loop instead of 50 %")
            results[f"{n} anchors"] = line
            print(f"{n} anchors:", ", ".join(f"{k} {v:.3g}" for k, v in line.items()), flush=True)
    if not options.quick:
        reference, *periods = (some_period(f"p{k}", 3000, 1000, k) for k in range(4))
        begin = time.perf_counter()
        for period in periods:
            link(period, reference, spec=LinkingSpec(purify_rounds=0), threads=2)
        seconds = time.perf_counter() - begin
        results["programme_seconds"] = seconds
        print(f"1,000 draws x 3 periods x 2 dimensions x 3,000 anchors: {seconds:.1f} s on two threads")
        if seconds > 30:
            missed.append(f"the programme took {seconds:.0f} s instead of 30 s")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    for text in missed:
        print("missed:", text)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
