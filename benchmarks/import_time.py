"""Start-up times, the best of five fresh interpreters: ``python benchmarks/import_time.py``."""

from __future__ import annotations

import subprocess
import sys
import time

CASES = {
    "python -c pass": ([sys.executable, "-c", "pass"], None),
    "import concal": ([sys.executable, "-c", "import concal"], 0.5),
    "concal --help": ([sys.executable, "-m", "concal.cli", "--help"], 1.0),
}


def best_of(command: list[str], times: int = 5) -> float:
    """Seconds of the fastest run."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def main() -> None:
    """Print each time and the limit it has to keep; exit 1 when one is missed."""
    missed = False
    for name, (command, limit) in CASES.items():
        seconds = best_of(command)
        missed |= limit is not None and seconds > limit
        print(f"{name:>16}: {seconds:.2f} s" + (f" (limit {limit} s)" if limit else ""))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
