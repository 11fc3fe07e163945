"""One displacement test: against loops over items, and with the size it says."""

import numpy as np
import pytest
from scipy import stats

from concal.consensus.drift.displacement import (
    DRIFT_SPREAD,
    INFORMATIVE,
    directions,
    displacement,
    usable,
    without_each,
)
from concal.consensus.factors.gaussians import prior_in_phi
from concal.consensus.gaussian import units_of


def some(n=40, p=3, seed=1):
    rng = np.random.default_rng(seed)

    def spd(scale):
        root = rng.normal(size=(n, p, p)) + np.eye(p)
        return scale * root @ root.transpose(0, 2, 1)

    unit = spd(1.0) + 0.5 * np.eye(p)
    Q = spd(1.0) * rng.uniform(0.01, 10.0, (n, 1, 1))
    return Q, unit, np.linalg.inv(spd(2.0) + unit), rng.normal(size=(n, p)), rng


def slow(Q, h, mean, C, unit):
    """Directions of Q in units of the prior's precision, one by one."""
    assert np.linalg.eigvalsh(Q)[0] > 0
    L = np.linalg.cholesky(unit)
    K = np.linalg.inv(L)
    q, U = np.linalg.eigh(K @ Q @ K.T)
    keep = q > INFORMATIVE
    W = U[:, keep].T @ L.T  # coordinates of phi along the informative directions
    delta = W @ (np.linalg.solve(Q, h) - mean)
    V = np.diag(1.0 / q[keep]) + W @ C @ W.T
    wide = V + DRIFT_SPREAD * np.eye(keep.sum())
    squared = delta @ np.linalg.solve(V, delta)
    same = stats.multivariate_normal.logpdf(delta, np.zeros(keep.sum()), V) if keep.any() else 0.0
    moved = stats.multivariate_normal.logpdf(delta, np.zeros(keep.sum()), wide) if keep.any() else 0.0
    return squared, keep.sum(), same - moved


def test_loops_agree():
    Q, unit, C, mean, rng = some()
    h = np.einsum("jab,jb->ja", Q, mean + rng.normal(size=mean.shape))
    got = displacement(Q, h, mean, C, directions(Q, units_of(unit)))
    for j in range(Q.shape[0]):
        squared, degrees, log_same = slow(Q[j], h[j], mean[j], C[j], unit[j])
        assert got.degrees[j] == degrees
        assert got.squared[j] == pytest.approx(squared, rel=1e-7, abs=1e-9)
        assert got.log_same[j] == pytest.approx(log_same, rel=1e-7, abs=1e-7)
    assert set(got.degrees) > {3}


def test_squared_distances_are_chi_square_where_nothing_moved():
    Q, unit, C, mean, rng = some(n=4000, p=2, seed=3)
    truth = mean + np.einsum("jab,jb->ja", np.linalg.cholesky(C), rng.normal(size=mean.shape))
    h = np.einsum("jab,jb->ja", Q, truth) + np.einsum("jab,jb->ja", np.linalg.cholesky(Q), rng.normal(size=mean.shape))
    got = displacement(Q, h, mean, C, directions(Q, units_of(unit)))
    p = stats.chi2.sf(got.squared, got.degrees)[got.degrees > 0]
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_directions_without_information_are_not_looked_at():
    unit = units_of(np.eye(2)[None])
    Q = np.diag([5.0, 0.5 * INFORMATIVE])[None]
    far = displacement(
        Q, np.einsum("jab,jb->ja", Q, [[0.1, 1e6]]), np.zeros((1, 2)), np.eye(2)[None], directions(Q, unit)
    )
    near = displacement(
        Q, np.einsum("jab,jb->ja", Q, [[0.1, 0.0]]), np.zeros((1, 2)), np.eye(2)[None], directions(Q, unit)
    )
    assert far.degrees[0] == 1
    assert far.squared[0] == pytest.approx(near.squared[0])
    blind = directions(0.0 * Q, unit)
    nothing = displacement(0.0 * Q, np.zeros((1, 2)), np.zeros((1, 2)), np.eye(2)[None], blind)
    assert (nothing.degrees[0], nothing.squared[0], nothing.log_same[0]) == (0, 0.0, 0.0)


def test_usable_is_one_question_in_units_of_the_prior():
    unit = np.array([[4.0, 1.0], [1.0, 2.0]])
    stack = np.stack([2 * INFORMATIVE * unit, 0.5 * INFORMATIVE * unit, -unit])
    np.testing.assert_array_equal(usable(stack, units_of(np.tile(unit, (3, 1, 1)))), [True, False, False])
    assert usable(stack[:0], units_of(stack[:0])).shape == (0,)


def test_without_each_leaves_one_factor_out():
    Q, _, _, _, rng = some(n=7, p=2, seed=5)
    h, item = rng.normal(size=(7, 2)), np.array([0, 0, 0, 1, 1, 2, 0])
    at, prior, sigma = 0.3 * rng.normal(size=(3, 2)), 0.2 * rng.normal(size=(3, 2)), np.array([[1.0, 0.1], [0.1, 0.2]])
    got = without_each(Q, h, item, at, prior, sigma)
    centre, unit = prior_in_phi(at, prior, sigma)
    for f in range(7):
        rest = [k for k in range(7) if item[k] == item[f] and k != f]
        total = unit[item[f]] + Q[rest].sum(axis=0)
        shift = unit[item[f]] @ centre[item[f]] + h[rest].sum(axis=0)
        assert got.usable[f]
        np.testing.assert_allclose(got.covariance[f], np.linalg.inv(total), rtol=1e-8)
        np.testing.assert_allclose(got.mean[f], np.linalg.solve(total, shift), rtol=1e-8)
        np.testing.assert_allclose(got.units.unroot[f].T @ got.units.unroot[f], unit[item[f]])


def test_a_prior_of_xi_as_a_gaussian_of_phi():
    """At its own mean it is the delta method, and a small move of xi moves both alike."""
    from concal import metric

    sigma, at = np.array([[0.5, 0.05], [0.05, 0.1]]), np.array([[0.7, -0.4], [-1.0, 0.3]])
    centre, precision = prior_in_phi(at, at, sigma)
    np.testing.assert_allclose(centre, metric.phi_of(at))
    step = 1e-6
    for j in range(2):
        J = np.stack(
            [(metric.phi_of(at[j] + step * e) - metric.phi_of(at[j] - step * e)) / (2 * step) for e in np.eye(2)], 1
        )
        np.testing.assert_allclose(np.linalg.inv(precision[j]), J @ sigma @ J.T, rtol=1e-6)
        moved = prior_in_phi(at[j : j + 1], at[j : j + 1] + 0.1, sigma)[0][0]
        np.testing.assert_allclose(moved, metric.phi_of(at[j]) + J @ [0.1, 0.1], rtol=1e-6)
