"""What a store needs of the place its files are kept in: named bytes that appear whole, once, or not at all.

Two places do: a folder (`concal.bank.store.folders`) and object storage (`concal.bank.store.cloud`). Names are paths
inside the bank, pieces parted by ``/``. The one act everything rests on is `create`, which must fail when the name
exists: the next version of a bank is a manifest under the next number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from concal.errors import BankError

FOLDERS = ("snapshots", "releases", "data", "work")
SCHEMES = ("s3", "gs", "az")
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/*)(?P<rest>.*)", re.DOTALL)
_PIECE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Listed:
    """A file as a list shows it; `modified` is in seconds since 1970."""

    name: str
    bytes: int
    modified: float


class Objects(Protocol):
    """Where the files of a bank are."""

    @property
    def place(self) -> Path | str:
        """As people write it."""

    @property
    def has_lock(self) -> bool:
        """Whether the lock of the work folder keeps all other writers out; otherwise they may write at any time."""

    def prepare(self) -> None:
        """Make the place ready for a new bank, or a `BankError` that says why a bank cannot be here."""

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Bytes from `start` on, at most `size`; `FileNotFoundError` where there is no such file."""

    def files(self, folder: str) -> list[Listed]:
        """Every file under a folder, sorted by name; none without it, but `FileNotFoundError` without snapshots."""

    def create(self, name: str, data: bytes, scratch: Path) -> bool:
        """A new file in one step; False when the name is taken by other bytes. `scratch` is a folder of one's own."""

    def publish(self, folder: Path) -> None:
        """Bring a finished folder to ``data/`` under its own name, which nobody else uses; durable on return."""

    def delete(self, names: list[str]) -> None:
        """Remove files, and folders that are empty then."""

    def forget(self, name: str) -> None:
        """Remove a version's manifest; its number may never be given again to a writer who does not know of that."""

    def put(self, name: str, content: Path | bytes) -> None:
        """A file that appears whole, in the place of one that may be there: for names that mean one content."""


def is_cloud(place: str | Path) -> bool:
    """Whether a bank's place is object storage; what is neither that nor a folder is refused.

    >>> is_cloud("s3://bucket/bank"), is_cloud("bank")
    (True, False)
    """
    text = str(place)
    found = _ADDRESS.fullmatch(text)
    if found is None or len(found["scheme"]) == 1:  # a drive letter
        if "://" in text:
            raise BankError(
                "the bank's place mixes a folder with an address; give one of the two, e.g. s3://bucket/bank"
            )
        return False
    scheme, rest = found["scheme"].lower(), found["rest"]
    if scheme not in SCHEMES:
        if not found["slashes"].startswith("//"):
            return False  # a folder with a colon in its name
        known = ", ".join(f"{s}://" for s in SCHEMES)
        raise BankError(f"a bank cannot be at {scheme}://...; it can be a folder, or an address with {known}")
    if found["slashes"] != "//" or isinstance(place, Path):
        raise BankError(f"write the bank's address as text, {scheme}://bucket/prefix (a Path drops a slash)")
    bucket, *prefix = rest.rstrip("/").split("/")
    if "@" in bucket or "?" in rest:  # never shown: it may hold a key
        raise BankError(
            "a bank's address has no keys in it; credentials come from the environment, see docs/guides/scaling.md"
        )
    if not all(_PIECE.fullmatch(piece) for piece in (bucket, *prefix)):
        raise BankError(
            f"{text!r} is not a bank's address: it must be {scheme}://bucket/prefix, every piece of letters, digits, "
            "dots, hyphens and underscores, beginning with a letter or digit"
        )
    return True
