"""Moments of curved densities against brute force, and what their shape is estimated to be."""

import numpy as np
import pytest
from scipy.stats import norm

from concal.combine.curved import CUT, curvature, curved_moments, settle

FINE = np.linspace(-9, 9, 4001)


def slope_h(z, gamma):
    """Gamma H(z) by its definition: a cubic, continued by its tangents."""
    cubic = (z**3 - 3 * z) / 6
    at, slope = (CUT**3 - 3 * CUT) / 6, (CUT**2 - 1) / 2
    return gamma * np.where(np.abs(z) <= CUT, cubic, np.sign(z) * (at + slope * (np.abs(z) - CUT)))


def log_skewed(z, gamma):
    """Log density of the skewed standard density, by numerical integration of its mean and variance."""
    w = norm.pdf(FINE) * np.exp(slope_h(FINE, gamma))
    w /= w.sum()
    mean = w @ FINE
    sd = np.sqrt(w @ (FINE - mean) ** 2)
    own = mean + sd * z
    return norm.logpdf(own) + slope_h(own, gamma)


def with_omega(shape):
    """Shapes without a share of the likelihood are all likelihood."""
    return (*shape, 1.0) if len(shape) == 3 else tuple(shape)


def log_curved(x, mean, covariance, shape):
    """Log of the curved density at points x (n, p), written from its definition."""
    kappa, skew_l, skew_d, omega = with_omega(shape)
    p = mean.size
    others = [0, *range(2, p)]
    variance = covariance[1, 1]
    slope = covariance[others, 1] / variance
    given = covariance[np.ix_(others, others)] - variance * np.outer(slope, slope)
    given[0, 1:] *= np.exp(-0.5 * kappa**2 * variance * (3 - 2 / omega))
    given[1:, 0] = given[0, 1:]
    given[0, 0] *= np.exp(-2 * kappa**2 * variance * (2 - 1 / omega))
    z = (x[:, 1] - mean[1]) / np.sqrt(variance)
    r = x[:, others] - mean[others] - slope * (x[:, 1:2] - mean[1])
    growth = 1 - omega + omega * np.exp(2 * kappa / omega * (x[:, 1] - mean[1]))
    r[:, 0] *= np.sqrt(growth)
    gaussian = -0.5 * np.einsum("na,ab,nb->n", r, np.linalg.inv(given), r)
    zd = r[:, 0] / np.sqrt(given[0, 0])
    skewed = log_skewed(z, skew_l) + log_skewed(zd, skew_d) - norm.logpdf(zd)
    return gaussian + skewed + 0.5 * np.log(growth)


def brute_force(mean, precision, shape, G, g):
    covariance = np.linalg.inv(precision)
    spread = np.linalg.cholesky(np.linalg.inv(G))
    points = 81 if mean.size == 2 else 45
    u = np.stack(np.meshgrid(*[np.linspace(-6.5, 6.5, points)] * mean.size, indexing="ij"), -1).reshape(-1, mean.size)
    x = np.linalg.solve(G, g) + u @ spread.T
    log = log_curved(x, mean, covariance, shape)
    log += 0.5 * np.einsum("na,ab,nb->n", x - mean, precision, x - mean)
    log += -0.5 * np.einsum("na,ab,nb->n", x, G, x) + x @ g
    w = np.exp(log - log.max())
    w /= w.sum()
    centre = w @ x
    return centre, (x - centre).T @ ((x - centre) * w[:, None])


def example(seed, p):
    """A posterior with SDs near .3 and .25, and a Gaussian some SDs away from it that is a good deal narrower."""
    rng = np.random.default_rng(seed)
    sd = np.array([0.3, 0.25, 0.4])[:p]
    noise = rng.normal(size=(40, p))
    correlation = np.corrcoef(noise + 0.5 * rng.normal(size=(40, 1)), rowvar=False)
    precision = np.linalg.inv(sd[:, None] * correlation * sd)
    mean = rng.normal(size=p) * 0.5
    G = precision + np.diag(rng.uniform(0.5, 3.0, p) / sd**2)
    centre = mean + rng.normal(size=p) * sd
    return mean, precision, G, G @ centre


def moments(mean, precision, shape, G, g):
    p = mean.size
    out_mean, out_covariance, ok = np.empty((1, p)), np.empty((1, p, p)), np.zeros(1, dtype=bool)
    curved_moments(
        np.array([0, 1]),
        mean[None],
        precision[None],
        np.array([with_omega(shape)]),
        G[None],
        g[None],
        out_mean,
        out_covariance,
        ok,
    )
    return out_mean[0], out_covariance[0], bool(ok[0])


SHAPES = [
    *((0.8, 0, 0), (0, -0.4, 0), (0, 0, 0.5), (0.8, -0.4, 0.5), (-0.5, 0.6, -0.8)),
    *((0.4, 0, 0, 0.5), (0.3, -0.2, 0.1, 0.4)),
]


@pytest.mark.parametrize("p", [2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_moments_equal_brute_force(p, shape):
    for seed in range(3):
        mean, precision, G, g = example(seed, p)
        found_mean, found_covariance, ok = moments(mean, precision, shape, G, g)
        wanted_mean, wanted_covariance = brute_force(mean, precision, shape, G, g)
        sd = np.sqrt(np.diag(wanted_covariance))
        assert ok
        np.testing.assert_allclose((found_mean - wanted_mean) / sd, 0, atol=3e-3)
        np.testing.assert_allclose((found_covariance - wanted_covariance) / np.outer(sd, sd), 0, atol=1e-2)


@pytest.mark.parametrize("p", [2, 3])
def test_without_shape_nothing_changes(p):
    mean, precision, G, g = example(7, p)
    found_mean, found_covariance, ok = moments(mean, precision, (0, 0, 0), G, g)
    assert ok
    np.testing.assert_allclose(found_mean, np.linalg.solve(G, g), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found_covariance, np.linalg.inv(G), rtol=2e-5, atol=1e-8)


CLOSE = [((0.8, 0, 0), 2e-5), ((0, -0.5, 0.5), 1e-3), ((0.8, -0.5, 0.5), 0.06), ((0.4, 0, 0, 0.5), 5e-3)]


@pytest.mark.parametrize(("shape", "close"), CLOSE)
def test_curved_density_has_the_moments_of_the_gaussian(shape, close):
    """Exactly with curvature or skewness alone; nearly with both, as log a's skewness changes E exp(-2 kappa log a).

    With a prior's share to second order.
    """
    mean, precision, _, _ = example(3, 3)
    found_mean, found_covariance, ok = moments(mean, precision, shape, precision, precision @ mean)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert ok
    np.testing.assert_allclose((found_mean - mean) / sd, 0, atol=close)
    np.testing.assert_allclose((found_covariance - np.linalg.inv(precision)) / np.outer(sd, sd), 0, atol=close)


def test_what_does_not_bound_is_left_out():
    mean, precision, _, _ = example(1, 2)
    *_, ok = moments(mean, precision, (0.8, 0, 0), np.diag([-1.0, 4.0]), np.zeros(2))
    assert not ok


def test_curvature_of_draws():
    """Kappa and both skewnesses come back from draws that have them; Gaussian draws have none."""
    rng = np.random.default_rng(5)
    S, kappa, sd = 200_000, 0.8, 0.25
    log_a = 0.1 + sd * rng.standard_normal(S)
    d = 1.0 + 0.3 * (log_a - 0.1) + 0.4 * np.exp(-kappa * (log_a - 0.1)) * rng.standard_normal(S)
    skewed = rng.gamma(16.0, size=S)  # skewness 0.5
    plain = rng.standard_normal((2, S))
    x = np.stack([np.stack([d, log_a]), np.stack([plain[0], -skewed]), np.stack([skewed, plain[1]]), plain])
    found = curvature(x)
    assert found[0] == pytest.approx([kappa, 0.0, 0.0], abs=0.05)
    assert found[1, 1] == pytest.approx(-0.5, abs=0.03)
    assert found[2, 2] == pytest.approx(0.5, abs=0.03)
    assert np.abs(found[3]).max() < 0.01


def test_several_curved_densities_multiply():
    """The product of three against brute force: what each does to the others is not left out."""
    shapes = [(0.8, -0.3, 0.2), (0.6, 0.0, -0.4), (0.0, 0.5, 0.3)]
    parts = [example(seed, 2) for seed in range(3)]
    mean, precision = np.array([part[0] * 0.3 for part in parts]), np.array([part[1] for part in parts])
    G = precision.sum(axis=0) + np.diag([1.0, 10.0])
    g = np.einsum("mab,mb->a", precision, mean)
    out_mean, out_covariance, ok = np.empty((1, 2)), np.empty((1, 2, 2)), np.zeros(1, dtype=bool)
    curved_moments(
        np.array([0, 3]),
        mean,
        precision,
        np.array([with_omega(s) for s in shapes]),
        G[None],
        g[None],
        out_mean,
        out_covariance,
        ok,
    )
    assert ok[0]
    u = np.stack(np.meshgrid(*[np.linspace(-6.5, 6.5, 161)] * 2, indexing="ij"), -1).reshape(-1, 2)
    x = np.linalg.solve(G, g) + u @ np.linalg.cholesky(np.linalg.inv(G)).T
    log = -0.5 * np.einsum("na,ab,nb->n", x, G, x) + x @ g
    for centre, P, shape in zip(mean, precision, shapes, strict=True):
        log += log_curved(x, centre, np.linalg.inv(P), shape) + 0.5 * np.einsum(
            "na,ab,nb->n", x - centre, P, x - centre
        )
    w = np.exp(log - log.max())
    w /= w.sum()
    wanted = w @ x
    covariance = (x - wanted).T @ ((x - wanted) * w[:, None])
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((out_mean[0] - wanted) / sd, 0, atol=3e-3)
    np.testing.assert_allclose((out_covariance[0] - covariance) / np.outer(sd, sd), 0, atol=1e-2)


def noisy_shapes(n, ess, share, seed=6):
    """Items whose likelihood has the share `share` of their precision, true shapes and what draws show of them."""
    rng = np.random.default_rng(seed)
    mean = np.column_stack([rng.normal(size=n), 0.2 * rng.normal(size=n)])
    sd = np.column_stack([rng.uniform(0.2, 0.6, n), rng.uniform(0.15, 0.35, n)])
    covariance = sd[:, :, None] * np.eye(2) * sd[:, None, :]
    Q = share[:, None, None] * np.linalg.inv(covariance)
    base = np.column_stack([share, share * sd[:, 1], share * np.exp(mean[:, 1]) * sd[:, 0]])
    true = base * [0.7, -0.8, 0.0] + base * rng.normal(size=(n, 3)) * [0.1, 0.2, 0.5]
    noise = np.sqrt(np.column_stack([0.5 / sd[:, 1] ** 2, np.full(n, 6.0), np.full(n, 6.0)]) / ess)
    return true, true + noise * rng.normal(size=(n, 3)), mean, covariance, Q


def test_noise_is_taken_out_and_what_items_share_is_not():
    n, ess = 400, 300.0
    share = np.random.default_rng(1).uniform(0.1, 0.9, n)
    true, seen, mean, covariance, Q = noisy_shapes(n, ess, share)
    found = settle(seen, np.full(n, ess), mean, covariance, Q)
    before, after = (np.sqrt(((x - true) ** 2).mean(axis=0)) for x in (seen, found))
    assert (after < 0.6 * before).all()
    np.testing.assert_allclose(found.mean(axis=0), true.mean(axis=0), atol=0.03)


def test_an_item_that_knows_only_its_prior_has_no_shape():
    """Draws of a population whose Sigma is uncertain are skewed; the likelihood that says nothing is not."""
    _, seen, mean, covariance, Q = noisy_shapes(50, 1000.0, np.full(50, 0.02))
    found = settle(seen + np.array([0.0, 0.8, 0.0]), np.full(50, 1000.0), mean, covariance, Q)
    assert np.abs(found).max() < 0.05
