"""Factors from draws alone: the equations solved one item at a time, and draws whose spread comes near to zero."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from concal import metric
from concal.consensus.factors.by_parts import counting_draws, doubts_of_draws, in_phi, solve_by_parts
from concal.response import make_model


def equations_of_one_item(phi, g, mean, moved, weights):
    """The weighted equations written down term by term, draw by draw; returns E l and Q."""
    p, draws = phi.shape
    to_xi = np.linalg.inv(metric.slopes_of_xi(mean[None])[0]).T
    left, right = np.zeros(((1 + p) * p, p + p * p)), np.zeros((1 + p) * p)
    for s in range(draws):
        W = weights[s] @ to_xi / draws
        c = phi[:, s] - mean
        for k in range(1 + p):
            test = 1.0 if k == 0 else c[k - 1] * draws / (draws - 1)
            for a in range(p):
                row = k * p + a
                for b in range(p):  # W (E l - Q c + g) test
                    left[row, b] += W[a, b] * test
                    right[row] -= W[a, b] * g[b, s] * test
                    for e in range(p):
                        second = c[e] * test - (moved[k - 1, e] if k else 0.0)
                        left[row, p + b * p + e] -= W[a, b] * second
                if k:  # and W times the identity
                    right[row] -= W[a, k - 1]
    found = np.linalg.solve(left, right)
    return found[:p], found[p:].reshape(p, p)


def test_the_equations_are_those_written_down():
    rng = np.random.default_rng(1)
    n, p, draws = 3, 3, 40
    mean = np.column_stack([rng.normal(size=n), rng.uniform(0.5, 1.5, n), rng.normal(size=n)])
    phi = mean[:, :, None] + 0.3 * rng.normal(size=(n, p, draws))
    g = -2.0 * (phi - mean[:, :, None]) + rng.normal(size=(n, p, draws))
    root = rng.normal(size=(draws, p, p))
    weights = root @ root.transpose(0, 2, 1) + np.eye(p)
    moved = 0.01 * np.eye(p)[None].repeat(n, axis=0)
    gradient, Q = solve_by_parts(phi, g, mean, moved, weights)
    for j in range(n):
        want_gradient, want_Q = equations_of_one_item(phi[j], g[j], mean[j], moved[j], weights)
        np.testing.assert_allclose(gradient[j], want_gradient, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(Q[j], want_Q, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("draws", [20, 60])
def test_equal_weights_give_sample_covariances(draws):
    """Q = S^-1 + S^-1 Cov(phi, g), S with n - 1 below: what the correction for few draws is made for."""
    rng = np.random.default_rng(3)
    n, p = 4, 2
    phi = np.array([0.2, 1.0])[None, :, None] + 0.3 * rng.normal(size=(n, p, draws))
    g = -2.0 * phi + rng.normal(size=phi.shape)
    mean = phi.mean(axis=2)
    _, Q = solve_by_parts(phi, g, mean, np.zeros((n, p, p)), np.eye(p)[None].repeat(draws, axis=0))
    for j in range(n):
        both = np.cov(np.concatenate([phi[j], g[j]]))
        want = np.linalg.inv(both[:p, :p]) @ (np.eye(p) + both[:p, p:])
        np.testing.assert_allclose(Q[j], want.T, rtol=1e-8)


def test_draws_that_count():
    weights = np.zeros((100, 2, 2))
    weights[:, 0, 0] = 1.0
    weights[:10, 1, 1] = 3.0  # the other draws leave the second coordinate no freedom
    np.testing.assert_allclose(counting_draws(weights), [100.0, 10.0])
    np.testing.assert_allclose(in_phi(np.array([100.0, 10.0, 40.0])), [10.0, 10.0, 40.0])


@pytest.mark.parametrize(
    ("draws", "counting", "told"),
    [
        (100, [99.6, 98.0], None),
        (80, [79.5, 79.0], r"'g': 80 draws are few .* import at least 100"),
        (400, [390.0, 60.0], r"in all but about 60 of the 400 draws the population leaves the items' log_a no freedom"),
        (80, [79.0, 20.0], r"in all but about 20 of the 80 draws .* log_a no freedom"),
        (4000, [3900.0, 150.0], None),
    ],
)
def test_few_draws_are_no_sign_of_a_population_without_spread(draws, counting, told):
    model = make_model("2pl", None)
    group = SimpleNamespace(name="g", n_draws=draws, model=model)
    found = doubts_of_draws(group, np.array(counting))
    assert bool(found) == (told is not None)
    assert all(re.search(told, text) for text in found)


def test_draws_in_which_an_item_has_no_freedom_do_not_decide():
    """Priors N(m, v) of the last coordinate with v from 1e-6 to .3, draw by draw: the likelihood comes back.

    Everything is Gaussian in phi here (K is constant), so that each draw's posterior can be drawn exactly.
    """
    rng = np.random.default_rng(2)
    n, p, draws = 20, 3, 1000
    mean = np.tile([0.0, 1.0, 0.5], (n, 1))
    K = metric.slopes_of_xi(mean)[0]
    Q = np.array([[8.0, 1.0, 1.0], [1.0, 12.0, -1.0], [1.0, -1.0, 9.0]])
    centre = mean + 0.2 * rng.normal(size=(n, p))  # of the likelihood
    spread = np.exp(rng.uniform(np.log(1e-3), np.log(0.55), draws))
    omega = np.zeros((draws, p, p))
    omega[:, 0, 0], omega[:, 1, 1], omega[:, 2, 2] = 1.0, 10.0, spread**-2.0
    prior = K.T @ omega @ K
    total = prior + Q
    pull = (prior @ mean[0])[None] + (centre @ Q)[:, None]
    conditional = np.linalg.solve(total[None], pull[..., None])[..., 0]  # (items, draws, p)
    noise = np.linalg.solve(np.linalg.cholesky(total).transpose(0, 2, 1), rng.normal(size=(n, draws, p, 1)))[..., 0]
    phi = (conditional + noise).transpose(0, 2, 1)
    g = -np.einsum("sab,jbs->jas", prior, phi - mean[:, :, None])
    still = np.zeros((n, p, p))
    typical = np.linalg.inv(K @ np.mean([np.cov(phi[j]) for j in range(n)], axis=0) @ K.T)
    se = np.sqrt(np.diag(np.linalg.inv(Q)))

    def off(weights):
        gradient, found = solve_by_parts(phi, g, mean, still, weights)
        at = mean + np.linalg.solve(found, gradient[..., None])[..., 0]
        return np.sqrt((((at - centre) / se) ** 2).mean(axis=0)), found

    weighted, found = off(np.linalg.inv(typical + omega))
    assert weighted.max() < 0.3
    np.testing.assert_allclose(np.median(np.diagonal(found, axis1=1, axis2=2), axis=0), np.diag(Q), rtol=0.2)
    plain, _ = off(np.eye(p)[None].repeat(draws, axis=0))
    assert plain[2] > 5.0 * weighted[2]
