"""A bank's files: which versions and releases there are, and how what they name is read.

Files are immutable; a version is one manifest that names them. `concal.bank.store.transaction` makes new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from concal.bank.store.cache import Cache, cache_root
from concal.bank.store.files import sha256
from concal.bank.store.folders import FolderObjects
from concal.bank.store.locks import FileLock
from concal.bank.store.manifest import FileEntry, Release, Snapshot, parse_release, parse_snapshot
from concal.bank.store.objects import Objects, is_cloud
from concal.errors import BankError
from concal.names import check_safe_name


@dataclass(frozen=True)
class Store:
    """A bank's files, wherever they are.

    Attributes
    ----------
    objects : Objects
        A folder or object storage.
    work : Path
        Scratch space on this machine, inside the bank where that is a folder; safe to delete when nothing runs.
    staging : Path or None
        Where the files of a commit in the making lie; they are found there first.
    cache : Cache or None
        What was read from object storage.
    """

    objects: Objects
    work: Path
    staging: Path | None = None
    cache: Cache | None = None

    @classmethod
    def open(cls, place: str | Path) -> Store:
        """The store in a folder, or at an address like ``s3://bucket/prefix``."""
        if not is_cloud(place):
            root = Path(place)
            return cls(FolderObjects(root), root / "work")
        from concal.bank.store.cloud import CloudObjects

        objects, root = CloudObjects(str(place)), cache_root()
        return cls(objects, root / "banks" / sha256(objects.address.encode())[:16], cache=Cache(root / "files"))

    @property
    def place(self) -> Path | str:
        """Folder or address."""
        return self.objects.place

    def staged_in(self, folder: Path) -> Store:
        """The store with the files of a commit in it."""
        return replace(self, staging=folder)

    def lock(self) -> FileLock:
        """Held while folders appear in the work folder or vanish from it."""
        self.work.mkdir(exist_ok=True, parents=self.cache is not None)
        return FileLock(self.work, wait=True)

    @contextmanager
    def guard(self) -> Iterator[bool]:
        """Held while files appear in the bank or vanish from it: True when nobody else can write meanwhile."""
        if self.objects.has_lock:
            with self.lock():
                yield True
        else:
            yield False

    # versions

    def numbers(self) -> list[int]:
        """Numbers of the snapshots there are, ascending."""
        try:
            names = [file.name.removeprefix("snapshots/") for file in self.objects.files("snapshots")]
        except FileNotFoundError:
            raise BankError(
                f"{self.place} is not a bank (it has no snapshots folder); make one with `concal init`"
            ) from None
        except NotADirectoryError:
            raise BankError(f"{self.place} is a file, not a bank") from None
        found = sorted(int(n[:-5]) for n in names if len(n) == 25 and n.endswith(".json") and n[:-5].isdecimal())
        if not found:
            raise BankError(
                f"{self.place} is not a bank: it has no snapshot (none was made here, or not to the end); run "
                "`concal init`"
            )
        return found

    def snapshot_name(self, number: int) -> str:
        """Name of a snapshot's file."""
        return f"snapshots/{number:020d}.json"

    def shown(self, name: str) -> str:
        """A file as messages name it."""
        return f"{self.place}/{name}"

    def read_bytes_of_snapshot(self, number: int) -> bytes:
        """The manifest's bytes."""
        try:
            return self.objects.read(self.snapshot_name(number))
        except FileNotFoundError:
            known = self.numbers()
            raise BankError(
                f"there is no version {number}; versions run from {known[0]} to {known[-1]}, see `concal history`"
            ) from None

    def snapshot(self, number: int) -> Snapshot:
        """A validated snapshot."""
        where = self.shown(self.snapshot_name(number))
        snapshot = parse_snapshot(self.read_bytes_of_snapshot(number), where)
        if snapshot.number != number:
            raise BankError(f"{where} says it is version {snapshot.number}: the file was renamed or copied")
        return snapshot

    def head(self) -> Snapshot:
        """The newest snapshot."""
        return self.snapshot(self.numbers()[-1])

    # files

    def read(self, entry: FileEntry, start: int = 0, size: int | None = None, digest: str | None = None) -> bytes:
        """Bytes of a file, as they are: to be compared with their hash by whoever uses them.

        Parameters
        ----------
        entry
            The file.
        start, size
            Which bytes; default all, and one more where the file is longer than it should be.
        digest
            SHA-256 these bytes must have; with it they are looked for in the cache first.
        """
        if self.staging is not None and (staged := self.staging / entry.path.removeprefix("data/")).exists():
            with staged.open("rb") as file:
                file.seek(start)
                return file.read() if size is None else file.read(size)
        if self.cache is not None and digest is not None and (kept := self.cache.get(digest)) is not None:
            return kept
        data = self.objects.read(entry.path, start, entry.bytes + 1 if size is None else size)
        if self.cache is not None and digest is not None and sha256(data) == digest:
            self.cache.put(digest, data)
        return data

    def needed_folders(self, after: int = -1) -> set[str]:
        """Folders of ``data/`` that versions with a number above `after` name."""
        numbers = [n for n in self.numbers() if n > after]
        return {path.split("/")[1] for n in numbers for path in self.snapshot(n).entries()}

    # releases

    def release_names(self) -> list[str]:
        """Names of the releases there are."""
        names = [file.name.removeprefix("releases/") for file in self.objects.files("releases")]
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def releases(self) -> dict[str, Release]:
        """Releases by name."""
        return {name: self._release(name) for name in self.release_names()}

    def _release(self, name: str) -> Release:
        where = f"releases/{name}.json"
        release = parse_release(self.objects.read(where), self.shown(where))
        if release.name != name:
            raise BankError(f"{self.shown(where)} says it is release {release.name!r}: the file was renamed or copied")
        return release

    def release(self, name: str) -> Snapshot:
        """The snapshot behind a release, checked to be the very one that was released."""
        check_safe_name(name, "release")
        try:
            release = self._release(name)
        except FileNotFoundError:
            known = ", ".join(self.release_names()) or "none yet"
            raise BankError(f"there is no release {name!r}; releases: {known}") from None
        if sha256(self.read_bytes_of_snapshot(release.snapshot)) != release.sha256:
            raise BankError(
                f"version {release.snapshot} is not the one release {name!r} froze; restore it from a backup"
            )
        return self.snapshot(release.snapshot)
