"""`kernel`: compile with numba and keep the machine code on disk, safely.

numba's own cache notices only changes of the file a function stands in. Our passes are compiled together with the
response models' kernels from other files, so the cache folder is named by a hash of all sources that go in: a changed
model can never meet stale code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numba
from numba import njit

from concal.compiler.vector import FAST

UNUSED_DAYS = 14


@cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept, or None when no folder can be written (they are then compiled anew)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    added = tuple(sorted(entry.module for entry in entry_points(group="concal.response")))
    folder = Path(base) / "concal" / f"kernels-{numba.__version__}-{sources_hash(added)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)  # when it was last used
    except OSError:
        return None
    _remove_unused(folder.parent)
    return folder if os.access(folder, os.W_OK) else None


def sources_hash(modules: tuple[str, ...]) -> str:
    """Hash of all sources that are compiled together, and of the packages of models that come from elsewhere."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for source in sorted(
        [
            *package.glob("response/*.py"),
            *package.glob("compiler/*.py"),
            *package.glob("*/kernels*/*.py"),
            *package.glob("*/kernels*.py"),
        ]
    ):
        digest.update(source.read_bytes())
    for module in modules:
        digest.update(module.encode())
        for source in _sources_of(module):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _sources_of(module: str) -> list[Path]:
    """Python files of the package (or the single file) a module belongs to; nothing of it is imported."""
    found = find_spec(module.split(".")[0])
    if found is None:
        return []
    if found.submodule_search_locations is None:
        return [Path(found.origin)] if found.origin and Path(found.origin).is_file() else []
    return sorted(source for folder in found.submodule_search_locations for source in Path(folder).rglob("*.py"))


def _remove_unused(base: Path) -> None:
    """Folders of sources that nobody has used for a while; one that is needed after all is compiled again."""
    for folder in base.glob("kernels-*"):
        with suppress(OSError):  # another process was faster
            if time.time() - folder.stat().st_mtime > UNUSED_DAYS * 86_400:
                shutil.rmtree(folder, ignore_errors=True)


def kernel(function: Callable[..., Any] | None = None, *, fastmath: set[str] | bool = FAST) -> Any:
    """Compile on first use, without the interpreter lock, and cache by the content of all kernel sources."""
    if function is None:
        return partial(kernel, fastmath=fastmath)
    options = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    folder = cache_folder()
    if folder is None:
        return njit(**options)(function)
    previous = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        return njit(cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = previous
