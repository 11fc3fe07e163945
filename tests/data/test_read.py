"""Tables at the door: formats agree, ids survive unchanged, what is no table is refused."""

import gzip

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concal.data.read import read_responses, read_table
from concal.errors import DataError
from concal.spec import DataSpec

ODD_IDS = ["007", "0", " padded ", 'say "hi"', "a,b", "naïve-日本", "NA", "1e3", "line\nbreak", "-5", "true"]


def odd_table() -> pl.DataFrame:
    return pl.DataFrame({"person_id": ODD_IDS, "item_id": ODD_IDS[::-1], "score": [1.0] * len(ODD_IDS)})


@pytest.mark.parametrize("suffix", ["csv", "parquet", "tsv", "csv.gz"])
def test_ids_survive_files(tmp_path, suffix):
    table, path = odd_table(), tmp_path / f"responses.{suffix}"
    if suffix == "parquet":
        table.write_parquet(path)
    elif suffix == "csv.gz":
        path.write_bytes(gzip.compress(table.write_csv().encode()))
    else:
        table.write_csv(path, separator="\t" if suffix == "tsv" else ",")
    read = read_responses(path).rows
    assert read.equals(table)
    assert read_table(path)["person_id"].to_list() == ODD_IDS


@pytest.mark.property
@given(ids=st.lists(st.text(min_size=1), min_size=1, max_size=20))
def test_any_text_is_an_id(ids, tmp_path_factory):
    path = tmp_path_factory.mktemp("ids") / "r.csv"
    table = pl.DataFrame({"person_id": ids, "item_id": ids, "score": [1.0] * len(ids)})
    table.write_csv(path, quote_style="always")
    assert read_responses(path).rows.equals(table)


@pytest.mark.parametrize(
    "convert",
    [
        lambda t: t,
        lambda t: t.lazy(),
        lambda t: t.to_pandas(),
        lambda t: t.to_arrow(),
        lambda t: pa.table(t.to_dict(as_series=False)),
    ],
    ids=["polars", "lazy", "pandas", "arrow", "plain arrow"],
)
def test_data_frames_of_any_kind(convert):
    assert read_responses(convert(odd_table())).rows.equals(odd_table())


def test_whole_number_ids_become_text():
    frame = pd.DataFrame({"person_id": [1, 20], "item_id": pd.Categorical(["a", "b"]), "score": [0, 1]})
    rows = read_responses(frame).rows
    assert rows["person_id"].to_list() == ["1", "20"]
    assert rows["item_id"].to_list() == ["a", "b"]


def test_float_ids_are_refused():
    frame = pl.DataFrame({"person_id": [1.0, 2.0], "item_id": ["a", "b"], "score": [0, 1]})
    with pytest.raises(DataError, match=r"'person_id' holds floating point numbers \(1.0, 2.0\)"):
        read_responses(frame)


def test_byte_order_mark_is_not_part_of_a_name(tmp_path):
    path = tmp_path / "bom.csv"
    path.write_bytes(b"\xef\xbb\xbfperson_id,item_id,score\np,i,1\n")
    assert read_responses(path).rows.rows() == [("p", "i", 1.0)]


def test_wide_equals_long(two_group_responses, tmp_path):
    wide = two_group_responses.pivot(on="item_id", index="person_id", values="score").rename({"person_id": "who"})
    wide = wide.with_columns(pl.when(pl.col("who") == "p2").then(None).otherwise(pl.col("v1")).alias("v1"))
    wide.write_csv(tmp_path / "wide.csv")
    long = two_group_responses.filter(~((pl.col("person_id") == "p2") & (pl.col("item_id") == "v1")))
    for source in (wide, tmp_path / "wide.csv", wide.to_pandas()):
        read = read_responses(source, wide=True).rows
        assert read.sort("person_id", "item_id").equals(long.sort("person_id", "item_id"))


def test_a_wide_table_read_as_long_says_how_to_read_it(tmp_path):
    table = pl.DataFrame({"person_id": ["p", "q"], "i1": [0, 1], "i2": [1, 1]})
    with pytest.raises(DataError, match=r"missing column 'item_id'.*a column per item.*--wide"):
        read_responses(table)


def test_wide_persons_without_responses_are_named(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("id,a,b\n01,1,0\n02,,NA\n03,0,\n")
    answers = read_responses(path, wide=True)
    assert answers.silent.to_list() == ["02"]
    assert sorted(answers.rows.rows()) == [("01", "a", 1.0), ("01", "b", 0.0), ("03", "a", 0.0)]


def test_wide_items_may_be_called_anything():
    wide = pl.DataFrame({"id": ["p"], "score": [1], "item_id": [0], "group": [1], "k": [0], "person": [1], "0": [0]})
    rows = read_responses(wide, wide=True).rows
    assert rows["item_id"].to_list() == ["score", "item_id", "group", "k", "person", "0"]
    assert rows["score"].to_list() == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (odd_table(), "this is a long table"),
        (pl.DataFrame({"id": ["p"]}), "needs a column of person ids and one column per item"),
        (
            pl.DataFrame({"i0": [0, 1] * 4, "i1": [1, 1, 0, 0] * 2}),
            r"no column 'person_id' of ids, and the first, 'i0', holds 2 different numbers in 8 rows, as an item does: "
            r"say in bank.toml what the column of ids is called \(data.person_id\)",
        ),
        (pl.DataFrame({"id": ["p"], "i": [1], "x": [[1]]}), "1 column without scores: 'x'"),
    ],
)
def test_wide_refused(table, message):
    with pytest.raises(DataError, match=message):
        read_responses(table, wide=True)


def test_unreadable_scores_are_kept_for_the_message(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("person_id,item_id,score\np,i,1\np,j,right\np,k,\np,l, 1.5 \n")
    answers = read_responses(path)
    assert answers.rows["score"].to_list() == [1.0, None, 1.5]
    assert answers.unreadable.to_list() == ["right"]
    assert (answers.not_given, answers.numbers.to_list()) == (1, [1, 2, 4])
    refused = read_responses(path, options=DataSpec(missing="error"))
    assert refused.rows["score"].to_list() == [1.0, None, None, 1.5]
    assert refused.unreadable.to_list() == ["right", "(empty)"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.csv", b"person,item_id,score\np,i,1\n", r"missing column 'person_id' \(did you mean 'person'\?\)"),
        ("r.csv", b"", r"not a table"),
        ("r.csv", b"a,b\n1,2\n3,4,5,6\n", r"not a table"),
        ("r.csv", b"person_id,item_id,score\n\xff\xfe\x00,i,1\n", r"neither UTF-8 nor Windows-1252 .*line 2"),
        ("r.csv", b"person_id,item_id,score,score\np,i,1,1\n", r"several columns called 'score'"),
        ("r.parquet", b"this is no parquet file", r"not a table"),
        ("r.xlsx", b"PK", r"is not a \.xlsx file"),
        ("r.sav", b"no", r"is not a \.sav file"),
        ("r.rds", b"x", r"none of the kinds that can be read; in R: arrow::write_parquet"),
        ("r.docx", b"x", r"none of the kinds that can be read; what can be read: \.csv"),
        (
            "r.csv",
            b"person_id,item_id;score\np,i;1\n",
            r"cannot tell what separates the columns, commas \(2 columns\) or",
        ),
        ("r.csv", b'person_id,item_id,score\np,i,"0,5"\np,j,0.5\n', r"have a comma in some rows \('0,5'\) and a point"),
        ("r.csv", b"person_id;item_id;score\np;i;1,234\n", r"decimal comma or separates thousands"),
        ("r.csv.gz", b"not gzip", r"not a table"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_responses(path)


def test_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "responses.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match=r"there is no file .*did you mean .*responses\.csv"):
        read_table(tmp_path / "response.csv")
    with pytest.raises(DataError, match="there is no file"):
        read_table(tmp_path / "nowhere" / "x.csv")


@pytest.mark.parametrize("source", [3, None, {"a": [1]}, [1, 2]])
def test_what_is_no_table(source):
    with pytest.raises(DataError, match="is not a table"):
        read_table(source)
