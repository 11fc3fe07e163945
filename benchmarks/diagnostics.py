"""Time and memory of `diagnose` for many parameters; with `--arviz N`, arviz-stats on N of them for comparison.

Usage: python benchmarks/diagnostics.py [--parameters 100000] [--chains 8] [--draws 125] [--arviz 200]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from concal.calibration.diagnostics import TAIL, diagnose


def autoregressive(chains: int, draws: int, parameters: int, phi: float) -> np.ndarray:
    """AR(1) chains in float32, the precision item draws are kept in."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((chains, draws, parameters), dtype=np.float32)
    for t in range(1, draws):
        x[:, t] = phi * x[:, t - 1] + np.sqrt(1 - phi**2) * x[:, t]
    return x


def peak_mb() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print one line per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=100_000)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--draws", type=int, default=125)
    parser.add_argument("--arviz", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    diagnose(np.random.default_rng(0).standard_normal((2, 8, 1)))
    print(f"first call (compile or load): {time.perf_counter() - start:.2f} s")
    for phi in (0.0, 0.5, 0.9, 0.99):
        x = autoregressive(options.chains, options.draws, options.parameters, phi)
        for threads in (1, 2):
            before, start, busy = peak_mb(), time.perf_counter(), time.process_time()
            result = diagnose(x, threads=threads)
            seconds, busy = time.perf_counter() - start, time.process_time() - busy
            print(
                f"AR({phi}) {options.parameters} parameters, {threads} threads: {seconds:.2f} s, "
                f"CPU {busy / options.parameters * 1e6:.1f} us each, +{peak_mb() - before:.0f} MB, "
                f"median ESS {np.median(result.ess_bulk):.0f}"
            )
    if options.arviz:
        from arviz_stats.base import array_stats

        few = np.moveaxis(x[..., : options.arviz].astype(float), -1, 0)
        start = time.perf_counter()
        array_stats.rhat(few), array_stats.ess(few), array_stats.ess(few, method="tail", prob=TAIL)
        print(f"arviz-stats: {(time.perf_counter() - start) / options.arviz * 1e6:.0f} us each")


if __name__ == "__main__":
    main()
