"""Memory of a worker's job: pages are fetched once, and given back afterwards."""

import json
import os
import subprocess
import sys

import pytest

from concal.allocator import _glibc

SCRIPT = """
import json, resource
import numpy as np
from concal.allocator import keeping_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(1 << 17)  # 1 MiB: too small for huge pages, which are fetched at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

plain, start = faults(), resident()
with keeping_memory():
    kept = faults()
print(json.dumps({"plain": plain, "kept": kept, "left": resident() - start, "after": faults()}))
"""


@pytest.mark.skipif(_glibc() is None or not os.path.exists("/proc/self/statm"), reason="needs glibc on Linux")
def test_pages_are_fetched_once_while_memory_is_kept():
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}  # as Dask starts a worker
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment)
    found = json.loads(done.stdout)
    assert found["kept"] < 0.1 * found["plain"]
    assert found["left"] < 4 << 20
    assert found["after"] > 0.5 * found["plain"]  # as the worker had it
