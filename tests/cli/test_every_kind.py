"""Every kind of file through the commands that take responses: start, check, score (add reads as check does)."""

import gzip
import json
from pathlib import Path

import polars as pl
import pyreadstat
import pytest

from concal.cli import main

LONG_ID = "reading-2026-form-B/passage-about-bees/question-12"


def _text(table: pl.DataFrame, path: Path, *, separator: str = ",", encoding: str = "utf-8", comma: bool = False):
    data = table.write_csv(separator=separator, decimal_comma=comma).encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _folder(table: pl.DataFrame, path: Path) -> None:
    path.mkdir()
    table[:100].write_parquet(path / "0.parquet")
    table[100:].write_parquet(path / "1.parquet")


def _quoted(table: pl.DataFrame, path: Path) -> None:
    path.write_text(table.select(pl.all().cast(pl.String).str.replace(r"\.", ",")).write_csv(quote_style="always"))


KINDS = {
    "r.csv": _text,
    "semicolons.csv": lambda t, p: _text(t, p, separator=";", comma=True),
    "quoted-decimal-commas.csv": _quoted,
    "byte-order-mark.csv": lambda t, p: _text(t, p, separator=";", encoding="utf-8-sig", comma=True),
    "utf-16.csv": lambda t, p: _text(t, p, separator="\t", encoding="utf-16"),
    "bars.txt": lambda t, p: _text(t, p, separator="|"),
    "r.tsv": lambda t, p: _text(t, p, separator="\t"),
    "r.csv.gz": _text,
    "r.tsv.gz": lambda t, p: _text(t, p, separator="\t"),
    "r.parquet": lambda t, p: t.write_parquet(p),
    "r.feather": lambda t, p: t.write_ipc(p),
    "parts": _folder,
    "r.xlsx": lambda t, p: t.to_pandas().to_excel(p, index=False),
    "r.sav": lambda t, p: pyreadstat.write_sav(t.to_pandas(), str(p)),
    "r.zsav": lambda t, p: pyreadstat.write_sav(t.to_pandas(), str(p), compress=True),
    "r.dta": lambda t, p: pyreadstat.write_dta(t.to_pandas(), str(p)),
    "r.xpt": lambda t, p: pyreadstat.write_xport(t.to_pandas(), str(p)),
}
"""How a table is written, by the file's name."""


def told(words: list[object], capsys) -> object:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main([*map(str, words), "--json"])
    seen = capsys.readouterr()
    assert not left.value.code, seen.err
    return json.loads(seen.out)


@pytest.mark.parametrize("wide", [False, True], ids=["long", "wide"])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_through_every_command(name, wide, looked_at, tmp_path, capsys):
    folder = looked_at.parent
    table = pl.read_csv(folder / "2026Q4.csv").filter(pl.col("item_id") != LONG_ID)  # no column may be called so
    table.write_csv(tmp_path / "plain.csv")
    path = tmp_path / name
    KINDS[name](table.pivot(on="item_id", index="person_id", values="score") if wide else table, path)
    start = told(["start", path, "--to", tmp_path / "drafts"], capsys)
    assert (start["layout"], start["accepted"]) == ("wide" if wide else "long", True)
    assert (start["persons"], start["responses"]) == (30, table.height)
    shape, plain, items = ["--wide"] * wide, tmp_path / "plain.csv", ["--items", folder / "items.csv"]
    checked = told(["check", looked_at, "2026Q4", path, *items, *shape], capsys)
    assert checked["groups"] == told(["check", looked_at, "2026Q4", plain, *items], capsys)["groups"]
    assert told(["score", looked_at, path, *shape], capsys) == told(["score", looked_at, plain], capsys)
