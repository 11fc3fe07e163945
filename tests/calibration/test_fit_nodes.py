"""Predictions of scores between the atoms, from dull to very sure ones, against fine grids of scores and abilities."""

import numpy as np
import pytest
from scipy import special

from concal.calibration.fit.cells import Responses
from concal.calibration.fit.items import item_fit
from concal.calibration.fit.predict import predict_responses, total_gradient
from concal.response import make_model

NAMES = ["beta", "ordered_beta"]


def exact(model, xi, mean, sd):
    """Scores, their probabilities and the gradients of these: 161 abilities, logits .03 apart (.1 far out)."""
    z = np.concatenate([np.arange(-36.0, -8.0, 0.1), np.arange(-8.0, 8.0, 0.03), np.arange(8.0, 36.0, 0.1)])
    share = special.expit(z)
    score = np.concatenate([model.atoms, share])
    width = np.concatenate([np.ones(len(model.atoms)), share * special.expit(-z) * np.gradient(z)])
    x = np.linspace(-6.0, 6.0, 161)
    weight = np.exp(-0.5 * x**2) / np.exp(-0.5 * x**2).sum()
    p, gradient = np.zeros(score.size), np.zeros((score.size, xi.size))
    for w, theta in zip(weight, mean + sd * x, strict=True):
        one = model.derivatives(score, np.full(score.size, theta), np.tile(xi, (score.size, 1)))
        p += w * np.exp(one.log_likelihood)
        gradient += w * np.exp(one.log_likelihood)[:, None] * one.xi_gradient
    return score, p * width, gradient / np.maximum(p, 1e-300)[:, None]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("log_phi", [2.0, 4.0, 7.0])
@pytest.mark.parametrize("sd", [0.05, 0.4])
def test_moments_and_information_are_those_of_fine_grids(name, log_phi, sd):
    model = make_model(name)
    for d, log_a in ((-1.2, 0.3), (0.1, -0.2)):
        xi = np.array([d, log_a, log_phi, *model.prior.mean[3:]])
        score, p, gradient = exact(model, xi, 0.2, sd)
        assert p.sum() == pytest.approx(1.0, abs=1e-3)
        got = predict_responses(model, xi[None], np.array([0.2]), np.array([sd]))
        mean, probability = p @ score, got.probability[0]
        variance = p @ (score - mean) ** 2
        assert got.mean[0] == pytest.approx(mean, abs=0.01 * np.sqrt(variance))
        assert got.variance[0] == pytest.approx(variance, rel=0.02)
        e, expected = got.score[0] - got.mean[0], score - mean
        for k in (3, 4):
            assert probability @ e**k == pytest.approx(p @ expected**k, rel=0.05, abs=0.05 * variance ** (k / 2))
        information = np.einsum("y,yi,yj->ij", p, gradient, gradient)
        unit = np.sqrt(np.diag(information))
        found = np.einsum("y,yi,yj->ij", probability, got.gradient[0], got.gradient[0])
        np.testing.assert_allclose(found / np.outer(unit, unit), information / np.outer(unit, unit), atol=0.03)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("log_phi", [2.0, 6.0])
def test_gradients_of_single_scores_are_those_of_fine_grids(name, log_phi):
    model = make_model(name)
    xi = np.array([0.4, 0.2, log_phi, *model.prior.mean[3:]])
    score, p, gradient = exact(model, xi, 0.0, 0.4)
    likely = np.flatnonzero((p > 1e-3 * p.max()) & ~np.isin(score, model.atoms))[::7]
    at = np.array([0.0]), np.array([0.4])
    predicted = predict_responses(model, xi[None], *at)
    unit = np.sqrt(p @ gradient**2)
    for k in likely:
        got = total_gradient(model, score[k : k + 1], np.zeros(1, dtype=int), xi[None], *at, predicted)[0]
        np.testing.assert_allclose(got / unit, gradient[k] / unit, atol=0.05)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("log_phi", [4.0, 7.0])
@pytest.mark.parametrize("sure", [False, True])
def test_five_in_a_hundred_are_flagged_however_precise_the_scores(name, log_phi, sure):
    """At the truth; abilities known to .4, or as well as twenty other scores of that precision tell them."""
    model, rng, n_items, per_item = make_model(name), np.random.default_rng(5), 400, 120
    xi = np.array(model.prior.mean) + 0.7 * np.array(model.prior.sd) * rng.standard_normal(
        (n_items, len(model.prior.sd))
    )
    xi[:, 2] = log_phi
    item = np.repeat(np.arange(n_items), per_item)
    mean, sd = rng.normal(0, 0.9, item.size), 1.0 / np.sqrt(1.0 + 3.0 * np.exp(log_phi)) if sure else 0.4
    score = model.simulate(mean + sd * rng.standard_normal(item.size), xi[item], rng)
    got, _ = item_fit(model, xi, Responses(item, score, mean, np.full(item.size, sd)))
    for p in (got.chi_square_p, got.p_value):
        assert np.mean(p <= 0.05) == pytest.approx(0.05, abs=3.0 * np.sqrt(0.05 * 0.95 / n_items))
