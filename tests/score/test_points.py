"""Scores out of a maximum of their own are scored as they were calibrated: the bank knows what they are out of."""

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.errors import DataError
from concal.spec import Spec

from ..bank.programme import SPEC, fake_calibrator, items_table, responses_table

GROUPS = SPEC.model_dump(exclude_none=True)["groups"]
OUT_OF = {"v00": 2.0, "v01": 5.0}  # right answers to these are worth so many points
POINTS = Spec.parse(
    {**SPEC.model_dump(exclude_none=True), "groups": {**GROUPS, "essay": {**GROUPS["essay"], "max_score": 30}}}
)


def in_points(table: pl.DataFrame) -> pl.DataFrame:
    """The same responses in points; the three steps of an essay are worth ten each."""
    worth = table["item_id"].replace_strict(OUT_OF, default=1.0)
    essay = table["item_id"].str.starts_with("e")
    return table.with_columns(score=pl.when(essay).then(pl.col("score") * 10.0).otherwise(pl.col("score") * worth))


@pytest.fixture(scope="module")
def banks(tmp_path_factory):
    place = tmp_path_factory.mktemp("points")
    plain, points = Bank.create(place / "plain", SPEC), Bank.create(place / "points", POINTS)
    items = items_table().with_columns(max_score=pl.col("item_id").replace_strict(OUT_OF, default=None))
    plain.add("P1", responses_table("P1"), items_table(), calibrator=fake_calibrator)
    points.add("P1", in_points(responses_table("P1")), items, calibrator=fake_calibrator)
    return plain, points


def test_a_table_in_points_has_the_scores_of_one_in_units(banks):
    plain, points = banks
    responses = responses_table("new", persons=20, seed=4)
    found, wanted = points.score(in_points(responses), items="mean"), plain.score(responses, items="mean")
    np.testing.assert_allclose(found["theta_reading"], wanted["theta_reading"], atol=1e-9)
    np.testing.assert_allclose(found["theta_writing"], wanted["theta_writing"], atol=1e-9)


def test_a_scorer_takes_points_too(banks):
    plain, points = banks
    mine = responses_table("new", persons=1, seed=4)
    scores = [
        bank.scorer(items="mean").score(dict(table.select("item_id", "score").rows()))
        for bank, table in ((plain, mine), (points, in_points(mine)))
    ]
    assert scores[1].theta == pytest.approx(scores[0].theta, abs=1e-9)


def test_points_that_are_none_are_refused(banks):
    with pytest.raises(DataError, match="must be 0 or 1"):
        banks[1].scorer().score({"v00": 1.0})
