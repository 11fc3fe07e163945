"""Classical item statistics against NumPy, one item at a time."""

import numpy as np
import polars as pl

from concal.data.check import check_period
from concal.spec import Spec

SPEC = Spec.parse(
    {
        "bank": {"name": "t", "dimensions": ["x"]},
        "groups": {
            "a": {"model": "2pl", "dimension": "x"},
            "b": {"model": "gpcm", "categories": 3, "dimension": "x"},
        },
        "data": {"few_responses": 1},
    }
)


def test_item_rest_and_omitted():
    rng = np.random.default_rng(1)
    ids = ["a1", "a2", "a3", "b1", "b2", "same"]
    score = np.column_stack([rng.integers(0, 2, (40, 3)), rng.integers(0, 3, (40, 2)), np.ones(40)]).astype(float)
    score[rng.random(score.shape) < 0.2] = np.nan
    score[0] = np.nan
    score[0, 0] = 1.0  # somebody without a rest
    wide = pl.DataFrame({"person": [f"p{i}" for i in range(40)]} | {k: score[:, j] for j, k in enumerate(ids)})
    wide = wide.with_columns(pl.col(pl.Float64).fill_nan(None))
    items = pl.DataFrame({"item_id": ids, "group": ["a", "a", "a", "b", "b", "a"]})
    found = check_period(wide, items, SPEC, wide=True).tables["items"]
    share = score / np.array([1, 1, 1, 2, 2, 1])
    for j, item in enumerate(ids):
        row = found.filter(item_id=item).row(0, named=True)
        given = ~np.isnan(share[:, j])
        assert row["omitted"] == 40 - given.sum()
        others = np.delete(share, j, axis=1)
        rest = np.array([np.nanmean(r) if np.isfinite(r).any() else np.nan for r in others])
        both = given & np.isfinite(rest)
        if item == "same":
            assert row["item_rest"] is None
        else:
            np.testing.assert_allclose(row["item_rest"], np.corrcoef(share[both, j], rest[both])[0, 1])
    long = wide.unpivot(index="person", variable_name="item_id", value_name="score").rename({"person": "person_id"})
    checked = check_period(long.drop_nulls(), items, SPEC).tables["items"]
    assert checked["omitted"].null_count() == 6  # who left it out cannot be told from who did not get it
    assert checked.drop("omitted").equals(found.drop("omitted"))
    told = check_period(long, items, SPEC).tables["items"]  # rows without a score tell
    assert told.equals(found)
