"""100,000 examinees x 20,000 items, 30 responses each: time and memory, beside other packages on the same data.

Usage: python benchmarks/sparse_100k.py [--scale 1.0] [--peers PYTHON] [--only NAME ...] [--gib 8] [--minutes 20]

2pl, one dimension, 3M of 2,000M cells filled. Each program runs in a process of its own with a limit of address space
(`--gib`) and of time (`--minutes`), and gets the data in the smallest form its documented interface takes: concal a
long table, `mirt.fit_mirt` a matrix of int8 with -1 for not given, `theta.fit` a matrix of float32 with NaN, py-irt
JSON lines of given responses. `--peers` is the Python of an environment with `pip install mirt theta-irt py-irt`; what
it lacks is said. Printed: how each ended, seconds, CPU seconds, peak memory, and the correlation of estimated with true
difficulties. `--scale 0.01` takes a tenth of the examinees and of the items.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

PER_PERSON = 30
CONCAL = """
import concal, json, sys
spec = concal.Spec.parse({"bank": {"dimensions": ["x"]}, "groups": {"g": {"model": "2pl", "dimension": "x"}}})
found = concal.calibrate("responses.parquet", "items.parquet", spec)
group = found.groups["g"]
d = group.flat("xi")[:, :, 0].mean(axis=0)
print(json.dumps({"items": group.item_ids, "d": d.tolist(), "note": f"{found.convergence.sweeps} sweeps, converged: "
    f"{found.convergence.converged}, posterior means and SDs"}))
"""
MATRIX = """
import json, numpy as np
cells = np.load("cells.npz")
shape, person, item, score = tuple(cells["shape"]), cells["person"], cells["item"], cells["score"]
"""
MIRT = (
    MATRIX
    + """
import mirt
X = np.full(shape, -1, np.int8)
X[person, item] = score
fit = mirt.fit_mirt(X, "2PL", compute_standard_errors=False)
p = fit.model.parameters
print(json.dumps({"d": np.asarray(p["difficulty"]).ravel().tolist(), "note": "EM, no standard errors"}))
"""
)
THETA = (
    MATRIX
    + """
import theta
X = np.full(shape, np.nan, np.float32)
X[person, item] = score
fit = theta.fit(X, "2PL")
print(json.dumps({"d": np.asarray(fit.b).ravel().tolist(), "note": "EM, no standard errors"}))
"""
)
PY_IRT = """
import json
from py_irt.config import IrtConfig
from py_irt.dataset import Dataset
from py_irt.training import IrtModelTrainer
config = IrtConfig(model_type="2pl", epochs=1000, priors="hierarchical")
path = "responses.jsonlines"
trainer = IrtModelTrainer(config=config, data_path=path, dataset=Dataset.from_jsonlines(path))
trainer.train(device="cpu")
best = trainer.best_params
order = [int(best["item_ids"][k][1:]) for k in sorted(best["item_ids"])]
print()  # the progress display has left its line open
print(json.dumps({"items": [f"i{j}" for j in order], "d": list(best["diff"]), "note": "variational, 1,000 epochs"}))
"""
PROGRAMS = {"concal": CONCAL, "mirt": MIRT, "theta-irt": THETA, "py-irt": PY_IRT}


def main() -> None:
    """Simulate once, then run program after program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of cells")
    parser.add_argument("--peers", metavar="PYTHON", help="of an environment with the other packages")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--gib", type=float, default=8.0)
    parser.add_argument("--minutes", type=float, default=20.0)
    options = parser.parse_args()
    side = np.sqrt(options.scale)
    with tempfile.TemporaryDirectory() as name:
        truth = simulate(Path(name), round(100_000 * side), round(20_000 * side))
        print(f"{round(100_000 * side):,} examinees x {truth.size:,} items, {PER_PERSON} responses each; limits "
              f"{options.gib:g} GiB and {options.minutes:g} minutes")  # fmt: skip
        for program in options.only:
            python = sys.executable if program == "concal" else options.peers
            if python is None:
                print(f"{program:10s} not run: no --peers")
                continue
            print(f"{program:10s} {attempt(PROGRAMS[program], python, Path(name), truth, options)}", flush=True)


def simulate(folder: Path, n_persons: int, n_items: int) -> np.ndarray:
    """The same responses in the forms the programs read; returns the true difficulties."""
    rng = np.random.default_rng(1)
    d, a, theta = (
        rng.standard_normal(n_items),
        np.exp(0.3 * rng.standard_normal(n_items)),
        rng.standard_normal(n_persons),
    )
    stride = 1 + rng.integers(0, n_items // PER_PERSON - 1, n_persons)
    item = (rng.integers(0, n_items, n_persons)[:, None] + np.arange(PER_PERSON) * stride[:, None]) % n_items
    person, item = np.repeat(np.arange(n_persons), PER_PERSON), item.ravel()
    score = (rng.random(item.size) < 1.0 / (1.0 + np.exp(-a[item] * (theta[person] - d[item])))).astype(np.int8)
    names = pl.Series([f"i{j}" for j in range(n_items)])
    ids = pl.Series([f"p{i}" for i in range(n_persons)])
    pl.DataFrame({"person_id": ids[person], "item_id": names[item], "score": score}).write_parquet(
        folder / "responses.parquet"
    )
    pl.DataFrame({"item_id": names, "group": ["g"] * n_items}).write_parquet(folder / "items.parquet")
    np.savez(folder / "cells.npz", shape=np.array([n_persons, n_items]), person=person, item=item, score=score)
    with (folder / "responses.jsonlines").open("w") as file:
        for i in range(n_persons):
            mine = slice(i * PER_PERSON, (i + 1) * PER_PERSON)
            given = {f"i{j}": int(y) for j, y in zip(item[mine], score[mine], strict=True)}
            file.write(json.dumps({"subject_id": f"p{i}", "responses": given}) + "\n")
    return d


def attempt(script: str, python: str, folder: Path, truth: np.ndarray, options: argparse.Namespace) -> str:
    """Run one program within its limits; how it ended, in words."""
    limit = int(options.gib * 2**30)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [python, "-c", script],
        cwd=folder,
        text=True,
        stdout=(out := (folder / "out").open("w+")),
        stderr=(err := (folder / "err").open("w+")),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    peak, ended = 0.0, ""
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        if time.perf_counter() - start > 60.0 * options.minutes:
            process.kill()
            ended = f"stopped after {options.minutes:g} minutes"
        time.sleep(0.2)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cost = f"{time.perf_counter() - start:.0f} s, {cpu:.0f} CPU s, peak {peak:.2f} GiB"
    out.seek(0)
    err.seek(0)
    if process.returncode or ended:
        last = [line for line in err.read().splitlines() if line.strip()][-1:] or [f"exit code {process.returncode}"]
        return f"failed ({ended or last[0][:200]}); {cost}"
    said = json.loads(next(line for line in reversed(out.read().splitlines()) if line.startswith("{")))
    order = [int(name[1:]) for name in said["items"]] if "items" in said else np.arange(truth.size)
    r = np.corrcoef(truth[order], said["d"])[0, 1]
    return f"done: r with true d {r:.4f} ({said['note']}); {cost}"


def resident(pid: int) -> float:
    """Resident memory of a process in GiB, 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (OSError, IndexError):
        return 0.0


if __name__ == "__main__":
    main()
