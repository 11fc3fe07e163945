"""What a cluster costs beside its tasks: a backlog on worker processes against the sum of its calibrations.

    python benchmarks/cluster.py --responses 1000000 --periods 2 --workers 1

Simulates periods, calibrates them as jobs on worker processes, and prints the seconds from submitting to having the
finished tables here, the seconds the engine says it sampled, and their ratio. With one worker of as many threads as the
machine has cores, what is over 1 is the cost of jobs: writing and reading the data, the tables, the scheduler.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from concal.bank.bank import Bank
from concal.bank.tables.calibration import read_calibration
from concal.bank.update.cluster import check_workers, run_jobs
from concal.bank.update.job import write_job
from concal.bank.update.progress import Clock
from concal.bank.update.shelf import Shelf
from concal.data.period import GroupData, PeriodData
from concal.response import make_model
from concal.spec import Spec

PER_EXAMINEE = 30


def simulate(period: str, responses: int, seed: int) -> PeriodData:
    """One 2pl period: 30 responses an examinee, 300 an item."""
    rng, model = np.random.default_rng(seed), make_model("2pl")
    examinees, items = responses // PER_EXAMINEE, max(PER_EXAMINEE, responses // 300)
    xi = np.column_stack([rng.normal(0, 1, items), rng.normal(0, 0.3, items)])
    theta = rng.normal(size=examinees)
    start = rng.integers(0, items, examinees)
    item = ((start[:, None] + np.arange(PER_EXAMINEE) * max(1, items // PER_EXAMINEE)) % items).ravel().astype(np.int32)
    person = np.repeat(np.arange(examinees, dtype=np.int32), PER_EXAMINEE)
    score = model.simulate(theta[person], xi[item], rng)
    ids = tuple(f"i{j:06d}" for j in range(items))
    group = GroupData("g", "ability", model, ids, ("1",), np.ones((items, 1)), person, item, score)
    persons = pl.Series("person_id", [f"{period}-{i}" for i in range(examinees)])
    return PeriodData(period, ("ability",), persons, {"g": group}, (period,), np.zeros(examinees, np.int32))


def main() -> None:
    """Run one backlog."""
    import distributed

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=1_000_000, help="Per period.")
    parser.add_argument("--periods", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    content = {"bank": {"dimensions": ["ability"]}, "groups": {"g": {"model": "2pl", "dimension": "ability"}}}
    spec = Spec.parse(content)
    threads = max(1, (os.cpu_count() or 1) // given.workers)
    with (
        tempfile.TemporaryDirectory() as folder,
        distributed.LocalCluster(
            n_workers=given.workers, threads_per_worker=threads, processes=True, dashboard_address=None
        ) as local,
        distributed.Client(local) as client,
    ):
        store = Bank.create(Path(folder) / "bank", spec)._store
        data = [simulate(f"P{k}", given.responses, k) for k in range(given.periods)]
        check_workers(client, store)
        start = time.perf_counter()
        jobs = {d.period: write_job(store, d, spec, 1) for d in data}
        run_jobs(client, store, jobs, Clock(None))
        wall = time.perf_counter() - start
        sampling = []
        for period, name in jobs.items():
            shelf = Shelf(store, period, name.removeprefix("job-"))
            files = shelf.finished()
            assert files is not None
            sampling.append(read_calibration(shelf.reader(files)).convergence.seconds)
            shelf.release()
        found = {
            "responses": given.responses,
            "periods": given.periods,
            "workers": given.workers,
            "threads": threads,
            "wall_seconds": round(wall, 2),
            "sampling_seconds": [round(s, 2) for s in sampling],
            "ratio": round(wall * given.workers / sum(sampling), 3),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()
