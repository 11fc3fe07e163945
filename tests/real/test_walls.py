"""What stopped new users on real data, once: it passes now, or is refused with the remedy."""

import polars as pl
import pytest

from concal.calibration.period import calibrate
from concal.data.check import check_period
from concal.errors import DataError
from concal.spec import Spec

pytestmark = pytest.mark.real


def one_group(model: str, **options) -> Spec:
    group = {"model": model, "dimension": "x", **options.pop("group", {})}
    return Spec.parse({"bank": {"dimensions": ["x"]}, "groups": {"all": group}, **options})


@pytest.fixture(scope="module")
def vas(shared_data):
    """Ratings in millimetres of a line of 112."""
    table = pl.read_csv(shared_data / "continuous_vas" / "epia.csv")
    return table.select(
        person_id=pl.col("examinee").cast(pl.String), item_id="item", score=pl.col("score").cast(pl.Float64)
    )


def test_ratings_in_millimetres_are_refused_with_the_remedy_and_taken_with_it(vas):
    items = vas.select("item_id").unique()
    with pytest.raises(DataError, match="the largest is 111: points or percent need their maximum declared"):
        check_period(vas, items, one_group("beta"))
    checked = check_period(vas, items, one_group("ordered_beta", group={"max_score": 112}))
    assert checked.data.groups["all"].score.max() == 111 / 112
    assert any('model = "beta" would do' in text for text in checked.warnings)


@pytest.mark.slow
def test_cut_points_nobody_used_converge(vas):
    """8,000 sweeps ended at R-hat 1.69 while they were left to themselves."""
    spec = one_group("ordered_beta", group={"max_score": 112}, calibration={"max_sweeps": 8000})
    found = calibrate(vas, vas.select("item_id").unique(), spec, seed=1)
    assert found.convergence.converged


def test_levels_without_an_item_this_period_are_taken(shared_data):
    """A bank codes a feature once; later periods rarely have every level."""
    items = pl.read_parquet(shared_data / "livecodebench" / "items.parquet").rename({"item": "item_id"})
    items = items.drop_nulls("difficulty")
    responses = pl.read_parquet(shared_data / "livecodebench" / "responses.parquet")
    responses = responses.rename({"examinee": "person_id", "item": "item_id"}).join(items, on="item_id", how="semi")
    spec = one_group("ordered_beta", group={"features": "~ C(difficulty)"}, data={"duplicates": "mean"})
    first = check_period(responses, items, spec, period="all")
    level = items["difficulty"].drop_nulls().unique().sort()[0]
    kept = items.filter(pl.col("difficulty") != level)
    later = check_period(
        responses.join(kept.select("item_id"), on="item_id", how="semi"),
        kept,
        spec,
        period="later",
        design_states=first.design_states,
    )
    assert later.data.groups["all"].features == first.data.groups["all"].features
    assert any("cannot be told apart" in text for text in later.warnings)
