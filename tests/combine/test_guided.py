"""Periods calibrated with priors from the bank: their prior leaves no trace, and the population is not asked twice."""

from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import (
    calibration_from,
    constant_link,
    exact_draws,
    fixed_prior_pairs,
    make_world,
    own_metric,
    pooled_fixed_prior,
)

from concal.combine.guided import guide_contribution
from concal.combine.joint import JointOptions
from concal.combine.periods import combine
from concal.combine.summary import summarise_period
from concal.combine.totals import retract_period, sum_periods
from concal.errors import DataError
from concal.spec import ConsensusSpec

GAUSSIAN = ConsensusSpec(tilt=0, finite_draw_correction=False, shared_metric=False)


def guided_period(world, period, n_draws=400, seed=8, told=None):
    """A period under priors of its items' own (on the reference metric) and a known place: exact moments."""
    rng = np.random.default_rng([seed, int(period.period[1:])])
    n, p = period.y.shape
    rows = [world.item_ids.index(i) for i in period.item_ids]
    mean = world.xi[rows] + 0.2 * rng.normal(size=(n, p)) if told is None else told
    covariance = np.broadcast_to(0.3 * np.eye(p) + 0.1, (n, p, p)).copy()
    own = covariance.copy()
    own[:, 0] /= period.A
    own[:, :, 0] /= period.A
    precision = np.linalg.inv(period.R) + np.linalg.inv(own)
    shift = np.linalg.solve(period.R, period.y[..., None])[..., 0]
    shift = shift + np.linalg.solve(own, own_metric(mean, period.A, period.B)[..., None])[..., 0]
    posterior = np.linalg.inv(precision)
    xi = exact_draws(rng, np.einsum("jab,jb->ja", posterior, shift), posterior, n_draws)
    population = np.zeros((n_draws, len(world.features), p)), np.broadcast_to(np.eye(p), (n_draws, p, p)).copy()
    made = calibration_from(world, period, xi, *population)
    link = np.broadcast_to([np.log(period.A), period.B], (4, n_draws // 4, 2)).copy()
    group = replace(made.groups["g"], guide_mean=mean, guide_covariance=covariance, guide_link=link)
    return replace(made, groups={"g": group})


def mixed_pairs(world, n_draws=400):
    """The first period alone, the others guided."""
    first = fixed_prior_pairs(world, n_draws)[0]
    return [first, *((guided_period(world, p, n_draws), constant_link(p, n_draws)) for p in world.periods[1:])]


def exact_summary(calibration, link):
    """Moments taken at their word: they are exact, and the metric is known."""
    return summarise_period(calibration, link, reference="P1", finite_draw_correction=False, wobble=False)


def test_contribution_is_that_of_a_loop_over_draws():
    world = make_world(seed=3, n_items=8, n_periods=2, share=1.0, model="gpcm", categories=4)
    rng = np.random.default_rng(1)
    made = guided_period(world, world.periods[1], 80).groups["g"]
    group = replace(made, guide_link=rng.normal(size=(4, 20, 2)) * [0.05, 0.2])
    A, B = np.exp(rng.normal(size=30) * 0.1), rng.normal(size=30) * 0.3
    which = np.arange(0, 60, 2)
    m, Omega = guide_contribution(group, (A, B), which, None)
    log_A0, B0 = group.guide_link.reshape(-1, 2)[which].T
    for j in range(3):
        means, spreads = [], []
        for s in range(30):
            own = own_metric(group.guide_mean[j], np.exp(log_A0[s]), B0[s])
            own[0], own[1] = A[s] * own[0] + B[s], own[1] - np.log(A[s])
            D = np.eye(4)
            D[0, 0] = A[s] / np.exp(log_A0[s])
            means.append(own)
            spreads.append(D @ group.guide_covariance[j] @ D)
        np.testing.assert_allclose(m[j], np.mean(means, axis=0), rtol=1e-9)
        total = np.mean(spreads, axis=0) + np.cov(np.array(means).T)
        np.testing.assert_allclose(np.linalg.inv(Omega[j]), total, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", ["analytic", "joint"])
def test_guided_periods_give_the_pooled_posterior(method):
    world = make_world(seed=4, n_items=30, n_periods=3, links=True)
    summaries = [exact_summary(*pair) for pair in mixed_pairs(world)]
    options = JointOptions(fixed_links=True, robust=False, fixed_population={"g": (world.beta, world.sigma)})
    found = combine(summaries, method=method, spec=GAUSSIAN, options=options if method == "joint" else None).groups["g"]
    mean, covariance = pooled_fixed_prior(world)
    rows = [world.item_ids.index(i) for i in found.item_ids]
    np.testing.assert_allclose(found.mean, mean[rows], atol=2e-3)
    np.testing.assert_allclose(found.covariance, covariance[rows], atol=2e-3)


def test_what_the_period_was_told_does_not_matter():
    world = make_world(seed=5, n_items=20, n_periods=2, share=1.0)
    first, link = fixed_prior_pairs(world, 200)[0], constant_link(world.periods[1], 200)
    results = []
    for told in (world.xi + 1.0, world.xi - 1.0):
        pairs = [first, (guided_period(world, world.periods[1], 200, told=told), link)]
        results.append(combine([exact_summary(*pair) for pair in pairs], spec=GAUSSIAN).groups["g"])
    np.testing.assert_allclose(results[0].mean, results[1].mean, atol=1e-5)
    np.testing.assert_allclose(results[0].covariance, results[1].covariance, atol=1e-6)


def test_guided_periods_say_nothing_about_the_population():
    world = make_world(seed=6, n_items=20, n_periods=3)
    summaries = [summarise_period(c, link, reference="P1") for c, link in mixed_pairs(world, 200)]
    assert [s.groups["g"].guided for s in summaries] == [False, True, True]
    alone, all_three = sum_periods(summaries[:1]), sum_periods(summaries)
    for name in ("beta_precision", "beta_shift", "sigma", "item_weight", "period_weight", "hyperprior"):
        np.testing.assert_array_equal(getattr(all_three.groups["g"][0], name), getattr(alone.groups["g"][0], name))
    back = retract_period(retract_period(all_three, summaries[2]), summaries[1]).groups["g"][0]
    n = alone.groups["g"][0].n_items
    np.testing.assert_allclose(back.precision[:n], alone.groups["g"][0].precision, atol=1e-9)
    np.testing.assert_array_equal(back.prior_weight[:n], alone.groups["g"][0].prior_weight)


def test_without_any_other_period_the_population_is_unknown():
    world = make_world(seed=7, n_items=20, n_periods=3, share=1.0)
    summaries = [summarise_period(c, link, reference="P1") for c, link in mixed_pairs(world, 200)]
    with pytest.raises(DataError, match=r"'g'.*'P2', 'P3'.*calibration.prior"):
        combine(summaries[1:])
