"""The check on real data: what is known to be wrong with these files is found, with the right counts."""

import polars as pl
import pytest

from concal.data.check import check_period
from concal.data.linkage import linkage
from concal.errors import DataError
from concal.spec import Spec

pytestmark = pytest.mark.real


def one_group(model: str, duplicates: str = "error", features: str = "~ 1", **group) -> Spec:
    return Spec.parse(
        {
            "bank": {"dimensions": ["ability"]},
            "groups": {"all": {"model": model, "dimension": "ability", "features": features, **group}},
            "data": {"duplicates": duplicates},
        }
    )


@pytest.fixture(scope="module")
def assist(shared_data):
    names = {"examinee": "person_id", "item": "item_id"}
    folder = shared_data / "assist2017"
    responses = pl.read_parquet(folder / "responses.parquet").rename(names)
    return responses, pl.read_parquet(folder / "items.parquet").rename({"item": "item_id"})


def test_assist2017_repeated_attempts_are_found(assist):
    responses, items = assist
    pairs = responses.group_by("person_id", "item_id").len().filter(pl.col("len") > 1)
    extra = int((pairs["len"] - 1).sum())
    assert extra > 500_000, "most rows of this file are repeated attempts"
    with pytest.raises(DataError) as caught:
        check_period(responses, items, one_group("2pl"))
    text = str(caught.value)
    assert f"{pairs.height:,} person-item pairs with several responses ({extra:,} rows too many)" in text
    assert f"and {pairs.height - 5:,} more" in text


def test_assist2017_first_attempts(assist):
    responses, items = assist
    first = responses.filter(pl.col("attempt") == 1)
    checked = check_period(first, items, one_group("2pl"))
    assert checked.data.n_responses == 389_692
    assert checked.data.person_ids.len() == 1_705
    by_rule = check_period(responses.sort("seq"), items, one_group("2pl", "first"))
    assert by_rule.data.n_responses == 389_692
    one, other = checked.data.groups["all"], by_rule.data.groups["all"]
    assert (one.person == other.person).all()
    assert (one.item == other.item).all()
    assert (one.score == other.score).all(), "the first by order is the row marked attempt == 1"
    last = check_period(responses.sort("seq"), items, one_group("2pl", "last")).data.groups["all"]
    assert (last.score != one.score).any()
    with pytest.raises(DataError, match="after taking means of duplicates must be 0 or 1"):
        check_period(responses, items, one_group("2pl", "mean"))


def test_assist2017_skill_as_a_feature(assist):
    responses, items = assist
    first = responses.filter(pl.col("attempt") == 1)
    spec = one_group("2pl", features="~ C(skill)")
    checked = check_period(first, items, spec)
    answered = items.filter(pl.col("item_id").is_in(first["item_id"].implode()))
    assert checked.data.groups["all"].X.shape == (answered.height, items["skill"].n_unique())


def test_timss_partial_credit(shared_data):
    folder = shared_data / "timss07_rus"
    names = {"examinee": "person_id", "item": "item_id"}
    responses = pl.read_parquet(folder / "responses.parquet").rename(names)
    largest = responses.group_by(pl.col("item_id").cast(pl.String)).agg(pl.col("score").max().alias("largest"))
    table = pl.read_parquet(folder / "items.parquet").rename({"item": "item_id"}).join(largest, on="item_id")
    items = table.with_columns(
        pl.when(pl.col("largest") > 1).then(pl.lit("partial")).otherwise(pl.lit("right")).alias("group")
    )
    groups = {
        "right": {"model": "2pl", "dimension": "ability", "features": "~ content"},
        "partial": {"model": "gpcm", "categories": 3, "dimension": "ability"},
    }
    spec = Spec.parse({"bank": {"dimensions": ["ability"]}, "groups": groups})
    checked = check_period(responses, items, spec)
    assert checked.data.n_responses == 279_135
    assert checked.data.person_ids.len() == 4_472
    assert len(checked.data.groups["partial"].item_ids) == int((largest["largest"] == 2).sum())
    assert checked.data.groups["partial"].score.max() == 2
    wrong = items.with_columns(pl.lit("right").alias("group"))
    n_two = int((responses["score"] == 2).sum())
    with pytest.raises(DataError, match=rf"group 'right' \(2pl\): {n_two:,} scores must be 0 or 1"):
        check_period(responses, wrong, spec)


def test_livecodebench_endpoints_need_ordered_beta(shared_data):
    folder = shared_data / "livecodebench"
    names = {"examinee": "person_id", "item": "item_id"}
    responses = pl.read_parquet(folder / "responses.parquet").rename(names)
    items = pl.read_parquet(folder / "items.parquet").rename({"item": "item_id"})
    at_the_ends = int(responses["score"].is_in([0.0, 1.0]).sum())
    with pytest.raises(DataError, match=rf"group 'all' \(beta\): {at_the_ends:,} scores must be"):
        check_period(responses, items, one_group("beta"))
    checked = check_period(responses, items, one_group("ordered_beta"))
    assert checked.data.n_responses == 69_504
    with pytest.raises(DataError, match=r"'platform' is missing or not finite for [\d,]+ items: 'exec_sample_0'"):
        check_period(responses, items, one_group("ordered_beta", features="~ platform"))


def test_cloze_periods_by_calendar(shared_data):
    folder = shared_data / "cloze_stats"
    names = {"examinee": "person_id", "item": "item_id"}
    responses = pl.read_parquet(folder / "responses.parquet").rename(names).filter(pl.col("attempt") == 1)
    items = pl.read_parquet(folder / "items.parquet").rename({"item": "item_id"})
    spec = one_group("2pl", features="~ n_words + log(answer_len)")
    early = responses["time"] < responses["time"].median()
    first = check_period(responses.filter(early), items, spec, period="autumn")
    returning = set(responses.filter(early)["person_id"]) & set(responses.filter(~early)["person_id"])
    second = check_period(
        responses.filter(~early),
        items,
        spec,
        period="winter",
        design_states=first.design_states,
        earlier_persons={"autumn": first.data.person_ids},
        earlier_items={"autumn": {"ability": first.data.groups["all"].item_ids}},
    )
    assert second.n_returning == len(returning) > 0
    assert not set(second.data.person_ids) & set(first.data.person_ids)
    assert second.linkage is not None
    assert second.linkage.chains["ability", "winter"] == ("winter", "autumn")


def test_lsat6_wide_equals_long(shared_data, tmp_path):
    long = pl.read_csv(shared_data / "classics" / "lsat6.csv").rename({"examinee": "person_id", "item": "item_id"})
    long.pivot(on="item_id", index="person_id", values="score").write_csv(tmp_path / "wide.csv")
    items = long.select("item_id").unique()
    a = check_period(long, items, one_group("2pl")).data.groups["all"]
    b = check_period(tmp_path / "wide.csv", items, one_group("2pl"), wide=True).data.groups["all"]
    assert a.score.size == 5_000
    assert (a.score == b.score).all()
    assert (a.person == b.person).all()
    assert (a.item == b.item).all()


def test_timss_booklets_link(shared_data):
    """Two halves of the booklet design share the items that tie them."""
    responses = pl.read_parquet(shared_data / "timss07_rus" / "responses.parquet")
    half = responses["examinee"] % 2 == 0
    sets = {
        name: {"ability": responses.filter(mask)["item"].cast(pl.String).unique().to_list()}
        for name, mask in {"even": half, "odd": ~half}.items()
    }
    plan = linkage(sets, "even")
    assert plan.shared["ability", "odd", "even"] == 437
