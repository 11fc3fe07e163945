"""One commit: its files, and the step that makes them a version.

A commit writes all its files into its own folder under ``work/``. Then it brings the finished folders to ``data/``,
under names nobody else uses, and creates the manifest of the next number. Creating fails when that number exists, so of
several writers exactly one wins; the others read the new head and build on it. Until then nothing visible has changed.

Nobody may remove files between the two steps. In a folder both happen under the store's lock, which removing needs too.
On object storage there is no lock: the commit first leaves a note ``work/note-<id>`` with the version it is built on,
and its files are spared while that version is the newest. Once there is a newer one the commit cannot happen any more,
because the number it asks for is taken for good.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from concal.bank.store.fate import RELEASED, decide
from concal.bank.store.files import disk_errors
from concal.bank.store.locks import FileLock
from concal.bank.store.manifest import Release, Snapshot, to_bytes
from concal.bank.store.store import Store
from concal.errors import BankError
from concal.names import check_safe_name

NOTE = "work/note-"


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
        return self.store.staged_in(self.folder / "files")

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
        store, name = self.store, self.store.snapshot_name(draft.number)
        data = to_bytes(draft.model_dump(mode="json"))
        with disk_errors(f"committing version {draft.number}"):
            with store.guard() as alone:
                if draft.number > 0 and store.numbers()[-1] != self.base:
                    raise Conflict(draft.number)
                if not alone:
                    store.objects.create(note_name(self.id), str(self.base).encode("ascii"), self.folder)
                self.publish()
                if not store.objects.create(name, data, self.folder):
                    raise Conflict(draft.number)
            if not alone:
                store.objects.delete([note_name(self.id)])
        self.finish()
        return draft

    def publish(self) -> None:
        """Bring the finished folders to ``data/``; nothing refers to them before the manifest does."""
        for source in sorted((self.folder / "files").iterdir()):
            self.store.objects.publish(source)

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
        self._lock.release()


def note_name(identity: str) -> str:
    """What tells others on object storage that a commit is under way."""
    return f"{NOTE}{identity}"


def clear_commit(store: Store, folder: Path, base: int) -> bool:
    """Remove what an unfinished commit on version `base` left: its folder, and its data that no version names.

    To be called under the store's lock. Only versions after `base` can name the data. On object storage the request
    that creates the manifest may still be on its way; only when its number is taken is it clear what became of it.
    """
    identity = folder.name.removeprefix("commit-")
    try:
        left = [file.name for file in store.objects.files("data") if file.name.split("/")[1].endswith(f"-{identity}")]
        if left:
            if not store.objects.has_lock and store.numbers()[-1] <= base:
                return False
            needed = store.needed_folders(after=base)
            left = [name for name in left if name.split("/")[1] not in needed]
        store.objects.delete([*left, note_name(identity)])
    except (BankError, FileNotFoundError):
        return False  # a damaged manifest may name them, or the storage does not answer: all stays
    shutil.rmtree(folder, ignore_errors=True)
    return True


def add_release(store: Store, release: Release) -> None:
    """Write a release; an existing name, or a version that is gone, is refused."""
    name = f"releases/{check_safe_name(release.name, 'release')}.json"
    data = to_bytes(release.model_dump(mode="json"))
    taken = f"release {release.name!r} exists and releases are never rewritten; choose another name"
    with disk_errors(f"releasing {release.name!r}"), Transaction.begin(store) as transaction, store.guard():
        if release.name in store.release_names():
            raise BankError(taken)
        store.read_bytes_of_snapshot(release.snapshot)  # not pruned meanwhile
        if not decide(store, release.snapshot, RELEASED):
            raise BankError(
                f"version {release.snapshot} is just being pruned, or was to be by a run that was cut off; release a "
                "newer version"
            )
        store.read_bytes_of_snapshot(release.snapshot)  # nor just now, before that was decided
        if not store.objects.create(name, data, transaction.folder):
            raise BankError(taken)


def create_store(place: str | Path, make_first: Callable[[Transaction], Snapshot]) -> Store:
    """A new bank with version 0, or a `BankError` when there is something there already.

    `make_first` writes the first files and returns the draft of version 0.
    """
    store = Store.open(place)
    with disk_errors(f"creating {place}"):
        store.objects.prepare()
        store.work.mkdir(parents=True, exist_ok=True)
        with FileLock(store.work / "create.lock", wait=True):
            if store.objects.files("snapshots"):
                raise BankError(f"{place} is a bank already; open it, or choose another place")
            with Transaction(store, -1) as transaction:
                try:
                    transaction.commit(make_first(transaction))
                except Conflict:
                    raise BankError(f"{place} is a bank already: another process was faster; open it") from None
        (store.work / "create.lock").unlink(missing_ok=True)
    return store
