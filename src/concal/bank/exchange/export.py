"""Items for other software, in the formats of `concal.bank.exchange.formats`; a file appears whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from concal.bank.exchange.formats import FORMATS, SUFFIXES, Content, Format
from concal.bank.exchange.software import catsim_content, flexmirt_content, jscat_content, mirt_content
from concal.bank.exchange.writers import Write, csv_writer, excel_writer, json_writer, parquet_writer
from concal.bank.store.files import disk_errors
from concal.bank.tables.views import wide_items
from concal.errors import BankError, DataError

if TYPE_CHECKING:
    from concal.bank.version import Version


@dataclass(frozen=True)
class Exported:
    """What was written.

    `left_out` names items the receiving software has no model for, `unconverged` those whose chains had not converged
    in some period.
    """

    path: Path
    format: str
    items: int
    left_out: tuple[str, ...] = ()
    unconverged: tuple[str, ...] = ()


def export(bank: Version, to: Path, *, format: str | None = None, period: str | None = None) -> Exported:
    """Write a bank's items; the file appears whole or not at all.

    Parameters
    ----------
    format
        One of `FORMATS`; default by the file's suffix.
    period
        With format "arviz": that period's draws on its own metric instead of consensus draws.
    """
    kind = format or SUFFIXES.get(to.suffix.lower())
    if kind not in FORMATS:
        raise BankError(
            f"cannot tell the format of {str(to)!r}; give one of {', '.join(FORMATS)} (--format), or a suffix "
            f"{', '.join(SUFFIXES)}"
        )
    if period is not None and kind != "arviz":
        raise BankError(f"one period alone is exported as arviz, not as {kind}")
    if not to.parent.is_dir():
        raise BankError(f"there is no folder {str(to.parent)!r} to write {to.name!r} to")
    made = CONTENT[Format(kind)](bank) if period is None else _draws_of_period(bank, period)
    _appear(to, made.write)
    return Exported(to, kind, made.items, made.left_out, tuple(bank.unconverged()) if period is None else ())


def items_content(bank: Version, writer: Callable[[pl.DataFrame], Write]) -> Content:
    """One row per item."""
    table = wide_items(bank.consensus(joint=False).groups.values(), bank.unconverged())
    return Content(writer(table), table.height)


def arviz_content(bank: Version) -> Content:
    """Consensus draws of all items."""
    ids = [item for g in bank.consensus(joint=False).groups.values() for item in g.item_ids]
    return Content(_by_arviz("write_consensus_draws", lambda: bank.draws(ids)), len(ids))


def _draws_of_period(bank: Version, period: str) -> Content:
    """A period's draws on its own metric."""
    calibration = bank.calibration(period)
    return Content(_by_arviz("write_arviz", lambda: calibration), sum(g.n_items for g in calibration.groups.values()))


def _by_arviz(writer: str, content: Callable[[], Any]) -> Callable[[Path], None]:
    """A function of `concal.bank.exchange.arviz`, which needs packages that may not be there."""

    def write(path: Path) -> None:
        try:
            from concal.bank.exchange import arviz

            getattr(arviz, writer)(content(), path)
        except ImportError as error:
            raise BankError(f"ArviZ files need further packages ({error}): pip install 'concal[arviz]'") from None

    return write


CONTENT: dict[Format, Callable[[Version], Content]] = {
    Format.csv: partial(items_content, writer=csv_writer),
    Format.parquet: partial(items_content, writer=parquet_writer),
    Format.json: partial(items_content, writer=json_writer),
    Format.excel: partial(items_content, writer=excel_writer),
    Format.catsim: catsim_content,
    Format.jscat: jscat_content,
    Format.mirt: mirt_content,
    Format.flexmirt: flexmirt_content,
    Format.arviz: arviz_content,
}
"""What each format writes of a version."""


def _appear(to: Path, write: Callable[[Path], Any]) -> None:
    """Write beside, then rename; a folder (Zarr) cannot replace another, so the old one goes aside for a moment."""
    mark = secrets.token_hex(4)
    beside, old = (to.with_name(f".{to.name}.{mark}.{what}{to.suffix}") for what in ("tmp", "old"))
    try:
        with disk_errors(f"writing {to}"):
            write(beside)
            if beside.is_dir() and to.is_dir():
                os.rename(to, old)
            os.replace(beside, to)
    except BaseException:
        if old.exists():  # the new one did not come: the old one stays
            os.rename(old, to)
        raise
    finally:
        for left in (beside, old):
            _remove(left)


def _remove(path: Path) -> None:
    """A file or a folder, if it is there; threads of a writer that failed may still be at work in it for a moment."""
    for _ in range(50):
        shutil.rmtree(path, ignore_errors=True)
        if not path.is_dir():
            break
        time.sleep(0.02)
    path.unlink(missing_ok=True)


def read_export(path: str | Path) -> pl.DataFrame:
    """Read back a csv, parquet or json export with ids exactly as they are in the bank."""
    file = Path(path)
    kind = SUFFIXES.get(file.suffix.lower())
    text = {"item_id": pl.String, "group": pl.String, "dimension": pl.String, "model": pl.String, "source": pl.String}
    if kind == "parquet":
        return pl.read_parquet(file)
    if kind == "json":
        return pl.DataFrame(json.loads(file.read_text(encoding="utf-8")), infer_schema_length=None)
    if kind != "csv":
        raise DataError(f"{str(file)!r}: only csv, parquet and json exports are read back")
    table = pl.read_csv(file, schema_overrides=text, infer_schema_length=None)
    names = [n for n in text if n in table.columns]
    return table.with_columns(
        pl.when(pl.col(n).str.starts_with("'")).then(pl.col(n).str.slice(1)).otherwise(pl.col(n)).alias(n)
        for n in names
    )
