"""Bytes on disk: durable writes, hashes, and errors a person can act on."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from concal.errors import BankError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EROFS, errno.EACCES, errno.EPERM}
_CHUNK = 1 << 22


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn what the operating system refuses into a `BankError` that says what to do.

    Parameters
    ----------
    doing
        What was being done and where, e.g. ``"writing draws.parquet"``.
    """
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in _FULL:
            what = "the disk is full or the quota is used up; free some space and run the same command again"
        elif error.errno in _DENIED:
            what = "the folder cannot be written to; check its permissions or copy the bank to a writable place"
        else:
            what = error.strerror or str(error)
        raise BankError(f"{doing}{where}: {what}. The bank is unchanged.") from error


def sync_file(file: IO[bytes]) -> None:
    """Flush a file through to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make new names in a folder durable (a no-op where folders cannot be opened)."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and flush it; an existing one is never overwritten."""
    with path.open("xb") as file:
        file.write(data)
        sync_file(file)


def sha256(data: bytes | memoryview) -> str:
    """Hexadecimal SHA-256, as ``sha256sum`` prints it."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


class HashingFile:
    """A writable file that hashes what passes through: everything, and each stretch between two marks."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._whole = hashlib.sha256()
        self._stretch = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Write and hash."""
        self._whole.update(data)
        self._stretch.update(data)
        self.size += len(data)
        self._file.write(data)
        return len(data)

    def mark(self) -> str:
        """Hash of everything since the last mark."""
        digest = self._stretch.hexdigest()
        self._stretch = hashlib.sha256()
        return digest

    def hexdigest(self) -> str:
        """Hash of everything."""
        return self._whole.hexdigest()

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def flush(self) -> None:
        """Hand buffered bytes to the operating system."""
        self._file.flush()

    def readable(self) -> bool:
        """Never."""
        return False

    def writable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Never: bytes are hashed once, in order."""
        return False

    def close(self) -> None:
        """Flush to the disk and close."""
        if not self.closed:
            self.closed = True
            try:
                sync_file(self._file)
            finally:
                self._file.close()
