"""Every kind of file a programme may bring, and frames of other libraries: the same table, or a clear message."""

import base64
import gzip
import zlib

import duckdb
import pandas as pd
import polars as pl
import pyreadstat
import pytest

from concal.data.read import read_responses, read_table
from concal.errors import DataError
from concal.spec import DataSpec

LONG = pl.DataFrame({"person_id": ["p1", "p1", "p2"], "item_id": ["a", "b", "a"], "score": [0.5, 1.0, 0.0]})
NUMBERED = LONG.with_columns(pl.Series("person_id", [1, 1, 2]))
STATISTICS = ("sav", "zsav", "dta", "xpt", "sas7bdat")
COMMAS = "person_id;item_id;score\np1;a;0,5\np1;b;1,0\np2;a;0\n"
WIDE = pl.DataFrame({"id": ["p1", "p2"], "a": [0.5, 0.0], "b": [1.0, None]})

SAS = (
    "eNrt2r9LAmEcx/HvqZFSg4KDQ5A0OUTckURNKmQQXJPuZeXgkIYWtAS1N/WvNAfS0tjaVnNTUw39sDvvOX88ddnQkPR+CX6f5/P8"
    "OE44eA4U6bt6ON26SCZuLs+jEru2zlKz8cSiyJwYYsm3kkO9UqGUXlu3i6uFcqFULKeDyAjuem9e+9hq3RX6VePuFBcJafHKgmmZ"
    "1obp1KxTl+xa/fBIAAAAAAAAAAAAAAD4j6LOR+R22utlwsOjbZWntFUnKs/7geEVW+VZLReV21rentL28fcPyPMBOQAAAPAb3l86"
    "XeO6/tVb3ln+dOp3vwyvquN4REISGxiP9A7vHrVVJ91LZtT8jEx2qykT2nXe1Jr5gUz/f/B+tdlq1Ddru067dlDdc1utnUaz6vSf"
    "HO4c7bVEnh0/uf+EquGA8fCoDeJfxx0NTwrGkjH4BDzmKl7jPucH237DfwGv8JsBAAAAAPDHfABmaXs+"
)
"""NUMBERED as a sas7bdat file (R's haven wrote it; nothing in Python does), deflated, in base 64."""


def written(kind: str, folder):
    path = folder / f"r.{kind}"
    if kind in ("csv", "txt"):
        LONG.write_csv(path)
    elif kind == "tsv":
        LONG.write_csv(path, separator="\t")
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(LONG.write_csv().encode()))
    elif kind == "parquet":
        LONG.write_parquet(path)
    elif kind == "feather":
        LONG.write_ipc(path)
    elif kind == "xlsx":
        NUMBERED.to_pandas().to_excel(path, index=False)
    elif kind == "sav":
        pyreadstat.write_sav(NUMBERED.to_pandas(), str(path))
    elif kind == "dta":
        pyreadstat.write_dta(NUMBERED.to_pandas(), str(path))
    elif kind == "xpt":
        pyreadstat.write_xport(NUMBERED.to_pandas(), str(path))
    elif kind == "zsav":
        pyreadstat.write_sav(NUMBERED.to_pandas(), str(path), compress=True)
    elif kind == "sas7bdat":
        path.write_bytes(zlib.decompress(base64.b64decode(SAS)))
    else:
        path = folder / "parts"
        path.mkdir()
        LONG[:1].write_parquet(path / "0.parquet")
        LONG[1:].write_parquet(path / "1.parquet")
    return path


@pytest.mark.parametrize("kind", ["csv", "txt", "tsv", "csv.gz", "parquet", "feather", "folder", "xlsx", *STATISTICS])
def test_every_kind_of_file(kind, tmp_path):
    rows = read_responses(written(kind, tmp_path)).rows
    ids = {"p1": "1", "p2": "2"} if kind in ("xlsx", *STATISTICS) else {}
    assert rows.rows() == [(ids.get(p, p), i, s) for p, i, s in LONG.rows()]


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (COMMAS.encode(), None),
        (b"\xef\xbb\xbf" + COMMAS.encode(), None),
        (COMMAS.replace(";", "\t").encode("utf-16"), "UTF-16"),
        (COMMAS.replace(";", "|").encode(), None),
        (b'person_id,item_id,score\np1,a,"0,5"\np1,b,"1,0"\np2,a,0\n', None),
        (COMMAS.replace("\n", "\r\n").encode(), None),
    ],
    ids=["semicolons", "byte-order mark", "utf-16", "bars", "quoted decimal commas", "crlf"],
)
def test_text_as_spreadsheets_save_it(data, note, tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(data)
    answers = read_responses(path)
    assert answers.rows.equals(LONG)
    assert (note is None and answers.notes == ()) or note in answers.notes[0]


@pytest.mark.parametrize("late", [False, True])
def test_latin_1_is_read_and_said(late, tmp_path):
    path = tmp_path / "r.csv"
    rows = "p0,a,1\n" * (60_000 if late else 1)
    path.write_bytes(("person_id,item_id,score\n" + rows + "Zoë,a,1\n").encode("latin-1"))
    answers = read_responses(path)
    assert answers.rows["person_id"][-1] == "Zoë"
    assert "not UTF-8 and was read as Windows-1252: 'Zoë'" in answers.notes[0]
    assert f"line {rows.count(chr(10)) + 2}" in answers.notes[0]


def test_semicolons_in_a_wide_file(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("id;a;b\np1;0,5;1\np2;0;\n")
    rows = read_responses(path, wide=True).rows
    assert rows.sort("person_id", "item_id").equals(LONG)


HEAD = "person_id,item_id,score\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("p0,a,1\np0,b,0,7\np1,a,0\n", r"1 line with more cells than the 3 columns .*line 3 with 4: 'p0,b,0,7'"),
        ('p0,a,1\np0,"b,0\np1,a,0\n', "a quote that opens in line 3 is never closed"),
        ("p0,a,1\np0,b,0\np1,a", r"1 line with fewer cells than the 3 columns .*line 4 has 2 \('p1,a'\); was the file"),
        ('p0,"a,x",1\np0,b\np1,a,0\n', r"1 line with fewer cells .*line 3 has 2 \('p0,b'\)"),
        ('p0,"a\nx",1\np0,b\np1,a,0\n', r"1 line with fewer cells .*line 4 has 2 \('p0,b'\)"),
    ],
)
def test_lines_that_are_no_rows_are_named(body, message, tmp_path):
    (tmp_path / "r.csv").write_text(HEAD + body, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_responses(tmp_path / "r.csv")


def test_blank_lines_are_left_out_and_said(tmp_path):
    (tmp_path / "r.csv").write_text(f"{HEAD}p0,a,1\n\np0,b,0\n   \n,,\np1,a,\n", encoding="utf-8")
    found = read_responses(tmp_path / "r.csv")
    assert found.rows.rows() == [("p0", "a", 1.0), ("p0", "b", 0.0)]
    assert found.not_given == 1
    assert [note.split(": ", 1)[1] for note in found.notes] == ["3 blank lines left out: 3, 5, 6"]


def test_lines_that_end_in_cr_alone_are_read(tmp_path):
    (tmp_path / "r.csv").write_bytes(f"{HEAD}p0,a,1\np0,b,0\n".replace("\n", "\r").encode())
    found = read_responses(tmp_path / "r.csv")
    assert found.rows.rows() == [("p0", "a", 1.0), ("p0", "b", 0.0)]
    assert "its lines end in CR alone" in found.notes[0]


def test_features_with_decimal_commas(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("item_id;length;text\n1,5;0,25;a\n2;3;b\n")
    table = read_table(path)
    assert table["item_id"].to_list() == ["1,5", "2"]
    assert table["length"].to_list() == [0.25, 3.0]
    path.write_text('item_id,skills\na,"1,2"\nb,"3,4"\n')
    assert read_table(path)["skills"].to_list() == ["1,2", "3,4"]


def test_columns_by_their_own_names(tmp_path):
    path = tmp_path / "irw.csv"
    LONG.rename({"person_id": "id", "item_id": "item", "score": "resp"}).with_columns(cov_age=3).write_csv(path)
    assert read_responses(path, options=DataSpec(person_id="id", item_id="item", score="resp")).rows.equals(LONG)
    with pytest.raises(DataError, match=r"missing column 'person_id'.*concal start"):
        read_responses(path)


def test_wide_columns_that_are_no_items(tmp_path):
    wide = WIDE.select("a", "id", "b").with_columns(school=pl.lit("x"))
    options = DataSpec(person_id="id", ignore=("school",))
    rows = read_responses(wide, wide=True, options=options).rows
    assert rows.sort("person_id", "item_id").equals(LONG)


def test_missing_scores_are_no_responses():
    frame = pl.DataFrame({"person_id": ["p", "q", "r"], "item_id": ["a"] * 3, "score": [1.0, float("nan"), None]})
    answers = read_responses(frame)
    assert (answers.rows.height, answers.not_given, answers.unreadable.len()) == (1, 2, 0)
    assert read_responses(frame.with_columns(pl.col("score").cast(pl.Int64, strict=False))).not_given == 2
    text = frame.with_columns(score=pl.Series(["1", " NA ", ""]))
    assert read_responses(text).not_given == 2
    assert read_responses(text, options=DataSpec(missing="error")).unreadable.len() == 2


def test_duckdb_relations_and_lazy_frames():
    relation = duckdb.from_arrow(LONG.to_arrow())
    assert read_responses(relation).rows.equals(LONG)
    assert read_responses(LONG.lazy()).rows.equals(LONG)


def test_a_query_that_fails_is_said_in_our_words():
    lazy = LONG.lazy().with_columns(pl.col("item_id").cast(pl.Int64))
    with pytest.raises(DataError, match=r"responses: the polars\S* could not be computed \("):
        read_responses(lazy)
    relation = duckdb.from_arrow(LONG.to_arrow()).project("cast(item_id as integer) as item_id, person_id, score")
    with pytest.raises(DataError, match=r"responses: the \S*duckdb\S* could not be computed \(Conversion Error"):
        read_responses(relation)


def test_mixed_ids_are_named():
    frame = pd.DataFrame({"person_id": pd.Series([1, "x", "y"], dtype=object), "item_id": ["a"] * 3, "score": [1] * 3})
    with pytest.raises(DataError, match=r"column 'person_id' mixes str \(2\), int \(1\); make it one kind"):
        read_responses(frame)


def test_folders_without_tables(tmp_path):
    with pytest.raises(DataError, match=r"is a folder without Parquet files \(it is empty\)"):
        read_table(tmp_path)
    (tmp_path / "responses.csv").write_text("x")
    with pytest.raises(DataError, match=r"it holds 'responses.csv'\); name the file itself"):
        read_table(tmp_path)
    LONG.write_parquet(tmp_path / "a.parquet")
    LONG.with_columns(extra=1).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"2 Parquet files of .* cannot make one table"):
        read_table(tmp_path)


def test_several_sheets_are_said(tmp_path):
    path = tmp_path / "r.xlsx"
    with pd.ExcelWriter(path) as book:
        LONG.to_pandas().to_excel(book, sheet_name="responses", index=False)
        LONG.to_pandas().to_excel(book, sheet_name="notes", index=False)
    answers = read_responses(path)
    assert answers.rows.equals(LONG)
    assert "of its 2 sheets the first was read, 'responses'" in answers.notes[0]


def test_a_package_that_is_not_there_is_named(tmp_path, monkeypatch):
    path = written("sav", tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pyreadstat", None)
    with pytest.raises(DataError, match=r"pip install 'concal\[stats\]'"):
        read_table(path)


def test_spss_portable_files_have_short_names_in_capitals(tmp_path):
    short = NUMBERED.rename({"person_id": "person", "item_id": "item"})
    pyreadstat.write_por(short.to_pandas(), str(tmp_path / "r.por"))
    names = DataSpec(person_id="PERSON", item_id="ITEM", score="SCORE")
    rows = read_responses(tmp_path / "r.por", options=names).rows
    assert rows.equals(NUMBERED.with_columns(pl.col("person_id").cast(pl.String)))


def test_row_names_have_no_name_in_text(tmp_path):
    """R and pandas write row names first, under an empty header."""
    path = tmp_path / "r.csv"
    path.write_text('"","a","b"\n"p1",1,0\n"p2",0,\n')
    assert read_table(path).columns == ["row", "a", "b"]
    rows = read_responses(path, wide=True).rows
    assert rows.rows() == [("p1", "a", 1.0), ("p2", "a", 0.0), ("p1", "b", 0.0)]
    for twice, name in ((",row,score", "row"), (",,score", "")):
        path.write_text(f"{twice}\n1,a,1\n")
        with pytest.raises(DataError, match=f"several columns called '{name}'"):
            read_table(path)
