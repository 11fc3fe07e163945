"""One commit: its files, and the step that makes them a version.

A commit writes all its files into its own folder under ``work/``. Then, under the store's lock, it moves the finished
folders to ``data/`` under names nobody else uses and links the manifest to the next number. ``link()`` fails when that
number exists, so of several writers exactly one wins; the others read the new head and build on it. Until the link
nothing visible has changed, and nobody removes files between the move and the link, because removing needs the lock.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from concal.bank.store.files import disk_errors, sync_folder, write_durably
from concal.bank.store.locks import FileLock
from concal.bank.store.manifest import Release, Snapshot, to_bytes
from concal.bank.store.store import FOLDERS, Store, link_once
from concal.errors import BankError
from concal.names import check_safe_name


class Conflict(Exception):
    """Another writer committed first; internal, never seen by users."""


class Transaction:
    """The files of one commit in the making: staged in ``work/<id>``, published into ``data/`` under names with <id>.

    The folder is locked while its process lives; what a dead process left is cleared by the next writer
    (`concal.bank.store.upkeep.sweep`).
    """

    def __init__(self, store: Store, base: int) -> None:
        self.store, self.base = store, base
        self.id = secrets.token_hex(8)
        self.folder = store.work / f"commit-{self.id}"
        with disk_errors(f"preparing a commit in {store.work}"):
            with store.lock():  # no sweep between making the folder and locking it
                self.folder.mkdir()
                self._lock = FileLock(self.folder / "lock")
            (self.folder / "files").mkdir()
            (self.folder / "base").write_text(str(base), encoding="ascii")

    @classmethod
    def begin(cls, store: Store) -> Transaction:
        """Start a commit on the present head."""
        return cls(store, store.numbers()[-1])

    @property
    def view(self) -> Store:
        """The store with this commit's own files in it."""
        return Store(self.store.root, self.folder / "files")

    def place(self, folder: str, name: str) -> tuple[Path, str]:
        """Where to write a file now, and its path in the bank once published."""
        place = self.folder / "files" / f"{folder}-{self.id}"
        with disk_errors(f"writing {name}"):
            place.mkdir(exist_ok=True)
        return place / name, f"data/{place.name}/{name}"

    def commit(self, draft: Snapshot) -> Snapshot:
        """Make a draft the next version, or raise `Conflict` when somebody else was faster.

        The draft must be built on version `base`. That this is still the newest is asked under the lock: its number
        alone would not do, because `prune` frees numbers again.
        """
        with disk_errors(f"committing version {draft.number}"):
            staged = self.folder / "manifest.json"
            staged.unlink(missing_ok=True)
            write_durably(staged, to_bytes(draft.model_dump(mode="json")))
            with self.store.lock():
                if draft.number > 0 and self.store.numbers()[-1] != self.base:
                    raise Conflict(draft.number)
                self.publish()
                if not link_once(staged, self.store.snapshot_path(draft.number)):
                    raise Conflict(draft.number)
        self.finish()
        return draft

    def publish(self) -> None:
        """Move the finished folders to ``data/``; nothing refers to them before the manifest does."""
        for source in sorted((self.folder / "files").iterdir()):
            sync_folder(source)
            os.rename(source, self.store.root / "data" / source.name)
        sync_folder(self.store.root / "data")

    def finish(self) -> None:
        """The commit is done: clear the staging folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder.exists():  # the commit did not happen, or was interrupted on its last steps
            with self.store.lock():
                clear_commit(self.store, self.folder, self.base)
        self.finish()


def clear_commit(store: Store, folder: Path, base: int) -> list[Path]:
    """Remove what an unfinished commit on version `base` left: its folder, and its data that no version names.

    To be called under the store's lock. Only versions after `base` can name the data.
    """
    left = sorted((store.root / "data").glob(f"*-{folder.name.removeprefix('commit-')}"))
    if left:
        try:
            needed = store.needed_folders(after=base)
        except BankError:
            return []  # a damaged manifest may name them: all stays until it is restored
        left = [path for path in left if path.name not in needed]
    for path in [*left, folder]:
        shutil.rmtree(path, ignore_errors=True)
    return [*left, folder]


def add_release(store: Store, release: Release) -> None:
    """Write a release; an existing name, or a version that is gone, is refused."""
    target = store.root / "releases" / f"{check_safe_name(release.name, 'release')}.json"
    with disk_errors(f"releasing {release.name!r}"), Transaction.begin(store) as transaction:
        staged = transaction.folder / "release.json"
        write_durably(staged, to_bytes(release.model_dump(mode="json")))
        with store.lock():
            store.read_bytes_of_snapshot(release.snapshot)  # not pruned meanwhile
            if not link_once(staged, target):
                raise BankError(
                    f"release {release.name!r} exists and releases are never rewritten; choose another name"
                )


def create_store(root: Path, make_first: Callable[[Store, Transaction], Snapshot]) -> Store:
    """A new bank folder with version 0, or a `BankError` when there is something there already.

    `make_first` writes the first files (bank.toml) and returns the draft of version 0.
    """
    if root.exists() and not root.is_dir():
        raise BankError(f"{root} exists and is not a folder; choose another place for the bank")
    if root.is_dir() and any(entry not in (*FOLDERS, "bank.toml") for entry in os.listdir(root)):
        raise BankError(f"{root} is not empty and not a bank; choose an empty or a new folder")
    with disk_errors(f"creating {root}"):
        above = next(path for path in root.absolute().parents if path.exists())
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        store = Store(root)
        with FileLock(root / "work" / "create.lock", wait=True):
            if any((root / "snapshots").iterdir()):
                raise BankError(f"{root} is a bank already; open it, or choose another folder")
            (root / "bank.toml").unlink(missing_ok=True)  # what an interrupted creation left
            for path in root.absolute().parents:  # the way to version 0 is durable before version 0 is
                sync_folder(path)
                if path == above:
                    break
            with Transaction(store, -1) as transaction:
                draft = make_first(store, transaction)
                sync_folder(root)
                transaction.commit(draft)
        (root / "work" / "create.lock").unlink(missing_ok=True)
    return store
