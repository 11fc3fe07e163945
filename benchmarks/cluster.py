"""What a cluster costs beside its tasks: calibrations on worker processes against the same ones done in this process.

    python benchmarks/cluster.py --responses 1000000 --periods 2

Simulates periods and calibrates each twice, with as many threads: in this process, one after the other, as `concal add`
does it, to the finished tables; and as jobs of a cluster on this machine, from submitting to having the tables here.
`ratio` is the seconds of the cluster times its workers over the sum of the tasks, `cpu_ratio` the same in CPU seconds
of all processes, which does not depend on what else the machine does. Either side begins with nothing loaded. The draws
of both are compared.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from concal.bank.bank import Bank
from concal.bank.building.progress import Clock
from concal.bank.jobs.calibrating import Task, calibrate_on_shelf
from concal.bank.jobs.cluster import calibrate_there, connected
from concal.bank.store.store import Store
from concal.bank.tables.calibration import read_calibration
from concal.calibration.period import calibrate_period
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


def task_of(store: Store, data: PeriodData, spec: Spec) -> Task:
    """A period's calibration and its shelf."""
    return Task.of(store, data, spec, 1, calibrate_period)


def draws_of(task: Task) -> np.ndarray:
    """From the finished tables."""
    files = task.shelf.finished()
    assert files is not None
    return read_calibration(task.shelf.reader(files)).groups["g"].xi


def alone(store: Store, periods: list[PeriodData], spec: Spec) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The tasks in this process, one after the other."""
    seconds, cpu, draws = [], time.process_time(), []
    for data in periods:
        start = time.perf_counter()
        task = task_of(store, data, spec)
        calibrate_on_shelf(task, calibrate_period, progress=None)
        seconds.append(time.perf_counter() - start)
        draws.append(draws_of(task))
    return {"task_seconds": [round(s, 2) for s in seconds], "task_cpu": time.process_time() - cpu}, draws


def on_workers(
    client: Any, store: Store, periods: list[PeriodData], spec: Spec
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The same as jobs; the workers have loaded nothing of concal before."""
    before = sum(client.run(time.process_time).values())
    start, cpu = time.perf_counter(), time.process_time()
    with connected(client, store):
        tasks = {data.period: task_of(store, data, spec) for data in periods}
        calibrate_there(client, store, tasks, Clock(None))
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    cpu += sum(client.run(time.process_time).values()) - before
    return {"cluster_seconds": round(wall, 2), "cluster_cpu": cpu}, [draws_of(task) for task in tasks.values()]


def main() -> None:
    """Run one backlog."""
    import distributed

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=1_000_000, help="Per period.")
    parser.add_argument("--periods", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="Of a task, on either side.")
    parser.add_argument("--max-sweeps", type=int, help="On either side; default: until the targets are met.")
    given = parser.parse_args()
    content: dict[str, Any] = {"bank": {"dimensions": ["ability"]}}
    content["groups"] = {"g": {"model": "2pl", "dimension": "ability"}}
    content["calibration"] = {"threads": given.threads}
    if given.max_sweeps:
        content["calibration"]["max_sweeps"] = given.max_sweeps
    spec = Spec.parse(content)
    periods = [simulate(f"P{k}", given.responses, k) for k in range(given.periods)]
    with tempfile.TemporaryDirectory() as folder:
        one, here = alone(Bank.create(Path(folder) / "alone", spec)._store, periods, spec)
        print(json.dumps(one), flush=True)
        with (
            distributed.LocalCluster(
                n_workers=given.workers, threads_per_worker=given.threads, processes=True, dashboard_address=None
            ) as local,
            distributed.Client(local) as client,
        ):
            two, there = on_workers(client, Bank.create(Path(folder) / "cluster", spec)._store, periods, spec)
    assert all((mine == theirs).all() for mine, theirs in zip(here, there, strict=True)), "the same to the bit"
    ratios = {
        "ratio": round(two["cluster_seconds"] * given.workers / sum(one["task_seconds"]), 3),
        "cpu_ratio": round(two["cluster_cpu"] / one["task_cpu"], 3),
    }
    print(json.dumps({**vars(given), **one, **two, **ratios}))


if __name__ == "__main__":
    main()
