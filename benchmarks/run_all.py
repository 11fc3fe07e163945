"""The quick form of every benchmark, one process each: ``python benchmarks/run_all.py [--only NAME ...]``.

A script of this folder that is not in the table below is run without arguments. Exit code 1 when one fails or takes
longer than its limit; the others still run. Figures for the record come from the scripts themselves at full size (see
docs/evidence/benchmark_tables.md).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
QUICK = {
    "bank": ["--items", "500", "--periods", "2", "10"],
    "check_rows": ["1000000"],
    "cluster": ["--responses", "30000", "--periods", "2"],
    "consensus": ["--items", "5000", "--periods", "2", "5"],
    "delivered_error": ["--sweeps", "100"],
    "diagnostics": ["--parameters", "10000"],
    "dif": ["--quick"],
    "engine": ["--quick"],
    "item_fit": ["--quick"],
    "linking": ["--quick"],
    "nuts": ["--items", "50", "--persons", "400", "--warmup", "150", "--draws", "100"],
    "pooled_agreement": ["--design", "tiny", "--draws", "800"],
    "programme": ["--scale", "0.02", "--periods", "2"],
    "response_cost": ["--persons", "2000", "--items", "200", "--repeat", "3"],
    "sbc": ["--quick"],
    "shards": ["--design", "tiny", "--shards", "2"],
    "scoring": ["--quick"],
    "simulate_programme": ["--small"],
    "sparse_100k": ["--scale", "0.01", "--only", "concal"],
}
NEEDS = {"nuts": ("numpyro", "make setup-slow")}  # optional package, and how to get it


def run(script: Path, minutes: float) -> str:
    """Run one script with its output shown; how it ended, in words."""
    needed, how = NEEDS.get(script.stem, ("sys", ""))
    if importlib.util.find_spec(needed) is None:
        return f"skipped: {needed} is not installed ({how})"
    command = [sys.executable, str(script), *QUICK.get(script.stem, [])]
    started = time.perf_counter()
    try:
        code = subprocess.run(command, timeout=60.0 * minutes, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"FAILED: not done after {minutes:g} minutes"
    return f"{'ok' if code == 0 else f'FAILED: exit code {code}'}, {time.perf_counter() - started:.0f} s"


def main() -> int:
    """Run them one after the other and end with a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these scripts alone")
    parser.add_argument("--minutes", type=float, default=5.0, help="limit of each script")
    given = parser.parse_args()
    scripts = {path.stem: path for path in sorted(HERE.glob("*.py")) if path.stem != "run_all"}
    if unknown := set(given.only or []) - set(scripts):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there is {', '.join(scripts)}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    ends = {}
    for name in given.only or scripts:
        print(f"\n===== {name} {' '.join(QUICK.get(name, []))}", flush=True)
        ends[name] = run(scripts[name], given.minutes)
    print("\n===== summary")
    for name, end in ends.items():
        print(f"{name:20s} {end}")
    return 1 if any(end.startswith("FAILED") for end in ends.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
