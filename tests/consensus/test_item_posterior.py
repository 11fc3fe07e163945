"""One item's posterior by one quadrature, against sums over dense grids and importance points."""

import numpy as np
import pytest
from scipy import stats

from concal import metric
from concal.consensus.item_posterior import item_posterior


def log_density(xi, Q, h, mean, covariance):
    phi, r = metric.phi_of(xi), xi - mean
    prior = -0.5 * (r * np.linalg.solve(covariance, r.reshape(-1, r.shape[-1]).T).T.reshape(r.shape)).sum(axis=-1)
    return phi @ h - 0.5 * np.einsum("...a,ab,...b->...", phi, Q, phi) + prior


def moments(log_p, xi):
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    mean = weight @ xi
    return mean, np.einsum("n,na,nb->ab", weight, xi - mean, xi - mean)


def on_a_grid(Q, h, mean, covariance):
    sd = np.sqrt(np.diag(covariance))
    d = mean[0] + sd[0] * np.linspace(-9, 9, 1201)
    x = mean[1] + sd[1] * np.linspace(-9, 9, 701)
    points = np.stack([v.ravel() for v in np.meshgrid(d, x, indexing="ij")], axis=1)
    return moments(log_density(points, Q, h, mean, covariance), points)


PRIOR = np.array([[0.8, 0.06], [0.06, 0.1]])
CASES = {
    # mean of the prior, where the factor is in (d, log a), its standard errors of (c, a)
    "usual": ([0.0, 0.0], [0.4, 0.2], [0.15, 0.15]),
    "sharp": ([0.0, 0.0], [-1.0, 0.3], [0.02, 0.02]),
    "flat": ([0.0, -1.5], [0.5, -1.5], [0.1, 0.1]),
    "flat and far": ([0.0, -1.5], [3.0, -1.8], [0.1, 0.1]),
    "vague": ([0.3, -0.2], [1.0, 0.5], [3.0, 3.0]),
    "vague slope": ([0.3, -0.2], [1.0, 0.5], [0.05, 5.0]),
    "against its prior": ([0.0, 0.0], [2.5, -1.2], [0.2, 0.1]),
    "beyond zero slope": ([0.0, 0.0], [0.0, -0.5], [0.3, 0.5]),
}


@pytest.mark.parametrize("case", CASES)
def test_two_coordinates_on_a_dense_grid(case):
    mean, at, se = (np.array(v, dtype=float) for v in CASES[case])
    R = np.diag(se**2)
    R[0, 1] = R[1, 0] = 0.3 * se[0] * se[1]
    Q, centre = np.linalg.inv(R), metric.phi_of(at)
    if case == "beyond zero slope":
        centre = np.array([0.2, -0.1])  # the maximum is at a negative slope
    h = Q @ centre
    got = item_posterior(Q[None], h[None], mean[None], PRIOR[None])
    expected = on_a_grid(Q, h, mean, PRIOR)
    sd = np.sqrt(np.diag(expected[1]))
    np.testing.assert_allclose((got[0][0] - expected[0]) / sd, 0.0, atol=2e-3)
    np.testing.assert_allclose(got[1][0] / np.outer(sd, sd), expected[1] / np.outer(sd, sd), atol=5e-3)


def brute_force(Q, h, mean, covariance, lo, hi):
    """Mean and SD of log a and d of a 2pl item, d integrated in closed form at 40,001 log slopes."""
    x = np.linspace(lo, hi, 40_001)
    a, omega = np.exp(x), np.linalg.inv(covariance)
    precision = a * a * Q[0, 0] + omega[0, 0]
    pull = -a * (h[0] - a * Q[0, 1]) + omega[0, 0] * mean[0] - omega[0, 1] * (x - mean[1])
    log_p = h[1] * a - 0.5 * Q[1, 1] * a * a - 0.5 * omega[1, 1] * (x - mean[1]) ** 2
    log_p += omega[0, 1] * mean[0] * (x - mean[1]) + 0.5 * pull**2 / precision - 0.5 * np.log(precision)
    weight, d = np.exp(log_p - log_p.max()), pull / precision
    weight /= weight.sum()
    at = np.array([weight @ d, weight @ x])
    return at, np.sqrt([weight @ (1 / precision + (d - at[0]) ** 2), weight @ (x - at[1]) ** 2])


@pytest.mark.parametrize("sd", [0.05, 0.3, 1.0, 1.5, 2.0, 3.0, 5.0])
def test_wide_priors_of_the_slope(sd):
    """From no response to thousands, within .001 SD and .1 % of a sum over the whole range."""
    rng = np.random.default_rng(7)
    abilities = rng.normal(size=400)
    for responses in (0, 1, 5, 30, 200, 5000):
        n = 5
        d, a = rng.normal(size=n), np.exp(rng.normal(0, 0.3, n))
        P = 1 / (1 + np.exp(-a[:, None] * (abilities - d[:, None])))
        basis = np.stack([np.ones(400), abilities])
        Q = responses * np.einsum("jn,un,vn->juv", P * (1 - P), basis, basis) / 400
        h = np.einsum("juv,jv->ju", Q, np.stack([-a * d, a], 1))
        if responses:
            h += np.einsum("juv,jv->ju", np.linalg.cholesky(Q), rng.normal(size=(n, 2)))
        prior = np.array([[1.0, 0.1 * sd], [0.1 * sd, sd * sd]])
        mean = np.stack([rng.normal(0, 0.5, n), rng.normal(0, 0.3 * sd, n)], 1)
        got = item_posterior(Q, h, mean, np.tile(prior, (n, 1, 1)))
        for j in range(n):
            # where the factor tells the slope, it is within a few SDs of its own place
            lo, hi = min(mean[j, 1] - 9 * sd, -1.0), max(min(mean[j, 1] + 9 * sd, 10.0 if responses else 99.0), 2.0)
            centre, spread = brute_force(Q[j], h[j], mean[j], prior, lo, hi)
            np.testing.assert_allclose((got[0][j] - centre) / spread, 0.0, atol=1e-3)
            np.testing.assert_allclose(np.sqrt(np.diag(got[1][j])) / spread, 1.0, atol=1e-3)


def test_a_peak_a_hundred_times_as_narrow_as_its_prior():
    """20,000 responses place a slope that the prior leaves open; the density elsewhere is the prior's, far lower."""
    phi = np.array([0.4, 1.3])
    Q = np.array([[4000.0, 300.0], [300.0, 4000.0]])
    got = item_posterior(Q[None], (Q @ phi)[None], np.array([[0.0, -3.0]]), np.diag([1.0, 25.0])[None])
    sd = np.sqrt(np.linalg.inv(Q)[1, 1]) / 1.3
    assert got[0][0, 1] == pytest.approx(np.log(1.3), abs=0.05 * sd)
    assert np.sqrt(got[1][0, 1, 1]) == pytest.approx(sd, rel=0.01)


@pytest.mark.parametrize("known", [[1.0, 0.0], [0.0, 1.0], [1.0, 0.7]])
def test_a_factor_of_one_direction_under_a_prior_without_end(known):
    """Rounding errors of a^2 Q at slopes of e^40 are no evidence."""
    known = np.array(known)
    for information in (1e-6, 1.0, 1e4):
        Q = information * np.outer(known, known)
        mean, covariance = item_posterior(
            Q[None], (Q @ [-0.3, 1.1])[None], np.array([[0.3, -0.2]]), np.diag([1.0, 1e4])[None]
        )
        assert np.isfinite(mean).all()
        assert np.linalg.eigvalsh(covariance[0]).min() > 0
        assert mean[0, 1] < 20


def test_no_information_gives_the_prior_back():
    rng = np.random.default_rng(1)
    for p in (2, 4):
        root = np.eye(p) + 0.3 * np.tril(rng.normal(size=(p, p)), -1)
        covariance, mean = 0.3 * root @ root.T, rng.normal(size=p)
        got = item_posterior(np.zeros((1, p, p)), np.zeros((1, p)), mean[None], covariance[None])
        np.testing.assert_allclose(got[0][0], mean, atol=1e-5)
        np.testing.assert_allclose(got[1][0], covariance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("log_a", [-0.3, -1.5])
def test_four_coordinates_by_importance(log_a):
    """A partial-credit item: extras with their own information and correlations."""
    rng = np.random.default_rng(2)
    mean = np.array([0.2, log_a, -0.5, 0.4])
    covariance = np.diag([0.9, 0.1, 0.2, 0.2]) + 0.05
    L = 0.15 * (np.eye(4) + 0.3 * rng.normal(size=(4, 4)))
    Q = np.linalg.inv(L @ L.T)
    h = Q @ metric.phi_of(mean + np.array([0.5, 0.1, 0.3, -0.2]))
    got = item_posterior(Q[None], h[None], mean[None], covariance[None])
    u = stats.qmc.Sobol(4, seed=3).random(2**15)
    z = 1.4 * stats.norm.ppf(np.clip(u, 1e-9, 1 - 1e-9))
    points = got[0][0] + z @ np.linalg.cholesky(got[1][0]).T
    expected = moments(log_density(points, Q, h, mean, covariance) + 0.5 * (z**2).sum(axis=1) / 1.4**2, points)
    sd = np.sqrt(np.diag(expected[1]))
    np.testing.assert_allclose((got[0][0] - expected[0]) / sd, 0.0, atol=0.02)
    np.testing.assert_allclose(got[1][0] / np.outer(sd, sd), expected[1] / np.outer(sd, sd), atol=0.03)


def test_items_do_not_see_each_other(monkeypatch):
    rng = np.random.default_rng(4)
    root = rng.normal(size=(9, 3, 3))
    Q, h = root @ root.transpose(0, 2, 1), rng.normal(size=(9, 3))
    mean, covariance = 0.3 * rng.normal(size=(9, 3)), np.tile(0.4 * np.eye(3), (9, 1, 1))
    whole = item_posterior(Q, h, mean, covariance)
    monkeypatch.setattr("concal.consensus.item_posterior.BLOCK", 2)
    parts = item_posterior(Q, h, mean, covariance)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert item_posterior(Q[:0], h[:0], mean[:0], covariance[:0])[0].shape == (0, 3)
