"""A bank's items for other software.

===========  ==================================================================================================
csv, excel   one row per item for people: natural parameters, SDs, source; text cells that a spreadsheet would run
             as a formula get a leading apostrophe (`read_export` takes it off again)
parquet,     the same columns, ids unchanged
json
catsim       the matrix catsim reads (a, b, c, d by column) as CSV with the item ids first; right/wrong items
jscat        the same items as a JSON array that jsCAT reads: id, a, b, c, d
mirt         the parameter table of R mirt (`mod2values`-style: item, class, name, value), slope-intercept form
flexmirt     a flexMIRT-style parameter (anchor) file, tab separated
arviz        consensus draws of all items, or with a period that period's draws (netCDF or Zarr)
===========  ==================================================================================================
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from concal.bank.exchange.software import CATSIM_COLUMNS, catsim_table, flexmirt_lines, mirt_table
from concal.bank.store.files import disk_errors
from concal.bank.tables.views import wide_items
from concal.errors import BankError, DataError

if TYPE_CHECKING:
    from concal.bank.version import Version

FORMATS = ("csv", "parquet", "json", "excel", "catsim", "jscat", "mirt", "flexmirt", "arviz")
_BY_SUFFIX = {".csv": "csv", ".parquet": "parquet", ".json": "json", ".xlsx": "excel", ".nc": "arviz", ".zarr": "arviz"}
_RUNS = ("=", "+", "-", "@", "\t", "\r")


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
    kind = format or _BY_SUFFIX.get(to.suffix.lower())
    if kind not in FORMATS:
        raise BankError(
            f"cannot tell the format of {str(to)!r}; give one of {', '.join(FORMATS)} (--format), or a suffix "
            f"{', '.join(_BY_SUFFIX)}"
        )
    if period is not None and kind != "arviz":
        raise BankError(f"one period alone is exported as arviz, not as {kind}")
    if not to.parent.is_dir():
        raise BankError(f"there is no folder {str(to.parent)!r} to write {to.name!r} to")
    if kind == "arviz":
        return _export_arviz(bank, to, period)
    consensus, unconverged = bank.consensus(joint=False), bank.unconverged()
    left_out: tuple[str, ...] = ()
    if kind == "catsim":
        table, left_out = catsim_table(consensus)
        n = _appear(to, lambda path: neutral(table).write_csv(path), table.height)
    elif kind == "jscat":
        table, left_out = catsim_table(consensus)
        text = json.dumps(table.rename({"item_id": "id"}).to_dicts(), ensure_ascii=False, indent=1, allow_nan=False)
        n = _appear(to, lambda path: path.write_text(text + "\n", encoding="utf-8"), table.height)
    elif kind == "mirt":
        table, left_out = mirt_table(consensus)
        n = _appear(to, lambda path: table.write_csv(path), table["item"].n_unique())
    elif kind == "flexmirt":
        lines, left_out = flexmirt_lines(consensus)
        n = _appear(to, lambda path: path.write_text("".join(lines), encoding="utf-8"), len(lines))
    else:
        n = _export_table(wide_items(consensus.groups.values(), unconverged), to, kind)
    return Exported(to, kind, n, left_out, tuple(unconverged))


def _export_table(table: pl.DataFrame, to: Path, kind: str) -> int:
    if kind == "csv":
        return _appear(to, lambda path: neutral(table).write_csv(path), table.height)
    if kind == "parquet":
        return _appear(to, lambda path: table.write_parquet(path), table.height)
    if kind == "json":
        text = json.dumps(table.fill_nan(None).to_dicts(), ensure_ascii=False, indent=1, allow_nan=False)
        return _appear(to, lambda path: path.write_text(text + "\n", encoding="utf-8"), table.height)
    try:
        import xlsxwriter
    except ImportError:
        raise BankError("writing Excel files needs the package xlsxwriter: pip install 'concal[excel]'") from None

    def write(path: Path) -> None:
        with xlsxwriter.Workbook(str(path), {"strings_to_formulas": False, "strings_to_urls": False}) as book:
            table.write_excel(workbook=book, worksheet="items")

    return _appear(to, write, table.height)


def _appear(to: Path, write: Callable[[Path], Any], n: int) -> int:
    """Write beside, then rename."""
    beside = to.with_name(f".{to.name}.{secrets.token_hex(4)}.tmp{to.suffix}")
    try:
        with disk_errors(f"writing {to}"):
            write(beside)
            os.replace(beside, to)
    finally:
        beside.unlink(missing_ok=True)
    return n


def _export_arviz(bank: Version, to: Path, period: str | None) -> Exported:
    try:
        from concal.bank.exchange.arviz import write_arviz, write_consensus_draws

        if period is not None:
            calibration = bank.calibration(period)
            write_arviz(calibration, to)
            return Exported(to, "arviz", sum(g.n_items for g in calibration.groups.values()))
        ids = [item for g in bank.consensus(joint=False).groups.values() for item in g.item_ids]
        write_consensus_draws(bank.draws(ids), to)
        return Exported(to, "arviz", len(ids), unconverged=tuple(bank.unconverged()))
    except ImportError as error:
        raise BankError(f"ArviZ files need further packages ({error}): pip install 'concal[arviz]'") from None


def neutral(table: pl.DataFrame) -> pl.DataFrame:
    """Text a spreadsheet would run as a formula, and text that begins with an apostrophe, gets one in front."""

    def guarded(name: str) -> pl.Expr:
        cell = pl.col(name)
        starts = pl.any_horizontal(cell.str.starts_with(mark) for mark in (*_RUNS, "'"))
        return pl.when(starts).then("'" + cell).otherwise(cell).alias(name)

    return table.with_columns(guarded(n) for n, kind in table.schema.items() if kind == pl.String)


def read_export(path: str | Path) -> pl.DataFrame:
    """Read back a csv, parquet or json export with ids exactly as they are in the bank."""
    file = Path(path)
    kind = _BY_SUFFIX.get(file.suffix.lower())
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


__all__ = ["CATSIM_COLUMNS", "FORMATS", "Exported", "export", "neutral", "read_export"]
