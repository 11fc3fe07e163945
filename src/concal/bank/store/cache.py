"""What was read from object storage, kept on this machine's disk by the hash of its content.

A cached piece is verified whenever it is used, so a damaged or half-written one is only fetched again. The folder may
be deleted at any time.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from concal.bank.store.files import sha256

LARGEST = 20 << 30
"""Bytes the cache may grow to (CONCAL_CACHE_GB changes it); what was not used for longest goes first."""
_LOOK_EVERY = 1 << 28
"""Bytes written between two looks at the size of the whole: listing thousands of files costs time."""


def cache_root() -> Path:
    """The user's folder for what can be fetched or made again (CONCAL_CACHE, else as the system has it)."""
    own = os.environ.get("CONCAL_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "concal"


@dataclass
class Cache:
    """Pieces of files by SHA-256."""

    root: Path
    _written: int = _LOOK_EVERY

    def _path(self, digest: str) -> Path:
        return self.root / digest[:2] / digest

    def get(self, digest: str) -> bytes | None:
        """The bytes with this hash, or None."""
        path = self._path(digest)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if sha256(data) != digest:
            path.unlink(missing_ok=True)
            return None
        with suppress(OSError):
            os.utime(path)
        return data

    def put(self, digest: str, data: bytes) -> None:
        """Keep bytes whose hash is `digest`; a full or read-only disk is no reason to fail."""
        path = self._path(digest)
        new = path.with_name(f"{digest}.{secrets.token_hex(4)}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(data)
            os.replace(new, path)
            self._written += len(data)
        if self._written >= _LOOK_EVERY:
            self._written = 0
            self.shrink(int(float(os.environ.get("CONCAL_CACHE_GB", LARGEST / (1 << 30))) * (1 << 30)))

    def shrink(self, largest: int) -> None:
        """Remove what was not used for longest until the rest has at most `largest` bytes."""
        files = []
        for path in self.root.glob("??/*"):
            with suppress(OSError):
                stat = path.stat()
                files.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= largest:
                return
            path.unlink(missing_ok=True)
            total -= size
