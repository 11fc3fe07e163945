"""Snapshot manifests: one small JSON file that says what a version of the bank is made of.

A manifest is canonical JSON (sorted keys, one space of indentation) that carries the SHA-256 of itself without that
field. Reading compares the whole text with its canonical form, so any changed byte is noticed; every path is checked
against a pattern before it touches the disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from concal.bank.store.files import sha256
from concal.errors import BankError
from concal.names import safe_name_problem

FORMAT = 6
"""Version of the store's layout that this concal writes."""
OLDEST = 6
"""Oldest layout that this concal reads."""
LARGEST_MANIFEST = 1 << 26
"""Bytes; a larger file is not a manifest."""

_PIECE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_PATH = re.compile(rf"\Adata(/{_PIECE}){{1,3}}\Z")


def _safe_path(value: str) -> str:
    if not _PATH.match(value):  # every piece begins with a letter or digit: no way up
        raise ValueError(f"{value!r} is not a path inside the bank's data folder")
    return value


def _safe_name(value: str) -> str:
    if problem := safe_name_problem(value):
        raise ValueError(f"{value[:80]!r} {problem}")
    return value


Sha = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{64}\z")]
Id = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{16}\z")]
SafePath = Annotated[str, AfterValidator(_safe_path)]
Name = Annotated[str, AfterValidator(_safe_name)]
Key = Annotated[str, StringConstraints(pattern=r"\A[a-z][a-z0-9_]{0,39}\z")]
Scalar = str | int | float | bool | None
Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FileEntry(_Part):
    """One file: where it is and what it must be."""

    path: SafePath
    bytes: Count
    rows: Count | None = None
    sha256: Sha
    footer_sha256: Sha | None = Field(None, description="Parquet footer, for reads of a part of the file.")


Files = dict[Key, FileEntry]


def dump_files(files: Mapping[str, FileEntry]) -> dict[str, Any]:
    """Files by key as plain data."""
    return {key: entry.model_dump(mode="json") for key, entry in files.items()}


def load_files(content: Mapping[str, Any]) -> dict[str, FileEntry]:
    """What `dump_files` gave."""
    return {key: FileEntry.model_validate(entry) for key, entry in content.items()}


class PeriodEntry(_Part):
    """One period: what was stored with its calibration, for good, and its link, which may be made again."""

    position: Count
    files: Files
    link: Files = Field(default_factory=dict)
    link_key: str = Field(default="", description="Hash of what the link was made from.")
    info: dict[Key, Scalar] = Field(default_factory=dict, description="What a table of periods shows.")


class Act(_Part):
    """What people decided about an item: data, on which a version depends as it does on its periods and spec."""

    kind: Literal["exclude", "split"]
    item: str = Field(min_length=1, description="Split: as the bank called it then. Exclude: as the period calls it.")
    periods: tuple[Name, ...] = Field(min_length=1)
    onwards: bool = Field(default=False, description="Also every period that is added later.")
    new_id: str = Field(default="", description="Split: what the item is called in these periods.")
    person_group: str = Field(default="", description="Exclude: whose responses do not count. Empty: everybody's.")
    reason: str = ""


class Parent(_Part):
    """The snapshot this one was built on."""

    number: Count
    sha256: Sha


class Snapshot(_Part):
    """One version of the bank."""

    format: Count
    bank: Id
    number: Count
    id: Id
    parent: Parent | None
    concal: str
    written: str
    author: str
    action: str
    reason: str = ""
    spec: FileEntry
    reference: Name | None = None
    periods: dict[Name, PeriodEntry] = Field(default_factory=dict)
    acts: tuple[Act, ...] = Field(default=(), description="In the order they were made.")
    state: Files = Field(default_factory=dict, description="Consensus and totals.")
    totals_key: str = Field(default="", description="Hash of what went into the totals.")
    evaluations: dict[Name, Files] = Field(default_factory=dict)

    def entries(self) -> dict[str, FileEntry]:
        """Every file this version needs, by path."""
        found = [self.spec, *self.state.values()]
        for period in self.periods.values():
            found += [*period.files.values(), *period.link.values()]
        for files in self.evaluations.values():
            found += files.values()
        return {entry.path: entry for entry in found}

    def ordered_periods(self) -> tuple[str, ...]:
        """Period names in the order they were added."""
        return tuple(sorted(self.periods, key=lambda name: self.periods[name].position))


def damaged(entry: FileEntry, what: str) -> str:
    """One wording for every damaged file."""
    return f"{entry.path} is damaged: {what}; restore the file from a backup of the bank"


def missing(entry: FileEntry) -> str:
    """One wording for every file that a version names and the folder lacks."""
    return (
        f"{entry.path} is missing, though a version of the bank names it. If this is a copy, it was probably made "
        "while an update was written: copy the bank again, snapshots and releases first, data last. Otherwise restore "
        "the file from a backup of the bank"
    )


def pruned(entry: FileEntry, numbers: Sequence[int]) -> str:
    """One wording for every file of a version that is no more, which somebody still looks at."""
    return (
        f"{entry.path} is missing: the version it belongs to was pruned meanwhile (versions {numbers[0]} to "
        f"{numbers[-1]} are there); open the bank again, or refresh() it"
    )


class Release(_Part):
    """A name for a snapshot, never rewritten."""

    format: Count
    name: Name
    snapshot: Count
    sha256: Sha
    written: str
    author: str
    note: str = ""


def to_bytes(content: Mapping[str, Any]) -> bytes:
    """Canonical JSON with its own checksum."""
    body = {k: v for k, v in content.items() if k != "checksum"}
    return _canonical({**body, "checksum": sha256(_canonical(body))})


def _canonical(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("ascii")


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """Canonical JSON back to a dict; anything else is a `BankError` that names the file."""
    if len(data) > LARGEST_MANIFEST:
        raise BankError(f"{where} is {len(data)} bytes: too large for a manifest")
    try:
        content = json.loads(data)
        if not isinstance(content, dict) or to_bytes(content) != data:
            raise ValueError("the checksum does not match")
    except (ValueError, RecursionError, TypeError) as error:
        raise BankError(
            f"{where} is damaged ({str(error)[:200]}); restore the file from a backup of the bank"
        ) from None
    return {k: v for k, v in content.items() if k != "checksum"}


def _check_format(content: Mapping[str, Any], where: str) -> None:
    version, wrote = content.get("format"), content.get("concal", "unknown")
    if not isinstance(version, int) or isinstance(version, bool):
        raise BankError(f"{where} has no format version")
    if version > FORMAT:
        raise BankError(
            f"{where} has store format {version}, written by concal {wrote!r}; this concal reads up to {FORMAT}: "
            "upgrade concal"
        )
    if version < OLDEST:
        raise BankError(
            f"{where} has store format {version}, written by concal {wrote!r}; this concal reads {OLDEST} to {FORMAT}. "
            "To convert: with the concal that wrote it, `concal export BANK --format arviz --period PERIOD` for each "
            "period, then with this one `concal init` and `concal add BANK PERIOD --draws FILE`"
        )


def parse_snapshot(data: bytes, where: str) -> Snapshot:
    """A validated manifest, from the bytes of its file."""
    return _parse(Snapshot, data, where, "manifest")


def parse_release(data: bytes, where: str) -> Release:
    """A validated release, from the bytes of its file."""
    return _parse(Release, data, where, "release")


_Model = TypeVar("_Model", Snapshot, Release)


def _parse(model: type[_Model], data: bytes, where: str, noun: str) -> _Model:
    content = parse_json(data, where)
    _check_format(content, where)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise BankError(f"{where} is not a valid {noun}: {_first_error(error)}") from None


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(piece) for piece in first['loc'])}: {first['msg']}"
