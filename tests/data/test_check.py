"""The check of a period: every problem is named with a count and the first offenders, doubts are collected."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concal.calibration.period import calibrate
from concal.data.check import check_period
from concal.data.doubts import refuse_single_responses
from concal.errors import DataError, SpecError
from concal.spec import Spec

FOUR = (
    "4 examinees in the whole period: the ability distribution that sets the metric is hardly known, and with it every "
    "item; put this period together with another"
)


def respec(spec: Spec, **data) -> Spec:
    return Spec.parse({**spec.model_dump(mode="json", exclude_none=True), "data": {"few_responses": 2, **data}})


def rows(*given_rows) -> pl.DataFrame:
    return pl.DataFrame(list(given_rows), schema=["person_id", "item_id", "score"], orient="row")


def test_a_good_period(two_group_spec, two_group_items, two_group_responses):
    checked = check_period(two_group_responses, two_group_items, two_group_spec, period="2026Q1")
    data = checked.data
    assert checked.warnings == (FOUR,)
    assert data.period == "2026Q1"
    assert data.populations == ("2026Q1",)
    assert data.dimensions == ("reading", "writing")
    assert data.person_ids.to_list() == ["p1", "p2", "p3", "p4"]
    assert data.n_responses == 32
    vocabulary = data.groups["vocabulary"]
    assert vocabulary.item_ids == ("v1", "v2", "v3", "v4", "v5", "v6")
    assert vocabulary.features == ("1", "length", "C(cefr)[B1]")
    np.testing.assert_array_equal(vocabulary.X[3], [1.0, 9.0, 1.0])
    assert vocabulary.person.dtype == vocabulary.item.dtype == np.int32
    assert data.groups["summary"].X.shape == (2, 1)
    groups = checked.tables["groups"]
    assert groups["responses"].to_list() == [24, 8]
    assert checked.tables["exposure"]["median"].to_list() == [4.0, 4.0]
    assert checked.tables["persons"]["max"].to_list() == [6.0, 2.0]


def test_indices_point_at_the_given_scores(two_group_spec, two_group_items, two_group_responses):
    data = check_period(two_group_responses, two_group_items, two_group_spec).data
    back = [
        (data.person_ids[int(p)], group.item_ids[i], s)
        for group in data.groups.values()
        for p, i, s in zip(group.person, group.item, group.score, strict=True)
    ]
    assert sorted(back) == sorted(two_group_responses.rows())


@pytest.mark.property
@given(seed=st.integers(0, 2**32 - 1))
def test_order_of_rows_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    spec = Spec.parse(
        {"bank": {"dimensions": ["r"]}, "groups": {"g": {"model": "2pl", "dimension": "r", "features": "~ x"}}}
    )
    table = pl.DataFrame({"item_id": list("dacbe"), "group": "g", "x": [1.0, 2.0, 5.0, 4.0, 0.5]})
    pairs = [(f"p{p}", i) for p in range(6) for i in "dacbe" if rng.random() < 0.7] or [("p0", "a")]
    answers = rows(*((p, i, float(rng.integers(0, 2))) for p, i in pairs))
    one = check_period(answers, table, spec).data
    other = check_period(answers[rng.permutation(len(pairs))], table[rng.permutation(5)], spec).data
    assert one.person_ids.to_list() == other.person_ids.to_list()
    a, b = one.groups["g"], other.groups["g"]
    assert a.item_ids == b.item_ids
    for name in ("X", "person", "item", "score"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_all_problems_in_one_error(two_group_spec):
    items = pl.DataFrame(
        {
            "item_id": ["007", "b", "c", "c", None, "x", "y"],
            "group": ["vocabulary"] * 5 + ["vocabularly", "summary"],
            "length": [1.0, 2.0, None, 4.0, 5.0, 6.0, 7.0],
            "cefr": ["A", "B", "A", "B", "A", "A", "B"],
        }
    )
    answers = rows(
        ("p1", "007", "1"),
        ("p1", "b", "0"),
        ("p2", "c", "2"),
        (None, "b", "1"),
        ("p3", "7", "1"),
        ("p1", "b", "1"),
        ("p4", "y", "abc"),
        ("p5", "b", None),
        ("p6", "y", "3"),
    )
    with pytest.raises(DataError) as caught:
        check_period(answers, items, two_group_spec, period="Q1")
    text = str(caught.value)
    assert text.startswith("period 'Q1': 10 problems in the data\n")
    for part in [
        "1 row without an item_id: row 5 below the header",
        "1 item_id on several rows: 'c'",
        "1 item in a group the spec does not have ('vocabularly'): 'x'; did you mean 'vocabulary'?",
        "1 row without a person_id: row 4 below the header",
        "1 score not a number ('abc'): 'p4' on 'y'",
        "1 item_id not in the item table, 1 row: '7' (nearest item: '007')",
        "group 'vocabulary' (2pl): 1 score must be 0 or 1: 2 ('p2' on 'c')",
        "group 'summary' (gpcm): 1 score must be",
        "1 person-item pair with several responses (1 row too many): 'p1' on 'b'",
        "groups.vocabulary.features: 'length' is missing or not finite for 1 item: 'c'",
    ]:
        assert part in text


def test_long_lists_are_counted_not_printed(two_group_spec, two_group_items):
    answers = rows(*((f"p{k:03d}", "nope", 1.0) for k in range(200)), *((f"p{k:03d}", "v1", 7.0) for k in range(200)))
    with pytest.raises(DataError) as caught:
        check_period(answers, two_group_items, two_group_spec)
    assert "200 rows: 'nope'" in str(caught.value)
    assert "and 195 more" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("bad", [float("inf"), -1.0, 0.5])
def test_scores_outside_the_model(bad, two_group_spec, two_group_items, two_group_responses):
    answers = pl.concat([two_group_responses, rows(("p9", "v1", bad))])
    with pytest.raises(DataError, match=r"1 score must be 0 or 1: .* \('p9' on 'v1'\)"):
        check_period(answers, two_group_items, two_group_spec)


@pytest.mark.parametrize(("rule", "kept"), [("first", 0.0), ("last", 1.0), ("mean", 0.5)])
def test_duplicates(rule, kept):
    groups = {"g": {"model": "ordered_beta", "dimension": "r"}}
    spec = Spec.parse({"bank": {"dimensions": ["r"]}, "groups": groups, "data": {"duplicates": rule}})
    answers = rows(("p", "a", 0.0), ("p", "b", 1.0), ("q", "a", 0.25), ("p", "a", 1.0))
    checked = check_period(answers, pl.DataFrame({"item_id": ["a", "b"]}), spec)
    group = checked.data.groups["g"]
    assert group.score.tolist() == [kept, 1.0, 0.25]
    assert any("1 person-item pair with several responses (1 row too many): 'p' on 'a'" in w for w in checked.warnings)


def test_mean_of_duplicates_must_still_be_a_score(two_group_spec, two_group_items):
    answers = rows(("p", "v1", 0.0), ("p", "v1", 1.0))
    with pytest.raises(DataError, match=r"after taking means of duplicates must be 0 or 1: 0\.5"):
        check_period(answers, two_group_items, respec(two_group_spec, duplicates="mean"))


def test_returning_examinees(two_group_spec, two_group_items, two_group_responses):
    def check(rule, earlier):
        spec = respec(two_group_spec, returning=rule)
        return check_period(two_group_responses, two_group_items, spec, earlier_persons={"Q1": earlier})

    for earlier in ({"p2", "zz"}, pl.Series(["zz", "p2"])):
        checked = check("earlier", earlier)
        assert checked.n_returning == 1
        assert checked.data.person_ids.to_list() == ["p1", "p3", "p4"]
        assert checked.data.n_responses == 24
        assert any("1 examinee already appeared in an earlier period (1 in 'Q1'): 'p2'" in w for w in checked.warnings)
    with pytest.raises(DataError, match="1 examinee already appeared"):
        check("error", {"p2"})
    with pytest.raises(DataError, match=r"is this the file of 'Q1'.*linked by the items they share, not by examinees"):
        check("earlier", {"p1", "p2", "p3", "p4"})
    assert check("error", set()).n_returning == 0


def test_doubts_are_collected(two_group_spec, two_group_items, two_group_responses):
    answers = two_group_responses.with_columns(
        pl.when(pl.col("item_id") == "v1").then(1.0).otherwise("score").alias("score")
    ).filter((pl.col("item_id") != "v2") | (pl.col("person_id") == "p1"))
    answers = answers.filter(~((pl.col("item_id") == "s2") & (pl.col("person_id") == "p1")))
    warnings = check_period(answers, two_group_items, two_group_spec).warnings
    assert any("1 item with fewer than 2 responses: 'v2'" in w for w in warnings)
    assert any("1 item on which everybody has the same score: 'v1'" in w for w in warnings)
    assert any("group 'summary': 1 item without a response in some of the 3 categories: 's2'" in w for w in warnings)
    assert FOUR in warnings
    assert len(warnings) == 4


def learned(spec, *given_rows):
    found = check_period(rows(*given_rows), pl.DataFrame({"item_id": ["a", "b"]}), respec(spec)).warnings
    return [text for text in found if "examinee" in text or "learned" in text]


ONE_GROUP = {"bank": {"dimensions": ["r"]}, "groups": {"g": {"model": "2pl", "dimension": "r"}}}


def test_periods_that_teach_next_to_nothing_are_doubted():
    spec = Spec.parse(ONE_GROUP)
    good = [(f"p{k}", item, float((k + j) % 2)) for k in range(10) for j, item in enumerate("ab")]
    assert learned(spec, *good) == []
    (few,) = learned(spec, *good[:6])
    assert few == FOUR.replace("4", "3")
    (single,) = learned(spec, *good[::2], *(("q" + p, "b", 1 - s) for p, i, s in good[::2]))
    assert single == (
        "dimension 'r': 20 examinees with one response each: nothing tells their abilities from the items, so slopes "
        "stay at their priors; does person_id name the examinee, or the row?"
    )
    (equal,) = learned(spec, *((p, i, 1.0) for p, i, _ in good))
    assert equal == "group 'g': all 20 scores are 1, so nothing can be learned of its items; is it the right column?"


def test_one_response_each_is_refused_before_sampling():
    spec, table = Spec.parse(ONE_GROUP), pl.DataFrame({"item_id": ["a", "b"]})
    alone = [(f"p{k}", "ab"[k % 2], float(k % 2)) for k in range(12)]
    with pytest.raises(DataError, match=r"dimension 'r': all 12 examinees gave one response only, to 2 items in all"):
        refuse_single_responses(check_period(rows(*alone), table, respec(spec)).data)
    with pytest.raises(DataError, match=r"one response only, to 1 item in all.*answer two items or more"):
        calibrate(rows(*alone[::2]), table, respec(spec))
    refuse_single_responses(check_period(rows(*alone, ("p0", "b", 1.0)), table, respec(spec)).data)


def test_one_response_each_in_a_dimension_may_go_with_others(two_group_spec, two_group_items, two_group_responses):
    one = pl.col("item_id").is_in(["v1", "v2", "v3", "v4", "v5", "v6"]) | (pl.col("item_id") == "s1")
    checked = check_period(two_group_responses.filter(one), two_group_items, two_group_spec)
    assert any("'writing': 4 examinees with one response each" in text for text in checked.warnings)
    refuse_single_responses(checked.data)


def test_wide_and_silent_examinees(two_group_spec, two_group_items, two_group_responses):
    wide = two_group_responses.pivot(on="item_id", index="person_id", values="score")
    silent = wide.head(1).select(
        pl.lit("p0").alias("person_id"), pl.all().exclude("person_id").replace({0: None, 1: None, 2: None})
    )
    checked = check_period(pl.concat([wide, silent.cast(wide.schema)]), two_group_items, two_group_spec, wide=True)
    assert checked.data.n_responses == 32
    assert checked.warnings == ("1 examinee without any response: 'p0'; left out", FOUR)


def test_rows_without_a_score_are_no_responses(two_group_spec, two_group_items, two_group_responses):
    answers = pl.concat([two_group_responses, rows(("p9", "v1", float("nan")))])
    checked = check_period(answers, two_group_items, two_group_spec)
    assert checked.data.n_responses == two_group_responses.height
    assert "1 row without a score: taken as not given, left out" in checked.warnings


def test_unanswered_items_are_left_to_prediction(two_group_spec, two_group_items, two_group_responses):
    answers = two_group_responses.filter(pl.col("item_id") != "v4")
    short = check_period(answers, two_group_items, two_group_spec)
    assert "v4" not in short.data.groups["vocabulary"].item_ids
    full = check_period(two_group_responses, two_group_items, two_group_spec)
    assert "v4" in full.data.groups["vocabulary"].item_ids
    assert short.design_states == full.design_states, "coding is learned from the whole item table"


def test_missing_features_of_unanswered_items_do_not_matter(two_group_spec, two_group_items, two_group_responses):
    extra = pl.DataFrame({"item_id": ["v9"], "group": ["vocabulary"], "length": [None], "cefr": [None]})
    items = pl.concat([two_group_items, extra.cast(two_group_items.schema)])
    assert check_period(two_group_responses, items, two_group_spec).data.n_responses == 32
    with pytest.raises(DataError, match="1 item: 'v9'"):
        check_period(pl.concat([two_group_responses, rows(("p1", "v9", 1.0))]), items, two_group_spec)


def test_design_states_travel_to_the_next_period(two_group_spec, two_group_items, two_group_responses):
    first = check_period(two_group_responses, two_group_items, two_group_spec)
    newer = two_group_items.with_columns(pl.col("cefr").replace({"A1": "B2"}))
    with pytest.raises(DataError, match=r"C\(cefr\) has 1 level no earlier period had \('B2'\)"):
        check_period(two_group_responses, newer, two_group_spec, design_states=first.design_states)
    spec = respec(two_group_spec, unseen_level="mean")
    second = check_period(two_group_responses, newer, spec, design_states=first.design_states)
    assert second.data.groups["vocabulary"].features == first.data.groups["vocabulary"].features
    assert any("coded as the mean" in w for w in second.warnings)
    assert second.design_states == first.design_states


def test_a_period_must_measure_every_dimension(two_group_spec, two_group_items, two_group_responses):
    answers = two_group_responses.filter(pl.col("item_id").str.starts_with("v"))
    with pytest.raises(DataError, match="1 dimension without responses in this period: 'writing'"):
        check_period(answers, two_group_items, two_group_spec)


def test_linkage_is_planned_and_its_lack_is_a_problem(two_group_spec, two_group_items, two_group_responses):
    loose = {**two_group_spec.model_dump(mode="json", exclude_none=True), "linking": {"min_anchors": 2}}
    spec = Spec.parse(loose)
    earlier = {"2026Q1": {"reading": {"v1", "v2", "zz"}, "writing": {"s1", "s2"}}}
    checked = check_period(two_group_responses, two_group_items, spec, period="2026Q2", earlier_items=earlier)
    assert checked.linkage is not None
    assert checked.linkage.chains["reading", "2026Q2"] == ("2026Q2", "2026Q1")
    earlier["2026Q1"]["writing"] = {"s1", "other"}
    with pytest.raises(DataError, match=r"too few items of dimension 'writing'.*1 with '2026Q1'; 2 are needed"):
        check_period(two_group_responses, two_group_items, spec, period="2026Q2", earlier_items=earlier)


def test_group_column_may_be_absent_with_one_group():
    spec = Spec.parse({"bank": {"dimensions": ["r"]}, "groups": {"g": {"model": "2pl", "dimension": "r"}}})
    checked = check_period(rows(("p", "1", 1.0), ("q", "1", 0.0)), pl.DataFrame({"item_id": [1]}), spec)
    assert checked.data.groups["g"].item_ids == ("1",)


def test_both_tables_unreadable_are_both_named(two_group_spec, tmp_path):
    with pytest.raises(DataError) as caught:
        check_period(tmp_path / "r.csv", tmp_path / "i.csv", two_group_spec)
    assert "r.csv" in str(caught.value)
    assert "i.csv" in str(caught.value)


def test_empty_responses(two_group_spec, two_group_items, two_group_responses):
    with pytest.raises(DataError, match="the table has no rows"):
        check_period(two_group_responses.head(0), two_group_items, two_group_spec)


def test_scores_that_are_all_empty_are_said_to_be(tmp_path):
    spec, table = Spec.parse(ONE_GROUP), pl.DataFrame({"item_id": ["a", "b"]})
    (text,) = refused(rows(("p", "a", None), ("q", "b", float("nan"))), table, spec)
    assert text == "responses: every score is empty, NA or NaN, of 2 rows: is it the right column of scores?"
    wide = pl.DataFrame({"person_id": ["p", "q"], "a": ["NA", ""], "b": ["", None]})
    (text,) = refused(wide, table, spec, wide=True)
    assert text == "responses: every cell is empty, NA or NaN, of 2 rows: is it the right column of scores?"


def test_wide_tables_are_reported_as_they_stand_in_the_file(tmp_path):
    spec, table = Spec.parse(ONE_GROUP), pl.DataFrame({"item_id": ["a", "b", "site"]})
    wide = pl.DataFrame({"person_id": ["p", None, "q", ""], "a": [1, 1, 0, 0], "b": [0, 1, 0, 1]})
    (text,) = refused(wide, table, spec, wide=True)
    assert text == "responses: 2 rows without a person_id: rows 2, 4 below the header"
    words = pl.DataFrame({"person_id": list("pqr"), "a": list("101"), "b": ["1", "x", "0"], "site": list("nss")})
    column, single = refused(words, table, spec, wide=True)
    assert column == (
        "responses: 1 column without a single number: 'site' (there is 'n', 's'); if they are no items, name them in "
        "data.ignore; if they are, score the answers first"
    )
    assert single.startswith("responses: 1 score not a number ('x'): 'q' on 'b'")


@pytest.mark.parametrize("name", ["../x", "", "con", "a b", "x" * 65])
def test_unsafe_period_names(name, two_group_spec, two_group_items, two_group_responses):
    with pytest.raises(SpecError, match="period"):
        check_period(two_group_responses, two_group_items, two_group_spec, period=name)


def refused(answers, table, spec, **options) -> list[str]:
    with pytest.raises(DataError) as told:
        check_period(answers, table, spec, **options)
    return str(told.value).split("\n  - ")[1:]


def test_one_mistake_is_said_once():
    spec, ordered = Spec.parse(ONE_GROUP), {"model": "gpcm", "dimension": "r"}
    answers = rows(("p", "a", 1.0), ("p", "b", 0.0), ("q", "a", 0.0), ("q", "b", 1.0))
    table = pl.DataFrame({"item_id": ["a", "b"], "group": ["g", "h"]})
    (text,) = refused(answers, table, spec, earlier_items={"Q1": {"r": ["a", "b"]}})
    assert "1 item in a group the spec does not have ('h'): 'b'" in text
    (text,) = refused(answers, table.with_columns(group=pl.Series(["g", None])), spec)
    assert text == "items: 1 item without a group: 'b'; the spec has 'g'"
    (text,) = refused(answers, table.head(0), spec)
    assert text == "items: the table has no rows; every item of the responses needs one"
    (text,) = refused(
        answers.with_columns(pl.col("score") * 3),
        table.drop("group"),
        Spec.parse({**ONE_GROUP, "groups": {"g": ordered}}),
    )
    assert "2 items without a number of categories: 'a', 'b'" in text


@pytest.mark.parametrize(
    ("score", "remedy"),
    [
        ("inf", "mend the column"),
        ("1e308", "mend the column"),
        ("-1", "a negative score is often a code for a response that was not given"),
        ("0.5", "shares need a model that takes them"),
        ("TRUE", "write right as 1 and wrong as 0"),
        ("3", "ordered scores need a model that takes them"),
    ],
)
def test_scores_get_the_remedy_they_need(score, remedy):
    answers = pl.DataFrame({"person_id": ["p", "q"], "item_id": ["a", "a"], "score": ["1", score]})
    (text,) = refused(answers, pl.DataFrame({"item_id": ["a"]}), Spec.parse(ONE_GROUP))
    assert remedy in text


def test_two_categories_take_no_points_in_between():
    group = {"model": "gpcm", "dimension": "r", "categories": 2, "max_score": 4}
    spec = Spec.parse({**ONE_GROUP, "groups": {"g": group}})
    (text,) = refused(rows(("p", "a", 4.0), ("q", "a", 2.0)), pl.DataFrame({"item_id": ["a"]}), spec)
    assert "with two categories an item's points are all or nothing" in text


def test_rows_and_columns_are_found(tmp_path):
    spec, table = Spec.parse(ONE_GROUP), pl.DataFrame({"item_id": ["a", "b"]})
    (text,) = refused(rows(("p", "a", 1.0), (None, "b", 0.0)), table, spec)
    assert text == "responses: 1 row without a person_id: row 2 below the header"
    wide = pl.DataFrame({"person_id": ["p", "q"], "a": [1, 0], "b": [0, 1], "age": [20, 30]})
    (text,) = refused(wide, table, spec, wide=True)
    assert "'age'" in text
    assert text.endswith("or name columns that are no items in data.ignore")


@pytest.mark.parametrize("formula", ["~ x", "~ log(x)"])
def test_text_among_numbers_is_found(formula):
    spec = Spec.parse({**ONE_GROUP, "groups": {"g": {"model": "2pl", "dimension": "r", "features": formula}}})
    table = pl.DataFrame({"item_id": ["a", "b", "c"], "x": ["1.5", "2", "long"]})
    answers = rows(*((p, i, float(k % 2)) for p in "pq" for k, i in enumerate("abc")))
    (text,) = refused(answers, table, spec)
    assert "column 'x' is not a number" in text
    assert "it holds text ('long') for 1 item: 'c'; mend the cells" in text


def test_words_and_lost_ids_of_a_wide_table_are_told_together():
    n = 20
    ids = ["" if k == 3 else f"p{k}" for k in range(n)]
    table = pl.DataFrame({"person_id": ids, "i1": [str(k % 2) for k in range(n)], "word": ["abc"] * n})
    spec = Spec.parse({"bank": {"dimensions": ["x"]}, "groups": {"g": {"model": "2pl", "dimension": "x"}}})
    with pytest.raises(DataError) as caught:
        check_period(table, pl.DataFrame({"item_id": ["i1"], "group": ["g"]}), spec, period="a", wide=True)
    assert "1 row without a person_id: row 4" in str(caught.value)
    assert "1 column without a single number: 'word'" in str(caught.value)
