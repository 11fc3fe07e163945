"""Time and memory of a large simulated programme: 20,000 items x 200,000 examinees x 30 responses x 4 periods.

Run: python benchmarks/simulate_programme.py [--small] [--selection adaptive]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from concal.simulate import simulate_programme


def main() -> None:
    """Simulate, write as Parquet, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a hundredth of the size")
    parser.add_argument("--selection", default="popularity", choices=["random", "popularity", "adaptive"])
    given = parser.parse_args()
    scale = 10 if given.small else 1
    start = time.perf_counter()
    programme = simulate_programme(items=20_000 // scale, examinees=200_000 // scale, selection=given.selection, seed=1)
    simulated = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        programme.write(Path(folder) / "programme", "parquet")
        written = time.perf_counter() - start
    responses = sum(frame.height for frame in programme.responses.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{programme.items.height:,} items, {responses:,} responses, selection {given.selection}: "
        f"{simulated:.1f} s to simulate, {written:.1f} s to write, peak {peak:.2f} GiB"
    )


if __name__ == "__main__":
    main()
