"""Looking after a store: clear what killed processes left, verify every byte, remove what no version needs.

Nothing is removed because of its age or its name alone: a file stays while a manifest names it or a commit under way
may come to name it. In a folder that is asked under the store's lock, when no commit is between moving its files to
``data/`` and linking its manifest. On object storage commits leave notes (see `concal.bank.store.transaction`), and the
order of looking matters: files, then notes, then manifests. A note is older than its commit's files and younger ones
are not on the list, so a file without a note is either named by a manifest or will never be. Several may prune at once,
beside commits and releases: which versions go is decided once for all (see `concal.bank.store.fate`), and what goes is
named by none of the others.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from concal.bank.store.fate import FATE, PRUNED, decide, fate_name
from concal.bank.store.files import disk_errors, sha256
from concal.bank.store.locks import FileLock
from concal.bank.store.manifest import FileEntry, Snapshot, damaged
from concal.bank.store.parquet import file_errors, wrong_size
from concal.bank.store.store import Store
from concal.bank.store.transaction import NOTE, clear_commit, note_name
from concal.errors import BankError, ConcalError

_PIECE = 1 << 24
_AT_ONCE = 8
"""Files that are verified side by side: most of a bank's are small, and object storage answers each after a while."""
LIVING_JOB = 86400.0
"""Seconds after which a job on object storage whose worker put no checkpoint there is taken for dead."""


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
    with file_errors(store, entry):
        while (
            size <= entry.bytes
        ):  # one byte too many is enough to tell, and a short answer says that there are no more
            asked = min(_PIECE, entry.bytes + 1 - size)
            piece = store.objects.read(entry.path, size, asked)
            digest.update(piece)
            size += len(piece)
            if len(piece) < asked:
                break
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
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems += filter(None, pool.map(lambda entry: _damage(store, entry), entries.values()))
    unknown = [file.name for file in store.objects.files("data") if file.name not in entries]
    size = sum(entry.bytes for entry in entries.values())
    return Verification(len(numbers), len(entries), size, tuple(problems), tuple(unknown))


def _damage(store: Store, entry: FileEntry) -> str:
    """What is wrong with a file, or nothing."""
    try:
        check_file(store, entry)
    except BankError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Pruned:
    """What `prune` removed (or would remove): versions, and files with their sizes."""

    versions: tuple[int, ...]
    sizes: dict[str, int]

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files."""
        return tuple(self.sizes)

    @property
    def bytes(self) -> int:
        """Of all the files."""
        return sum(self.sizes.values())


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
    snapshots = _snapshots(store)
    numbers = list(snapshots)
    written = {file.name: file.modified for file in store.objects.files("snapshots")}
    released = {release.snapshot for release in store.releases().values()}
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
    return Pruned(tuple(gone), old), dead


def _snapshots(store: Store) -> dict[int, Snapshot]:
    """Every version by number; any damage stops here, but not one that somebody else has just pruned."""
    found = {}
    for number in store.numbers():
        try:
            found[number] = store.snapshot(number)
        except BankError:
            if number in store.numbers():
                raise
    return found


def _notes(store: Store) -> dict[str, int]:
    """Commits under way, or never finished, and the version each is built on."""
    found: dict[str, int] = {}
    for file in store.objects.files("work"):
        if file.name.startswith(NOTE):
            with suppress(FileNotFoundError, ValueError):  # just done
                found[file.name.removeprefix(NOTE)] = int(store.objects.read(file.name))
    return found


def _remove(store: Store, found: Pruned) -> Pruned:
    """Manifests first: none may ever point to a file that is gone. A version that was just released stays."""
    gone = [number for number in found.versions if decide(store, number, PRUNED)]
    stay = [number for number in found.versions if number not in gone]
    spared = {path for number in stay for path in store.snapshot(number).entries()}
    for number in gone:
        store.objects.forget(store.snapshot_name(number))
    sizes = {name: size for name, size in found.sizes.items() if name not in spared}
    store.objects.delete(list(sizes))
    if not store.objects.has_lock:
        store.objects.delete([fate_name(number) for number in gone])  # a manifest that is gone says it
    return Pruned(tuple(gone), sizes)


def _clear_stale_work(store: Store, oldest: float) -> None:
    """Checkpoints of calibrations nobody went on with, and jobs whose results nobody fetched."""
    if not store.objects.has_lock:
        store.objects.delete(_stale_jobs(store, min(oldest, time.time() - LIVING_JOB)))
    for path in sorted([*store.work.glob("calibration-*"), *store.work.glob("job-*")]):
        if path.is_dir() and path.stat().st_mtime <= oldest:
            with FileLock(path / "lock") as lock:
                if lock.held:
                    shutil.rmtree(path, ignore_errors=True)


def _stale_jobs(store: Store, oldest: float) -> list[str]:
    """Files on object storage of jobs that gave no sign of life since `oldest`: not one of their files is younger."""
    files = [file for file in store.objects.files("work") if not file.name.startswith((NOTE, FATE))]
    job = {
        file.name: file.name.split("/")[1].rsplit("-", 1)[-1] for file in files
    }  # job-<id>, calibration-<period>-<id>
    alive = {job[file.name] for file in files if file.modified > oldest}
    return [name for name, identity in job.items() if identity not in alive]
