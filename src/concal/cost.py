"""What a step costs: wall time, CPU time of all threads, peak memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Cost:
    """Filled when the step ends.

    `peak_mib` is the largest resident memory of this process: during the step where the system can say (Linux),
    otherwise since the process began; `since_start` says which.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mib: float = 0.0
    since_start: bool = True


@contextmanager
def measure_cost() -> Iterator[Cost]:
    """Measure a step.

    >>> with measure_cost() as cost:
    ...     pass
    >>> cost.peak_mib > 0
    True
    """
    cost = Cost(since_start=not _forget_peak())
    start, used = time.perf_counter(), time.process_time()
    try:
        yield cost
    finally:
        cost.seconds, cost.cpu_seconds = time.perf_counter() - start, time.process_time() - used
        cost.peak_mib = _peak_mib()


def _forget_peak() -> bool:
    """Reset the kernel's high-water mark of this process (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _peak_mib() -> float:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
