"""Small calibrations of the engine, one period at a time: what the consensus gives back of it."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "calibration"))

from programme import simulate_period

from concal.calibration.period import calibrate_period
from concal.consensus.combine import combine
from concal.consensus.factors.make import make_factors
from concal.spec import Spec

MODELS = [("2pl", None), ("gpcm", 3), ("beta", None)]


@pytest.fixture(scope="module")
def fitted():
    groups = [(name, "reading", (name, k), 25, 12) for name, k in MODELS]
    data, truth, _ = simulate_period(groups, 350, seed=8)
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["reading"]},
            "groups": {n: {"model": n, "dimension": "reading", **({"categories": k} if k else {})} for n, k in MODELS},
            "calibration": {"draws": 800, "min_ess": 200, "max_sweeps": 1200},
        }
    )
    return calibrate_period(data, spec, seed=4), truth


@pytest.mark.parametrize("method", ["analytic", "joint"])
def test_one_period_alone_is_given_back(fitted, method):
    """Means within .15 posterior SDs (joint estimates the population again, from the factors), SDs within 6 %."""
    calibration, _ = fitted
    consensus = combine([(calibration, None)], method=method)
    for name, group in calibration.groups.items():
        g, xi = consensus.groups[name], group.flat("xi")
        off = (g.mean - xi.mean(axis=0)) / xi.std(axis=0)
        assert np.sqrt((off**2).mean()) < 0.15, name
        np.testing.assert_allclose((g.sd / xi.std(axis=0)).mean(axis=0), 1.0, atol=0.06, err_msg=name)
    assert consensus.links["B_sd"][0] < 0.2


def test_the_engine_gives_gradients_and_tables(fitted):
    factors = make_factors(fitted[0])
    for name, group in factors.groups.items():
        assert group.obtained == "gradients"
        assert group.cell_count.sum() == fitted[0].groups[name].n_responses.sum()
        assert np.linalg.eigvalsh(group.Q).min() > 0
        assert np.linalg.eigvalsh(group.dQ).min() > -1e-9
        np.testing.assert_array_equal(group.cell_count.sum(axis=(1, 2)), fitted[0].groups[name].n_responses)
    assert np.linalg.eigvalsh(factors.wobble[0])[0] >= 0
    sd = np.sqrt(np.diag(factors.wobble[0]))
    assert (sd < 0.15).all()  # about 1 / sqrt(2 N), 1 / sqrt(N) with 350 examinees


def test_tables_and_gaussians_agree_about_one_period(fitted):
    """Without its tables the joint method rests on the Gaussians: within .2 SDs where nothing disagrees."""
    calibration, _ = fitted
    bare = {name: replace(g, cell_count=None) for name, g in calibration.groups.items()}
    one, other = combine([(calibration, None)]), combine([(replace(calibration, groups=bare), None)])
    for name in calibration.groups:
        a, b = one.groups[name], other.groups[name]
        assert np.sqrt((((a.mean - b.mean) / a.sd) ** 2).mean()) < 0.2, name
        np.testing.assert_allclose((b.sd / a.sd).mean(), 1.0, atol=0.06)


def test_draws_alone_say_nearly_the_same(fitted):
    calibration, _ = fitted
    bare = {n: replace(g, moments=None, cell_count=None) for n, g in calibration.groups.items()}
    one = combine([(calibration, None)], method="analytic")
    other = combine([(replace(calibration, groups=bare), None)], method="analytic")
    for name in calibration.groups:
        a, b = one.groups[name], other.groups[name]
        assert np.sqrt((((a.mean - b.mean) / a.sd) ** 2).mean()) < 0.3, name
        np.testing.assert_allclose((b.sd / a.sd).mean(), 1.0, atol=0.1)
