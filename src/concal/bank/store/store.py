"""A bank's folder: which versions and releases there are, and where their files lie.

Files are immutable; a version is one manifest that names them. `concal.bank.store.transaction` makes new ones.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from concal.bank.store.files import sha256, sync_folder
from concal.bank.store.locks import FileLock
from concal.bank.store.manifest import FileEntry, Release, Snapshot, parse_release, parse_snapshot
from concal.errors import BankError
from concal.names import check_safe_name

FOLDERS = ("snapshots", "releases", "data", "work")
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


@dataclass(frozen=True)
class Store:
    """A bank's folder.

    Attributes
    ----------
    root : Path
    staging : Path or None
        Where the files of a commit in the making lie; they are found there first.
    """

    root: Path
    staging: Path | None = None

    @property
    def work(self) -> Path:
        """Scratch space; safe to delete when nothing runs."""
        return self.root / "work"

    def lock(self) -> FileLock:
        """Held while files appear in ``data/`` or vanish from it, so that who removes sees every manifest there is."""
        self.work.mkdir(exist_ok=True)
        return FileLock(self.work, wait=True)

    # versions

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

    # files

    def path(self, entry: FileEntry) -> Path:
        """Where a file is; a link that leads out of the bank is refused."""
        if self.staging is not None:
            staged = self.staging / entry.path.removeprefix("data/")
            if staged.exists():
                return staged
        path = self.root / entry.path
        inside = os.path.realpath(self.root)
        if os.path.commonpath([inside, os.path.realpath(path)]) != inside:
            raise BankError(f"{entry.path} leads out of the bank (a symbolic link?); refused")
        return path

    def needed_folders(self, after: int = -1) -> set[str]:
        """Folders of ``data/`` that versions with a number above `after` name."""
        numbers = [n for n in self.numbers() if n > after]
        return {path.split("/")[1] for n in numbers for path in self.snapshot(n).entries() if path.startswith("data/")}

    # releases

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
