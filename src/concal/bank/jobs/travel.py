"""Between this machine and the bank's storage: folders of jobs and of finished tables, and checkpoints.

A bank in a folder has them where every machine sees them. On object storage they travel: a worker fetches a job, puts
the finished tables there, and while it samples its checkpoint now and then, so that another machine can go on from it.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from concal.bank.store.objects import Listed
from concal.bank.store.store import Store
from concal.calibration.checkpoint import sweeps_saved
from concal.errors import BankError

CHECKPOINT = "checkpoint.npz"
SHARE = 0.05
"""Of the time of a calibration that goes into putting its checkpoints to the storage, at most."""
_PIECE = 1 << 24


def send_folder(store: Store, folder: Path, only: tuple[str, ...] = ("",)) -> None:
    """Put a folder of the work folder where every machine finds it; the file that says all is there comes last."""
    if store.objects.has_lock:
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = sorted((str(path.relative_to(folder)) for path in files), key=lambda n: (n.endswith(".json"), n))
    for name in names:
        if name not in ("lock", CHECKPOINT) and name.startswith(only):
            store.objects.put(f"work/{folder.name}/{name}", folder / name)


def fetch_folder(store: Store, name: str) -> Path:
    """A folder that `send_folder` put, on this machine."""
    folder = store.work / name
    if store.objects.has_lock:
        return folder
    for file in store.objects.files(f"work/{name}"):
        path = folder / file.name.removeprefix(f"work/{name}/")
        kept = path.suffix == ".parquet" and path.exists() and path.stat().st_size == file.bytes
        if path.name not in ("stop", CHECKPOINT) and not kept:  # hashes are compared when it is used
            _download(store, file, path)
    return folder


def drop_tables(store: Store, *names: str) -> None:
    """Take the finished tables of shelves off the storage, where they are on this machine; checkpoints stay."""
    for name in names if not store.objects.has_lock else ():
        files = [file.name for file in store.objects.files(f"work/{name}")]
        store.objects.delete([file for file in files if not file.endswith(CHECKPOINT)])


def clear_folders(store: Store, names: list[str]) -> None:
    """Remove folders of the work folder, here and on the storage."""
    if not store.objects.has_lock:
        files = [f.name for f in store.objects.files("work")]
        store.objects.delete([file for file in files if file.split("/")[1] in names])
    for name in names:
        shutil.rmtree(store.work / name, ignore_errors=True)


class TravellingCheckpoint:
    """The checkpoint of a calibration whose bank is on object storage; in a folder there is nothing to do.

    Parameters
    ----------
    store
        The bank's.
    folder
        The shelf on this machine.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.path = store, folder / CHECKPOINT
        self.name = f"work/{folder.name}/{CHECKPOINT}"
        self._sent, self._next = -1, 0.0

    def fetch(self) -> None:
        """Take the one on the storage where it is farther than the one here: another machine went on meanwhile."""
        if self.store.objects.has_lock:
            return
        for file in self.store.objects.files(self.name.rsplit("/", 1)[0]):
            if file.name == self.name:
                new = self.path.with_suffix(".fetched")
                _download(self.store, file, new)
                if sweeps_saved(new) > sweeps_saved(self.path):
                    os.replace(new, self.path)
                new.unlink(missing_ok=True)

    def send(self, *, now: bool = False) -> None:
        """Put the newest one there, unless that would take more than `SHARE` of the time; `now`: whatever it takes.

        A storage that does not answer does not end a calibration.
        """
        if self.store.objects.has_lock or not self.path.exists():
            return
        stamp, start = self.path.stat().st_mtime_ns, time.monotonic()
        if stamp == self._sent or (start < self._next and not now):
            return
        with suppress(BankError):
            self.store.objects.put(self.name, self.path)
            self._sent = stamp
        took = time.monotonic() - start
        self._next = time.monotonic() + took * (1.0 / SHARE - 1.0)

    def clear(self) -> None:
        """Nobody needs it any more."""
        if not self.store.objects.has_lock:
            self.store.objects.delete([self.name])


def _download(store: Store, file: Listed, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f"{path.suffix}.new{time.monotonic_ns()}")
    with new.open("xb") as out:
        for start in range(0, file.bytes, _PIECE):
            out.write(store.objects.read(file.name, start, min(_PIECE, file.bytes - start)))
    new.replace(path)
