"""Looking after a store: clear what killed processes left, verify every byte, remove what no version needs.

Nothing is removed because of its age or its name alone: a file stays while a manifest names it, and whether one does is
asked under the store's lock, when no commit is between moving its files to ``data/`` and linking its manifest.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from concal.bank.store.files import disk_errors, sha256_file
from concal.bank.store.locks import FileLock
from concal.bank.store.manifest import FileEntry, Snapshot, damaged, missing
from concal.bank.store.store import Store
from concal.bank.store.transaction import clear_commit
from concal.errors import BankError


def sweep(store: Store) -> list[Path]:
    """Clear what writers left that no longer live; called at the start of every write.

    A commit's folder under ``work/`` is locked while its process lives: if the lock can be taken the process is gone.
    """
    removed: list[Path] = []
    if not any(store.work.glob("commit-*")):
        return removed
    with disk_errors(f"clearing {store.work}"), store.lock():
        for folder in sorted(store.work.glob("commit-*")):
            try:
                lock = FileLock(folder / "lock")
            except FileNotFoundError:
                continue  # just removed by its owner
            with lock:
                if lock.held:
                    removed += clear_commit(store, folder, _base(folder))
    return removed


def _base(folder: Path) -> int:
    try:
        return int((folder / "base").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return -1  # killed before the first file: look at all versions


def check_file(store: Store, entry: FileEntry) -> None:
    """Size and hash of one file against the manifest; a `BankError` that names the file otherwise."""
    path = store.path(entry)
    try:
        size = path.stat().st_size
        if size != entry.bytes:
            raise BankError(damaged(entry, f"it has {size} bytes instead of {entry.bytes}"))
        if sha256_file(path) != entry.sha256:
            raise BankError(damaged(entry, "its hash does not match"))
    except FileNotFoundError:
        raise BankError(missing(entry)) from None
    except OSError as error:
        raise BankError(damaged(entry, error.strerror or str(error))) from None


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
        hashes[number] = sha256_file(store.snapshot_path(number))
        try:
            snapshot = store.snapshot(number)
        except BankError as error:
            problems.append(str(error))
            continue
        parent = snapshot.parent
        if parent is not None and parent.number in hashes and hashes[parent.number] != parent.sha256:
            problems.append(f"version {number} was built on another version {parent.number} than the one here")
        entries.update(snapshot.entries())
    for path in sorted((store.root / "releases").glob("*.json")):
        try:
            store.release(path.stem)
        except BankError as error:
            problems.append(f"{path}: {error}")
    for entry in entries.values():
        try:
            check_file(store, entry)
        except BankError as error:
            problems.append(str(error))
    known = set(entries)
    unknown = sorted(name for name in _names(store.root) if name not in known)
    size = sum(entry.bytes for entry in entries.values())
    return Verification(len(numbers), len(entries), size, tuple(problems), tuple(unknown))


def _names(root: Path) -> list[str]:
    """Paths of all data files, relative to the bank."""
    return [str(path.relative_to(root)) for path in (root / "data").rglob("*") if not path.is_dir()]


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
        with store.lock():
            found = _not_needed(store, keep, oldest)
            if not dry_run:
                _remove(store, found)
                _clear_stale_work(store, oldest)
    return found


def _not_needed(store: Store, keep: int | None, oldest: float) -> Pruned:
    numbers = store.numbers()
    released = {release.snapshot for release in store.releases().values()}
    snapshots: dict[int, Snapshot] = {n: store.snapshot(n) for n in numbers}  # any damage stops here
    gone = [
        n
        for n in (numbers[:-keep] if keep else [])
        if n not in released and store.snapshot_path(n).stat().st_mtime <= oldest
    ]
    needed = {path for n, snapshot in snapshots.items() if n not in gone for path in snapshot.entries()}
    left = {name: (store.root / name).lstat() for name in _names(store.root) if name not in needed}
    old = {name: stat.st_size for name, stat in left.items() if stat.st_mtime <= oldest}
    return Pruned(tuple(gone), tuple(old), sum(old.values()))


def _remove(store: Store, found: Pruned) -> None:
    for number in found.versions:  # manifests first: none may ever point to a file that is gone
        store.snapshot_path(number).unlink()
    for name in found.files:
        (store.root / name).unlink()
    for folder in sorted((store.root / "data").iterdir()):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _clear_stale_work(store: Store, oldest: float) -> None:
    """Checkpoints of calibrations nobody went on with."""
    for path in sorted(store.work.glob("calibration-*")):
        if path.is_dir() and path.stat().st_mtime <= oldest:
            with FileLock(path / "lock") as lock:
                if lock.held:
                    shutil.rmtree(path, ignore_errors=True)
