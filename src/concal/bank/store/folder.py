"""Writing and reading the files of one part of a snapshot (a period, a consensus) by key."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pyarrow as pa

from concal.bank.store.manifest import FileEntry
from concal.bank.store.parquet import Part, read_bytes, read_frame, read_table, write_bytes, write_frame, write_parquet
from concal.bank.store.store import Store
from concal.errors import BankError


class Places(Protocol):
    """Where new files go: a commit, or a shelf in ``work/``."""

    def place(self, folder: str, name: str) -> tuple[Path, str]:
        """Where to write a file now, and its path in the bank."""


@dataclass(frozen=True)
class FolderWriter:
    """Files under one new folder of a commit; `files` collects the manifest's entries."""

    transaction: Places
    folder: str
    files: dict[str, FileEntry] = field(default_factory=dict)

    def tables(
        self, key: str, tables: Iterable[pa.Table], *, split: Sequence[str] = (), meta: Mapping[str, Any] | None = None
    ) -> None:
        """Parquet, one row group per table."""
        path, bank_path = self.transaction.place(self.folder, f"{key}.parquet")
        self.files[key] = write_parquet(path, bank_path, tables, split_columns=split, meta=meta)

    def frame(self, key: str, frame: pl.DataFrame) -> None:
        """Parquet from a polars frame; one without columns is left out and reads back as such."""
        if frame.width:
            path, bank_path = self.transaction.place(self.folder, f"{key}.parquet")
            self.files[key] = write_frame(path, bank_path, frame)

    def json(self, key: str, content: Mapping[str, Any]) -> None:
        """Plain data."""
        path, bank_path = self.transaction.place(self.folder, f"{key}.json")
        text = json.dumps(_encode(content), indent=1, allow_nan=False)
        self.files[key] = write_bytes(path, bank_path, (text + "\n").encode("ascii"))

    def text(self, key: str, name: str, content: bytes) -> None:
        """A text file under its own name."""
        path, bank_path = self.transaction.place(self.folder, name)
        self.files[key] = write_bytes(path, bank_path, content)


@dataclass(frozen=True)
class FolderReader:
    """The files of one part of a snapshot."""

    store: Store
    files: Mapping[str, FileEntry]

    def __contains__(self, key: str) -> bool:
        return key in self.files

    def entry(self, key: str) -> FileEntry:
        """The manifest's entry."""
        if key not in self.files:
            raise BankError(f"the bank has no {key!r} here; it has {', '.join(sorted(self.files))}")
        return self.files[key]

    def table(self, key: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A whole Arrow table."""
        return read_table(self.store, self.entry(key), columns)

    def frame(self, key: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """A polars frame; an absent one has no columns."""
        return read_frame(self.store, self.entry(key), columns) if key in self else pl.DataFrame()

    def json(self, key: str) -> dict[str, Any]:
        """Plain data."""
        content: dict[str, Any] = _decode(json.loads(read_bytes(self.store, self.entry(key))))
        return content

    def part(self, key: str) -> Part:
        """A file of which only some rows are needed."""
        return Part(self.store, self.entry(key))


def _encode(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become {"__number__": "nan"}."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"__number__": repr(value)}
    if isinstance(value, Mapping):
        return {str(k): _encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(v) for v in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"__number__"}:
            return float(value["__number__"])
        return {k: _decode(v) for k, v in value.items()}
    return [_decode(v) for v in value] if isinstance(value, list) else value
