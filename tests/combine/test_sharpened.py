"""Moments and factors from averaged gradients: exact where everything is Gaussian, however few the draws."""

from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import (
    calibration_from,
    constant_link,
    gibbs,
    make_world,
    own_population,
    pooled_fixed_prior,
    posterior,
)
from scipy.linalg import eigh

from concal import combine
from concal.calibrate.gradients import take_apart
from concal.combine.gaussian import relative_eigenvalues
from concal.combine.moments import item_moments
from concal.combine.sharpened import likelihood_factors, sharpen
from concal.combine.summary import summarise_period
from concal.combine.wobble import patterns
from concal.spec import ConsensusSpec


def averages(x, likelihood, prior):
    """What the engine keeps, from draws (S, n, p) and gradients at them."""
    products = [np.einsum("sja,sjb->jab", x, y).reshape(x.shape[1], -1) / len(x) for y in (x, likelihood, prior)]
    return np.concatenate([x.mean(axis=0), likelihood.mean(axis=0), prior.mean(axis=0), *products], axis=1)


def with_gradients(calibration, period, xi, beta, sigma):
    """The calibration of a measured period with the gradients at its draws: y - x ~ N(0, R), x ~ N(X beta, Sigma)."""
    likelihood = np.einsum("jab,sjb->sja", np.linalg.inv(period.R), period.y - xi)
    prior = -np.einsum("sab,sjb->sja", np.linalg.inv(sigma), xi - period.X @ beta)
    (group,) = calibration.groups.values()
    group = replace(group, gradients=averages(xi, likelihood, prior))
    return replace(calibration, groups={group.name: group})


def few_draws(world, period, n_draws=48, seed=1):
    """Plain draws of the period under its fixed population."""
    rng = np.random.default_rng([seed, int(period.period[1:])])
    beta, sigma = own_population(world, period)
    mean, covariance = posterior(period.y, period.R, period.X @ beta, sigma)
    z = rng.normal(size=(n_draws, *mean.shape))
    xi = mean + np.einsum("jab,sjb->sja", np.linalg.cholesky(covariance), z)
    beta, sigma = np.repeat(beta[None], n_draws, 0), np.repeat(sigma[None], n_draws, 0)
    return with_gradients(calibration_from(world, period, xi, beta, sigma), period, xi, beta, sigma)


def test_averages_are_taken_apart():
    rng = np.random.default_rng(0)
    x, likelihood, prior = rng.normal(size=(3, 50, 4, 2))
    found = take_apart(averages(x, likelihood, prior), 2)
    for j in range(4):
        np.testing.assert_allclose(found.covariance[j], np.cov(x[:, j].T, bias=True))
        both = np.cov(x[:, j].T, likelihood[:, j].T, bias=True)
        np.testing.assert_allclose(found.likelihood_product[j], both[:2, 2:])
        both = np.cov(x[:, j].T, prior[:, j].T, bias=True)
        np.testing.assert_allclose(found.prior_product[j], both[:2, 2:])


@pytest.mark.parametrize("model", ["2pl", "3pl"])
def test_a_gaussian_posterior_is_found_exactly_from_48_draws(model):
    world = make_world(seed=3, model=model, links=True, error=(0.2, 4.0))
    period = world.periods[1]
    calibration = few_draws(world, period)
    summary = summarise_period(calibration, constant_link(period, 48), wobble=False).groups["g"]
    beta, sigma = own_population(world, period)
    mean, covariance = posterior(period.y, period.R, period.X @ beta, sigma)
    D = np.ones(mean.shape[1])
    D[0] = period.A
    moved = mean * D
    moved[:, 0] += period.B
    moved[:, 1] -= np.log(period.A)
    np.testing.assert_allclose(summary.own_mean, mean, atol=1e-5)  # draws are stored in float32
    np.testing.assert_allclose(summary.mu, moved, atol=1e-5)
    np.testing.assert_allclose(np.linalg.inv(summary.Lambda), D[:, None] * covariance * D, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(summary.Q, np.linalg.inv(period.R), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(summary.h, np.linalg.solve(period.R, period.y[..., None])[..., 0], rtol=1e-6, atol=1e-7)


def test_an_estimated_population_leaves_the_factors_exact():
    world = make_world(seed=5, links=False)
    period = world.periods[0]
    _, draws = gibbs(world, [period], n_draws=200, seed=2)
    plain = calibration_from(world, period, draws["xi"], draws["beta"], draws["sigma"])
    exact = with_gradients(plain, period, draws["xi"], draws["beta"], draws["sigma"])
    true = np.linalg.inv(period.R)
    without, found = (summarise_period(c, wobble=False).groups["g"].Q for c in (plain, exact))
    np.testing.assert_allclose(found, true, rtol=1e-6, atol=1e-8)
    assert np.abs(without - true).max() > 1e-2  # the draws alone do not say as much


def test_the_consensus_reproduces_the_pooled_posterior_from_few_draws():
    world = make_world(seed=7, links=True)
    pairs = [(few_draws(world, period), constant_link(period, 48)) for period in world.periods]
    mean, covariance = pooled_fixed_prior(world)
    group = combine(pairs, method="analytic", spec=ConsensusSpec(shared_metric=False, tilt=0)).groups["g"]
    place = [world.item_ids.index(i) for i in group.item_ids]
    np.testing.assert_allclose(group.mean, mean[place], atol=1e-4)
    np.testing.assert_allclose(group.covariance, covariance[place], rtol=1e-3, atol=1e-5)


def test_the_wobble_does_not_weaken_the_factors():
    """Items and abilities that move together say nothing about the likelihood's precision."""
    world = make_world(seed=9, n_items=40, links=False, share=1.0, error=(0.1, 0.3))
    period, n_draws = world.periods[0], 4000
    rng = np.random.default_rng(1)
    beta, sigma = own_population(world, period)
    mean, covariance = posterior(period.y, period.R, period.X @ beta, sigma)
    C = np.diag([0.01, 0.02])
    P = patterns(mean[:, 0], mean.shape[1])
    still = mean + np.einsum("jab,sjb->sja", np.linalg.cholesky(covariance), rng.normal(size=(n_draws, *mean.shape)))
    shared = np.einsum("jab,sb->sja", P, rng.normal(size=(n_draws, 2)) @ np.sqrt(C))
    xi = still + shared
    likelihood = np.einsum("jab,sjb->sja", np.linalg.inv(period.R), period.y - still)
    prior = -np.einsum("ab,sjb->sja", np.linalg.inv(sigma), still - period.X @ beta)
    beta, sigma = np.repeat(beta[None], n_draws, 0), np.repeat(sigma[None], n_draws, 0)
    calibration = calibration_from(world, period, xi, beta, sigma)
    (group,) = calibration.groups.values()
    group = replace(group, gradients=averages(xi, likelihood, prior))
    own, _ = item_moments(group, None, None, "P1")
    sharp = sharpen(group, own, np.full(group.n_items, 4000.0))
    assert sharp.fine.all()
    true = np.linalg.inv(period.R)
    weakened = np.median(np.linalg.det(sharp.Q) / np.linalg.det(true))
    Q, h = likelihood_factors(sharp, sharp.covariance - P @ C @ P.transpose(0, 2, 1))
    assert weakened < 0.8
    assert abs(np.median(np.linalg.det(Q) / np.linalg.det(true)) - 1.0) < 0.05
    sd = np.sqrt(np.diagonal(period.R, axis1=1, axis2=2))
    assert np.abs((np.linalg.solve(Q, h[..., None])[..., 0] - period.y) / sd).mean() < 0.1


def test_gradients_that_contradict_the_draws_are_not_used():
    world = make_world(seed=11)
    period = world.periods[0]
    calibration = few_draws(world, period, n_draws=400)
    (group,) = calibration.groups.values()
    broken = group.gradients.copy()
    broken[3] *= 4.0
    own, _ = item_moments(group, None, None, "P1")
    fine = sharpen(replace(group, gradients=broken), own, np.full(group.n_items, 400.0)).fine
    assert not fine[3]
    assert fine.sum() == len(fine) - 1
    plain = replace(calibration, groups={"g": replace(group, gradients=None)})
    bad = replace(calibration, groups={"g": replace(group, gradients=broken)})
    expected, found = (summarise_period(c, wobble=False).groups["g"] for c in (plain, bad))
    np.testing.assert_allclose(found.mu[3], expected.mu[3])
    np.testing.assert_allclose(found.Q[3], expected.Q[3])


def test_relative_eigenvalues_are_the_generalised_ones():
    rng = np.random.default_rng(3)
    x, y = (m @ m.transpose(0, 2, 1) + 0.1 * np.eye(3) for m in rng.normal(size=(2, 5, 3, 3)))
    expected = np.array([eigh(a, b, eigvals_only=True) for a, b in zip(x, y, strict=True)])
    np.testing.assert_allclose(relative_eigenvalues(x, y), expected, rtol=1e-9)
