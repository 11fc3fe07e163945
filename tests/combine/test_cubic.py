"""Third order terms: derivatives of the curved density, sums over periods, and what they do to the consensus mean."""

from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import fixed_prior_pairs, make_world

from concal.combine.cubic import LARGEST_STEP, CubicSums, corrected_mean, cubic_terms, third_derivatives
from concal.combine.periods import combine
from concal.combine.summary import summarise_period
from concal.spec import ConsensusSpec


def random_items(rng, n=6, p=3):
    root = rng.normal(size=(n, p, p)) * 0.3 + np.eye(p)
    covariance = root @ root.transpose(0, 2, 1) * 0.1
    return rng.normal(size=(n, p)), covariance, rng.normal(size=(n, 3)) * 0.3


def log_density(x, covariance, shape):
    """The curved density about its mean, to the order at which its third derivatives are exact there."""
    (kappa, skew_a, skew_d), (d, log_a) = shape, x
    variance_a = covariance[1, 1]
    slope = covariance[0, 1] / variance_a
    v = covariance[0, 0] - covariance[0, 1] ** 2 / variance_a
    r, z = (d - slope * log_a) / np.sqrt(v), log_a / np.sqrt(variance_a)
    return -0.5 * r**2 * np.exp(2 * kappa * log_a) - 0.5 * z**2 + skew_a * z**3 / 6 + skew_d * r**3 / 6


def numeric_third(f, h=0.01):
    """Third derivatives at zero of a function of two numbers, by central differences along every triple of axes."""
    out, axes = np.zeros((2, 2, 2)), np.eye(2) * h
    for i, j, k in np.ndindex(2, 2, 2):
        total = 0.0
        for s in np.ndindex(2, 2, 2):
            signs = 2 * np.array(s) - 1
            total += np.prod(signs) * f(signs[0] * axes[i] + signs[1] * axes[j] + signs[2] * axes[k])
        out[i, j, k] = total / (2 * h) ** 3
    return out


def test_third_derivatives_are_those_of_the_curved_density():
    _, covariance, shape = random_items(np.random.default_rng(1))
    T = third_derivatives(covariance[:, :2, :2], shape)
    for j in range(len(T)):
        expected = numeric_third(lambda x, j=j: log_density(x, covariance[j], shape[j]))
        np.testing.assert_allclose(T[j], expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())


def slow_mean(mean, covariance, periods):
    """One item, period by period: delta = sum T : [(x - mu)(x - mu)' + V - V_m] / 2."""
    delta = np.zeros(2)
    for mu, V, T in periods:
        gap = (mean - mu)[:2]
        inside = np.outer(gap, gap) + covariance[:2, :2] - V[:2, :2]
        for i in range(2):
            delta[i] += 0.5 * sum(T[i, j, k] * inside[j, k] for j in range(2) for k in range(2))
    size = np.sqrt(delta @ covariance[:2, :2] @ delta)
    return mean + covariance[:, :2] @ delta * min(1.0, LARGEST_STEP / size)


def test_sums_give_what_a_loop_over_periods_gives():
    rng = np.random.default_rng(2)
    mean, covariance, _ = random_items(rng)
    total = CubicSums(np.zeros((6, 2, 2, 2)), np.zeros((6, 2, 2)), np.zeros((6, 2)))
    periods = []
    for _ in range(3):
        mu, V, shape = random_items(rng)
        terms = cubic_terms(mu, np.linalg.inv(V), shape)
        total = CubicSums(total.third + terms.third, total.second + terms.second, total.first + terms.first)
        periods.append((mu, V, terms.third))
    got = corrected_mean(mean, covariance, total)
    for j in range(len(mean)):
        expected = slow_mean(mean[j], covariance[j], [(mu[j], V[j], T[j]) for mu, V, T in periods])
        np.testing.assert_allclose(got[j], expected, rtol=1e-9)
    moved = np.linalg.solve(np.linalg.cholesky(covariance), (got - mean)[:, :, None])[:, :, 0]
    assert np.linalg.norm(moved, axis=1).max() < LARGEST_STEP * (1 + 1e-9)


def test_disagreement_about_d_makes_an_item_flatter():
    world = make_world(seed=5, n_items=12, n_periods=2, share=1.0)
    summaries = [
        summarise_period(c, link, reference="P1", finite_draw_correction=False)
        for c, link in fixed_prior_pairs(world, 60)
    ]
    curved = []
    for sign, summary in zip((1.0, -1.0), summaries, strict=True):
        g = summary.groups["g"]
        mu = g.mu + sign * np.array([0.5, 0.0])  # the periods differ by about two SDs
        bent = replace(g, mu=mu, curvature=np.tile([0.8, 0.0, 0.0], (g.n_items, 1)))
        curved.append(replace(summary, groups={"g": bent}))
    plain, third = (combine(curved, spec=ConsensusSpec(tilt=t)).groups["g"] for t in (0, 1))
    assert (third.mean[:, 1] < plain.mean[:, 1]).all()
    np.testing.assert_array_equal(third.covariance[:, 1, 1], plain.covariance[:, 1, 1])


@pytest.mark.parametrize("tilt", [0, 1])
def test_literal_and_tilt_zero_are_gaussian(tilt):
    world = make_world(seed=6, n_items=12, n_periods=2, share=1.0)
    summaries = []
    for c, link in fixed_prior_pairs(world, 60):
        summary = summarise_period(c, link, reference="P1", finite_draw_correction=False)
        g = summary.groups["g"]
        bent = replace(g, curvature=np.tile([0.8, 0.1, 0.1], (g.n_items, 1)))
        summaries.append(replace(summary, groups={"g": bent}))
    bare = [replace(s, groups={"g": replace(s.groups["g"], curvature=None)}) for s in summaries]
    one = combine(summaries, spec=ConsensusSpec(tilt=tilt), literal=tilt > 0).groups["g"]
    other = combine(bare, spec=ConsensusSpec(tilt=tilt), literal=tilt > 0).groups["g"]
    np.testing.assert_array_equal(one.mean, other.mean)
