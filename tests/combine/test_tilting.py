"""Tilting on skewed likelihoods: items answered by a handful of examinees of known ability zero."""

from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import Measured, calibration_from, constant_link, make_world
from scipy.stats import norm

from concal.combine.joint import JointOptions
from concal.combine.pareto import gaussian_twin, pareto_k
from concal.combine.periods import combine
from concal.combine.summary import summarise_period
from concal.spec import ConsensusSpec

GRID = np.linspace(-8, 8, 4001)


def grid_moments(log_density):
    w = np.exp(log_density - log_density.max(axis=-1, keepdims=True))
    w /= w.sum(axis=-1, keepdims=True)
    mean = w @ GRID
    return mean, np.sqrt(w @ GRID**2 - mean**2), w


@pytest.fixture(scope="module")
def skewed_programme():
    """300 items, 4 periods, 5 to 12 right-or-wrong answers each: d has a skewed posterior, log a a Gaussian one."""
    rng = np.random.default_rng(51)
    n, M, S = 300, 4, 1000
    world = make_world(seed=51, n_items=n, n_periods=1, n_features=1, share=1.0)
    sigma = np.diag([1.0, 0.09])
    world = replace(world, beta=np.zeros((1, 2)), sigma=sigma)
    d = rng.normal(size=n)
    prior = -0.5 * GRID**2
    total = np.repeat(prior[None], n, 0)
    log_a, precision = np.zeros(n), np.full(n, 1 / 0.09)
    pairs = []
    for m in range(M):
        trials = rng.integers(5, 13, size=n)
        right = rng.binomial(trials, 1 / (1 + np.exp(d)))
        likelihood = -right[:, None] * np.logaddexp(0, GRID) - (trials - right)[:, None] * np.logaddexp(0, -GRID)
        total += likelihood
        _, _, w = grid_moments(prior + likelihood)
        u = rng.permuted((np.arange(S) + rng.random((n, 1))) / S, axis=1)
        cdf = np.cumsum(w, axis=1)
        draws_d = np.stack([np.interp(u[j], cdf[j], GRID) for j in range(n)])
        y, q = rng.normal(size=n) * 0.5, 4.0
        log_a += q * y
        precision += q
        draws_a = (q * y / (q + 1 / 0.09))[:, None] + rng.normal(size=(n, S)) / np.sqrt(q + 1 / 0.09)
        period = Measured(f"P{m + 1}", world.item_ids, world.X, np.zeros((n, 2)), np.zeros((n, 2, 2)), 1.0, 0.0)
        xi = np.stack([draws_d, draws_a], axis=2).transpose(1, 0, 2)
        calibration = calibration_from(world, period, xi, np.zeros((S, 1, 2)), np.repeat(sigma[None], S, 0))
        pairs.append((calibration, constant_link(period, S)))
    mean, sd, _ = grid_moments(total)
    return world, pairs, mean, sd


def test_one_pass_brings_the_factors_closer_to_the_pooled_posterior(skewed_programme):
    world, pairs, mean, sd = skewed_programme
    options = JointOptions(fixed_links=True, fixed_population={"g": (world.beta, world.sigma)}, robust=False, draws=4)
    error, ratio = {}, {}
    for tilt in (0, 1, 2):
        spec = ConsensusSpec(tilt=tilt)
        consensus = combine(pairs, method="joint", spec=spec, options=options)
        g = consensus.groups["g"]
        error[tilt] = np.sqrt((((g.mean[:, 0] - mean) / sd) ** 2).mean())
        ratio[tilt] = g.sd[:, 0] / sd
    assert error[1] < 0.8 * error[0]
    assert error[2] < 0.8 * error[0]  # a second pass adds no noise
    assert ratio[1].std() < 0.6 * ratio[0].std()
    assert ratio[2].std() < 0.6 * ratio[0].std()
    assert abs(ratio[2].mean() - 1) < 0.02
    assert {"pareto_k", "tilt_size", "tilted", "skewness"} <= set(consensus.diagnostics.columns)
    assert consensus.diagnostics["tilted"].mean() > 0.9


def test_without_draws_nothing_is_tilted(skewed_programme):
    _, pairs, _, _ = skewed_programme
    summaries = [summarise_period(c, link, reference="P1") for c, link in pairs[:2]]
    consensus = combine(summaries, method="joint", options=JointOptions(draws=8))
    assert "tilted" not in consensus.diagnostics.columns
    stored = {c.period: c for c, _ in pairs[:1]}
    partly = combine(summaries, method="joint", options=JointOptions(draws=8), calibrations=stored)
    assert set(partly.diagnostics.filter("tilted")["period"]) == {"P1"}


def test_pareto_k_of_known_tails():
    rng = np.random.default_rng(1)
    for k in (0.2, 0.5, 0.9):
        found = np.mean([pareto_k(np.log(rng.pareto(1 / k, size=4000) + 1)) for _ in range(20)])
        assert found == pytest.approx(k, abs=0.12)
    assert pareto_k(np.zeros(1000)) == -np.inf


def test_gaussian_twin_keeps_moments_and_follows_the_draws():
    rng = np.random.default_rng(2)
    x = np.ascontiguousarray(rng.gamma(3.0, size=(5, 2, 2000)))
    x[:, 1] += 0.5 * x[:, 0]
    y = np.empty_like(x)
    gaussian_twin(x, norm.ppf((np.arange(2000) + 0.5) / 2000), y)
    for j in range(5):
        np.testing.assert_allclose(y[j].mean(axis=1), x[j].mean(axis=1))
        np.testing.assert_allclose(np.cov(y[j]), np.cov(x[j]))
        assert np.corrcoef(x[j, 0], y[j, 0])[0, 1] > 0.95
        assert abs((((y[j, 0] - y[j, 0].mean()) / y[j, 0].std()) ** 3).mean()) < 0.05
