"""A bank in a folder: hard links make a file appear in one step, one lock serves all writers."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from concal.bank.store.files import sync_folder, write_durably
from concal.bank.store.objects import FOLDERS, Listed
from concal.errors import BankError

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


@dataclass(frozen=True)
class FolderObjects:
    """See `concal.bank.store.objects.Objects`."""

    root: Path

    @property
    def place(self) -> Path:
        """The folder."""
        return self.root

    @property
    def has_lock(self) -> bool:
        """All writers share the bank's work folder."""
        return True

    def prepare(self) -> None:
        """Make the folders, durable up to the first that was there."""
        root = self.root
        if root.exists() and not root.is_dir():
            raise BankError(f"{root} exists and is not a folder; choose another place for the bank")
        if root.is_dir() and any(entry not in FOLDERS for entry in os.listdir(root)):
            raise BankError(f"{root} is not empty and not a bank; choose an empty or a new folder")
        above = next(path for path in root.absolute().parents if path.exists())
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for path in (root.absolute(), *root.absolute().parents):  # the way to version 0 is durable before version 0 is
            sync_folder(path)
            if path == above:
                break

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """A link that leads out of the bank is refused."""
        with self._inside(name).open("rb") as file:
            file.seek(start)
            return file.read() if size is None else file.read(size)

    def _inside(self, name: str) -> Path:
        path, inside = self.root / name, os.path.realpath(self.root)
        if os.path.commonpath([inside, os.path.realpath(path)]) != inside:
            raise BankError(f"{name} leads out of the bank (a symbolic link?); refused")
        return path

    def files(self, folder: str) -> list[Listed]:
        """Links count as files, wherever they lead; what somebody removes meanwhile does not.

        A copy may lack folders that were empty (git keeps none), but never the one of the snapshots.
        """
        try:
            return sorted(self._walk(self.root / folder, folder), key=lambda file: file.name)
        except FileNotFoundError:
            if folder == "snapshots":
                raise
            return []

    def _walk(self, path: Path, name: str) -> Iterator[Listed]:
        for entry in os.scandir(path):  # of a folder that is not there: the error of the outermost is the caller's
            inner = f"{name}/{entry.name}"
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    yield from self._walk(path / entry.name, inner)
                else:
                    stat = entry.stat(follow_symlinks=False)
                    yield Listed(inner, stat.st_size, stat.st_mtime)

    def create(self, name: str, data: bytes, scratch: Path) -> bool:
        """Write under a temporary name, flush, and link to the final one, which fails when it exists."""
        staged = scratch / f"{Path(name).name}.new"
        staged.unlink(missing_ok=True)
        write_durably(staged, data)
        target = self.root / name
        self._make(target.parent)
        return link_once(staged, target)

    def publish(self, folder: Path) -> None:
        """One move: the work folder is on the same disk."""
        sync_folder(folder)
        data = self.root / "data"
        self._make(data)
        os.rename(folder, data / folder.name)
        sync_folder(data)

    def _make(self, folder: Path) -> None:
        """A folder of the bank that its copy lacks; the bank itself is never made anew."""
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)

    def delete(self, names: list[str]) -> None:
        """See `Objects`."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)
        for folder in sorted({(self.root / name).parent for name in names}):
            if folder.parent.name == "data" and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def forget(self, name: str) -> None:
        """Under the lock every writer looks for the newest version, so the number may be free."""
        (self.root / name).unlink()

    def put(self, name: str, content: Path | bytes) -> None:
        """Write beside it, then rename."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        write_durably(new, content if isinstance(content, bytes) else content.read_bytes())
        os.replace(new, path)


def link_once(staged: Path, target: Path) -> bool:
    """Give a finished file its final name in one step; False when that name exists."""
    try:
        os.link(staged, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_LINKS and os.access(target.parent, os.W_OK):
            raise BankError(
                f"the file system under {target.parent} has no hard links, so a commit cannot be atomic there; "
                "put the bank on a local disk. Nothing was changed."
            ) from None
        raise
    try:
        sync_folder(target.parent)
    except OSError as error:
        raise BankError(
            f"{target} was written, but the disk did not confirm it ({error.strerror}); run `concal verify`"
        ) from error
    return True
