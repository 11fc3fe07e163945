"""RMSE and coverage against a known truth."""

import polars as pl
import pytest
from pooled_worlds import make_world

from concal.errors import DataError
from concal.evaluate.pairs import compare_pairs
from concal.evaluate.recovery import check_truth, recovery


@pytest.fixture(scope="module")
def world():
    return make_world(n=1500, shift=0.0, ratio=1.0)


def test_honest_intervals_cover_as_they_should(world):
    table = recovery(compare_pairs(world.consensus, world.pooled), world.truth, world.pooled)
    assert set(table["method"]) == {"analytic", "pooled"}
    for row in table.filter(pl.col("parameter").is_in(["d", "log_a"])).iter_rows(named=True):
        assert row["n"] == 3000
        for level in (50, 90, 95):
            assert row[f"coverage_{level}"] == pytest.approx(level / 100, abs=0.025), row
        assert row["rmse"] == pytest.approx(0.21, abs=0.02)


def test_narrow_intervals_are_caught():
    world = make_world(n=1500, shift=0.0, ratio=0.5)
    table = recovery(compare_pairs(world.consensus, world.pooled), world.truth, world.pooled)
    narrow = table.filter((pl.col("method") == "analytic") & (pl.col("parameter") == "d"))
    honest = table.filter((pl.col("method") == "pooled") & (pl.col("parameter") == "d"))
    assert narrow["coverage_90"].item() < 0.65
    assert honest["coverage_90"].item() == pytest.approx(0.90, abs=0.025)


def test_drifted_items_have_no_single_truth():
    truth = pl.DataFrame(
        {
            "period": ["Q1", "Q2", "Q1", "Q2"],
            "item_id": ["a", "a", "b", "b"],
            "parameter": ["d"] * 4,
            "value": [0.1, 0.1, 0.2, 0.7],
        }
    )
    assert check_truth(truth).rows() == [("a", "d", 0.1)]


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (pl.DataFrame({"item_id": ["a"], "d": [0.1]}), "lacks the column"),
        (pl.DataFrame({"item_id": ["a", "a"], "parameter": ["d", "d"], "value": [0.1, 0.2]}), "several values"),
    ],
)
def test_bad_truth_is_refused(truth, message):
    with pytest.raises(DataError, match=message):
        check_truth(truth)


def test_foreign_truth_is_refused(world):
    truth = pl.DataFrame({"item_id": ["x"], "parameter": ["d"], "value": [0.0]})
    with pytest.raises(DataError, match="none of the compared items"):
        recovery(compare_pairs(world.consensus, world.pooled), truth, world.pooled)
