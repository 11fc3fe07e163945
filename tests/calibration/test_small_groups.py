"""Small and odd groups are calibrated: proper priors carry what the items of a period cannot tell."""

import numpy as np
import polars as pl
import pytest

from concal.calibration.period import calibrate
from concal.data.check import check_period
from concal.spec import Spec

PERSONS, ITEMS = 400, 18


@pytest.fixture(scope="module")
def odd():
    """A large group; a group of one item; one with more features than items, a constant and an empty column."""
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["x"]},
            "groups": {
                "many": {"model": "2pl", "dimension": "x"},
                "one": {"model": "2pl", "dimension": "x"},
                "odd": {"model": "2pl", "dimension": "x", "features": "~ length + C(level) + same"},
            },
            "calibration": {"max_sweeps": 700, "draws": 400, "min_ess": 30, "max_rhat": 1.2, "max_item_rhat": 1.2},
        }
    )
    rng = np.random.default_rng(4)
    truth = {f"m{j:02d}": rng.standard_normal() for j in range(ITEMS)} | {"alone": 0.5, "o1": -0.4, "o2": 0.8}
    theta = rng.standard_normal(PERSONS)
    persons = [f"p{i:03d}" for i in range(PERSONS)]
    responses = pl.concat(
        pl.DataFrame(
            {
                "person_id": persons,
                "item_id": [item] * PERSONS,
                "score": (rng.random(PERSONS) < 1 / (1 + np.exp(d - theta))).astype(float),
            }
        )
        for item, d in truth.items()
    )
    ids = [*truth, "unanswered"]
    items = pl.DataFrame(
        {
            "item_id": ids,
            "group": ["many"] * ITEMS + ["one", "odd", "odd", "odd"],
            "length": np.arange(len(ids), dtype=float),
            "level": ["a"] * (ITEMS + 1) + ["a", "b", "c"],  # nobody answers the item of level c
            "same": [7.0] * len(ids),
        }
    )
    return spec, responses, items, truth


def test_they_pass_the_check_with_a_warning(odd):
    spec, responses, items, _ = odd
    checked = check_period(responses, items, spec)
    text = "\n".join(checked.warnings)
    assert "group 'one': 1 item for 1 coefficient" in text
    assert "group 'odd': 2 items for 5 coefficients" in text
    assert "the priors of the population model decide" in text
    assert "'C(level)[c]' is zero for every item" in text
    assert "'same' follows from '1'" in text


def test_items_are_estimated_and_empty_columns_keep_their_prior(odd):
    spec, responses, items, truth = odd
    found = calibrate(responses, items, spec, seed=1)
    for group in found.groups.values():
        xi = group.xi.astype(float)
        assert np.isfinite(xi).all()
        assert (group.worst_rhat < 1.2).all()
        z = (xi[..., 0].mean((0, 1)) - [truth[i] for i in group.item_ids]) / xi[..., 0].std((0, 1))
        assert np.abs(z).max() < 3.5
    odd_group = found.groups["odd"]
    empty = odd_group.features.index("C(level)[c]")
    spread = odd_group.beta[..., empty, :].std(axis=(0, 1))
    np.testing.assert_allclose(spread, odd_group.model.prior.sd / np.sqrt(spec.calibration.tau), rtol=0.2)
    assert np.linalg.matrix_rank(found.beta_prior_precision["odd"]) == 5
