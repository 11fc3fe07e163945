"""map, ml and wle against what a fine grid or a root finder says, and the odd cases."""

import numpy as np
import polars as pl
import pytest
from scipy.optimize import brentq
from worlds import MODELS, log_likelihood, make_bank, people, simulate

from concal.errors import DataError
from concal.score.rows import Answered
from concal.score.score import ScoreOptions, score_examinees, variance_shares

GRID = np.linspace(-12, 12, 961)


def answers_of(answered, p):
    a, b = answered.start[p], answered.start[p + 1]
    return answered.item[a:b], answered.score[a:b]


@pytest.mark.parametrize(("model", "categories"), MODELS)
def test_map_is_the_mode(model, categories):
    bank = make_bank([(model, categories)], n_items=10)
    _, answered = simulate(bank, 10, 6)
    found = score_examinees(bank, people(answered), ScoreOptions("map"))
    for p in range(10):
        theta = np.concatenate([GRID, found["theta_dim0"][p] + np.array([-1e-4, 0.0, 1e-4])])
        log_p = log_likelihood(bank, *answers_of(answered, p), theta[:, None]) - 0.5 * theta**2
        assert np.argmax(log_p) == theta.size - 2


def test_map_in_two_dimensions_uses_their_correlation():
    bank = make_bank([("2pl", None), ("gpcm", 4)], dimensions=2, correlation=0.7)
    _, answered = simulate(bank, 20, 6)
    found = score_examinees(bank, people(answered), ScoreOptions("map"))
    precision = np.linalg.inv(bank.abilities.covariance[0])
    for p in range(20):
        best = np.array([found["theta_dim0"][p], found["theta_dim1"][p]])
        around = best + np.array([[0, 0], [1e-4, 0], [-1e-4, 0], [0, 1e-4], [0, -1e-4], [1e-4, -1e-4]])
        log_p = log_likelihood(bank, *answers_of(answered, p), around) - 0.5 * np.einsum(
            "nk,kl,nl->n", around, precision, around
        )
        assert log_p[0] >= log_p[1:].max()


@pytest.mark.parametrize(("model", "categories"), MODELS)
def test_ml_is_the_largest_likelihood(model, categories):
    bank = make_bank([(model, categories)], n_items=20)
    _, answered = simulate(bank, 12, 15)
    found = score_examinees(bank, people(answered), ScoreOptions("ml"))
    for p in range(12):
        best = found["theta_dim0"][p]
        theta = np.concatenate([GRID, best + np.array([-1e-4, 0.0, 1e-4])]) if np.isfinite(best) else GRID
        ll = log_likelihood(bank, *answers_of(answered, p), theta[:, None])
        assert np.argmax(ll) == theta.size - 2 if np.isfinite(best) else np.argmax(ll) in (0, GRID.size - 1)


def test_ml_without_a_maximum_is_said_to_be_infinite():
    bank = make_bank([("2pl", None)], reporting={"dim0": {"slope": 10, "min": -50, "max": 50}})
    answered = Answered(
        np.array([0, 8, 16, 24]), np.tile(np.arange(8, dtype=np.int32), 3), np.repeat([1.0, 0.0, 0.0], 8)
    )
    answered.score[20] = 1.0
    found = score_examinees(bank, people(answered), ScoreOptions("ml"))
    assert found["theta_dim0"][0] == np.inf
    assert found["theta_dim0"][1] == -np.inf
    assert np.isfinite(found["theta_dim0"][2])
    assert found["flag_dim0"].to_list() == ["not finite", "not finite", None]
    assert found["se_dim0"].is_null().to_list() == [True, True, False]
    assert found["score_dim0"].is_null().to_list() == [True, True, False]  # not told as the bound


@pytest.mark.parametrize(("model", "categories"), MODELS)
def test_wle_solves_warms_equation(model, categories):
    bank = make_bank([(model, categories)], n_items=15)
    _, answered = simulate(bank, 6, 10)
    group = bank.items.groups[0]
    found = score_examinees(bank, people(answered), ScoreOptions("wle"))

    def equation(theta, item, score):
        n = item.size
        terms = group.model.derivatives(score, np.full(n, theta), group.mean[item])
        J = group.model.bias_term(np.full(n, theta), group.mean[item])
        return terms.theta_gradient.sum() + J.sum() / (2 * terms.theta_information.sum())

    for p in range(6):
        item, score = answers_of(answered, p)
        near = found["theta_dim0"][p]
        root = brentq(equation, near - 0.3, near + 0.3, args=(item, score), xtol=1e-10)
        assert near == pytest.approx(root, abs=1e-6)


def test_warms_estimate_is_less_biased_than_ml():
    bank = make_bank([("2pl", None)], n_items=20)
    theta = np.full((1500, 1), 1.5)
    _, answered = simulate(bank, 1500, 20, theta=theta)
    wle = score_examinees(bank, people(answered), ScoreOptions("wle"))["theta_dim0"].to_numpy()
    ml = score_examinees(bank, people(answered), ScoreOptions("ml"))["theta_dim0"].to_numpy()
    assert np.isfinite(wle).all()
    assert abs(wle.mean() - 1.5) < 0.04 < ml.mean() - 1.5


def test_no_response_is_the_prior_and_flagged():
    bank = make_bank([("2pl", None), ("2pl", None)], dimensions=2, correlation=0.6)
    answered = Answered(np.array([0, 0, 3]), np.array([0, 1, 2], np.int32), np.ones(3))
    eap = score_examinees(bank, people(answered), ScoreOptions())
    assert eap["theta_dim0"][0] == pytest.approx(0.0, abs=1e-12)
    assert eap["se_dim1"][0] == pytest.approx(1.0, abs=1e-7)
    assert eap["flag_dim0"].to_list() == ["prior", None]
    assert eap["flag_dim1"].to_list() == ["prior", "prior"]
    assert eap["theta_dim1"][1] > 0.1  # borrowed from the other dimension
    ml = score_examinees(bank, people(answered), ScoreOptions("ml"))
    assert eap["prior"].to_list() == ["all periods"] * 2
    assert ml["prior"].to_list() == [None, None]
    assert ml["theta_dim0"][0] is None
    assert ml["flag_dim1"].to_list() == ["no responses", "no responses"]


def test_what_cannot_be_done_is_refused():
    bank = make_bank([("2pl", None)])
    _, answered = simulate(bank, 2, 3)
    for options, message in (
        (ScoreOptions("ml", "soft"), "no information function"),
        (ScoreOptions("eep"), "method must be one of"),
        (ScoreOptions(items="point"), "items must be one of"),
        (ScoreOptions(items="draws", draws=1), "from 2 to"),
        (ScoreOptions(prior="P9"), "no period and no group of examinees 'P9'"),
    ):
        with pytest.raises(DataError, match=message):
            score_examinees(bank, people(answered), options)


def test_more_dimensions_than_a_grid_can_hold():
    bank = make_bank([("2pl", None)] * 4, dimensions=4)
    _, answered = simulate(bank, 5, 8)
    with pytest.raises(DataError, match="at most 3 dimensions"):
        score_examinees(bank, people(answered), ScoreOptions())
    assert score_examinees(bank, people(answered), ScoreOptions("wle"))["theta_dim3"].is_finite().all()


def test_prior_column_names_each_examinees_prior():
    bank = make_bank([("2pl", None)])
    _, answered = simulate(bank, 3, 4)
    named = score_examinees(bank, people(answered, pl.Series(["P1", "all", "P1"])), ScoreOptions())
    assert named["prior"].to_list() == ["P1", "all periods", "P1"]
    with pytest.raises(DataError, match="'P7'"):
        score_examinees(bank, people(answered, pl.Series(["P1", "P7", "P1"])), ScoreOptions())


def test_reliability_is_the_share_of_true_variance():
    bank = make_bank([("2pl", None)], n_items=40)
    theta, answered = simulate(bank, 4000, 25)
    for method in ("eap", "wle"):
        table = score_examinees(bank, people(answered), ScoreOptions(method))
        squared = np.corrcoef(table["theta_dim0"].to_numpy(), theta[:, 0])[0, 1] ** 2
        assert variance_shares(table)["reliability"][0] == pytest.approx(squared, abs=0.02)
