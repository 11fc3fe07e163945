"""`kernel`: compile with numba and keep the machine code on disk, safely.

numba's own cache notices only changes of the file a function stands in. Our passes are compiled together with the
response models' kernels from other files, so the cache folder is named by a hash of all sources that go in: a changed
model can never meet stale code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numba
from numba import njit

from concal.response.lanes import FAST

_OPTIONS = {"nogil": True, "fastmath": FAST, "error_model": "numpy"}


@cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept, or None when no folder can be written (they are then compiled anew)."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(
        [*package.glob("response/**/*.py"), *package.glob("*/kernels*/*.py"), *package.glob("*/kernels*.py")]
    ):
        digest.update(source.read_bytes())
    for entry in entry_points(group="concal.response"):
        digest.update(f"{entry.value} {entry.dist.version if entry.dist else ''}".encode())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "concal" / f"kernels-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def kernel(function: Callable[..., Any]) -> Any:
    """Compile on first use, without the interpreter lock, and cache by the content of all kernel sources."""
    folder = cache_folder()
    if folder is None:
        return njit(**_OPTIONS)(function)
    previous = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        return njit(cache=True, **_OPTIONS)(function)
    finally:
        numba.config.CACHE_DIR = previous
