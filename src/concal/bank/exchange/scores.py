"""From a response file to a score file, piece by piece where it is larger than memory; the result appears whole.

A large file is read twice. First its person ids are sampled and cut into ranges of about `PIECE` rows; then its rows
are spread over one file per range, beside the output. Each range is scored by itself, so the scores come sorted by
person_id as those of a small file do, and nobody's responses are torn apart, in whatever order they were written.
"""

from __future__ import annotations

import csv
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from concal.bank.exchange.writers import neutral
from concal.bank.store.files import disk_errors, sync_folder
from concal.data.read import Table
from concal.errors import DataError
from concal.score.responses import Examinees, Unknown, read_examinees
from concal.score.score import ScoreOptions, ScoringBank, draw_plausible_values, score_examinees

PIECE = 6_000_000
"""Rows of a piece."""
LARGE = 512 * 2**20
"""Bytes of a text file that is read piece by piece: as text, ids and all, it takes several times its size in memory."""


@dataclass(frozen=True)
class Written:
    """What was written."""

    rows: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoreRequest:
    """What is wanted of a response table.

    Attributes
    ----------
    options : ScoreOptions
    wide : bool
    prior_column : str or None
    unknown : "error" or "ignore"
    period : str or None
        When the responses were given, for items that were split.
    plausible_values : int or None
        So many plausible values each instead of scores.
    per_draw : int
    covariates : table or None
        Person variables that plausible values are conditioned on.
    """

    options: ScoreOptions = field(default_factory=ScoreOptions)
    wide: bool = False
    prior_column: str | None = None
    unknown: Unknown = "error"
    period: str | None = None
    plausible_values: int | None = None
    per_draw: int = 1
    covariates: Table | None = None

    def columns(self, bank: ScoringBank) -> list[str]:
        """Columns a long table needs, the person's first."""
        names = bank.spec.data
        return [names.person_id, names.item_id, names.score, *([self.prior_column] if self.prior_column else [])]

    def read(self, bank: ScoringBank, responses: Table) -> Examinees:
        """Read and check a response table."""
        people = read_examinees(
            responses,
            bank.items,
            bank.spec,
            wide=self.wide,
            prior_column=self.prior_column,
            unknown=self.unknown,
            split=bank.split,
            period=self.period,
        )
        return replace(people, warnings=people.warnings + bank.doubts(people))

    def make(self, bank: ScoringBank, people: Examinees) -> pl.DataFrame:
        """Scores or plausible values of some examinees."""
        if self.plausible_values is None:
            return score_examinees(bank, people, self.options)
        return draw_plausible_values(
            bank, people, self.plausible_values, self.options, per_draw=self.per_draw, covariates=self.covariates
        )

    def table(self, bank: ScoringBank, responses: Table) -> tuple[pl.DataFrame, tuple[str, ...]]:
        """The table of a response table that fits into memory, and what is to be told about it."""
        people = self.read(bank, responses)
        return self.make(bank, people), people.warnings


def score_file(
    bank: ScoringBank, responses: Path, to: Path, request: ScoreRequest, *, large: int = LARGE, piece: int = PIECE
) -> Written:
    """Score a file into another (.csv or .parquet), which appears when it is complete."""
    request.options.check(bank)
    if to.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"cannot write {str(to)!r}: the name must end in .csv or .parquet")
    if not to.parent.is_dir():
        raise DataError(f"cannot write {str(to)!r}: there is no folder {str(to.parent)!r}")
    with _appearing(to) as out:
        whole = request.wide or request.covariates is not None  # a regression needs all examinees at once
        if whole or not _streams(responses, request.columns(bank), large, piece):
            table, warnings = request.table(bank, responses)
            out.write(table)
            return Written(out.rows, warnings)
        return Written(*_in_pieces(bank, responses, out, request, piece))


def _in_pieces(
    bank: ScoringBank, responses: Path, out: _Output, request: ScoreRequest, piece: int
) -> tuple[int, tuple[str, ...]]:
    folder = out.part.with_suffix(".pieces")
    folder.mkdir()
    warnings: list[str] = []
    try:
        files = _spread(responses, request.columns(bank), folder, piece)
        problems: list[str] = []
        people: Examinees | None = None
        for file in files:  # every piece is checked before any is scored: all problems are told, nothing is half done
            try:
                people = request.read(bank, file)
                warnings += people.warnings
            except DataError as error:
                problems.append(str(error))
        if problems:
            raise DataError("\n".join(problems[:5]))
        for file in files:
            out.write(request.make(bank, people if len(files) == 1 and people else request.read(bank, file)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return out.rows, tuple(dict.fromkeys(warnings))  # what several pieces say is said once


def _spread(responses: Path, columns: list[str], folder: Path, piece: int) -> list[Path]:
    """Rows by range of person_id, a file per range."""
    n, sample = 0, []
    person = columns[0]
    for batch in _batches(responses, [person]):
        ids = batch.column(0).cast(pa.string())
        sample.append(pl.Series(ids.take(pa.array(range((-n) % 97, len(ids), 97), pa.int64()))).cast(pl.String))
        n += len(ids)
    every = pl.concat(sample).drop_nulls().sort()
    parts = max(1, -(-n // piece))
    edges = sorted({every[int(k * every.len() / parts)] for k in range(1, parts)}) if every.len() else []
    writers: dict[int, pq.ParquetWriter] = {}
    paths = [folder / f"{k:06d}.parquet" for k in range(len(edges) + 1)]
    try:
        for batch in _batches(responses, columns):
            frame = pl.DataFrame(pa.Table.from_batches([batch])).with_columns(pl.col(person).cast(pl.String))
            at = pl.Series(edges, dtype=pl.String).search_sorted(frame[person].fill_null(""), side="right")
            for part in frame.with_columns(at.alias("piece")).partition_by("piece", maintain_order=True):
                k = int(part["piece"][0])
                table = part.drop("piece").to_arrow()
                if k not in writers:
                    writers[k] = pq.ParquetWriter(paths[k], table.schema)
                writers[k].write_table(table)
    finally:
        for writer in writers.values():
            writer.close()
    return [paths[k] for k in sorted(writers)]


def _streams(path: Path, columns: list[str], large: int, piece: int) -> bool:
    """Whether a file is large, and of a kind that can be read piece by piece.

    A Parquet file says how many rows it has; its bytes say little, ids of thirty million rows may take a hundred MB.
    """
    if not path.is_file():
        return False
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError):
            return False  # the reader of whole tables says what is wrong
        return file.metadata.num_rows > piece and set(columns) <= set(file.schema_arrow.names)
    if path.stat().st_size <= large or path.suffix.lower() not in (".csv", ".tsv"):
        return False
    with path.open("r", encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next(csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ","), [])
    return set(columns) <= set(header)


def _batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Pieces of a CSV or Parquet file, text as text."""
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            yield from pq.ParquetFile(path).iter_batches(500_000, columns=columns)
            return
        tabs = ".tsv" in path.suffixes
        reader = pc.open_csv(
            path,
            read_options=pc.ReadOptions(block_size=32 * 2**20),
            parse_options=pc.ParseOptions(delimiter="\t" if tabs else ","),
            convert_options=pc.ConvertOptions(
                include_columns=columns, column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=True
            ),
        )
        yield from reader
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"responses: {str(path)!r} cannot be read piece by piece ({reason})") from None


@dataclass
class _Output:
    """A file that grows beside the one it will become."""

    part: Path
    parquet: bool
    rows: int = 0
    writer: pq.ParquetWriter | None = None

    def write(self, table: pl.DataFrame) -> None:
        """Append rows."""
        self.rows += table.height
        if self.parquet:
            arrow = table.to_arrow()
            self.writer = self.writer or pq.ParquetWriter(self.part, arrow.schema, compression="zstd")
            self.writer.write_table(arrow)
            return
        with self.part.open("ab") as file:
            neutral(table).write_csv(file, include_header=self.rows == table.height)


@contextmanager
def _appearing(to: Path) -> Iterator[_Output]:
    """An output that takes its place when the block ends well, and is gone when it does not."""
    part = to.with_name(f".{to.name}.{secrets.token_hex(4)}.part")
    out = _Output(part, to.suffix.lower() == ".parquet")
    with disk_errors(f"writing {to}"):
        try:
            yield out
            if out.writer is not None:
                out.writer.close()
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(to)
            sync_folder(to.parent)
        finally:
            part.unlink(missing_ok=True)
