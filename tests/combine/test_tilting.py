"""Tilting against exact pooled posteriors: skewed likelihoods (few answers), curved ones (2PL at known abilities)."""

from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import Measured, calibration_from, constant_link, make_world

from concal.calibrate.known import INFLATION
from concal.combine import joint, tilting
from concal.combine.factors import GroupFactors
from concal.combine.joint import JointOptions
from concal.combine.periods import combine
from concal.combine.summary import summarise_period
from concal.errors import ConvergenceError
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
    n, M, S = 300, 4, 4000
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


OPTIONS = {"fixed_links": True, "robust": False, "draws": 4}


def consensus_of(world, pairs, tilt):
    """Joint consensus of the one group, links and population known."""
    options = JointOptions(fixed_population={"g": (world.beta, world.sigma)}, **OPTIONS)
    return combine(pairs, method="joint", spec=ConsensusSpec(tilt=tilt), options=options).groups["g"]


def errors(world, pairs, mean, sd, tilt):
    """RMS error of posterior means and spread of SD ratios, against the exact pooled posterior (items, parameters)."""
    g = consensus_of(world, pairs, tilt)
    k = mean.shape[1]
    return np.sqrt((((g.mean[:, :k] - mean) / sd) ** 2).mean(axis=0)), g.sd[:, :k] / sd


def test_skewed_likelihoods_are_refitted(skewed_programme):
    world, pairs, mean, sd = skewed_programme
    mean, sd = mean[:, None], sd[:, None]
    before, ratio_before = errors(world, pairs, mean, sd, 0)
    after, ratio_after = errors(world, pairs, mean, sd, 2)
    assert after < 0.8 * before
    assert ratio_after.std() < 0.6 * ratio_before.std()
    assert abs(ratio_after.mean() - 1) < 0.02


@pytest.fixture(scope="module")
def curved_programme():
    """150 2PL items, 4 periods of 60 answers at known abilities: d is known the better, the steeper the item."""
    return curved_periods(60)


def curved_periods(answers, guided=False):
    """Exact posteriors of 2PL items; guided: later periods under priors from the consensus before them."""
    rng = np.random.default_rng(52)
    n, M, S = 150, 4, 2000
    world = make_world(seed=52, n_items=n, n_periods=1, n_features=1, share=1.0)
    sigma = np.diag([1.0, 0.09])
    world = replace(world, beta=np.zeros((1, 2)), sigma=sigma)
    xi = rng.normal(size=(n, 2)) * [1.0, 0.3]
    d, log_a = np.meshgrid(np.linspace(-4.5, 4.5, 181), np.linspace(-1.4, 1.4, 81), indexing="ij")
    points = np.stack([d.ravel(), log_a.ravel()], axis=1)
    prior = -0.5 * (points**2 / np.diag(sigma)).sum(axis=1)
    total = np.repeat(prior[None], n, 0)
    step = np.array([d[1, 0] - d[0, 0], log_a[0, 1] - log_a[0, 0]])
    pairs = []
    for m in range(M):
        theta = xi[:, :1] + rng.normal(size=(n, answers))
        right = rng.random((n, answers)) < 1 / (1 + np.exp(-np.exp(xi[:, 1:]) * (theta - xi[:, :1])))
        draws = np.empty((S, n, 2))
        known = consensus_of(world, pairs, 1) if guided and pairs else None
        for j in range(n):
            eta = np.exp(points[:, 1:]) * (theta[j] - points[:, :1])
            likelihood = (right[j] * eta - np.logaddexp(0, eta)).sum(axis=1)
            total[j] += likelihood
            own = prior
            if known is not None:
                gap = points - known.mean[j]
                own = -0.5 * np.einsum("na,ab,nb->n", gap, np.linalg.inv(INFLATION * known.covariance[j]), gap)
            w = np.exp(own + likelihood - (own + likelihood).max())
            u = rng.permutation((np.arange(S) + rng.random(S)) / S)
            chosen = np.searchsorted(np.cumsum(w) / w.sum(), u).clip(max=w.size - 1)
            draws[:, j] = points[chosen] + (rng.random((S, 2)) - 0.5) * step
        period = Measured(f"P{m + 1}", world.item_ids, world.X, np.zeros((n, 2)), np.zeros((n, 2, 2)), 1.0, 0.0)
        calibration = calibration_from(world, period, draws, np.zeros((S, 1, 2)), np.repeat(sigma[None], S, 0))
        if known is not None:
            told = {"guide_mean": known.mean, "guide_covariance": INFLATION * known.covariance}
            group = replace(calibration.groups["g"], **told, guide_link=np.zeros((4, S // 4, 2)))
            calibration = replace(calibration, groups={"g": group})
        pairs.append((calibration, constant_link(period, S)))
    w = np.exp(total - total.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    mean = w @ points
    return world, pairs, mean, np.sqrt(w @ points**2 - mean**2)


def test_curved_likelihoods_are_refitted(curved_programme):
    before, _ = errors(*curved_programme, 0)
    after, ratio = errors(*curved_programme, 2)
    assert (after < 0.6 * before).all()
    assert (after < 0.12).all()
    np.testing.assert_allclose(ratio.mean(axis=0), 1.0, atol=0.03)
    assert abs(ratio[:, 0].mean() - 1.0) < 0.015


def test_guided_periods_of_few_answers_are_refitted():
    """Ten answers a period: the prior counts as much as the likelihood, and only the likelihood bends."""
    programme = curved_periods(10, guided=True)
    before, _ = errors(*programme, 0)
    after, ratio = errors(*programme, 1)
    assert (after < 0.5 * before).all()
    assert (after < 0.1).all()
    np.testing.assert_allclose(ratio.mean(axis=0), 1.0, atol=0.04)


def analytic_errors(pairs, mean, sd, tilt):
    g = combine(pairs, method="analytic", spec=ConsensusSpec(tilt=tilt, shared_metric=False)).groups["g"]
    k = mean.shape[1]
    return np.sqrt((((g.mean[:, :k] - mean) / sd) ** 2).mean(axis=0))


def test_third_order_brings_analytic_means_to_the_pooled_ones(curved_programme, skewed_programme):
    _, pairs, mean, sd = curved_programme
    before, after = (analytic_errors(pairs, mean, sd, t) for t in (0, 1))
    assert (after < 0.75 * before).all()
    _, pairs, mean, sd = skewed_programme
    before, after = (analytic_errors(pairs, mean[:, None], sd[:, None], t) for t in (0, 1))
    assert after < 0.8 * before


def test_one_period_alone_keeps_its_posterior(curved_programme):
    world, pairs, _, _ = curved_programme
    options = JointOptions(fixed_population={"g": (world.beta, world.sigma)}, **OPTIONS)
    plain, tilted = (
        combine(pairs[:1], method="joint", spec=ConsensusSpec(tilt=t), options=options).groups["g"] for t in (0, 2)
    )
    assert np.sqrt((((tilted.mean - plain.mean) / plain.sd) ** 2).mean()) < 0.03
    np.testing.assert_allclose(np.median(tilted.sd / plain.sd, axis=0), 1.0, atol=0.02)


def test_table_says_what_was_tilted(skewed_programme):
    _, pairs, _, _ = skewed_programme
    consensus = combine(pairs[:2], method="joint", options=JointOptions(draws=8))
    assert {"tilted", "skewness"} <= set(consensus.diagnostics.columns)
    assert consensus.diagnostics["tilted"].mean() > 0.9


def test_summaries_of_an_older_kind_keep_their_factors_and_say_so(skewed_programme):
    _, pairs, _, _ = skewed_programme
    summaries = [summarise_period(c, link, reference="P1") for c, link in pairs[:2]]
    older = {
        name: replace(g, own_mean=None, own_precision=None, curvature=None) for name, g in summaries[0].groups.items()
    }
    summaries[0] = replace(summaries[0], groups=older)
    consensus = combine(summaries, method="joint", options=JointOptions(draws=8))
    assert any("older kind" in warning for warning in consensus.warnings)
    assert set(consensus.diagnostics.filter("tilted")["period"]) == {"P2"}


def test_where_no_mode_is_found_factors_are_strengthened_and_a_warning_says_so(skewed_programme, monkeypatch):
    _, pairs, _, _ = skewed_programme
    find_mode, failures = joint.find_mode, [1]

    def failing(*args):
        if failures[0] > 0:
            failures[0] -= 1
            raise ConvergenceError("no mode")
        return find_mode(*args)

    monkeypatch.setattr(joint, "find_mode", failing)
    consensus = combine(pairs[:2], method="joint", options=JointOptions(draws=8))
    assert any("were strengthened" in warning for warning in consensus.warnings)
    failures[0] = 100
    with pytest.raises(ConvergenceError):
        combine(pairs[:2], method="joint", options=JointOptions(draws=8))


def pairs_of_one_item(p=2, n=2):
    """Factors of a single item seen in n periods."""
    return GroupFactors(
        name="g",
        dimension=0,
        p=p,
        item_ids=("i",),
        start=np.array([0, n]),
        period=np.arange(n),
        row=np.zeros(n, dtype=np.int64),
        Q=np.tile(np.eye(p), (n, 1, 1)),
        h=np.zeros((n, p)),
        weight=np.ones(n),
        age=np.ones(n),
        X=np.ones((1, 1)),
        own_prior=np.zeros(1, dtype=np.int64),
        prior_mean=np.zeros((0, p)),
        prior_precision=np.zeros((0, p, p)),
        hyperprior=np.eye(1),
        prior_sd=np.ones(p),
        active=np.ones(1, dtype=bool),
    )


@pytest.mark.parametrize(("change", "kept"), [(-0.5, 1.0), (-0.7, 1.0), (-1.4, 0.5), (3.0, 1.0)])
def test_an_item_keeps_a_share_of_its_information(change, kept):
    """Two factors of precision one each in d; refitting changes both by `change`, and LEAST of their sum must stay."""
    group = pairs_of_one_item()
    tilted = group.Q.copy()
    tilted[:, 0, 0] += change
    (part,) = tilting._damping(group, group.Q, tilted, np.zeros(2))
    np.testing.assert_allclose(part, kept)
    left = (group.Q + part * (tilted - group.Q)).sum(axis=0)
    assert np.linalg.eigvalsh(left)[0] >= 2 * tilting.LEAST - 1e-12


def test_factors_are_refitted_only_where_the_period_has_been():
    own = np.tile(np.diag([4.0, 25.0]), (3, 1, 1))
    consensus = own * np.array([1.0, 0.6, 0.4])[:, None, None]  # variances 1, 1.7 and 2.5 times the period's
    np.testing.assert_array_equal(tilting._inside(consensus, own), [True, True, False])
    consensus[0, 1, 1] = 0.4 * own[0, 1, 1]  # one direction is enough
    np.testing.assert_array_equal(tilting._inside(consensus, own), [False, True, False])


def test_the_last_pass_may_only_correct():
    one = np.tile(np.diag([4.0, 25.0]), (4, 1, 1))
    other = one.copy()
    other[1] *= 1.4
    other[2, 0, 0] *= 1.6
    other[3, 1, 1] /= 1.6
    np.testing.assert_array_equal(tilting._alike(one, other), [True, True, False, False])


def test_moments_that_are_no_moments_are_not_used(monkeypatch):
    def broken(start, mean, precision, shape, G, g, out_mean, out_covariance, ok):
        ok[:] = True
        out_covariance[:] = np.eye(2)
        out_mean[0, 0] = np.nan
        out_covariance[1, 0, 1] = np.inf
        out_covariance[2] = np.diag([1.0, -1.0])

    monkeypatch.setattr(tilting, "curved_moments", broken)
    n = 4
    zeros, eyes = np.zeros((n, 2)), np.tile(np.eye(2), (n, 1, 1))
    _, _, fine = tilting._moments(np.arange(n + 1), zeros, eyes, np.zeros((n, 3)), eyes, zeros)
    np.testing.assert_array_equal(fine, [False, False, False, True])
