"""The change of metric: every function against what it means, not against how it is written."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concal import metric
from concal.response import make_model, model_class, model_names

pytestmark = pytest.mark.property

MODELS = [make_model(name, 4 if model_class(name).polytomous else None) for name in model_names()]
log_scales, shifts, seeds = st.floats(-1.5, 1.5), st.floats(-4.0, 4.0), st.integers(0, 10_000)
many = settings(max_examples=30, deadline=None, derandomize=True)
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)


def some_items(model, n, rng):
    spread = np.minimum(np.array(model.prior.sd), 1.0)
    return np.array(model.prior.mean) + spread * rng.normal(size=(n, len(model.parameters)))


def covariances(rng, *shape, p):
    root = rng.normal(size=(*shape, p, p)) * 0.3 + np.eye(p)
    return root @ np.swapaxes(root, -1, -2)


def D_and_t(A, B, p):
    D, t = np.eye(p), np.zeros(p)
    D[0, 0], t[0], t[1] = A, B, -np.log(A)
    return D, t


# items


@each_model
@many
@given(log_A=log_scales, B=shifts, seed=seeds)
def test_likelihood_and_curves_do_not_notice(model, log_A, B, seed):
    rng, A = np.random.default_rng(seed), np.exp(log_A)
    xi, theta = some_items(model, 5, rng), rng.normal(size=5)
    score = model.simulate(theta, xi, rng)
    moved, there = metric.move_items(xi, A, B), metric.move_theta(theta, A, B)
    assert model.log_likelihood(score, there, moved) == pytest.approx(
        model.log_likelihood(score, theta, xi), rel=1e-8, abs=1e-8
    )
    assert model.expected_score(there, moved) == pytest.approx(model.expected_score(theta, xi), abs=1e-10)
    # a curve moves by its nodes: E_ref(t) = E(own t)
    t = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(
        model.expected_score(t, moved[:, None]),
        model.expected_score(metric.own_theta(t, A, B), xi[:, None]),
        atol=1e-10,
    )


@many
@given(log_A=log_scales, B=shifts, seed=seeds, p=st.integers(2, 5))
def test_items_are_an_affine_map(log_A, B, seed, p):
    rng, A = np.random.default_rng(seed), np.exp(log_A)
    xi = rng.normal(size=(4, p))
    kept, (D, t) = xi.copy(), D_and_t(A, B, p)
    np.testing.assert_allclose(metric.move_items(xi, A, B), xi @ D + t, atol=1e-12)
    np.testing.assert_array_equal(xi, kept)  # the argument stays as it was
    C = covariances(rng, 4, p=p)
    np.testing.assert_allclose(metric.move_item_covariance(C, A), D @ C @ D, rtol=1e-12)


def test_rows_lane_by_lane():
    rng = np.random.default_rng(2)
    xi, A, B = rng.normal(size=(5, 4, 8)), np.exp(rng.normal(size=8)), rng.normal(size=8)
    scale, shift = metric.rows_moved(A, B, 4)
    for lane in range(8):
        moved = metric.move_items(xi[..., lane], A[lane], B[lane])
        np.testing.assert_allclose((scale * xi + shift)[..., lane], moved, rtol=1e-12)
    beta = rng.normal(size=(3, 4, 8))
    moved = beta * scale
    moved[0] += shift
    for lane in range(8):
        of_one = metric.move_beta(beta[..., lane], A[lane], B[lane])
        np.testing.assert_allclose(moved[..., lane], of_one, rtol=1e-12)


@many
@given(seed=seeds)
def test_one_pair_per_draw(seed):
    rng = np.random.default_rng(seed)
    A, B = np.exp(rng.normal(size=6)), rng.normal(size=6)
    xi, beta, C = rng.normal(size=(6, 3, 4)), rng.normal(size=(6, 2, 4)), covariances(rng, 6, p=4)
    moved = metric.move_items(xi, A[:, None], B[:, None])
    coefficients, spread = metric.move_beta(beta, A, B), metric.move_item_covariance(C, A)
    mean, sd = metric.move_abilities(xi[:, :, 0], xi[:, :, 1], A[:, None], B[:, None])
    for s in range(6):
        np.testing.assert_array_equal(moved[s], metric.move_items(xi[s], A[s], B[s]))
        np.testing.assert_array_equal(coefficients[s], metric.move_beta(beta[s], A[s], B[s]))
        np.testing.assert_array_equal(spread[s], metric.move_item_covariance(C[s], A[s]))
        np.testing.assert_array_equal(mean[s], metric.move_theta(xi[s, :, 0], A[s], B[s]))
        np.testing.assert_array_equal(sd[s], A[s] * xi[s, :, 1])


# slope and intercept


@many
@given(seed=seeds, log_A=log_scales, B=shifts, p=st.integers(2, 5))
def test_slope_and_intercept(seed, log_A, B, p):
    rng, A = np.random.default_rng(seed), np.exp(log_A)
    xi = rng.normal(size=(4, p))
    phi, theta = metric.phi_of(xi), rng.normal(size=4)
    np.testing.assert_allclose(
        phi[:, 1] * theta + phi[:, 0], np.exp(xi[:, 1]) * (theta - xi[:, 0]), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_array_equal(phi[:, 2:], xi[:, 2:])
    np.testing.assert_allclose(metric.xi_of(phi), xi, atol=1e-10)
    # what the period sees of an item on the reference metric is the item it would have moved there
    np.testing.assert_allclose(
        metric.own_phi(metric.phi_of(metric.move_items(xi, A, B)), A, B), phi, rtol=1e-8, atol=1e-8
    )
    M = np.eye(p)
    M[0, 1], M[1, 1] = B, A
    np.testing.assert_allclose(metric.own_phi(phi, A, B), phi @ M.T, rtol=1e-12, atol=1e-12)


@many
@given(seed=seeds, log_A=log_scales, B=shifts, p=st.integers(2, 5), one_each=st.booleans())
def test_a_moved_factor_is_the_factor_at_the_periods_own_phi(seed, log_A, B, p, one_each):
    rng = np.random.default_rng(seed)
    Q, h = covariances(rng, 4, p=p), rng.normal(size=(4, p))
    phi = rng.normal(size=(4, p))
    A, B = np.exp(log_A), B
    if one_each:
        A, B = A * np.exp(rng.normal(size=4) * 0.1), B + rng.normal(size=4)
    own = metric.own_phi(phi, A, B)
    moved_Q, moved_h = metric.move_factor(Q, h, A, B)

    def value(Q, h, phi):
        return -0.5 * np.einsum("ja,jab,jb->j", phi, Q, phi) + np.einsum("ja,ja->j", h, phi)

    np.testing.assert_allclose(value(moved_Q, moved_h, phi), value(Q, h, own), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(moved_Q, moved_Q.transpose(0, 2, 1), rtol=1e-12)


@many
@given(seed=seeds, p=st.integers(2, 5))
def test_patterns_are_the_derivatives_at_no_change(seed, p):
    rng, step = np.random.default_rng(seed), 1e-6
    xi = rng.normal(size=(3, p))
    by_phi, by_xi = metric.patterns(np.exp(xi[:, 1]), p), metric.location_patterns(xi[:, 0], p)
    for k, (log_A, B) in enumerate(np.eye(2) * step):
        moved, back = (metric.move_items(xi, np.exp(sign * log_A), sign * B) for sign in (1, -1))
        np.testing.assert_allclose(by_xi[:, :, k], (moved - back) / (2 * step), atol=1e-6)
        slopes = (metric.phi_of(moved) - metric.phi_of(back)) / (2 * step)
        # eta = a theta + c: with log A the slope shrinks and the intercept stays, with B the intercept falls by a
        np.testing.assert_allclose(by_phi[:, :, k], slopes, rtol=1e-5, atol=1e-5)


@many
@given(seed=seeds, p=st.integers(2, 5))
def test_slopes_of_xi_are_its_derivatives(seed, p):
    rng, step = np.random.default_rng(seed), 1e-6
    phi = metric.phi_of(rng.normal(size=(3, p)))
    K = metric.slopes_of_xi(phi)
    for k, h in enumerate(np.eye(p) * step):
        np.testing.assert_allclose(K[:, :, k], (metric.xi_of(phi + h) - metric.xi_of(phi - h)) / (2 * step), rtol=1e-3)
    # with log a, at the intercept there is: d phi = (0, a, 0)
    by_slope = metric.slope_pattern(metric.xi_of(phi)[:, 0], p)
    np.testing.assert_allclose(by_slope, K[:, :, 1] * phi[:, 1:2], atol=1e-9)


# the population model


@many
@given(seed=seeds, log_A=log_scales, B=shifts, p=st.integers(2, 4), F=st.integers(1, 4))
def test_population(seed, log_A, B, p, F):
    rng, A = np.random.default_rng(seed), np.exp(log_A)
    X = np.column_stack([np.ones(6), rng.normal(size=(6, F - 1))])
    beta, (D, t) = rng.normal(size=(F, p)), D_and_t(A, B, p)
    np.testing.assert_allclose(X @ metric.move_beta(beta, A, B), X @ beta @ D + t, atol=1e-10)
    step = 1e-6
    for k, (by_log_A, by_B) in enumerate(np.eye(2) * step):
        far, near = (metric.move_beta(beta, np.exp(sign * by_log_A), sign * by_B) for sign in (1, -1))
        np.testing.assert_allclose(metric.beta_patterns(beta)[:, k], ((far - near) / (2 * step)).ravel(), atol=1e-6)
    # the covariance of the coefficients, by moving many of them
    V = covariances(rng, p=F * p)
    draws = rng.multivariate_normal(np.zeros(F * p), V, size=50)
    sample = np.atleast_2d(np.cov(draws.T))
    moved = metric.move_beta(draws.reshape(50, F, p), np.full(50, A), np.full(50, B)).reshape(50, -1)
    np.testing.assert_allclose(metric.move_beta_covariance(sample, A, p), np.cov(moved.T), rtol=1e-8, atol=1e-10)


@many
@given(seed=seeds, log_A=log_scales, p=st.integers(2, 4))
def test_log_cholesky_coordinates(seed, log_A, p):
    rng, A = np.random.default_rng(seed), np.exp(log_A)
    sigma = covariances(rng, 3, p=p)
    rows, columns = np.tril_indices(p)

    def coordinates(sigma):
        L = np.linalg.cholesky(sigma)[..., rows, columns]
        return np.where(rows == columns, np.log(np.abs(L)), L)

    got = metric.move_log_cholesky(coordinates(sigma), A)
    np.testing.assert_allclose(got, coordinates(metric.move_item_covariance(sigma, A)), atol=1e-10)


# abilities, and links themselves


@many
@given(seed=seeds, log_A=log_scales, B=shifts)
def test_abilities_and_curves_there_and_back(seed, log_A, B):
    rng, A = np.random.default_rng(seed), np.exp(log_A)
    theta = rng.normal(size=200)
    there = metric.move_theta(theta, A, B)
    np.testing.assert_allclose(metric.own_theta(there, A, B), theta, atol=1e-10)
    mean, sd = metric.move_abilities(theta.mean(), theta.std(), A, B)
    assert mean == pytest.approx(there.mean(), abs=1e-10)
    assert sd == pytest.approx(there.std(), rel=1e-10)


@many
@given(seed=seeds)
def test_links_compose_and_invert(seed):
    rng = np.random.default_rng(seed)
    outer, inner = (metric.Constants(np.exp(rng.normal(size=3)), rng.normal(size=3)) for _ in range(2))
    xi = rng.normal(size=(3, 4))
    both, one_by_one = metric.compose(outer, inner), metric.move_items(metric.move_items(xi, *inner), *outer)
    np.testing.assert_allclose(metric.move_items(xi, *both), one_by_one, atol=1e-10)
    np.testing.assert_allclose(metric.move_items(metric.move_items(xi, *inner), *metric.invert(inner)), xi, atol=1e-10)
    nothing = metric.compose(inner, metric.invert(inner))
    np.testing.assert_allclose(nothing.A, 1.0)
    np.testing.assert_allclose(nothing.B, 0.0, atol=1e-12)


def test_an_ability_and_its_link_are_both_uncertain():
    """By drawing both: theta ~ N(m, s^2) independent of (log A, B), which vary together."""
    rng, n = np.random.default_rng(5), 400_000
    log_A, B = rng.multivariate_normal([0.1, -0.3], [[0.04, 0.02], [0.02, 0.09]], n).T
    A, m, s = np.exp(log_A), np.array([-2.0, 0.0, 1.5]), np.array([0.3, 0.6, 0.1])
    mean, measured, linked = metric.move_uncertain(m, s, metric.link_moments(A, B))
    drawn = A[:, None] * (m + s * rng.normal(size=(n, 3))) + B[:, None]
    np.testing.assert_allclose(mean, drawn.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(np.hypot(measured, linked), drawn.std(axis=0), rtol=0.01)
    np.testing.assert_allclose(linked, (A[:, None] * m + B[:, None]).std(axis=0), rtol=1e-9)
    known = metric.LinkMoments(*(np.array(v) for v in (2.0, 1.0, 0.0, 0.0, 0.0)))
    for found, want in zip(metric.move_uncertain(m, s, known), (2 * m + 1, 2 * s, 0 * s), strict=True):
        np.testing.assert_allclose(found, want)


def test_the_shift_takes_a_point_where_it_shall_be():
    B = metric.shift_to(0.7, 1.3, -0.4)
    assert metric.move_theta(-0.4, 1.3, B) == pytest.approx(0.7)
