"""Each model against a slow, independent likelihood written with scipy.stats straight from its definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from concal.response import make_model

pytestmark = pytest.mark.reference


def two_pl(y, eta, extras):
    return stats.bernoulli.logpmf(y, expit(eta))


def three_pl(y, eta, extras):
    c = expit(extras[0])
    return stats.bernoulli.logpmf(y, c + (1 - c) * expit(eta))


def gpcm(y, eta, extras):
    steps = [*extras, -sum(extras)]
    odds = [1.0]
    for c in steps:  # each category from the one below, as the definition says
        odds.append(odds[-1] * np.exp(eta - c))
    return np.log(odds[int(y)] / sum(odds))


def grm(y, eta, extras):
    c = np.concatenate([[0.0], np.cumsum(np.exp(extras))])
    c = c - c.mean()
    at_least = np.concatenate([[1.0], stats.logistic.cdf(eta - c), [0.0]])
    return np.log(at_least[int(y)] - at_least[int(y) + 1])


def beta(y, eta, extras):
    mu, phi = expit(eta), np.exp(extras[0])
    return stats.beta.logpdf(y, mu * phi, (1 - mu) * phi)


def ordered_beta(y, eta, extras):
    log_phi, k_0, log_width = extras
    zero, one = 1 - expit(eta - k_0), expit(eta - k_0 - np.exp(log_width))
    if y in (0, 1):
        return np.log(one if y == 1 else zero)
    return np.log(1 - zero - one) + beta(y, eta, [log_phi])


CASES = [
    ("2pl", None, two_pl),
    ("3pl", None, three_pl),
    ("gpcm", 2, gpcm),
    ("gpcm", 4, gpcm),
    ("gpcm", 7, gpcm),
    ("grm", 2, grm),
    ("grm", 4, grm),
    ("grm", 7, grm),
    ("beta", None, beta),
    ("ordered_beta", None, ordered_beta),
]


@pytest.mark.parametrize(("name", "categories", "reference"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_log_likelihood_equals_the_definition(name, categories, reference):
    model = make_model(name, categories)
    rng = np.random.default_rng(7)
    n = 300
    xi = np.array(model.prior.mean) + 2.0 * np.array(model.prior.sd) * rng.normal(size=(n, len(model.parameters)))
    theta = rng.normal(scale=1.5, size=n)
    score = model.simulate(theta, xi, rng)
    expected = [
        reference(y, np.exp(x[1]) * (t - x[0]), x[2:]) for y, t, x in zip(score.tolist(), theta, xi, strict=True)
    ]
    assert model.log_likelihood(score, theta, xi) == pytest.approx(np.array(expected), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("name", ["gpcm", "grm"])
def test_two_categories_are_a_2pl(name):
    model, two = make_model(name, 2), make_model("2pl")
    rng = np.random.default_rng(3)
    xi, theta, score = rng.normal(size=(50, 2)), rng.normal(size=50), rng.integers(0, 2, 50).astype(float)
    assert model.parameters == two.parameters
    for ours, theirs in zip(model.derivatives(score, theta, xi), two.derivatives(score, theta, xi), strict=True):
        assert np.allclose(ours, theirs, atol=1e-12)


def test_ordered_beta_sees_the_ends():
    model = make_model("ordered_beta")
    xi = np.array([[0.0, 0.0, 2.0, -2.0, 1.4]])
    at = {y: model.log_likelihood(np.array([y]), np.zeros(1), xi)[0] for y in (0.0, 1.0)}
    assert at[0.0] == pytest.approx(np.log(1 - expit(2.0)))
    assert at[1.0] == pytest.approx(np.log(expit(2.0 - np.exp(1.4))))


def test_beta_refuses_the_ends_and_names_the_model_that_takes_them():
    model = make_model("beta")
    assert model.bad_scores(np.array([0.0, 1.0])).all()
    assert '2 are exactly 0 and 1 exactly 1: model = "ordered_beta"' in model.remedy(np.array([0.0, 1.0, 0.0]))
