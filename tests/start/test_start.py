"""From files to a draft: columns, kinds of scores, groups, features, oddities; the drafts are accepted as they are."""

import json
import tomllib

import jsonschema
import numpy as np
import polars as pl
import pytest

from concal.cli import main
from concal.cli.outputs import output_schema
from concal.data.check import check_period
from concal.errors import DataError
from concal.spec import Spec
from concal.start import look_at_files, write_start
from concal.start.features import describe_features, terms_by_group


def long_table(n: int = 40, seed: int = 1) -> pl.DataFrame:
    """Six items: two right/wrong, two of three steps, two continuous, answered by everybody."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        scores = [*rng.integers(0, 2, 2), *rng.integers(0, 3, 2), *np.round(rng.random(2), 2)]
        rows += [(f"s{k}", f"q{j}", float(y)) for j, y in enumerate(scores)]
    return pl.DataFrame(rows, schema=["person_id", "item_id", "score"], orient="row")


def accepted(found, tmp_path, name="r"):
    """The drafts as written are a spec and items that a check accepts."""
    assert found.problems is None, found.problems
    folder = tmp_path / f"drafts-{name}"
    write_start(found, folder)
    assert Spec.read(folder / "bank.toml").groups
    return folder


@pytest.mark.parametrize(
    "names",
    [
        ("person_id", "item_id", "score"),
        ("id", "item", "resp"),
        ("Student.ID", "Question", "Correct"),
        ("examinee", "item", "score"),
    ],
)
def test_long_tables_by_the_names_of_their_columns(names, tmp_path):
    path = tmp_path / "r.csv"
    table = long_table().rename(dict(zip(("person_id", "item_id", "score"), names, strict=True)))
    table.with_columns(cov_age=pl.lit(30)).write_csv(path)
    found = look_at_files(path)
    assert not found.columns.wide
    assert (found.columns.person_id, found.columns.item_id, found.columns.score) == names
    assert found.columns.others == ("cov_age",)
    assert {(g.name, g.kind.model, g.items) for g in found.groups} == {
        ("binary", "2pl", 2),
        ("ordered", "gpcm", 2),
        ("continuous", "beta", 2),
    }
    folder = accepted(found, tmp_path)
    assert run("check", folder / "bank.toml", "Q1", path, "--items", folder / "items.csv") == 0


def run(*words) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(w) for w in words])
    return int(left.value.code or 0)


def test_wide_tables_by_what_they_hold(tmp_path):
    path = tmp_path / "wide.csv"
    wide = long_table().pivot(on="item_id", index="person_id", values="score").rename({"person_id": "pid"})
    wide.with_columns(Total=pl.lit(9), school=pl.lit("x"), cov_sex=pl.lit(1)).write_csv(path, separator=";")
    found = look_at_files(path)
    assert found.columns.wide
    assert found.columns.others == ("Total", "school", "cov_sex")
    folder = accepted(found, tmp_path)
    assert tomllib.loads(found.toml)["data"] == {"person_id": "pid", "ignore": ["Total", "school", "cov_sex"]}
    assert run("check", folder / "bank.toml", "Q1", path, "--items", folder / "items.csv", "--wide") == 0


def test_columns_unlike_the_others_of_a_wide_table_are_told(tmp_path):
    """Semesters and attempts are numbers too."""
    path, rng = tmp_path / "wide.csv", np.random.default_rng(2)
    wide = pl.DataFrame(rng.integers(0, 2, (60, 8)), schema=[f"q{k}" for k in range(8)])
    wide = wide.insert_column(0, pl.Series("id", [f"s{k}" for k in range(60)]))
    wide.write_csv(path)
    assert look_at_files(path).odd == ()
    more = {"semester": rng.integers(1, 15, 60), "attempt": rng.integers(0, 4, 60)}
    wide.with_columns(**{name: pl.Series(values) for name, values in more.items()}).write_csv(path)
    assert (
        "2 of 10 columns have scores unlike the others: 'attempt', 'semester'; where they are no items, start again "
        "without them"
    ) in look_at_files(path).odd


def test_row_names_are_the_examinees_of_a_wide_table(tmp_path):
    path = tmp_path / "wide.csv"
    wide = long_table().pivot(on="item_id", index="person_id", values="score")
    wide.rename({"person_id": ""}).write_csv(path)
    found = look_at_files(path)
    folder = accepted(found, tmp_path)
    assert found.columns.person_id == "row"
    assert run("check", folder / "bank.toml", "Q1", path, "--items", folder / "items.csv", "--wide") == 0


@pytest.mark.parametrize(
    ("scores", "kind", "model", "says", "coded"),
    [
        ([1, 2, 3, 4], "ordered", "gpcm", {"categories": 4}, [0, 1, 2, 3]),
        ([1, 2, 1, 2], "binary", "2pl", {}, [0, 1, 0, 1]),
        ([0, 3, 0, 3], "binary", "2pl", {"max_score": 3.0}, None),
        ([0, 1, 0, 1], "binary", "2pl", {}, None),
        ([0, 1, 2, 3], "ordered", "gpcm", {"categories": 4}, None),
        ([3, 96, 36, 58], "continuous", "beta", {"max_score": 100.0}, None),
        ([0.5, 9.5, 5, 0], "continuous", "ordered_beta", {"max_score": 10.0}, None),
        ([12, 150, 80, 35], "continuous", "ordered_beta", {"max_score": 150.0}, None),
        ([0.1, 1.0, 0.4, 0.0], "continuous", "ordered_beta", {}, None),
    ],
)
def test_kinds_of_scores(scores, kind, model, says, coded, tmp_path):
    table = pl.DataFrame(
        {
            "person": [f"p{k}" for k in range(12)] * 2,
            "item": ["a"] * 12 + ["b"] * 12,
            "score": [float(s) for s in scores * 6],
        }
    )
    path = tmp_path / "r.parquet"
    table.write_parquet(path)
    found = look_at_files(path)
    assert [(g.kind.name, g.kind.model) for g in found.groups] == [(kind, model)]
    (group,) = tomllib.loads(found.toml)["groups"].values()
    assert {key: group[key] for key in ("categories", "max_score") if key in group} == says
    if coded is None:
        assert found.recoded is None
    else:
        np.testing.assert_allclose(found.recoded["score"][:4], coded, atol=1e-4)
        assert any("begin at" in text for text in found.odd)
    accepted(found, tmp_path)


def test_items_that_differ_say_so_in_the_item_table(tmp_path):
    people = [f"p{k}" for k in range(40)]
    top = {"a": 2, "b": 4, "c": 4, "x": 1, "y": 2}
    rows = [
        (p, item, float(k % (most + 1)) if item in "abc" else float(k % 2 * most))
        for item, most in top.items()
        for k, p in enumerate(people)
    ]
    pl.DataFrame(rows, schema=["person_id", "item_id", "score"], orient="row").write_csv(tmp_path / "r.csv")
    pl.DataFrame({"item_id": [*top, "z"], "group": ["essay"] * 3 + ["choice"] * 2 + ["essay"]}).write_csv(
        tmp_path / "i.csv"
    )
    found = look_at_files(tmp_path / "r.csv", tmp_path / "i.csv")
    assert found.recoded is None
    groups = tomllib.loads(found.toml)["groups"]
    assert "categories" not in groups["essay"]
    assert "max_score" not in groups["choice"]
    assert found.items["categories"].to_list() == [3, 5, 5, None, None, 5]
    assert found.items["max_score"].to_list() == [None, None, None, 1.0, 2.0, None]
    assert "scores 0 to 2 or 4" in found.toml
    accepted(found, tmp_path)


def test_a_given_maximum(tmp_path):
    path = tmp_path / "r.csv"
    pl.DataFrame({"id": ["a", "b", "c"], "item": ["i"] * 3, "resp": [20.0, 96.0, 111.0]}).write_csv(path)
    assert tomllib.loads(look_at_files(path, max_score=112).toml)["groups"]["items"]["max_score"] == 112
    with pytest.raises(DataError, match="smaller than a score"):
        look_at_files(path, max_score=100)


def test_features_of_the_item_table_and_of_the_responses(tmp_path):
    table = long_table().with_columns(
        anger=pl.col("person_id").str.len_chars(),
        stem=pl.col("item_id").replace_strict({f"q{k}": k % 2 for k in range(6)}),
    )
    table.write_csv(tmp_path / "r.csv")
    items = pl.DataFrame(
        {
            "n": range(7),
            "question": [f"q{k}" for k in (5, 4, 3, 2, 1, 0, 9)],
            "max.points": [1, 2, 3, 1, 2, 3, 1],
            "max_points": [1, 2, 3, 1, 2, 3, None],
            "domain": ["algebra", "number"] * 3 + ["number"],
            "wording": [f"text {k}" for k in range(7)],
        }
    )
    items.write_csv(tmp_path / "i.csv")
    found = look_at_files(tmp_path / "r.csv", tmp_path / "i.csv")
    terms = dict(found.features.select("column", "term").iter_rows())
    assert terms == {
        "n": "n",
        "max_points": "max_points",
        "max_points_2": None,
        "domain": "C(domain)",
        "wording": "C(wording)",
        "stem": None,
    }
    assert any("1 item of the item table without a response: 'q9'" in text for text in found.odd)
    assert found.items["item_id"].to_list() == ["q5", "q4", "q3", "q2", "q1", "q0", "q9"]
    assert '# features = "~ n + max_points + C(domain)"' in found.toml


def test_terms_differ_within_their_group_and_repeat_nothing():
    items = pl.DataFrame(
        {
            "item_id": list("abcd"),
            "group": ["one", "one", "two", "two"],
            "points": [1, 1, 2, 3],
            "marks": [1, 1, 4, 5],  # as points, under another name
            "domain": ["x", "y", "x", "x"],
        }
    )
    features = describe_features(items, ("item_id", "group"))
    assert terms_by_group(items, features) == {"one": ["C(domain)"], "two": ["points"]}


def test_groups_of_the_item_table_stay(tmp_path):
    long_table().write_csv(tmp_path / "r.csv")
    items = pl.DataFrame({"item_id": [f"q{k}" for k in range(6)], "group": ["x", "x", "x", "y z", "y z", "y z"]})
    items.write_csv(tmp_path / "i.csv")
    found = look_at_files(tmp_path / "r.csv", tmp_path / "i.csv")
    assert {g.name for g in found.groups} == {"x_binary", "x_ordered", "y z_ordered", "y z_continuous"}
    accepted(found, tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("b ", "'b ' must not begin or end with a space; rename it in the item table"),
        ("g" * 150, "must be 1 to 100 printable characters; rename it in the item table"),
        ("a (3 categories)", "rename it in the item table: call it 'a', and put 3 into a column categories"),
    ],
)
def test_group_names_that_cannot_be_are_said_to_come_from_the_item_table(name, says, tmp_path):
    long_table().write_csv(tmp_path / "r.csv")
    items = pl.DataFrame({"item_id": [f"q{k}" for k in range(6)], "group": ["x"] * 5 + [name]})
    items.write_parquet(tmp_path / "i.parquet")
    with pytest.raises(DataError) as caught:
        look_at_files(tmp_path / "r.csv", tmp_path / "i.parquet")
    assert "1 name in the column group that cannot be a group's" in str(caught.value)
    assert str(caught.value).endswith(says)


def test_features_that_are_not_finite_are_not_proposed():
    items = pl.DataFrame({"item_id": ["a", "b", "c"], "length": [1.0, 2.0, float("inf")], "words": [1, 2, 3]})
    found = describe_features(items, ("item_id",))
    assert found["term"].to_list() == [None, "words"]
    assert found["missing"].to_list() == [1, 0]


def test_items_with_few_responses_follow_those_that_show_their_scores(tmp_path):
    """A sparse item of a group with scores 0 to 2 shows 0 and 1 only; one nobody answered shows none."""
    table = long_table().filter(pl.col("item_id") != "q2")
    few = pl.DataFrame([("s1", "q2", 0.0), ("s2", "q2", 1.0)], schema=table.schema, orient="row")
    pl.concat([table, few]).write_csv(tmp_path / "r.csv")
    ids = [f"q{k}" for k in range(7)]
    groups = ["choice", "choice", "steps", "steps", "share", "share", "steps"]
    pl.DataFrame({"item_id": ids, "group": groups}).write_csv(tmp_path / "i.csv")
    found = look_at_files(tmp_path / "r.csv", tmp_path / "i.csv")
    assert {(g.name, g.kind.model, g.items) for g in found.groups} == {
        ("choice", "2pl", 2),
        ("steps", "gpcm", 3),
        ("share", "beta", 2),
    }
    assert any(
        "1 item of the item table without a response: 'q6'; their group is a guess" in text for text in found.odd
    )
    accepted(found, tmp_path)


def scale_of_six(seed: int = 1) -> pl.DataFrame:
    """Ratings 0 to 5 of weak examinees: the highest are rare, and some items do not show them."""
    rng, ability = np.random.default_rng(seed), np.random.default_rng(9).normal(-1.5, 1, 120)
    rows = [
        (f"s{k}", f"q{j}", float(rng.binomial(5, 1 / (1 + np.exp(j % 5 / 2 - 1 - theta)))))
        for k, theta in enumerate(ability)
        for j in range(12)
    ]
    return pl.DataFrame(rows, schema=["person_id", "item_id", "score"], orient="row")


def test_items_of_one_scale_have_one_number_of_categories(tmp_path):
    table = scale_of_six()
    assert table.group_by("item_id").agg(pl.col("score").max())["score"].n_unique() > 1
    table.write_csv(tmp_path / "r.csv")
    found = look_at_files(tmp_path / "r.csv")
    (group,) = tomllib.loads(found.toml)["groups"].values()
    assert group["categories"] == 6
    assert "categories" not in found.items.columns
    (lifted,) = (text for text in found.odd if "highest score is rare" in text)
    assert "taken to be on the scale of the others, 0 to 5" in lifted
    assert any("12 items were read off the highest score seen, and are for good" in text for text in found.odd)
    assert "categories = 6  # one more than the highest score seen" in found.toml
    accepted(found, tmp_path)


def test_columns_are_carried_to_recoded_scores(tmp_path):
    table = scale_of_six().with_columns(pl.col("score") + 1, person_group=pl.lit("a"), form=pl.lit("x"))
    where = pl.col("person_id").str.slice(1).cast(pl.Int64)
    table = table.with_columns(person_group=pl.when(where < 70).then(pl.lit("de")).otherwise(pl.lit("fr")))
    table = table.with_columns(score=pl.when(where == 3).then(None).otherwise("score"))
    for wide in (False, True):
        given = table.pivot("item_id", index=["person_id", "person_group", "form"], values="score") if wide else table
        given.write_csv(tmp_path / "r.csv")
        found = look_at_files(tmp_path / "r.csv")
        assert set(found.examinee_groups) == {"person_group"}
        folder = accepted(found, tmp_path, f"{wide}")
        coded = pl.read_parquet(folder / "responses.parquet")
        assert coded.columns == ["person_id", "item_id", "score", "person_group", "form"]
        same = table.drop_nulls("score").sort("person_id", "item_id")
        coded = coded.sort("person_id", "item_id")
        assert coded["person_group"].to_list() == same["person_group"].to_list()
        assert (coded["score"] == same["score"] - 1).all()
        checked = check_period(coded, folder / "items.csv", Spec.read(folder / "bank.toml"))
        assert checked.data.populations == ("de", "fr")


def test_oddities_are_listed(tmp_path):
    table = long_table().with_columns(pl.col("score").cast(pl.String))
    more = pl.DataFrame(
        [("s1", "q0", "1"), (" s2", "q1", "NA"), (" s3 ", "q1", "1"), ("s4", "lonely", "1")],
        schema=table.schema,
        orient="row",
    )
    pl.concat([table, more]).write_csv(tmp_path / "r.csv")
    found = look_at_files(tmp_path / "r.csv")
    text = "\n".join(found.odd)
    for part in (
        "1 response to an item the examinee had answered before",
        "1 row without a score",
        "1 person_id with spaces around them: ' s3 '",
        "1 item on which everybody has the same score: 'lonely'",
        "1 item with fewer than 5 responses: 'lonely'",
    ):
        assert part in text
    assert tomllib.loads(found.toml)["data"]["duplicates"] == "first"
    accepted(found, tmp_path)


def test_times_ask_for_periods(tmp_path):
    table = long_table().with_columns(when=pl.datetime(2026, 1, 1) + pl.duration(days=pl.int_range(pl.len())))
    table.write_parquet(tmp_path / "r.parquet")
    assert any(
        "'when' runs from 2026-01-01 to 2026-08-28" in text for text in look_at_files(tmp_path / "r.parquet").odd
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("item,a,b\n1,2,3\n", r"which holds the person and the score\?.*--person COLUMN and --score COLUMN"),
        ("a,b\n0,1\n0,1\n", r"no column is called like the ids of examinees, and the first, 'a'"),
        ("id,text\n1,x\n2,y\n", "neither a long table"),
        ("id,item,resp\n1,i,A\n2,i,B\n", "2 scores not a number \\('A', 'B'\\); score the answers first"),
        ("id,item,resp\n1,i,-9\n2,i,1\n", r"negative scores \(1\): 'i'; a code for a missing answer"),
    ],
)
def test_questions_where_it_cannot_tell(content, message, tmp_path):
    (tmp_path / "r.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        look_at_files(tmp_path / "r.csv")


def test_named_columns(tmp_path):
    table = long_table().rename({"person_id": "who", "item_id": "what", "score": "how"})
    table.write_csv(tmp_path / "r.csv")
    found = look_at_files(tmp_path / "r.csv", person="who", item="what", score="how")
    assert found.columns.score == "how"
    accepted(found, tmp_path)
    with pytest.raises(DataError, match=r"there is no column 'x' \(--item\)"):
        look_at_files(tmp_path / "r.csv", person="who", item="x", score="how")


def test_items_that_do_not_match(tmp_path):
    long_table().write_csv(tmp_path / "r.csv")
    pl.DataFrame({"item": ["z1", "z2"]}).write_csv(tmp_path / "i.csv")
    with pytest.raises(
        DataError, match=r"no column holds the ids of the responses' items \('q0', .*begins with 'z1', 'z2'"
    ):
        look_at_files(tmp_path / "r.csv", tmp_path / "i.csv")


def test_command(tmp_path, capsys):
    long_table().write_csv(tmp_path / "r.csv")
    assert run("start", tmp_path / "r.csv", "--to", tmp_path / "new", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, output_schema("start"))
    assert said["accepted"]
    assert run("start", tmp_path / "r.csv", "--to", tmp_path / "new") == 1
    assert "already; name another folder" in capsys.readouterr().err
    assert run("start", tmp_path / "r.csv", "--to", tmp_path / "new", "--overwrite") == 0
    out = capsys.readouterr().out
    assert "is long: examinees in 'person_id'" in out
    assert "concal init" in out


def wide_text(separator: str, decimal: str, missing: str) -> str:
    """A wide table as R or a spreadsheet writes it: what was not given is NA, decimals may have a comma."""
    wide = long_table().pivot(on="item_id", index="person_id", values="score")
    lines = [["id", *wide.columns[1:]]]
    for k, row in enumerate(wide.rows()):
        cells = [missing if (k + j) % 7 == 0 else f"{y:g}".replace(".", decimal) for j, y in enumerate(row[1:])]
        lines.append([row[0], *(f'"{c}"' if separator in c else c for c in cells)])
    return "".join(separator.join(line) + "\n" for line in lines)


@pytest.mark.parametrize("missing", ["NA", "", "NaN"])
@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (",", ","), (";", ","), ("\t", ",")])
def test_wide_tables_with_what_was_not_given(separator, decimal, missing, tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(wide_text(separator, decimal, missing))
    found = look_at_files(path)
    assert (found.columns.items, found.columns.others) == (tuple(f"q{j}" for j in range(6)), ())
    assert {(g.name, g.items) for g in found.groups} == {("binary", 2), ("ordered", 2), ("continuous", 2)}
    accepted(found, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("person_id,item_id,score\n", r"not a single row below the names"),
        ("id,q1,q2\n", r"not a single row below the names"),
        ("id,q1,q2\n1,,NA\n2,NA,\n", r"every score is empty, NA or NaN"),
        ("id,q1,q2\n1,A,B\n2,C,B\n", r"2 columns of text .*'q1: A', 'q2: B'.*score the answers first"),
        ("id,q1,q2\n1,1,0\n2,x,1\n3,1,1\n4,0,0\n", r"1 score not a number \('x'\)"),
    ],
    ids=["no rows", "no rows of a wide table", "no scores", "letters", "a letter among scores"],
)
def test_tables_without_scores(text, message, tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        look_at_files(path)


def examinees(n: int) -> pl.DataFrame:
    """Two columns of groups; the others have one level, a rare one, gaps, or a level for everybody."""
    k = pl.int_range(n)
    return pl.select(
        person_id="s" + k.cast(pl.String),
        site=pl.when(k % 3 == 0).then(pl.lit("south\nwest")).otherwise(pl.lit("north")),
        gender=1 + k % 2,
        one=pl.lit("x"),
        rare=pl.when(k < 9).then(pl.lit("a")).otherwise(pl.lit("b")),
        known=pl.when(k > 9).then(pl.lit("a")),
        pupil="p" + k.cast(pl.String),
    )


@pytest.mark.parametrize("wide", [False, True])
def test_columns_that_sort_examinees_are_proposed(tmp_path, wide, capsys):
    table, path = long_table(200), tmp_path / "r.csv"
    table = table.pivot("item_id", index="person_id", values="score") if wide else table
    table.join(examinees(200), on="person_id", maintain_order="left").write_csv(path)
    found = look_at_files(path)
    assert set(found.examinee_groups) == {"site", "gender"}
    folder = accepted(found, tmp_path, f"{wide}")
    text = (folder / "bank.toml").read_text()
    assert "# person_group = \"gender\"  # 2 groups, '1' (100), '2' (100)" in text
    chosen = text.replace('# person_group = "gender"', 'person_group = "gender"')
    spec = Spec.parse(tomllib.loads(chosen))
    checked = check_period(path, folder / "items.csv", spec, wide=wide)
    assert checked.data.populations == ("1", "2")
    assert run("start", path, "--to", tmp_path / "again") == 0
    assert "examinees come in groups by 'gender' (2 groups, '1' (100), '2' (100))" in capsys.readouterr().out


def test_what_the_item_table_says_scores_are_out_of_is_no_guess(tmp_path):
    """An item of two points that few get in full stays one of two points."""
    rng = np.random.default_rng(0)
    few = rng.choice([0, 1, 2], size=400, p=[0.5, 0.45, 0.05])
    rows = [(f"p{k}", "A", int(score)) for k, score in enumerate(few)]
    rows += [(f"p{k}", item, int(rng.integers(0, 4))) for k in range(400) for item in "BCD"]
    responses, items = tmp_path / "r.csv", tmp_path / "i.csv"
    pl.DataFrame(rows, schema=["person_id", "item_id", "score"], orient="row").write_csv(responses)
    pl.DataFrame({"item_id": list("ABCD"), "max_score": [2, 3, 3, 3], "len": [1.0, 2, 3, 4]}).write_csv(items)
    assert not look_at_files(responses, items).problems
