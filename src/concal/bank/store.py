"""The store: immutable files under snapshot manifests, one atomic step per commit.

A commit writes all its files into its own folder under ``work/``, moves the finished folders to ``data/`` under names
nobody else uses, and links the manifest to the next number. ``link()`` fails when that number exists, so of several
writers exactly one wins; the others re-read the head and build on it. Until the link nothing visible has changed.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from concal.bank.files import disk_errors, sha256, sync_folder, write_durably
from concal.bank.locks import FileLock
from concal.bank.manifest import FileEntry, Release, Snapshot, parse_release, parse_snapshot, to_bytes
from concal.errors import BankError
from concal.names import check_safe_name

FOLDERS = ("snapshots", "releases", "data", "work")
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class Conflict(Exception):
    """Another writer committed first; internal, never seen by users."""


@dataclass(frozen=True)
class Store:
    """A bank's folder.

    Attributes
    ----------
    root : Path
    """

    root: Path

    @property
    def work(self) -> Path:
        """Scratch space; safe to delete when nothing runs."""
        return self.root / "work"

    def numbers(self) -> list[int]:
        """Numbers of the snapshots there are, ascending."""
        try:
            names = os.listdir(self.root / "snapshots")
        except FileNotFoundError:
            raise BankError(
                f"{self.root} is not a bank (it has no snapshots folder); make one with `concal init`"
            ) from None
        except NotADirectoryError:
            raise BankError(f"{self.root} is a file, not a bank") from None
        found = sorted(int(n[:-5]) for n in names if len(n) == 25 and n.endswith(".json") and n[:-5].isdecimal())
        if not found:
            raise BankError(f"{self.root} has no snapshot: its creation was interrupted; run `concal init` again")
        return found

    def snapshot_path(self, number: int) -> Path:
        """File of a snapshot."""
        return self.root / "snapshots" / f"{number:020d}.json"

    def read_bytes_of_snapshot(self, number: int) -> bytes:
        """The manifest's bytes."""
        try:
            return self.snapshot_path(number).read_bytes()
        except FileNotFoundError:
            known = self.numbers()
            raise BankError(
                f"there is no version {number}; versions run from {known[0]} to {known[-1]}, see `concal history`"
            ) from None

    def snapshot(self, number: int) -> Snapshot:
        """A validated snapshot."""
        path = self.snapshot_path(number)
        snapshot = parse_snapshot(self.read_bytes_of_snapshot(number), str(path))
        if snapshot.number != number:
            raise BankError(f"{path} says it is version {snapshot.number}: the file was renamed or copied")
        return snapshot

    def head(self) -> Snapshot:
        """The newest snapshot."""
        return self.snapshot(self.numbers()[-1])

    def path(self, entry: FileEntry) -> Path:
        """Where a file is; a link that leads out of the bank is refused."""
        path = self.root / entry.path
        inside = os.path.realpath(self.root)
        if os.path.commonpath([inside, os.path.realpath(path)]) != inside:
            raise BankError(f"{entry.path} leads out of the bank (a symbolic link?); refused")
        return path

    def commit(self, draft: Snapshot, transaction: Transaction) -> Snapshot:
        """Make a draft the next version, or raise `Conflict` when somebody else was faster.

        The draft's `parent` must be the snapshot it was built on.
        """
        with disk_errors(f"committing version {draft.number}"):
            staged = transaction.folder / "manifest.json"
            staged.unlink(missing_ok=True)
            write_durably(staged, to_bytes(draft.model_dump(mode="json")))
            transaction.publish()
            transaction.target = self.snapshot_path(draft.number)
            self._link(staged, transaction.target)
        transaction.finish()
        return draft

    def _link(self, staged: Path, target: Path) -> None:
        try:
            os.link(staged, target)
        except FileExistsError:
            raise Conflict(target.name) from None
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

    def releases(self) -> dict[str, Release]:
        """Releases by name."""
        found = {}
        for path in sorted((self.root / "releases").glob("*.json")):
            release = parse_release(path.read_bytes(), str(path))
            if release.name != path.stem:
                raise BankError(f"{path} says it is release {release.name!r}: the file was renamed or copied")
            found[release.name] = release
        return found

    def release(self, name: str) -> Snapshot:
        """The snapshot behind a release, checked to be the very one that was released."""
        check_safe_name(name, "release")
        path = self.root / "releases" / f"{name}.json"
        if not path.exists():
            known = ", ".join(sorted(p.stem for p in path.parent.glob("*.json"))) or "none yet"
            raise BankError(f"there is no release {name!r}; releases: {known}")
        release = parse_release(path.read_bytes(), str(path))
        data = self.read_bytes_of_snapshot(release.snapshot)
        if release.name != name or sha256(data) != release.sha256:
            raise BankError(
                f"version {release.snapshot} is not the one release {name!r} froze; restore it from a backup"
            )
        return self.snapshot(release.snapshot)

    def add_release(self, release: Release) -> None:
        """Write a release; an existing name is refused."""
        target = self.root / "releases" / f"{check_safe_name(release.name, 'release')}.json"
        with disk_errors(f"releasing {release.name!r}"), Transaction.begin(self) as transaction:
            staged = transaction.folder / "release.json"
            write_durably(staged, to_bytes(release.model_dump(mode="json")))
            try:
                self._link(staged, target)
            except Conflict:
                raise BankError(
                    f"release {release.name!r} exists and releases are never rewritten; choose another name"
                ) from None
            transaction.finish()


class Transaction:
    """The files of one commit in the making: staged in ``work/<id>``, published into ``data/`` under names with <id>.

    The folder is locked while its process lives; what a dead process left is cleared by `sweep`.
    """

    def __init__(self, store: Store, base: int) -> None:
        self.store = store
        self.id = secrets.token_hex(8)
        self.folder = store.work / f"commit-{self.id}"
        self.target: Path | None = None  # set just before the manifest is linked there
        self._published: list[Path] = []
        with disk_errors(f"preparing a commit in {store.work}"):
            store.work.mkdir(exist_ok=True)
            with FileLock(store.work, wait=True):  # no sweep between making the folder and locking it
                self.folder.mkdir()
                self._lock = FileLock(self.folder / "lock")
            (self.folder / "files").mkdir()
            (self.folder / "base").write_text(str(base), encoding="ascii")

    @classmethod
    def begin(cls, store: Store) -> Transaction:
        """Start a commit on the present head."""
        return cls(store, store.numbers()[-1])

    def place(self, folder: str, name: str) -> tuple[Path, str]:
        """Where to write a file now, and its path in the bank once published."""
        place = self.folder / "files" / f"{folder}-{self.id}"
        with disk_errors(f"writing {name}"):
            place.mkdir(exist_ok=True)
        return place / name, f"data/{place.name}/{name}"

    def publish(self) -> None:
        """Move the finished folders to ``data/``; nothing refers to them before the manifest does."""
        for source in sorted((self.folder / "files").iterdir()):
            sync_folder(source)
            target = self.store.root / "data" / source.name
            os.rename(source, target)
            self._published.append(target)
        sync_folder(self.store.root / "data")

    def finish(self) -> None:
        """The commit is done: clear the staging folder."""
        self._published = []
        self._clear()

    def abandon(self) -> None:
        """Clear everything a commit that did not happen wrote; one that did happen keeps its files."""
        if not self._is_committed():
            for path in self._published:
                shutil.rmtree(path, ignore_errors=True)
        self._published = []
        self._clear()

    def _is_committed(self) -> bool:
        staged = self.folder / "manifest.json"
        return self.target is not None and self.target.exists() and staged.exists() and self.target.samefile(staged)

    def _clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()


def create_store(root: Path, make_first: Callable[[Store, Transaction], Snapshot]) -> Store:
    """A new bank folder with version 0, or a `BankError` when there is something there already.

    `make_first` writes the first files (bank.toml) and returns the draft of version 0.
    """
    if root.exists() and not root.is_dir():
        raise BankError(f"{root} exists and is not a folder; choose another place for the bank")
    if root.is_dir() and any(entry not in (*FOLDERS, "bank.toml") for entry in os.listdir(root)):
        raise BankError(f"{root} is not empty and not a bank; choose an empty or a new folder")
    with disk_errors(f"creating {root}"):
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        store = Store(root)
        with FileLock(root / "work" / "create.lock", wait=True):
            if any((root / "snapshots").iterdir()):
                raise BankError(f"{root} is a bank already; open it, or choose another folder")
            (root / "bank.toml").unlink(missing_ok=True)  # what an interrupted creation left
            with Transaction(store, -1) as transaction:
                store.commit(make_first(store, transaction), transaction)
        (root / "work" / "create.lock").unlink(missing_ok=True)
        sync_folder(root)
    return store
