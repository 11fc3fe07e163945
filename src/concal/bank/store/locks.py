"""Advisory locks that vanish with the process that held them, also after kill -9."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType


class FileLock:
    """An exclusive lock on a small file or a folder; `held` says whether it was free.

    The operating system drops the lock when the process ends in whatever way, so a lock that can be taken means that
    its last owner is gone.
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        if path.is_dir() and sys.platform != "win32":  # a folder can be locked itself, without a file in it
            self._handle = os.open(path, os.O_RDONLY)
        else:
            self._handle = os.open(path / "lock" if path.is_dir() else path, os.O_RDWR | os.O_CREAT, 0o644)
        self.held = _take(self._handle, wait)
        if not self.held:
            os.close(self._handle)
            self._handle = -1

    def release(self) -> None:
        """Let go."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            self.held = False

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


def _take(handle: int, wait: bool) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
