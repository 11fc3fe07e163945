"""Moments of a period's population, against loops over draws."""

import numpy as np
import pytest
from gaussian_worlds import make_world, sampled_period

from concal.consensus.factors.population import conditional_covariance, population_moments, shrunk_covariance
from concal.consensus.gaussian import (
    effective_covariance_draws,
    feature_quadratic,
    from_log_cholesky,
    log_cholesky,
    precision_shrinkage,
    raise_eigenvalues,
)
from concal.errors import DataError


def test_conditional_covariance_is_the_mean_over_draws():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(20), rng.normal(size=(20, 3))])
    T, sd = 0.01 * np.eye(4), np.array([1.0, 0.3])
    root = rng.normal(size=(30, 2, 2)) + 2 * np.eye(2)
    sigma = root @ root.transpose(0, 2, 1)
    expected = np.mean(
        [np.linalg.inv(np.kron(X.T @ X, np.linalg.inv(S)) + np.kron(T, np.diag(sd**-2))) for S in sigma], axis=0
    )
    np.testing.assert_allclose(conditional_covariance(X, T, sigma, sd), expected, rtol=1e-8, atol=1e-12)
    with pytest.raises(DataError, match="collinear"):
        conditional_covariance(np.ones((5, 2)), np.zeros((2, 2)), sigma, sd)


@pytest.mark.parametrize("rao_blackwell", [True, False])
def test_moments_of_beta_and_sigma(rao_blackwell):
    world = make_world(seed=27, n_items=40, n_periods=1, share=1.0)
    calibration = sampled_period(world, world.periods[0], 2000, seed=3, rao_blackwell=rao_blackwell)
    group = calibration.groups["g"]
    got = population_moments(group, calibration.beta_prior_precision["g"])
    beta, sigma = group.flat("beta").reshape(2000, -1), group.flat("sigma")
    sd = beta.std(axis=0)
    np.testing.assert_allclose((got.b.ravel() - beta.mean(axis=0)) / sd, 0.0, atol=0.1)
    np.testing.assert_allclose(np.sqrt(np.diag(got.V)) / sd, 1.0, atol=0.08)
    np.testing.assert_allclose(got.precision @ got.V, np.eye(sd.size), atol=0.05)
    np.testing.assert_allclose(got.sigma, sigma.mean(axis=0))
    np.testing.assert_allclose(got.sigma_coordinates, log_cholesky(sigma).mean(axis=0))


def test_shrinkage_goes_with_the_number_of_draws():
    rng = np.random.default_rng(2)
    root = np.diag([1.0, 2.0, 3.0])
    few, many = (root @ rng.normal(size=(3, n)) for n in (8, 20_000))
    assert shrunk_covariance(few, 8.0)[1] > 0.1
    covariance, share = shrunk_covariance(many, 20_000.0)
    assert share < 0.01
    np.testing.assert_allclose(np.diag(covariance), [1.0, 4.0, 9.0], rtol=0.05)
    assert np.linalg.eigvalsh(shrunk_covariance(few[:, :2], 2.0)[0])[0] > 0


def test_log_cholesky_round_trip_and_order():
    sigma = np.array([[4.0, 1.0], [1.0, 2.0]])
    np.testing.assert_allclose(log_cholesky(sigma), [np.log(2.0), 0.5, 0.5 * np.log(1.75)])
    np.testing.assert_allclose(from_log_cholesky(log_cholesky(sigma), 2), sigma)


def test_finite_draw_correction_removes_the_bias():
    rng = np.random.default_rng(1)
    p, n = 3, 40
    root = np.linalg.cholesky(np.array([[1.0, 0.3, 0.1], [0.3, 0.5, 0.0], [0.1, 0.0, 0.2]]))
    z = rng.normal(size=(20_000, n, p)) @ root.T
    S = np.einsum("isa,isb->iab", z - z.mean(1, keepdims=True), z - z.mean(1, keepdims=True)) / (n - 1)
    mean = np.linalg.inv(S).mean(axis=0) * precision_shrinkage(np.array(float(n)), p)
    np.testing.assert_allclose(mean, np.linalg.inv(root @ root.T), rtol=0.02, atol=0.02)


def test_effective_draws_of_a_covariance():
    """Autoregressive draws: the variance of a sample variance is what the effective number predicts."""
    rng = np.random.default_rng(2)
    rho, n = 0.7, 400
    e = rng.normal(size=(4000, n)) * np.sqrt(1 - rho**2)
    x = np.empty_like(e)
    x[:, 0] = rng.normal(size=4000)
    for s in range(1, n):
        x[:, s] = rho * x[:, s - 1] + e[:, s]
    ess = n * (1 - rho) / (1 + rho)
    predicted = 2.0 / effective_covariance_draws(n, np.array(ess))
    assert x.var(axis=1, ddof=1).var() == pytest.approx(predicted, rel=0.1)


def test_small_matrices():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(3, 3))
    unit = root @ root.T + np.eye(3)
    values = np.array([2.0, 0.3, -1.0])
    L = np.linalg.cholesky(unit)
    U = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    x = L @ U @ np.diag(values) @ U.T @ L.T
    raised = raise_eigenvalues(x[None], unit[None], 0.1)[0]
    np.testing.assert_allclose(raised, L @ U @ np.diag([2.0, 0.3, 0.1]) @ U.T @ L.T, atol=1e-9)
    X, V = rng.normal(size=(4, 2)), unit[:2, :2]
    full = np.kron(V, unit)
    got = feature_quadratic(X, full, 3)
    for j in range(4):
        K = np.kron(X[j : j + 1], np.eye(3))
        np.testing.assert_allclose(got[j], K @ full @ K.T, rtol=1e-9)
