"""Is this machine fit for concal: versions, threads, kernel cache, disk, and a calibration that must come out right."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from concal.calibration.period import calibrate
from concal.calibration.result import Calibration
from concal.calibration.workers import available_cores
from concal.compiler import cache_folder
from concal.errors import counted
from concal.simulate import simulate_programme
from concal.spec import Spec

NEEDED_GB = 2.0
"""Free disk below which a check fails: a period of operational size takes .3 GB, its checkpoint as much again."""
LEAST_R = 0.9  # of the self test's d with the truth; its programme and seed are fixed and give .98
SELF_TEST: dict[str, Any] = {
    "bank": {"name": "self test", "dimensions": ["theta"]},
    "groups": {"items": {"model": "2pl", "dimension": "theta"}},
    "calibration": {"draws": 200, "min_ess": 20.0, "max_rhat": 1.2, "item_share": 0.5, "max_sweeps": 400},
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: its name, whether it is as it should be, and what was seen."""

    name: str
    ok: bool
    seen: str


def examine(folder: Path) -> list[Finding]:
    """Everything; `folder` is where a bank would be written."""
    return [_python(), *_packages(), _threads(), _cache(), _disk(folder), _self_test()]


def _python() -> Finding:
    seen = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding("python", sys.version_info >= (3, 11), seen)


def _packages() -> list[Finding]:
    """The packages concal cannot do without, within the versions it was tested with."""
    from packaging.requirements import Requirement

    found = []
    for line in requires("concal") or []:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            have = version(wanted.name)
        except PackageNotFoundError:
            found.append(Finding(wanted.name, False, f"not installed, needs {wanted.specifier}"))
            continue
        ok = wanted.specifier.contains(have, prereleases=True)
        found.append(Finding(wanted.name, ok, have if ok else f"{have}, tested with {wanted.specifier}"))
    return found


def _threads() -> Finding:
    cores = os.cpu_count() or 1
    usable = available_cores()
    few = "" if usable == cores else f"; {usable} of them may be used by this process, and are"
    return Finding("threads", True, f"{counted(cores, 'core')}{few}")


def _cache() -> Finding:
    folder = cache_folder()
    if folder is None:
        return Finding("kernel cache", False, "no folder can be written: every run compiles anew; set XDG_CACHE_HOME")
    files = [p for p in folder.rglob("*") if p.is_file()]
    size = sum(p.stat().st_size for p in files) / 1e6
    state = (
        f"{counted(len(files), 'file')}, {size:.0f} MB"
        if files
        else "empty: the first calibration compiles for about a minute"
    )
    return Finding("kernel cache", True, f"{folder} ({state})")


def _disk(folder: Path) -> Finding:
    place = next(p for p in (folder.resolve(), *folder.resolve().parents) if p.exists())
    free = shutil.disk_usage(place).free / 1e9
    writable = os.access(place, os.W_OK)
    seen = f"{free:,.1f} GB free at {place}" + ("" if writable else ", which cannot be written")
    return Finding("disk", writable and free >= NEEDED_GB, seen)


def _self_test() -> Finding:
    """A small calibration recovers the truth, and one thread draws what all threads draw."""
    programme = simulate_programme(
        Spec.parse(SELF_TEST), periods=1, items=30, examinees=500, responses_per_examinee=20, seed=1
    )
    period, responses = next(iter(programme.responses.items()))
    start = time.perf_counter()
    fits = [_fit(responses, programme.items, threads) for threads in (1, None)]
    seconds = time.perf_counter() - start
    one, every = (fit.groups["items"] for fit in fits)
    same = np.array_equal(one.xi, every.xi)
    d = pl.DataFrame({"item_id": one.item_ids, "d": one.xi[..., 0].mean(axis=(0, 1)).astype(float)})
    truth = programme.truth.items.filter((pl.col("parameter") == "d") & (pl.col("period") == period))
    both = d.join(truth, on="item_id")
    r = float(np.corrcoef(both["d"], both["value"])[0, 1])
    seen = f"{seconds:.1f} s; r = {r:.3f} with the truth; threads {'agree' if same else 'DISAGREE'}"
    return Finding("self test", same and r > LEAST_R, seen)


def _fit(responses: pl.DataFrame, items: pl.DataFrame, threads: int | None) -> Calibration:
    spec = Spec.parse({**SELF_TEST, "calibration": {**SELF_TEST["calibration"], "threads": threads}})
    return calibrate(responses, items, spec, period="self-test", seed=1)
