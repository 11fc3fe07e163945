"""A calibration in the making: its checkpoint, and its finished tables until they are committed.

``work/calibration-<fingerprint>/`` belongs to one period, data, spec and seed. A run that was killed finds there what
it had: the engine's checkpoint, or the finished tables.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from concal.bank.store.files import disk_errors, sha256_file, sync_folder, write_durably
from concal.bank.store.folder import FolderReader, FolderWriter
from concal.bank.store.locks import FileLock
from concal.bank.store.manifest import FileEntry, dump_files, load_files, parse_json, to_bytes
from concal.bank.store.store import Store
from concal.bank.store.transaction import Transaction
from concal.errors import BankError


def shelf_name(period: str, identity: str) -> str:
    """Of the folder under ``work/``."""
    return f"calibration-{period}-{identity}"


class Shelf:
    """The folder of one calibration under ``work/``, locked while in use."""

    def __init__(self, store: Store, period: str, identity: str) -> None:
        self.store, self.identity = store, identity
        self.folder = store.work / shelf_name(period, identity)
        with disk_errors(f"preparing {self.folder}"), store.lock():  # nobody clears it between making and locking it
            self.folder.mkdir(exist_ok=True)
            self._lock = FileLock(self.folder / "lock")
        if not self._lock.held:
            raise BankError(
                f"another process is calibrating period {period!r} from the same data ({self.folder.name}); "
                "wait for it, or end it and run this again: it goes on where the other stopped"
            )

    @property
    def checkpoint(self) -> Path:
        """Where the engine keeps its checkpoint."""
        return self.folder / "checkpoint.npz"

    def place(self, folder: str, name: str) -> tuple[Path, str]:
        """See `concal.bank.store.folder.Places`; the shelf looks like a small store."""
        path = self.folder / "data" / folder / name
        with disk_errors(f"writing {name}"):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path, f"data/{folder}/{name}"

    def start(self, folder: str) -> FolderWriter:
        """A writer for finished tables; those of an earlier run are cleared."""
        shutil.rmtree(self.folder / "data" / folder, ignore_errors=True)
        return FolderWriter(self, folder)

    def finish(self, files: Mapping[str, FileEntry]) -> None:
        """Note that these tables are complete."""
        with disk_errors("finishing a calibration"):
            for folder in {(self.folder / entry.path).parent for entry in files.values()}:
                sync_folder(folder)
            (self.folder / "done.tmp").unlink(missing_ok=True)
            write_durably(self.folder / "done.tmp", to_bytes({"files": dump_files(files)}))
            os.replace(self.folder / "done.tmp", self.folder / "done.json")

    def finished(self) -> dict[str, FileEntry] | None:
        """The complete tables of an earlier run, if every byte of them is right."""
        return finished_on(self.folder)

    def adopt(self, transaction: Transaction, folder: str, files: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
        """Link the finished tables into a commit: no copy, and they stay here if the commit does not happen."""
        adopted = {}
        for key, entry in files.items():
            name = Path(entry.path).name
            target, bank_path = transaction.place(folder, name)
            with disk_errors(f"writing {name}"):
                os.link(self.folder / entry.path, target)
            adopted[key] = entry.model_copy(update={"path": bank_path})
        return adopted

    def reader(self, files: Mapping[str, FileEntry]) -> FolderReader:
        """Read the finished tables before they are in the bank."""
        return FolderReader(Store.open(self.folder), files)

    def take(self) -> None:
        """Have it back after `release`."""
        self._lock = FileLock(self.folder / "lock")

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let another process work on it meanwhile."""
        self.release()
        try:
            yield
        finally:
            self.take()

    def release(self) -> None:
        """Let another process use it."""
        self._lock.release()

    def clear(self) -> None:
        """The calibration is committed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.release()


def finished_on(folder: Path) -> dict[str, FileEntry] | None:
    """The complete tables on a shelf, if every byte of them is right; whoever only reads needs no lock."""
    try:
        content = parse_json((folder / "done.json").read_bytes(), "done.json")
        files = load_files(content["files"])
        for entry in files.values():
            path = folder / entry.path
            if path.stat().st_size != entry.bytes or sha256_file(path) != entry.sha256:
                return None
    except (OSError, BankError, ValueError, KeyError):
        return None
    return files
