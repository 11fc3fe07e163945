"""Run as a program: updates that are killed, and writers that compete. Prints one JSON object.

A process that has imported everything forks one child per update, so that a kill costs about a second. The parent
itself never touches a bank's tables: the threads of those who read them do not survive a fork.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pandas  # noqa: F401 (pyarrow looks for it on first use)
from places import copy_bank
from programme import SPEC, fake_calibrator, items_table, responses_table

from concal.bank.bank import Bank
from concal.bank.store import cloud, files, folders, parquet, shelf, transaction
from concal.bank.store.store import Store
from concal.linking.criteria import Anchors, make_loss, make_quadrature
from concal.linking.solve import Criterion, solve

Place = Path | str


def load_kernels() -> None:
    """What a link compiles, loaded once: kills are to hit the update, not the half second in which numba starts."""
    rng, criterion = np.random.default_rng(1), Criterion("haebara", make_loss("pseudo_huber"), make_quadrature())
    for group in SPEC.groups.values():
        model = group.response_model
        xi = rng.normal(0, 0.5, (2, 4, len(model.parameters))).astype(np.float32)
        for exact in (False, True):
            solve([Anchors(model, model, xi, xi + xi[::-1] / 9, np.ones(4))], criterion, exact=exact, threads=1)


def add(path: Place, k: int) -> None:
    """The update under test: period k, everything but the sampling."""
    period = f"P{k}"
    responses = responses_table(period, 2 * (k % 3))
    Bank(path).add(period, responses, items_table(), calibrator=fake_calibrator)


def digest(bank: Bank) -> str:
    """Hash of all numbers a user sees."""
    h = hashlib.sha256()
    for group in bank.consensus().groups.values():
        h.update(group.mean.tobytes() + group.covariance.tobytes())
    for name in bank.period_names:
        for group in bank.calibration(name).groups.values():
            h.update(name.encode() + group.xi.tobytes())
    return h.hexdigest()


def forked(work: Callable[[], Any]) -> tuple[int, int]:
    """Start `work` in a child; returns its pid and a pipe with its JSON result."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    status = 1
    try:
        os.close(read)
        os.write(write, json.dumps(work()).encode())
        status = 0
    except BaseException as error:
        os.write(write, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(status)


def finish(pid: int, pipe: int) -> Any:
    """Wait for a child; None when it was killed."""
    with os.fdopen(pipe, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    result = json.loads(data) if data else None
    if isinstance(result, dict) and "error" in result:
        raise SystemExit(f"child failed: {result['error']}")
    return result


def look(path: Place) -> dict[str, Any]:
    """State of a bank: version, numbers, damage, left-overs."""
    bank = Bank(path)
    found = bank.verify()
    return {"version": bank.version, "digest": digest(bank), "problems": found.problems, "unknown": found.unknown}


def after_kill(path: Place) -> dict[str, Any]:
    """What a kill left, then the same update again, then what is left."""
    first = look(path)
    if first["version"] == 2:
        add(path, 2)
    second = look(path)
    left = sorted(p.name.split("-")[0] for p in Store.open(path).work.iterdir())
    return {"first": first, "second": second, "work": left}


def crash_points(path: Place, stop: int) -> None:
    """Run the update, dying at the `stop`-th touch of the disk or the storage."""
    count = 0

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == stop:
                os._exit(9)
            result = function(*args, **kwargs)
            count += 1
            if count == stop:
                os._exit(9)
            return result

        return call

    os.link, os.rename, os.replace = dying(os.link), dying(os.rename), dying(os.replace)
    cloud.CloudObjects._tried = dying(cloud.CloudObjects._tried)  # type: ignore[method-assign]
    for module in (files, folders, shelf):
        module.sync_folder = dying(module.sync_folder)  # type: ignore[attr-defined]
    files.sync_file = dying(files.sync_file)
    for module in (folders, shelf, parquet):
        module.write_durably = dying(module.write_durably)  # type: ignore[attr-defined]
    transaction.Transaction.finish = dying(transaction.Transaction.finish)  # type: ignore[method-assign]
    add(path, 2)


def fresh(base: Path, place: Place, k: int) -> Place:
    """The template once more, where nothing was before."""
    if isinstance(place, str):
        finish(*forked(lambda: str(copy_bank(base, f"{place}/run{k}"))))
        return f"{place}/run{k}"
    shutil.rmtree(place / "bank", ignore_errors=True)
    return Path(shutil.copytree(base, place / "bank"))


def clear(place: Place) -> None:
    """Remove a bank that was looked at: some servers list a prefix by going through all there is."""
    if isinstance(place, str):
        objects: Any = Store.open(place).objects
        objects.delete([file.name for file in objects.files("")])


def template(folder: Path, place: Place) -> tuple[Path, dict[str, Any], dict[str, Any], float]:
    """A bank with two periods; its state, the state after the third, and how long adding that takes."""
    base = folder / "template"

    def build() -> dict[str, Any]:
        Bank.create(base, SPEC)
        add(base, 0)
        add(base, 1)
        return look(base)

    old = finish(*forked(build))
    done = fresh(base, place, 0)
    start = time.perf_counter()
    finish(*forked(lambda: add(done, 2)))
    seconds = time.perf_counter() - start
    return base, old, finish(*forked(lambda: look(done))), seconds


def judge(result: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> str:
    """Old or new; anything else ends the drill."""
    first, second = result["first"], result["second"]
    state = {old["digest"]: "old", new["digest"]: "new"}.get(first["digest"])
    expected = {"old": old["version"], "new": new["version"]}
    if state is None or first["version"] != expected[state] or first["problems"]:
        raise SystemExit(f"mixed state: {first}")
    if second["digest"] != new["digest"] or second["problems"] or second["unknown"]:
        raise SystemExit(f"next update: {second}")
    if result["work"] and state == "old":
        raise SystemExit(f"left in work after the next update: {result['work']}")
    return state


def kills(folder: Path, place: Place, n: int, seed: int) -> dict[str, Any]:
    """Kill -9 at random moments, until n updates were killed; how long one lasts is learnt from those that were not."""
    base, old, new, seconds = template(folder, place)
    rng = random.Random(seed)
    counts = {"old": 0, "new": 0, "mixed": 0, "killed": 0, "survived": 0, "left_in_data": 0}
    while counts["killed"] < n:
        path = fresh(base, place, counts["killed"] + counts["survived"] + 1)
        pid, pipe = forked(lambda path=path: add(path, 2))  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, seconds))
        os.kill(pid, signal.SIGKILL)
        os.close(pipe)
        killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        counts["killed" if killed else "survived"] += 1
        seconds *= 1.02 if killed else 0.9
        result = finish(*forked(lambda path=path: after_kill(path)))  # type: ignore[misc]
        counts[judge(result, old, new)] += 1
        counts["left_in_data"] += bool(result["first"]["unknown"])
        finish(*forked(lambda path=path: clear(path)))  # type: ignore[misc]
        print(counts, file=sys.stderr, flush=True)
    return {**counts, "seconds": seconds}


def every_step(folder: Path, place: Place, stride: int, first: int = 1) -> dict[str, Any]:
    """Die before and after every touch of the disk or the storage, one run each."""
    base, old, new, _ = template(folder, place)
    counts = {"old": 0, "new": 0, "steps": 0}
    stop = first
    while True:
        path = fresh(base, place, stop)
        pid, pipe = forked(lambda path=path, stop=stop: crash_points(path, stop))  # type: ignore[misc]
        os.close(pipe)
        survived = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 9
        result = finish(*forked(lambda path=path: after_kill(path)))  # type: ignore[misc]
        counts[judge(result, old, new)] += 1
        if survived:
            return counts  # the last run had no such step and must have ended with the new version
        counts["steps"] += 1
        finish(*forked(lambda path=path: clear(path)))  # type: ignore[misc]
        stop += stride


def writers(folder: Path, place: Place, n_writers: int, n_commits: int) -> dict[str, Any]:
    """Writers that compete, a reader that looks on, and the same periods in sequence."""
    path: Place = f"{place}/bank" if isinstance(place, str) else place / "bank"
    alone = folder / "alone"

    def start(bank: Place) -> None:
        Bank.create(bank, SPEC)
        add(bank, 0)

    finish(*forked(lambda: start(path)))
    jobs = [[1 + w + n_writers * c for c in range(n_commits)] for w in range(n_writers)]

    def write(mine: list[int]) -> int:
        for k in mine:
            add(path, k)
        return len(mine)

    def watch() -> int:
        looks = 0
        while not (folder / "stop").exists():
            bank = Bank(path)
            consensus = bank.consensus()
            assert sorted(consensus.periods) == sorted(bank.period_names), "a reader saw two versions at once"
            looks += 1
        return looks

    watcher = forked(watch)
    started = time.perf_counter()
    running = [forked(lambda mine=mine: write(mine)) for mine in jobs]  # type: ignore[misc]
    done = sum(finish(*child) for child in running)
    seconds = time.perf_counter() - started
    (folder / "stop").touch()
    looks = finish(*watcher)

    def sequence() -> dict[str, Any]:
        start(alone)
        for k in range(1, 1 + n_writers * n_commits):
            add(alone, k)
        one, two = Bank(path), Bank(alone)
        mine, theirs = one.consensus(), two.consensus()
        worst = 0.0
        for name, group in theirs.groups.items():
            place = {item: j for j, item in enumerate(mine.groups[name].item_ids)}
            rows = [place[item] for item in group.item_ids]
            worst = max(worst, float(np.abs(mine.groups[name].mean[rows] - group.mean).max()))
            worst = max(worst, float(np.abs(mine.groups[name].covariance[rows] - group.covariance).max()))
        found = one.verify()
        return {"periods": len(one.period_names), "worst": worst, "problems": found.problems, "unknown": found.unknown}

    return {"commits": done, "seconds": seconds, "looks": looks, **finish(*forked(sequence))}


if __name__ == "__main__":
    what, work, where, *numbers = sys.argv[1:]
    load_kernels()
    drill = {"kills": kills, "every_step": every_step, "writers": writers}[what]
    at = where if "://" in where else Path(where)
    print(json.dumps(drill(Path(work), at, *map(int, numbers))))
