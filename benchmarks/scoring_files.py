"""Scoring from a bank on disk: how quickly a scorer is there, and whether memory depends on the number of examinees.

    python benchmarks/scoring_files.py [--examinees 100000 300000 1000000] [--items 20000] [--only live stream]

The bank has two dimensions and synthetic draws. `live` makes a scorer in a fresh process; `stream` scores Parquet files
of 30 responses an examinee with `concal score`, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from bank import calibration as one_dimension

from concal.bank.bank import Bank
from concal.calibration.result import Calibration
from concal.spec import Spec

DIMENSIONS = ("reading", "writing")
SPEC = Spec.parse(
    {
        "bank": {"dimensions": list(DIMENSIONS)},
        "groups": {name: {"model": "2pl", "dimension": name} for name in DIMENSIONS},
        "consensus": {"method": "analytic"},
    }
)
LIVE = """
import json, sys, time
import concal
asked = json.loads(sys.stdin.read())
bank = concal.Bank(sys.argv[1])
bank.at("live").scorer(items=sys.argv[2]).score(asked[0])  # imports and compiled code are there
cpu, clock = time.process_time(), time.perf_counter()
scorer = concal.Bank(sys.argv[1]).at("live").scorer(items=sys.argv[2])
made = time.process_time() - cpu, time.perf_counter() - clock
each = []
for responses in asked:
    clock = time.perf_counter()
    scorer.score(responses)
    each.append(time.perf_counter() - clock)
each.sort()
print(json.dumps([*made, each[len(each) // 2], each[len(each) * 95 // 100]]))
"""


def make_bank(path: Path, n_items: int) -> Bank:
    """One period with draws around fixed locations."""
    groups = {}
    for k, name in enumerate(DIMENSIONS):
        made = one_dimension("2026Q1", n_items // 2, 200, k)
        own = made.groups["vocabulary"]
        ids = tuple(f"{name}-{item}" for item in own.item_ids)
        groups[name] = type(own)(**{**vars(own), "name": name, "dimension": name, "item_ids": ids})
    prior = {name: 0.01 * np.eye(1) for name in DIMENSIONS}
    whole = Calibration("2026Q1", DIMENSIONS, groups, None, made.convergence, 0.01, prior, 1, "benchmark")
    bank = Bank.create(path, SPEC)
    bank.add_calibration(whole)
    bank.release("live")
    return bank


def write_responses(bank: Bank, path: Path, examinees: int, seed: int = 1, block: int = 100_000) -> None:
    """30 random items each, right or wrong by a coin."""
    ids = bank.parameters()["item_id"]
    rng = np.random.default_rng(seed)
    writer = None
    for first in range(0, examinees, block):
        n = min(block, examinees - first)
        start = rng.integers(0, ids.len(), (n, 1))
        item = (start + 613 * np.arange(30)) % ids.len()
        frame = pl.DataFrame(
            {
                "person_id": pl.Series(np.repeat(np.arange(first, first + n), 30)).cast(pl.String).str.zfill(9),
                "item_id": ids.gather(item.ravel()),
                "score": rng.integers(0, 2, n * 30).astype(np.float64),
            }
        ).to_arrow()
        writer = writer or pq.ParquetWriter(path, frame.schema, compression="zstd")
        writer.write_table(frame)
    if writer is not None:
        writer.close()


def live(bank: Bank) -> None:
    """Seconds until a scorer is there, and milliseconds an examinee."""
    ids = bank.parameters()["item_id"].to_list()
    rng = np.random.default_rng(2)
    asked = [{ids[j]: float(rng.integers(2)) for j in rng.choice(len(ids), 30, replace=False)} for _ in range(300)]
    for level in ("mean", "soft"):
        command = [sys.executable, "-c", LIVE, str(bank.path), level]
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True)
        cpu, clock, middle, slow = json.loads(done.stdout)
        print(
            f"scorer of {len(ids):,} items from disk, {level}: {cpu:.2f} CPU s, {clock:.2f} s; an examinee "
            f"{1e3 * middle:.2f} ms (95 %: {1e3 * slow:.2f})",
            flush=True,
        )


def stream(bank: Bank, folder: Path, examinees: list[int]) -> None:
    """Peak memory of `concal score` by number of examinees."""
    for n in examinees:
        responses = folder / "responses.parquet"
        write_responses(bank, responses, n)
        command = [sys.executable, "-m", "concal.cli", "score", str(bank.path), str(responses), "--at", "live"]
        clock = time.perf_counter()
        child = subprocess.Popen([*command, "--to", str(folder / "scores.parquet")], stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        clock = time.perf_counter() - clock
        assert status == 0
        print(
            f"{n:,} examinees, {responses.stat().st_size / 2**20:,.0f} MiB of Parquet: "
            f"peak {usage.ru_maxrss / 1024:,.0f} MiB, {usage.ru_utime + usage.ru_stime:.1f} CPU s, {clock:.1f} s",
            flush=True,
        )


def main() -> None:
    """Make the bank, then the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examinees", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--only", nargs="+", choices=("live", "stream"), default=("live", "stream"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bank = make_bank(Path(folder) / "bank", given.items)
        if "live" in given.only:
            live(bank)
        if "stream" in given.only:
            stream(bank, Path(folder), given.examinees)


if __name__ == "__main__":
    main()
