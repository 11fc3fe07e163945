"""Cut points that next to nobody is beyond are held: one more observation of them in every item."""

from dataclasses import replace

import numpy as np
import pytest
from programme import simulate_period

from concal.calibration.layout import lay_out
from concal.calibration.moves.units import Responses, accumulators
from concal.calibration.period import calibrate_period
from concal.calibration.state import initial_state, jacobian, kernel_parameters
from concal.response import make_model
from concal.spec import Spec


@pytest.mark.parametrize(
    ("zeros", "ones", "held"),
    [(0, 0, {"k_0", "log_width"}), (0, 50, {"k_0"}), (50, 3, {"log_width"}), (50, 50, set())],
)
def test_which_cut_points_are_held(zeros, ones, held):
    score = np.concatenate([np.zeros(zeros), np.ones(ones), np.full(200, 0.5)])
    assert set(make_model("ordered_beta").held(score, 20)) == held
    assert make_model("beta").held(np.full(9, 0.5), 3) == {}


@pytest.fixture(scope="module")
def inside():
    """Scores that never reach an end."""
    data, _, _ = simulate_period([("g", "reading", ("ordered_beta", None), 8, 6)], 150)
    g = data.groups["g"]
    g.score[:] = np.clip(g.score, 0.02, 0.98)
    return data


def test_derivatives_are_those_of_the_log_likelihood(inside):
    layout = lay_out(inside)
    g, state = layout.groups[0], initial_state(layout, seed=1)
    assert {m for m, _, _ in g.held} == {3, 4}
    responses, x = Responses(layout), state.groups[0].xi
    n = g.n_items

    def total(xi):
        out = np.zeros((n, xi.shape[2]))
        responses.log_likelihood(state, 0, xi, kernel_parameters(g, xi), out, 0, n)
        return out

    acc = accumulators(g, n)
    responses.accumulate(state, 0, x, state.groups[0].par, jacobian(g, x), acc, 0, n)
    np.testing.assert_allclose(acc[:, 0], total(x), rtol=1e-4)
    for m in range(g.p):
        step = np.zeros((1, g.p, 1))
        step[0, m] = 0.02
        slope = (total(x + step) - total(x - step)) / 0.04
        np.testing.assert_allclose(acc[:, 1 + m], slope, rtol=0.02, atol=0.1)


def test_it_converges_and_the_rest_is_what_beta_finds(inside):
    def fit(model):
        spec = Spec.parse(
            {
                "bank": {"dimensions": ["reading"]},
                "groups": {"g": {"model": model, "dimension": "reading"}},
                "calibration": {"draws": 400, "max_sweeps": 1500, "min_ess": 60, "max_rhat": 1.1, "max_item_rhat": 1.2},
            }
        )
        group = replace(inside.groups["g"], model=make_model(model))
        return calibrate_period(replace(inside, groups={"g": group}), spec, seed=1)

    ordered, beta = fit("ordered_beta"), fit("beta")
    assert ordered.convergence.converged
    one, two = ordered.groups["g"].xi[..., :3], beta.groups["g"].xi
    off = (one.mean((0, 1)) - two.mean((0, 1))) / two.std((0, 1))
    assert np.abs(off).max() < 0.5


def test_scores_0_and_1_alone_are_what_2pl_finds():
    data, _, _ = simulate_period([("g", "reading", ("2pl", None), 8, 8)], 250)

    def fit(model):
        spec = Spec.parse(
            {
                "bank": {"dimensions": ["reading"]},
                "groups": {"g": {"model": model, "dimension": "reading"}},
                "calibration": {"draws": 400, "max_sweeps": 2000, "min_ess": 60, "max_rhat": 1.1, "max_item_rhat": 1.2},
            }
        )
        group = replace(data.groups["g"], model=make_model(model))
        return calibrate_period(replace(data, groups={"g": group}), spec, seed=1)

    ordered, two = fit("ordered_beta"), fit("2pl")
    assert ordered.convergence.converged, ordered.convergence.warnings
    one, other = ordered.groups["g"].xi[..., :2], two.groups["g"].xi
    off = (one.mean((0, 1)) - other.mean((0, 1))) / one.std((0, 1))
    assert np.abs(off).max() < 1.0
