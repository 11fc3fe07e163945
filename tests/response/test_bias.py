"""The term of Warm's bias correction against sums over categories, and against integrals that reach every edge."""

import numpy as np
import pytest
from scipy import special

from concal.response import make_model, model_class, model_names

CATEGORIES = [
    m
    for name in model_names()
    for k in ((2, 3, 5) if model_class(name).polytomous else (None,))
    if (m := make_model(name, k)).n_categories
]
STEP = 1e-3


def differences(log_density, theta):
    """Log-density with its first two derivatives in theta, by five-point differences."""
    f = [log_density(theta + k * STEP) for k in (-2, -1, 0, 1, 2)]
    first = (f[0] - 8 * f[1] + 8 * f[3] - f[4]) / (12 * STEP)
    second = (-f[0] + 16 * f[1] - 30 * f[2] + 16 * f[3] - f[4]) / (12 * STEP**2)
    return f[2], first, second


def warm(log_density, theta, weight):
    """J = E[l'(l'^2 + l'')] of a density over scores with these weights, and the information E[l'^2]."""
    ll, first, second = differences(log_density, theta)
    p = weight * np.exp(ll)
    return float((p * first * (first**2 + second)).sum()), float((p * first**2).sum())


def found(model, theta, xi):
    """The model's own numbers."""
    some = np.array([model.atoms[0] if model.atoms else 0.5])
    information = model.derivatives(some, np.array([theta]), xi[None]).theta_information[0]
    return model.bias_term(np.array([theta]), xi[None])[0], information


@pytest.mark.parametrize("model", CATEGORIES, ids=lambda m: f"{m.name}-{m.n_categories}")
def test_categories_are_summed_over(model):
    rng = np.random.default_rng(3)
    score = np.arange(model.n_categories, dtype=float)
    for theta in (-3.0, -0.4, 0.9, 2.5):
        xi = np.array(model.prior.mean) + np.array(model.prior.sd) * rng.standard_normal(len(model.parameters))
        items = np.tile(xi, (score.size, 1))
        exact = warm(lambda t, items=items: model.log_likelihood(score, np.full(score.size, t), items), theta, 1.0)
        assert found(model, theta, xi) == pytest.approx(exact, rel=1e-5, abs=1e-7)


def beta_density(z, theta, xi):
    """Log-density of the logit z of a beta score: no score is too near an end to be written down."""
    mu, phi = special.expit(np.exp(xi[1]) * (theta - xi[0])), np.exp(xi[2])
    p, q = mu * phi, (1 - mu) * phi
    return p * special.log_expit(z) + q * special.log_expit(-z) - special.betaln(p, q)


def logits(theta, xi):
    """Nodes and their widths: sixty times the density's scale into either tail, fine in the middle."""
    mu, phi = special.expit(np.exp(xi[1]) * (theta - xi[0])), np.exp(xi[2])
    u = np.linspace(-np.arcsinh(60 / (mu * phi)), np.arcsinh(60 / ((1 - mu) * phi)), 200_001)
    return np.sinh(u), np.cosh(u) * (u[1] - u[0])


ITEMS = [(0.3, -0.2, 2.0), (0.0, 0.3, 0.5), (-1.0, 0.0, -1.5)]


@pytest.mark.parametrize("xi", ITEMS)
@pytest.mark.parametrize("theta", [-4.0, -1.0, 0.2, 3.0, 5.0])  # shapes from .002 to 8
def test_beta_to_the_very_edge(theta, xi):
    model, xi = make_model("beta"), np.array(xi)
    z, weight = logits(theta, xi)
    exact = warm(lambda t: beta_density(z, t, xi), theta, weight)
    assert found(model, theta, xi) == pytest.approx(exact, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("xi", [(*xi, -2.0, 1.4) for xi in ITEMS])
@pytest.mark.parametrize("theta", [-4.0, -1.0, 0.2, 3.0, 5.0])
def test_ordered_beta_to_the_very_edge(theta, xi):
    model, xi = make_model("ordered_beta"), np.array(xi)
    z, weight = logits(theta, xi)
    k_0, k_1 = xi[3], xi[3] + np.exp(xi[4])

    def log_density(t):
        eta = np.exp(xi[1]) * (t - xi[0])
        ends = [special.log_expit(k_0 - eta), special.log_expit(eta - k_1)]
        inside = np.log(special.expit(eta - k_0) - special.expit(eta - k_1))
        return np.r_[ends, inside + beta_density(z, t, xi)]

    exact = warm(log_density, theta, np.r_[1.0, 1.0, weight])
    assert found(model, theta, xi) == pytest.approx(exact, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("name", ["beta", "ordered_beta"])
def test_shapes_too_small_for_any_number_have_their_limits(name):
    model = make_model(name)
    xi = np.array(model.prior.mean)[None]
    found = [model.bias_term(np.array([theta]), xi)[0] for theta in (-800.0, -60.0, 60.0, 800.0)]
    assert np.isfinite(found).all()
