from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import CONVERGED, constant_link, fixed_prior_period, make_world, sampled_period

from concal.combine.gaussian import (
    corrected_inverse,
    effective_covariance_draws,
    from_log_cholesky,
    log_cholesky,
    precision_shrinkage,
)
from concal.combine.periods import combine
from concal.combine.summary import summarise_period
from concal.combine.wobble import patterns
from concal.errors import DataError, LinkError, SpecError
from concal.response import make_model
from concal.spec import ConsensusSpec


def group_of(calibration):
    return calibration.groups["g"]


def with_group(calibration, **changes):
    return replace(calibration, groups={"g": replace(group_of(calibration), **changes)})


@pytest.fixture(scope="module")
def two_periods():
    world = make_world(seed=41, n_items=15, n_periods=2, share=1.0)
    return world, [fixed_prior_period(world, p, 80) for p in world.periods]


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
    K = np.diag([0.5, 0.5, 0.5])
    half = corrected_inverse(K + S, S, float(n - 1)).mean(axis=0)
    np.testing.assert_allclose(half, np.linalg.inv(K + root @ root.T), rtol=0.01, atol=0.01)


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


def test_wobble_is_found_and_taken_out():
    """Draws with a known common shift and stretch of the metric."""
    world = make_world(seed=42, n_items=400, n_periods=1, share=1.0, error=(0.3, 0.6))
    calibration = fixed_prior_period(world, world.periods[0], 2000)
    rng = np.random.default_rng(3)
    C = np.array([[0.0009, 0.0006], [0.0006, 0.0025]])
    w = rng.multivariate_normal(np.zeros(2), C, size=2000)
    group = group_of(calibration)
    xi = group.flat("xi")
    P = patterns(xi.mean(axis=0)[:, 0], 2)
    shaken = with_group(calibration, xi=(xi + np.einsum("jab,sb->sja", P, w)).reshape(group.xi.shape))
    summary = summarise_period(shaken, finite_draw_correction=False)
    np.testing.assert_allclose(summary.wobble[0], np.cov(w.T), rtol=0.15, atol=1e-4)
    clean = summarise_period(calibration, finite_draw_correction=False, wobble=False)
    info = np.diagonal(summary.groups["g"].Q, axis1=1, axis2=2) / np.diagonal(clean.groups["g"].Q, axis1=1, axis2=2)
    np.testing.assert_allclose(np.median(info, axis=0), 1.0, atol=0.03)
    assert np.trace(summarise_period(calibration).wobble[0]) < 0.05 * np.trace(C)


def test_factors_matched_over_population_draws_recover_the_likelihood():
    """With an uncertain population the averaged prior is biased; the matched factor is the likelihood's."""
    world = make_world(seed=44, n_items=60, n_periods=1, share=1.0, error=(0.8, 1.6))
    calibration = sampled_period(world, world.periods[0], 6000, seed=4)
    g = summarise_period(calibration, wobble=False).groups["g"]
    truth, unit = np.linalg.inv(world.periods[0].R), np.diag(np.linalg.inv(world.sigma))

    def error(Q):
        return np.sqrt(((np.diagonal(Q - truth, axis1=1, axis2=2) / unit) ** 2).mean(axis=0))

    assert (error(g.Q) < 0.5 * error(g.Lambda - g.Omega)).all()


def test_specification_change_uses_item_level_priors(two_periods):
    _, calibrations = two_periods
    wider = make_world(seed=41, n_items=15, n_periods=2, share=1.0)
    second = calibrations[1]
    group = group_of(second)
    X = np.column_stack([group.X, np.linspace(-1, 1, 15)])
    beta = np.concatenate([group.beta, np.zeros((*group.beta.shape[:2], 1, 2))], axis=2)
    changed = replace(
        with_group(second, X=X, beta=beta, features=(*group.features, "extra")),
        beta_prior_precision={"g": 0.01 * np.eye(3)},
    )
    spec = ConsensusSpec(finite_draw_correction=False)
    links = [constant_link(p, 80) for p in wider.periods]
    consensus = combine([(calibrations[0], links[0]), (changed, links[1])], spec=spec)
    got = consensus.groups["g"]
    assert got.features == ("1", "f1", "extra")
    # both periods' priors are the same fixed prior here, so the item-level replacement gives the pooled posterior
    same = combine([(calibrations[0], links[0]), (calibrations[1], links[1])], spec=spec).groups["g"]
    np.testing.assert_allclose(got.mean, same.mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got.covariance, same.covariance, rtol=1e-4)
    joint = combine([(calibrations[0], links[0]), (changed, links[1])], method="joint", spec=spec)
    assert joint.groups["g"].features == ("1", "f1", "extra")


@pytest.mark.parametrize("method", ["analytic", "joint"])
def test_a_group_may_gain_a_category(method):
    old = make_world(seed=44, n_items=30, n_periods=1, share=1.0, model="gpcm", categories=3)
    new = make_world(seed=44, n_items=30, n_periods=2, share=0.7, model="gpcm", categories=4)
    first = fixed_prior_period(old, old.periods[0], 80)
    second = fixed_prior_period(new, new.periods[1], 80)
    periods = [(first, constant_link(old.periods[0], 80)), (second, constant_link(new.periods[1], 80))]
    consensus = combine(periods, method=method)
    got = consensus.groups["g"]
    assert got.model == make_model("gpcm", 4)
    assert len(got.item_ids) == 30
    assert any("only seen under an earlier number of categories" in w for w in consensus.warnings)
    only_old = [j for j, i in enumerate(got.item_ids) if i not in second.groups["g"].item_ids]
    prior_sd = np.sqrt(got.sigma[0, 0])
    assert (got.sd[only_old, 0] < prior_sd).all()
    assert set(got.source[only_old]) == {"consensus"}


def test_a_group_may_not_change_its_model(two_periods):
    world, calibrations = two_periods
    other = make_world(seed=41, n_items=15, n_periods=2, share=1.0, model="gpcm", categories=3)
    second = fixed_prior_period(other, other.periods[1], 80)
    with pytest.raises(SpecError, match=r"group 'g' changes its response model.*'P1'.*'P2'"):
        combine([(calibrations[0], constant_link(world.periods[0], 80)), (second, constant_link(other.periods[1], 80))])


def test_bad_input_is_named(two_periods):
    world, calibrations = two_periods
    good = calibrations[0]
    group = group_of(good)
    link = constant_link(world.periods[0], 80)
    xi = group.xi.copy()
    xi[0, 0, 3, 0] = np.nan
    with pytest.raises(DataError, match=r"'P1', group 'g'.*'item-00003'.*not finite"):
        summarise_period(with_group(good, xi=xi))
    with pytest.raises(DataError, match=r"'P1', group 'g': 4 draws are too few.*item-00000"):
        summarise_period(with_group(good, xi=group.xi[:, :1], beta=group.beta[:, :1], sigma=group.sigma[:, :1]))
    with pytest.raises(DataError, match=r"'P1', group 'g'.*population model is missing"):
        summarise_period(with_group(good, beta=np.zeros((4, 20, 0, 2))))
    with pytest.raises(DataError, match=r"'P1', group 'g'.*hyperprior is missing"):
        summarise_period(replace(good, beta_prior_precision={}))
    beta = group.beta.copy()
    beta[1, 2] = np.inf
    with pytest.raises(DataError, match=r"'P1', group 'g'.*not finite"):
        summarise_period(with_group(good, beta=beta))
    with pytest.raises(DataError, match=r"'P1', group 'g'.*not positive definite"):
        summarise_period(with_group(good, sigma=-group.sigma))
    with pytest.raises(LinkError, match="'P1' was given the link of period 'P2'"):
        summarise_period(good, constant_link(world.periods[1], 80))
    with pytest.raises(LinkError, match="A > 0"):
        summarise_period(good, replace(link, A=-link.A))
    one, two = summarise_period(good), summarise_period(calibrations[1], constant_link(world.periods[1], 80))
    with pytest.raises(DataError, match=r"'P2' has dimensions.*writing"):
        combine([one, replace(two, dimensions=("writing",))])
    with pytest.raises(LinkError, match="'P2' is linked to 'P9'"):
        combine([one, replace(two, reference="P9")])
    with pytest.raises(LinkError, match="'P2' is not linked"):
        combine([one, replace(two, linked=False)])
    with pytest.raises(DataError, match="no period"):
        combine([])
    with pytest.raises(DataError, match="method"):
        combine([one], method="median")
    assert CONVERGED.converged


def test_a_spread_that_cannot_be_told_from_zero_is_named(two_periods):
    _, periods = two_periods
    calm = periods[0]
    assert not any("told from zero" in w for w in summarise_period(calm).warnings)
    sigma = np.array(group_of(calm).sigma)
    flat = sigma.reshape(-1, *sigma.shape[-2:])
    scale = np.exp(np.random.default_rng(3).normal(0.0, 1.5, flat.shape[0]))  # SDs over two orders of magnitude
    flat[:, 1, :] *= scale[:, None]
    flat[:, :, 1] *= scale[:, None]
    found = summarise_period(with_group(calm, sigma=flat.reshape(sigma.shape))).warnings
    assert len([w for w in found if "group 'g': the items' spread of log_a cannot be told from zero" in w]) == 1
