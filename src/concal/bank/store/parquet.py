"""Parquet files that notice a flipped byte: hashed while written, verified while read.

Three layers: the manifest has the hash of the whole file (checked by every full read) and of its footer; the footer has
the hash of each row group (checked by reads of some rows); and every page has the CRC of the Parquet format, which
other readers can check too.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from concal.bank.store.files import HashingFile, disk_errors, sha256, write_durably
from concal.bank.store.manifest import FileEntry, damaged, missing, pruned
from concal.bank.store.store import Store
from concal.errors import BankError

_HASHES = b"concal.row_groups"
_META = b"concal.meta"
_MAGIC = b"PAR1"


def write_parquet(
    path: Path,
    bank_path: str,
    tables: Iterable[pa.Table],
    *,
    split_columns: Sequence[str] = (),
    meta: Mapping[str, object] | None = None,
) -> FileEntry:
    """Write one row group per table; returns the manifest's entry.

    Parameters
    ----------
    path
        Where to write now.
    bank_path
        The file's path in the bank.
    tables
        One or more tables of one schema.
    split_columns
        Columns of (lists of) floats to store as split bytes, which compresses noise best.
    meta
        Kept in the footer as JSON.
    """
    hashes: list[str] = []
    rows = 0
    with disk_errors(f"writing {bank_path}"):
        sink = HashingFile(path)
        try:
            writer: pq.ParquetWriter | None = None
            for table in tables:
                if writer is None:
                    writer = _open_writer(sink, table.schema, split_columns)
                    sink.mark()  # the file's magic bytes
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                hashes.append(sink.mark())
                rows += table.num_rows
            if writer is None:
                raise BankError(f"{bank_path}: nothing to write")
            writer.add_key_value_metadata({_HASHES: json.dumps(hashes), _META: json.dumps(meta or {})})
            writer.close()
            footer = sink.mark()
        finally:
            sink.close()
    return FileEntry(path=bank_path, bytes=sink.size, rows=rows, sha256=sink.hexdigest(), footer_sha256=footer)


def _open_writer(sink: HashingFile, schema: pa.Schema, split_columns: Sequence[str]) -> pq.ParquetWriter:
    split = [name for name in _leaves(schema) if name.split(".")[0] in split_columns]
    return pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[n for n in _leaves(schema) if n not in split],
        column_encoding=dict.fromkeys(split, "BYTE_STREAM_SPLIT") or None,
        write_page_checksum=True,
        write_statistics=[n for n in schema.names if n not in split_columns],
        store_schema=True,
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """Parquet's names of the leaf columns."""
    names = []
    for field in schema:
        nested = pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type)
        names.append(f"{field.name}.list.element" if nested else field.name)
    return names


def write_frame(path: Path, bank_path: str, frame: pl.DataFrame) -> FileEntry:
    """Write a polars frame as one row group."""
    return write_parquet(path, bank_path, [_plain(frame.to_arrow())])


def _plain(table: pa.Table) -> pa.Table:
    """Strings as every Parquet reader knows them (no views, no large offsets)."""
    fields = []
    for field in table.schema:
        kind = field.type
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            kind = pa.string()
        elif pa.types.is_large_list(kind):
            inner = kind.value_type
            kind = pa.list_(pa.string() if pa.types.is_large_string(inner) or pa.types.is_string_view(inner) else inner)
        fields.append(pa.field(field.name, kind, field.nullable))
    return table.cast(pa.schema(fields))


def write_bytes(path: Path, bank_path: str, data: bytes) -> FileEntry:
    """Write a small file of another kind (JSON, TOML)."""
    with disk_errors(f"writing {bank_path}"):
        write_durably(path, data)
    return FileEntry(path=bank_path, bytes=len(data), rows=None, sha256=sha256(data), footer_sha256=None)


def read_bytes(store: Store, entry: FileEntry) -> bytes:
    """A file's bytes, verified."""
    with file_errors(store, entry):
        data = store.read(entry, digest=entry.sha256)
    if len(data) != entry.bytes:
        raise BankError(damaged(entry, wrong_size(entry, len(data))))
    if sha256(data) != entry.sha256:
        raise BankError(damaged(entry, "its hash does not match"))
    return data


@contextmanager
def file_errors(store: Store, entry: FileEntry) -> Iterator[None]:
    """Say of which file the operating system speaks."""
    try:
        yield
    except FileNotFoundError:
        raise BankError(_gone(store, entry)) from None
    except OSError as error:
        raise BankError(damaged(entry, error.strerror or str(error))) from None


def _gone(store: Store, entry: FileEntry) -> str:
    """Why a file is not there: no version names it any more, or one does."""
    try:
        numbers, needed = store.numbers(), store.needed_folders()
    except BankError:
        return missing(entry)
    return missing(entry) if entry.path.split("/")[1] in needed else pruned(entry, numbers)


def wrong_size(entry: FileEntry, size: int) -> str:
    """A file that is too short or too long; of the latter no more is read than tells."""
    more = "more than " if size > entry.bytes else ""
    return f"it has {more}{min(size, entry.bytes)} bytes instead of {entry.bytes}"


def read_table(store: Store, entry: FileEntry, columns: Sequence[str] | None = None) -> pa.Table:
    """A whole file, verified by its hash."""
    return pq.read_table(pa.BufferReader(read_bytes(store, entry)), columns=columns and list(columns))


def read_frame(store: Store, entry: FileEntry, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """A whole file as a polars frame, verified by its hash."""
    frame = pl.from_arrow(read_table(store, entry, columns))
    assert isinstance(frame, pl.DataFrame)
    return frame


class Part:
    """A file opened for reading some of its rows; every byte used is verified.

    The footer against the manifest, each row group against the hash in the footer.
    """

    def __init__(self, store: Store, entry: FileEntry) -> None:
        self._store, self._entry = store, entry
        with file_errors(store, entry):
            footer = self._read_footer()
        if sha256(footer) != entry.footer_sha256:
            raise BankError(damaged(entry, "its footer does not match"))
        start = entry.bytes - len(footer)
        self._footer, self._start = footer, start
        self._metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
        content = self._metadata.metadata
        self._hashes: list[str] = json.loads(content[_HASHES])
        self.meta: dict[str, object] = json.loads(content[_META])
        self.n_row_groups = self._metadata.num_row_groups

    @property
    def columns(self) -> list[str]:
        """Names of the file's columns."""
        return list(self._metadata.schema.to_arrow_schema().names)

    def _read_footer(self) -> bytes:
        """Metadata, its length and the magic bytes: what the manifest has a hash of."""
        store, entry = self._store, self._entry
        if store.cache is not None and (kept := store.cache.get(str(entry.footer_sha256))) is not None:
            return kept
        tail = store.read(entry, max(0, entry.bytes - 8), 9)
        if len(tail) != min(8, entry.bytes):
            raise BankError(damaged(entry, "it has not its size"))
        start = entry.bytes - 8 - int.from_bytes(tail[:4], "little")
        if not 0 <= start < entry.bytes:
            return b""
        return store.read(entry, start, entry.bytes - start, entry.footer_sha256)

    def _read_row_group(self, group: int) -> bytes:
        """A row group's bytes; the file's first ones, which no hash covers, come with the first and are compared."""
        store, entry, digest = self._store, self._entry, self._hashes[group]
        start, end = self._span(group)
        if group:
            return store.read(entry, start, end - start, digest)
        if store.cache is not None and (kept := store.cache.get(digest)) is not None:
            return kept
        data = store.read(entry, 0, end)
        if data[:start] != _MAGIC:
            raise BankError(damaged(entry, "it does not begin as a Parquet file"))
        if store.cache is not None and sha256(data[start:]) == digest:
            store.cache.put(digest, data[start:])
        return data[start:]

    def _span(self, group: int) -> tuple[int, int]:
        """First byte of a row group and of the next."""
        return self._first(group), self._first(group + 1) if group + 1 < self.n_row_groups else self._start

    def _first(self, group: int) -> int:
        row_group = self._metadata.row_group(group)
        starts = []
        for k in range(row_group.num_columns):
            column = row_group.column(k)
            starts.append(column.dictionary_page_offset or column.data_page_offset)
            starts.append(column.data_page_offset)
        return int(min(starts))

    def read(self, groups: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Row groups by number, verified by their hashes."""
        file = _Sparse(self._footer, self._start)
        for group in groups:
            with file_errors(self._store, self._entry):
                data = self._read_row_group(group)
            if sha256(data) != self._hashes[group]:
                raise BankError(damaged(self._entry, f"row group {group} does not match"))
            file.pieces[self._span(group)[0]] = data
        reader = pq.ParquetFile(pa.PythonFile(file, mode="r"), metadata=self._metadata)
        return reader.read_row_groups(list(groups), columns=columns and list(columns), use_threads=False)


class _Sparse(io.RawIOBase):
    """The verified pieces of a file at their places, so that nothing unverified can be read."""

    def __init__(self, footer: bytes, start: int) -> None:
        self.pieces = {start: footer}
        self._size = start + len(footer)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = {0: 0, 1: self._at, 2: self._size}[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        for start, data in self.pieces.items():
            if start <= self._at and end <= start + len(data):
                piece = data[self._at - start : end - start]
                self._at = end
                return piece
        raise OSError(f"bytes {self._at} to {end} were not verified")
