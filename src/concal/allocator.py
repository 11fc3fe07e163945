"""The C library's allocator: what is free goes back to the system between stages, and stays during a worker's job.

A stage of a large update leaves hundreds of megabytes free in the allocators' hands, and the next one has arrays of
other sizes: without giving them back the process grows by the sum of its stages instead of the largest.

Dask starts its workers with a trim threshold of 64 KiB: memory goes back to the system at every release, and every
sweep gets its pages anew. That was a sixth of a calibration of a million responses. During a job memory is kept.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of mallopt's parameters in glibc's malloc.h
KEEP, OWN_PAGES = 256 << 20, 32 << 20  # bytes kept at most; blocks above this size have pages of their own
USUAL = 128 << 10  # what glibc starts with


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Keep released memory for the next sweep; afterwards give back what is free. Where there is no glibc: nothing."""
    library = _glibc()
    if library is None:
        yield
        return
    library.mallopt(TRIM_THRESHOLD, KEEP)
    library.mallopt(MMAP_THRESHOLD, OWN_PAGES)
    try:
        yield
    finally:
        library.mallopt(TRIM_THRESHOLD, int(os.environ.get("MALLOC_TRIM_THRESHOLD_", USUAL)))
        library.mallopt(MMAP_THRESHOLD, int(os.environ.get("MALLOC_MMAP_THRESHOLD_", USUAL)))
        library.malloc_trim(0)


def give_back() -> None:
    """Return to the system what this process has free, a tenth of a second at most; without glibc: what Arrow has."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """The C library this process runs on, if it has these functions."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except (OSError, TypeError):  # TypeError: Windows has no library without a name
        return None
