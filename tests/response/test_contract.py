"""What every response model must hold; models come from the registry, so an added one is tested without a new line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from concal.metric import move_items
from concal.response import make_model, model_class, model_names
from concal.response.natural import natural_from_xi, xi_from_natural

pytestmark = pytest.mark.property

MODELS = [
    make_model(name, k) for name in model_names() for k in ((2, 3, 5) if model_class(name).polytomous else (None,))
]


@pytest.fixture(params=MODELS, ids=lambda m: f"{m.name}-{m.n_categories}")
def model(request):
    return request.param


many = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
unit = st.floats(-1.0, 1.0)


def item(model, draw, width=1.0):
    """An item vector within `width` population SDs of the population mean."""
    p = len(model.parameters)
    z = np.array(draw(st.lists(unit, min_size=p, max_size=p)))
    return np.array(model.prior.mean) + width * z * np.array(model.prior.sd)


def support(model):
    """Scores with weights such that sums over them are expectations (once multiplied with the likelihood)."""
    if model.n_categories is not None:
        return np.arange(model.n_categories, dtype=float), np.ones(model.n_categories)
    u = np.linspace(-np.arcsinh(30), np.arcsinh(30), 3001)
    z = np.sinh(u)
    weight = special.expit(z) * special.expit(-z) * np.cosh(u) * (u[1] - u[0])
    ends = np.array([0.0, 1.0])
    ends = ends[~model.bad_scores(ends * model.max_score)]
    score, weight = np.r_[ends, special.expit(z)], np.r_[np.ones(ends.size), weight * model.max_score]
    return score * model.max_score, weight


def everywhere(model, theta, xi):
    """Derivatives at every score of the support, and the probabilities."""
    score, weight = support(model)
    n = score.shape[0]
    out = model.derivatives(score, np.full(n, theta), np.tile(xi, (n, 1)))
    return score, weight * np.exp(out.log_likelihood), out


@many
@given(data=st.data(), eta=st.floats(-1.5, 1.5))
def test_probabilities_sum_to_one_and_score_is_their_mean(model, data, eta):
    xi = item(model, data.draw)
    theta = xi[0] + eta / np.exp(xi[1])
    score, p, _ = everywhere(model, theta, xi)
    assert p.sum() == pytest.approx(1.0, abs=1e-7)
    expected = model.expected_score(np.array([theta]), xi[None])[0]
    assert expected == pytest.approx((p * score).sum() / model.max_score, abs=1e-7)


@many
@given(data=st.data(), eta=st.floats(-1.5, 1.5))
def test_information_is_the_expected_outer_product(model, data, eta):
    xi = item(model, data.draw)
    _, p, out = everywhere(model, xi[0] + eta / np.exp(xi[1]), xi)
    both = np.column_stack([out.theta_gradient, out.xi_gradient])
    assert np.allclose(p @ both, 0.0, atol=1e-6)  # scores have mean zero
    outer = np.einsum("n,ni,nj->ij", p, both, both)
    assert np.allclose(outer[0, 0], out.theta_information[0], rtol=1e-6, atol=1e-8)
    assert np.allclose(outer[1:, 1:], out.xi_information[0], rtol=1e-5, atol=1e-6)


@many
@given(data=st.data(), theta=st.floats(-4, 4), seed=st.integers(0, 10**6))
def test_gradient_equals_finite_differences(model, data, theta, seed):
    xi = item(model, data.draw, width=2.5)[None]
    th = np.array([theta])
    score = model.simulate(th, xi, np.random.default_rng(seed))
    out = model.derivatives(score, th, xi)
    h = 1e-5
    slope = (model.log_likelihood(score, th + h, xi) - model.log_likelihood(score, th - h, xi)) / (2 * h)
    assert slope == pytest.approx(out.theta_gradient, rel=1e-5, abs=1e-6)
    for k in range(xi.shape[1]):
        step = h * np.eye(xi.shape[1])[k]
        slope = (model.log_likelihood(score, th, xi + step) - model.log_likelihood(score, th, xi - step)) / (2 * h)
        assert slope == pytest.approx(out.xi_gradient[:, k], rel=1e-5, abs=1e-6)
    assert np.linalg.eigvalsh(out.xi_information[0]).min() > -1e-9
    assert out.theta_information[0] >= 0


@many
@given(data=st.data())
def test_expected_score_rises_from_0_to_1(model, data):
    xi = item(model, data.draw, width=2.5)
    theta = np.linspace(-30, 30, 601)
    value, slope = model.expected_curve(theta, np.tile(xi, (601, 1)))
    assert value.min() >= 0
    assert value.max() <= 1
    assert np.all(np.diff(value) >= -1e-15)
    assert np.all(slope >= 0)
    h = 1e-5
    up, down = (model.expected_score(theta + s * h, np.tile(xi, (601, 1))) for s in (1, -1))
    assert np.allclose((up - down) / (2 * h), slope * np.exp(xi[1]), atol=1e-8)


@many
@given(data=st.data(), theta=st.floats(-4, 4), log_A=unit, B=st.floats(-2, 2), seed=st.integers(0, 10**6))
def test_likelihood_does_not_depend_on_the_metric(model, data, theta, log_A, B, seed):
    xi = item(model, data.draw, width=2.0)[None]
    th, A = np.array([theta]), np.exp(log_A)
    score = model.simulate(th, xi, np.random.default_rng(seed))
    moved = move_items(xi, A, B)
    assert model.log_likelihood(score, A * th + B, moved) == pytest.approx(
        model.log_likelihood(score, th, xi), abs=1e-8, rel=1e-9
    )
    assert model.expected_score(A * th + B, moved) == pytest.approx(model.expected_score(th, xi), abs=1e-10)
    assert move_items(moved, 1 / A, -B / A) == pytest.approx(xi, abs=1e-12)


@many
@given(data=st.data())
def test_natural_parameters_come_back(model, data):
    xi = np.stack([item(model, data.draw, width=2.5) for _ in range(3)])
    natural = natural_from_xi(model, xi)
    assert list(natural)[:2] == ["a", "d"]
    assert xi_from_natural(model, natural) == pytest.approx(xi, abs=1e-9)


@many
@given(data=st.data(), eta=st.floats(-1.5, 1.5))
def test_logit_moments_are_those_of_scores_between_the_atoms(model, data, eta):
    if not model.levels:
        with pytest.raises(NotImplementedError, match="must give logit_moments"):
            model.logit_moments(np.zeros(1), np.array(model.prior.mean))
        return
    xi = item(model, data.draw)
    theta = xi[0] + eta / np.exp(xi[1])
    score, p, _ = everywhere(model, theta, xi)
    between = ~np.isin(score, model.atoms)
    logit, p = special.logit(score[between] / model.max_score), p[between] / p[between].sum()
    mean, variance = model.logit_moments(np.array([theta]), xi[None])
    assert mean[0] == pytest.approx(p @ logit, abs=1e-3)
    assert variance[0] == pytest.approx(p @ (logit - p @ logit) ** 2, rel=1e-2)


def test_extreme_eta_and_edge_scores_stay_finite(model):
    xi = np.array(model.prior.mean)
    xi[1] = 0.0
    score, _ = support(model)
    if model.n_categories is None:  # closest to the ends a float can be, and the middle
        inner = score[(score > 0) & (score < model.max_score)]
        score = np.r_[score[:2], inner[[0, 1000, 1500, 2000, -1]], 1e-300]
        score = score[~model.bad_scores(score)]
    for eta in (-700.0, -300.0, -88.0, -40.0, -20.0, 20.0, 40.0, 88.0, 300.0, 700.0):
        n, h = score.shape[0], 1e-3
        theta, items = np.full(n, eta + xi[0]), np.tile(xi, (n, 1))
        out = model.derivatives(score, theta, items)
        for part in out:
            assert np.isfinite(part).all(), (eta, part)
        up, down = (model.log_likelihood(score, theta + s * h, items) for s in (1, -1))
        assert np.allclose((up - down) / (2 * h), out.theta_gradient, rtol=1e-6, atol=1e-6)
        assert np.isfinite(model.expected_curve(theta, items)).all()


def test_scores_outside_the_model_are_refused(model):
    bad = np.array([np.nan, np.inf, -np.inf, -1.0, -1e-9, model.max_score + 1.0, model.max_score + 1e-9])
    assert model.bad_scores(bad).all()
    good, _ = support(model)
    assert not model.bad_scores(good).any()
    if model.n_categories is not None:
        assert model.bad_scores(np.arange(model.n_categories) + 0.5).all()
    assert any(ch.isdigit() for ch in model.score_rule())


def test_shapes_and_names(model):
    p = len(model.parameters)
    assert model.parameters[:2] == ("d", "log_a")
    assert len(set(model.parameters)) == p
    assert len(model.prior.mean) == len(model.prior.sd) == p
    with pytest.raises(ValueError, match="mean zero for d"):
        replace(model.prior, mean=(0.5, *model.prior.mean[1:]))  # moves of the origin rely on it
    assert all(type(field) in (int, float) for field in model.tag)
    xi = np.tile(np.array(model.prior.mean), (4, 7, 1))  # draws x items: the kernels broadcast over leading axes
    theta = np.linspace(-1, 1, 7)
    assert model.expected_score(theta, xi).shape == (4, 7)
    assert model.kernel_parameters(xi).shape[:2] == (4, 7)


def test_tables_can_count_every_score(model):
    """Atoms are the scores with a probability of their own, as the kernels read them; all others need levels."""
    atoms = np.array(model.atoms)
    assert not model.bad_scores(atoms).any()
    assert np.unique(atoms).size == atoms.size
    if model.n_categories is not None:
        np.testing.assert_array_equal(atoms, np.arange(model.n_categories))
        assert model.levels == 0
        return
    assert model.levels > 0
    ends = np.array([0.0, model.max_score])
    np.testing.assert_array_equal(atoms, ends[~model.bad_scores(ends)])
    inside = np.array([1e-9, 0.2, 0.5, 0.999]) * model.max_score
    # encoded atoms survive float32, and no score inside is ever taken for one
    encoded = model.encode_score(atoms).astype(np.float32)
    assert np.isfinite(encoded).all()
    assert not np.isin(model.encode_score(inside).astype(np.float32), encoded).any()


def test_simulation_recovers_the_item(model):
    """Maximum likelihood from 6,000 simulated scores lies within five standard errors of the truth."""
    rng = np.random.default_rng(20261)
    truth = np.array(model.prior.mean) + 0.3 * np.array(model.prior.sd)
    n = 6000
    theta = rng.normal(size=n)
    score = model.simulate(theta, np.tile(truth, (n, 1)), rng)
    assert not model.bad_scores(score).any()

    def loss(xi):
        out = model.derivatives(score, theta, np.tile(xi, (n, 1)))
        return -out.log_likelihood.mean(), -out.xi_gradient.mean(axis=0)

    start = np.array(model.prior.mean)
    start[1] -= 0.3
    fit = optimize.minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-7})
    information = model.derivatives(score, theta, np.tile(truth, (n, 1))).xi_information.sum(axis=0)
    se = np.sqrt(np.diag(np.linalg.inv(information)))
    assert np.abs(fit.x - truth).max() < 1.0
    assert (np.abs(fit.x - truth) / se).max() < 5.0
