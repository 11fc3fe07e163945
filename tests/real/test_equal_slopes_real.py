"""LSAT6 with one slope: the published maximum likelihood, within what a weak population model does to five items."""

import json

import numpy as np
import polars as pl
import pytest

from concal.calibration.period import calibrate
from concal.spec import Spec

pytestmark = [pytest.mark.real, pytest.mark.reference, pytest.mark.slow]


def test_lsat6_has_the_published_slope_and_intercepts(shared_data):
    published = json.loads((shared_data / "published.json").read_text())["lsat6_rasch_ml"]["recomputed_here"]
    table = pl.read_csv(shared_data / "classics" / "lsat6.csv").select(
        person_id=pl.col("examinee").cast(pl.String), item_id="item", score=pl.col("score").cast(pl.Float64)
    )
    group = {"model": "1pl", "dimension": "x"}
    spec = Spec.parse({"bank": {"dimensions": ["x"]}, "groups": {"g": group}, "calibration": {"min_ess": 300}})
    found = calibrate(table, table.select("item_id").unique(), spec, seed=1)
    draws = found.groups["g"]
    xi = draws.flat("xi")[:, [draws.item_ids.index(i) for i in published["items"]]]
    a = np.exp(xi[..., 1])
    assert np.ptp(a, axis=1).max() == 0.0
    assert abs(a[:, 0].mean() - published["a"][0]) < 0.3 * a[:, 0].std()
    intercept = -a * xi[..., 0]
    off = (intercept.mean(axis=0) - published["d"]) / intercept.std(axis=0)
    assert np.abs(off).max() < 0.4
