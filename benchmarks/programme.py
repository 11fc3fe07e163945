"""An operational year through the public commands: what four large periods cost, stage by stage.

Usage: python benchmarks/programme.py [DIR] [--scale 0.1] [--periods 4] [--refit] [--table]

At scale 1 a period has 24,000 items in three formats on two dimensions, 200,000 examinees and 6M responses; 10 % of the
items are new every period, a third of them have few responses, 2 % drift. `concal simulate`, `concal init` and
`concal add` run as a user would run them, each in a process of its own. What they cost is kept in DIR/record.jsonl
step by step, so a run that was stopped goes on where it was (a calibration too: from its checkpoint; its CPU time is
then that of the last part). `--refit` fits the first k periods at once as well, k = 2, 3, ...: what an update replaces.
`--table` prints what is there.

Scale 0.1 takes a tenth of the items and of the examinees: as many responses an item, a tenth of the work.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STAGES = ("check", "calibrate", "link", "combine", "commit")
REFIT = """
import json, sys
import concal
from concal.cost import measure_cost
folder, periods = sys.argv[1], sys.argv[2:]
with measure_cost() as cost:
    fit = concal.fit_pooled(
        {p: f"{folder}/responses-{p}.csv" for p in periods}, f"{folder}/items.csv",
        concal.Spec.read(f"{folder}/bank.toml"), checkpoint=f"{folder}/pooled-{len(periods)}.npz",
        progress=lambda p: print(p.phase, p.sweep, p.expected_sweeps, file=sys.stderr),
    )
print(json.dumps({"sweeps": fit.convergence.sweeps, "converged": fit.convergence.converged, "peak_mib": cost.peak_mib}))
"""


class Record:
    """What was done, one JSON line a step."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "record.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.steps: dict[str, dict[str, Any]] = {step["step"]: step for step in map(json.loads, lines)}

    def run(self, name: str, command: list[str]) -> dict[str, Any]:
        """Do a step unless it was done; its last line of output is JSON."""
        if name in self.steps:
            return self.steps[name]
        print(f"{name}: {' '.join(command)}", flush=True)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        written = (after.ru_oublock - before.ru_oublock) / 2048  # blocks of 512 bytes
        cost = {
            "step": name,
            "seconds": seconds,
            "cpu_seconds": used,
            "written_mib": written,
        }
        self.steps[name] = cost | {"said": json.loads(done.stdout)}
        with self.path.open("a") as file:
            file.write(json.dumps(self.steps[name]) + "\n")
        return self.steps[name]


def main() -> None:
    """Run what is left of the year, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", nargs="?", help="default: a temporary one")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--periods", type=int, default=4, help="add so many of the four")
    parser.add_argument("--refit", action="store_true")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        record = Record(folder)
        if not options.table:
            run(record, folder, options.scale, options.periods, refit=options.refit)
        show(record, folder)


def run(record: Record, folder: Path, scale: float, periods: int, *, refit: bool) -> None:
    """Simulate, then add period after period."""
    concal = [sys.executable, "-m", "concal.cli"]
    data, bank = folder / "programme", folder / "bank"
    n_items, n_examinees = round(24_000 * 1.3 * scale), round(200_000 * scale)  # 24,000 in use at a time
    plan = ["--periods", "4", "--items", str(n_items), "--examinees", str(n_examinees), "--seed", "1"]
    plan += ["--exposure-spread", "2", "--drift-share", "0.02", "--turnover", "0.1", "--overwrite", "--json"]
    made = record.run("simulate", [*concal, "simulate", str(data), *plan])
    record.run("init", [*concal, "init", str(bank), "--spec", str(data / "bank.toml"), "--json"])
    names = [row["period"] for row in made["said"]["periods"]][:periods]
    for k, period in enumerate(names):
        files = [str(data / f"responses-{period}.csv"), "--items", str(data / "items.csv")]
        record.run(f"add {period}", [*concal, "add", str(bank), period, *files, "--json"])
        if refit and k:
            record.run(f"refit {k + 1}", [sys.executable, "-c", REFIT, str(data), *names[: k + 1]])


def show(record: Record, folder: Path) -> None:
    """What every stage cost, and an update against a refit."""
    added = {name: step for name, step in record.steps.items() if name.startswith("add ")}
    print(f"{'':12s}" + "".join(f"{stage:>24s}" for stage in STAGES) + f"{'in all':>24s}{'written':>10s}")
    print(f"{'':12s}" + f"{'s / CPU s / MiB':>24s}" * (len(STAGES) + 1) + f"{'MiB':>10s}")
    for name, step in added.items():
        said = step["said"]
        cells = [(said["seconds"][s], said["cpu_seconds"][s], said["peak_mib"][s]) for s in STAGES]
        cells.append((step["seconds"], step["cpu_seconds"], max(said["peak_mib"].values())))
        row = "".join(f"{seconds:9.1f} {cpu:7.1f} {peak:6.0f}" for seconds, cpu, peak in cells)
        print(f"{name:12s}{row}{step['written_mib']:10.0f}   converged: {said['converged']}")
    if bank := [f.stat().st_size for f in (folder / "bank").rglob("*") if f.is_file()]:
        print(f"bank: {sum(bank) / 2**20:.0f} MiB in {len(bank)} files")
    for k, step in enumerate(added.values(), 1):
        if fit := record.steps.get(f"refit {k}"):
            ratio = fit["cpu_seconds"] / step["cpu_seconds"]
            print(
                f"update {k}: {step['cpu_seconds']:.0f} CPU s; pooled refit of {k} periods: {fit['cpu_seconds']:.0f} "
                f"({ratio:.1f} times), {fit['said']['sweeps']} sweeps, peak {fit['said']['peak_mib']:.0f} MiB"
            )


if __name__ == "__main__":
    main()
