"""Looking after a store: clear what killed processes left, verify every byte, remove what no version needs.

Nothing is removed because of its age or its name alone: a file stays while a manifest names it or a commit under way
may come to name it. In a folder that is asked under the store's lock, when no commit is between moving its files to
``data/`` and linking its manifest. On object storage commits leave notes (see `concal.bank.store.transaction`), and the
order of looking matters: files, then notes, then manifests. A note is older than its commit's files and younger ones
are not on the list, so a file without a note is either named by a manifest or will never be.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from concal.bank.store.files import disk_errors, sha256
from concal.bank.store.locks import FileLock
from concal.bank.store.manifest import FileEntry, Snapshot, damaged
from concal.bank.store.parquet import file_errors, wrong_size
from concal.bank.store.store import Store
from concal.bank.store.transaction import NOTE, clear_commit, note_name
from concal.errors import BankError, ConcalError

_PIECE = 1 << 24


def sweep(store: Store) -> None:
    """Clear what writers on this machine left that no longer live; called at the start of every write.

    A commit's folder under ``work/`` is locked while its process lives: if the lock can be taken the process is gone.
    """
    if not any(store.work.glob("commit-*")):
        return
    with disk_errors(f"clearing {store.work}"), store.lock():
        for folder in sorted(store.work.glob("commit-*")):
            try:
                lock = FileLock(folder / "lock")
            except FileNotFoundError:
                continue  # just removed by its owner
            with lock:
                if lock.held:
                    clear_commit(store, folder, _base(folder))


def _base(folder: Path) -> int:
    try:
        return int((folder / "base").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return -1  # killed before the first file: look at all versions


def check_file(store: Store, entry: FileEntry) -> None:
    """Size and hash of one file against the manifest; a `BankError` that names the file otherwise."""
    digest, size = hashlib.sha256(), 0
    with file_errors(entry):
        while piece := store.objects.read(entry.path, size, _PIECE):
            digest.update(piece)
            size += len(piece)
    if size != entry.bytes:
        raise BankError(damaged(entry, wrong_size(entry, size)))
    if digest.hexdigest() != entry.sha256:
        raise BankError(damaged(entry, "its hash does not match"))


@dataclass(frozen=True)
class Verification:
    """What `verify` read.

    Attributes
    ----------
    versions, files, bytes : int
        How much was read.
    problems : tuple of str
        One message per damaged file; empty when all is well.
    unknown : tuple of str
        Files no version mentions (harmless; `prune` removes them).
    """

    versions: int
    files: int
    bytes: int
    problems: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every byte is what it was."""
        return not self.problems


def verify(store: Store) -> Verification:
    """Read everything: all manifests and their chain, all releases, every file of every version."""
    problems: list[str] = []
    entries: dict[str, FileEntry] = {}
    numbers = store.numbers()
    hashes: dict[int, str] = {}
    for number in numbers:
        try:
            hashes[number] = sha256(store.read_bytes_of_snapshot(number))
            snapshot = store.snapshot(number)
        except BankError as error:
            problems.append(str(error))
            continue
        parent = snapshot.parent
        if parent is not None and parent.number in hashes and hashes[parent.number] != parent.sha256:
            problems.append(f"version {number} was built on another version {parent.number} than the one here")
        entries.update(snapshot.entries())
    for name in store.release_names():
        try:
            store.release(name)
        except ConcalError as error:
            problems.append(f"release {name}: {error}")
    for entry in entries.values():
        try:
            check_file(store, entry)
        except BankError as error:
            problems.append(str(error))
    unknown = [file.name for file in store.objects.files("data") if file.name not in entries]
    size = sum(entry.bytes for entry in entries.values())
    return Verification(len(numbers), len(entries), size, tuple(problems), tuple(unknown))


@dataclass(frozen=True)
class Pruned:
    """What `prune` removed (or would remove)."""

    versions: tuple[int, ...]
    files: tuple[str, ...]
    bytes: int


def prune(store: Store, *, keep: int | None = None, grace_days: float = 7.0, dry_run: bool = False) -> Pruned:
    """Remove files no version or release needs, once they are older than the grace time.

    Parameters
    ----------
    keep
        Also forget versions older than the newest `keep`, unless a release names them. Default: forget none.
    grace_days
        Younger files and versions stay: somebody may be reading them.
    dry_run
        Only say what would go.
    """
    if keep is not None and keep < 1:
        raise BankError(f"keep = {keep}: at least the newest version stays")
    if not grace_days >= 0:
        raise BankError(f"grace_days = {grace_days}: must be zero or more")
    oldest = time.time() - 86400.0 * grace_days
    with disk_errors("pruning"):
        if not dry_run:
            sweep(store)
        with store.guard() as alone:
            found, dead = _not_needed(store, keep, oldest, alone)
            if not dry_run:
                found = _remove(store, found)
                store.objects.delete(dead)
        if not dry_run:
            with store.lock():
                _clear_stale_work(store, oldest)
    return found


def _not_needed(store: Store, keep: int | None, oldest: float, alone: bool) -> tuple[Pruned, list[str]]:
    """What can go, and the notes of commits that cannot happen any more, looked for in the order above."""
    files = store.objects.files("data")
    notes = {} if alone else _notes(store)
    numbers = store.numbers()
    written = {file.name: file.modified for file in store.objects.files("snapshots")}
    released = {release.snapshot for release in store.releases().values()}
    snapshots: dict[int, Snapshot] = {n: store.snapshot(n) for n in numbers}  # any damage stops here
    gone = [
        n
        for n in (numbers[:-keep] if keep else [])
        if n not in released and written.get(store.snapshot_name(n), time.time()) <= oldest
    ]
    needed = {path for n, snapshot in snapshots.items() if n not in gone for path in snapshot.entries()}
    under_way = tuple(f"-{identity}" for identity, base in notes.items() if base >= numbers[-1])
    left = [f for f in files if f.name not in needed and not f.name.split("/")[1].endswith(under_way)]
    old = {file.name: file.bytes for file in left if file.modified <= oldest}
    dead = [note_name(identity) for identity, base in notes.items() if base < numbers[-1]]
    return Pruned(tuple(gone), tuple(old), sum(old.values())), dead


def _notes(store: Store) -> dict[str, int]:
    """Commits under way, or never finished, and the version each is built on."""
    found: dict[str, int] = {}
    for file in store.objects.files("work"):
        if file.name.startswith(NOTE):
            with suppress(FileNotFoundError, ValueError):  # just done
                found[file.name.removeprefix(NOTE)] = int(store.objects.read(file.name))
    return found


def _remove(store: Store, found: Pruned) -> Pruned:
    """Manifests first: none may ever point to a file that is gone. One that was released meanwhile comes back."""
    kept = {number: store.read_bytes_of_snapshot(number) for number in found.versions}
    for number in kept:
        store.objects.forget(store.snapshot_name(number))
    back = {release.snapshot for release in store.releases().values()} & set(kept) if kept else set()
    for number in back:
        store.objects.put(store.snapshot_name(number), kept[number])
    spared = {path for n in back for path in store.snapshot(n).entries()}
    files = tuple(name for name in found.files if name not in spared)
    store.objects.delete(list(files))
    return Pruned(tuple(n for n in found.versions if n not in back), files, found.bytes)


def _clear_stale_work(store: Store, oldest: float) -> None:
    """Checkpoints of calibrations nobody went on with, and jobs whose results nobody fetched."""
    if not store.objects.has_lock:
        left = [f for f in store.objects.files("work") if not f.name.startswith(NOTE) and f.modified <= oldest]
        store.objects.delete([file.name for file in left])
    for path in sorted([*store.work.glob("calibration-*"), *store.work.glob("job-*")]):
        if path.is_dir() and path.stat().st_mtime <= oldest:
            with FileLock(path / "lock") as lock:
                if lock.held:
                    shutil.rmtree(path, ignore_errors=True)
