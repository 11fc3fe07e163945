"""Bytes on disk: durable writes, hashes, and errors a person can act on."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from concal.errors import BankError, ConcalError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EROFS, errno.EACCES, errno.EPERM}
_CHUNK = 1 << 22
_NUMBER = re.compile(r"(?:os error|errno =|\[Errno) (\d+)")


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn what the operating system refuses into a `BankError` that says what to do.

    Writers of other packages (polars, HDF5) tell of it by errors of their own; theirs have its number in their text.

    Parameters
    ----------
    doing
        What was being done and where, e.g. ``"writing draws.parquet"``.
    """
    try:
        yield
    except ConcalError:
        raise
    except Exception as error:
        number = getattr(error, "errno", None) or _number_in(str(error))
        if number is None and not isinstance(error, OSError):
            raise
        where = f" ({name})" if (name := getattr(error, "filename", None)) else ""
        if number in _FULL:
            what = "the disk is full or the quota is used up; free some space and run the same command again"
        elif number in _DENIED:
            what = "the folder cannot be written to; check its permissions or copy the bank to a writable place"
        else:
            what = getattr(error, "strerror", None) or str(error)
        raise BankError(f"{doing}{where}: {what}. The bank is unchanged.") from error


def _number_in(text: str) -> int | None:
    """The operating system's number of an error that another package tells of."""
    found = _NUMBER.search(text)
    return int(found[1]) if found else None


def check_room(path: Path, size: int) -> None:
    """Whether a new file may have so many bytes, or what the operating system says; for writers that cannot tell."""
    if not hasattr(os, "posix_fallocate"):
        return
    trial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.room")
    try:
        with trial.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
    finally:
        trial.unlink(missing_ok=True)


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
