"""The log joint density against conditional draws: what a move draws from must be the model, in double precision."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from scattered import TAU, scattered
from scipy import stats
from scipy.special import logsumexp

from concal.calibration import priors
from concal.calibration.kernels import LANES
from concal.calibration.matrices import by_lane, inverse
from concal.calibration.model import Point, log_joint
from concal.calibration.moves import correlation, expansion, link
from concal.calibration.moves.climb import climb
from concal.calibration.moves.population import (
    draw_beta,
    mean_given_spread,
    sigma_given_items,
    spread_given_mean,
)
from concal.calibration.moves.strata import mixing_rates

KINDS = ["plain", "pooled", "guided", "equal"]
LANE = 3


def with_group(point, k, **changes):
    """The point with other values of group k."""
    groups = list(point.groups)
    groups[k] = replace(groups[k], **changes)
    return replace(point, groups=tuple(groups))


def difference(data, one, other):
    return log_joint(data, TAU, one) - log_joint(data, TAU, other)


@pytest.mark.parametrize("kind", KINDS)
def test_shift_and_scale_follow_the_model_along_the_orbit(kind):
    data, layout, state, steps = scattered(kind)
    rng = np.random.default_rng(3)
    sums, P = steps.sums(state), inverse(state.R[0])
    before = Point.of(state, LANE)
    for dim in range(layout.D):
        t, log_s = rng.standard_normal(LANES), 0.4 * rng.standard_normal(LANES)
        in_dim = [g for g in layout.groups if g.dim == dim]
        for shift, log_scale in ((t, np.zeros(LANES)), (np.zeros(LANES), log_s)):
            new, scale = copy.deepcopy(state), np.exp(log_scale)
            expansion._move(layout, new, dim, shift, scale)
            after = Point.of(new, LANE)
            after.theta[:, dim] = scale[LANE] * (before.theta[:, dim] + shift[LANE])
            volume = layout.n_persons + sum(g.n_items for g in in_dim) + (layout.D + 2) * (len(layout.populations) - 1)
            volume += sum(g.design.X.shape[1] + g.free.size + 1 for g in in_dim if g.guide is None)
            found = difference(data, after, before) + volume * log_scale[LANE]
            precision, pull = expansion.shift_conditional(layout, state, dim, P, sums.first[0], TAU)
            along = expansion.scale_density(layout, state, dim, P, sums.second[0], TAU)
            expected = along.log_density(log_scale) - along.log_density(np.zeros(LANES))
            expected += -0.5 * precision * shift**2 - pull * shift
            np.testing.assert_allclose(found, expected[LANE], atol=1e-8)


def test_links_of_a_guided_period_follow_the_model():
    data, layout, state, _ = scattered("guided")
    for dim in layout.guided_dimensions:
        members = [(g, s) for g, s in zip(layout.groups, state.groups, strict=True) if g.dim == dim and g.guide]
        G, n = sum(link._quadratic(g, s.xi) for g, s in members), float(sum(g.n_items for g, _ in members))
        new = copy.deepcopy(state)
        new.link[dim] += 0.5
        expected = link.log_density(new.link[dim], G, n) - link.log_density(state.link[dim], G, n)
        found = difference(data, Point.of(new, LANE), Point.of(state, LANE))
        np.testing.assert_allclose(found, expected[LANE], atol=1e-8)


@pytest.mark.parametrize("kind", ["plain", "equal"])
def test_population_of_a_group_is_drawn_from_its_conditional(kind):
    data, layout, state, _ = scattered(kind)
    rng = np.random.default_rng(5)
    at = Point.of(state, LANE)
    for k, (g, s) in enumerate(zip(layout.groups, state.groups, strict=True)):
        free, block = g.free, np.ix_(g.free, g.free)
        drawn = copy.deepcopy(s)
        draw_beta(g, drawn, TAU, rng)
        own = at.groups[k].sigma[block]
        prior = np.tile(TAU / np.array(g.model.prior.sd)[free] ** 2, len(s.beta))
        precision = np.kron(g.design.X.T @ g.design.X, np.linalg.inv(own)) + np.diag(prior)
        one, other = (at.groups[k].beta.copy() for _ in range(2))
        one[:, free] += rng.standard_normal(one[:, free].shape)
        gaps = [(b - drawn.beta_mean[..., LANE])[:, free].ravel() for b in (one, other)]
        expected = -0.5 * (gaps[0] @ precision @ gaps[0] - gaps[1] @ precision @ gaps[1])
        found = difference(data, with_group(at, k, beta=one), with_group(at, k, beta=other))
        np.testing.assert_allclose(found, expected, atol=1e-8, rtol=1e-9)

        df, psi = sigma_given_items(g, s)
        sigma = at.groups[k].sigma.copy()
        sigma[block] += np.diag(rng.uniform(0.1, 0.3, free.size))
        conditional = stats.invwishart(df, psi[LANE])
        expected = conditional.logpdf(sigma[block]) - conditional.logpdf(own)
        np.testing.assert_allclose(difference(data, with_group(at, k, sigma=sigma), at), expected, atol=1e-8)

        rates = mixing_rates(layout.families[k], [np.linalg.cholesky(by_lane(s.sigma[free[:, None], free]))])
        mixing = at.groups[k].sd_mixing.copy()
        mixing[free] *= rng.uniform(0.7, 1.5, free.size)
        assert {shape for _, shape in rates} == {(priors.NU + free.size) / 2}
        conditional = stats.invgamma(rates[0][1], scale=np.concatenate([rate[LANE] for rate, _ in rates]))
        expected = (conditional.logpdf(mixing[free]) - conditional.logpdf(at.groups[k].sd_mixing[free])).sum()
        np.testing.assert_allclose(difference(data, with_group(at, k, sd_mixing=mixing), at), expected, atol=1e-8)


def test_further_populations_are_drawn_from_their_conditionals():
    data, layout, state, steps = scattered("pooled")
    sums, at, rng = steps.sums(state), Point.of(state, LANE), np.random.default_rng(6)
    for m in (1, 2):
        df, psi = spread_given_mean(layout, state, sums, m)
        R, mu = at.R.copy(), at.mu.copy()
        R[m] += 0.2 * np.eye(layout.D)
        expected = stats.invwishart(df, psi[LANE]).logpdf(R[m]) - stats.invwishart(df, psi[LANE]).logpdf(at.R[m])
        np.testing.assert_allclose(difference(data, replace(at, R=R), at), expected, atol=1e-8)
        mean, precision = mean_given_spread(layout, state, sums, m)
        mu[m] += rng.standard_normal(layout.D)
        gaps = mu[m] - mean[LANE], at.mu[m] - mean[LANE]
        expected = -0.5 * (gaps[0] @ precision[LANE] @ gaps[0] - gaps[1] @ precision[LANE] @ gaps[1])
        np.testing.assert_allclose(difference(data, replace(at, mu=mu), at), expected, atol=1e-8)


@pytest.mark.parametrize("kind", ["plain", "pooled"])
def test_correlation_walks_on_its_conditional(kind):
    """z has the density of R and the volume of the map, which is the uniform prior's density of z."""
    data, layout, state, steps = scattered(kind)
    second, n = by_lane(steps.sums(state).second[0]), int(layout.population_sizes[0])
    z = correlation.z_from_correlation(by_lane(state.R[0]))
    value, _ = correlation.log_density(z, second, n)
    new_value, new_R = correlation.log_density(z + 0.3, second, n)
    at = Point.of(state, LANE)
    R = at.R.copy()
    R[0] = new_R[LANE]
    volume = [priors.correlation_of_z(v, layout.D)[1][LANE] for v in (z + 0.3, z)]
    found = difference(data, replace(at, R=R), at) + volume[0] - volume[1]
    np.testing.assert_allclose(found, (new_value - value)[LANE], atol=1e-8)


@pytest.mark.parametrize("D", [2, 3, 4])
def test_density_of_z_is_the_volume_of_its_map_to_correlations(D):
    rng = np.random.default_rng(D)
    rows = np.tril_indices(D, -1)
    z = 0.5 * rng.standard_normal(len(rows[0]))

    def coordinates(z):
        return priors.correlation_of_z(z, D)[0][rows]

    def log_volume(z, h=1e-6):
        steps = h * np.eye(z.size)
        jacobian = [(coordinates(z + e) - coordinates(z - e)) / (2 * h) for e in steps]
        return np.linalg.slogdet(np.array(jacobian))[1]

    one, other = (priors.correlation_of_z(v, D)[1] for v in (z, z - 0.4))
    np.testing.assert_allclose(one - other, log_volume(z) - log_volume(z - 0.4), atol=1e-6)


def test_priors_draws_have_their_densities():
    """Draws of Sigma: SDs are half-t(2) with scale A, and integrating a out of the joint density gives Sigma's own."""
    rng, scale = np.random.default_rng(2), np.array([0.5, 0.3, 0.8])
    drawn = [priors.draw_sigma(scale, rng) for _ in range(4000)]
    sds = np.sqrt([np.diag(sigma) for sigma, _ in drawn])
    for k, A in enumerate(scale):
        assert stats.kstest(sds[:, k] / A, lambda x: 2 * stats.t(2).cdf(x) - 1).pvalue > 0.001
    correlations = [sigma[0, 1] / np.sqrt(sigma[0, 0] * sigma[1, 1]) for sigma, _ in drawn]
    assert stats.kstest(correlations, "uniform", args=(-1, 2)).pvalue > 0.001
    uniform = [priors.draw_correlation(3, rng)[2, 1] for _ in range(4000)]  # a margin of LKJ(1): 2 Beta(3/2, 3/2) - 1
    assert stats.kstest(uniform, lambda x: stats.beta(1.5, 1.5).cdf((x + 1) / 2)).pvalue > 0.001
    log_a = np.stack(np.meshgrid(*[np.linspace(-14, 16, 800)] * 2))
    found, alone = [], []
    for sigma, _ in drawn[:2]:
        block = sigma[:2, :2]
        log_det, diagonal = np.linalg.slogdet(block)[1], np.diag(np.linalg.inv(block))
        joint = priors.log_sigma(log_det, diagonal[:, None, None] + 0 * log_a, np.exp(log_a))
        joint = joint + priors.log_mixing(np.exp(log_a), scale[:2]) + log_a.sum(axis=0)
        found.append(logsumexp(joint))
        alone.append(priors.log_sigma_alone(log_det, diagonal, scale[:2]))
    np.testing.assert_allclose(found[0] - found[1], alone[0] - alone[1], atol=1e-6)
    _, slope, curvature = priors.log_unit(np.array([0.3]))
    values = [priors.log_unit(np.array([0.3 + h]))[0] for h in (-1e-4, 0.0, 1e-4)]
    np.testing.assert_allclose(slope, (values[2] - values[0]) / 2e-4, rtol=1e-6)
    np.testing.assert_allclose(curvature, -(values[2] - 2 * values[1] + values[0]) / 1e-8, rtol=1e-4)


def test_the_mode_of_an_independence_step_does_not_depend_on_the_start():
    """Eight steps of half a unit do not reach a mode ten units away: such a proposal would not be reversible."""
    mode, found = climb(np.array([0.0, 10.0, -9.0, 3.0]), lambda x: 3.0 - x)
    np.testing.assert_allclose(mode, 3.0, atol=1e-9)
    assert found.all()
    _, found = climb(np.array([[0.0, 1.0], [0.0, 0.0]]), lambda x: np.array([[0.0, 1.0], [0.0, 0.0]]))
    np.testing.assert_array_equal(found, [True, False])


@pytest.mark.parametrize(("off", "near"), [(12.0, 0.01), (-1.0, 0.5), (-4.0, 0.5)])
def test_chains_far_from_their_unit_come_back(off, near):
    """A state whose unit is far too large or too small proposes from the mode of its orbit, and goes there at once."""
    _, layout, state, steps = scattered("plain")
    state.theta *= np.exp(off)
    for s in state.groups:
        s.xi[:, 0], s.mean[:, 0], s.beta[:, 0] = (v[:, 0] * np.exp(min(off, 0.0)) for v in (s.xi, s.mean, s.beta))
        s.sigma[0], s.sigma[:, 0] = s.sigma[0] * np.exp(min(off, 0.0)), s.sigma[:, 0] * np.exp(min(off, 0.0))
    sums, P = steps.sums(state), inverse(state.R[0])
    along = expansion.scale_density(layout, state, 0, P, sums.second[0], TAU)
    grid = np.linspace(-15.0, 5.0, 20_001)
    mode = grid[np.argmax([along.log_density(np.full(LANES, x)) for x in grid], axis=0)]
    drawn = [
        expansion._draw_log_scale(layout, state, 0, P, sums.second[0], TAU, np.random.default_rng(seed))
        for seed in range(20)
    ]
    assert (np.abs(np.array(drawn) - mode) < near).mean() > 0.9
    assert np.abs(mode).min() > near  # staying is no answer
