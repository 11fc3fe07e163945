from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import (
    constant_link,
    fixed_prior_pairs,
    fixed_prior_period,
    make_world,
    pooled_fixed_prior,
    sampled_period,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_reference import slow_consensus

from concal.combine.analytic import consensus_from_totals
from concal.combine.draws import item_draws
from concal.combine.periods import combine
from concal.combine.predict import predict_items
from concal.combine.summary import summarise_period
from concal.combine.totals import add_period, retract_period, sum_periods
from concal.combine.wobble import patterns
from concal.errors import DataError
from concal.spec import ConsensusSpec

PLAIN = ConsensusSpec(finite_draw_correction=False, shared_metric=False, tilt=0)


def by_id(consensus, group="g"):
    g = consensus.groups[group]
    return {i: (g.mean[j], g.covariance[j], g.source[j]) for j, i in enumerate(g.item_ids)}


def assert_same(one, other, rtol=1e-8):
    a, b = by_id(one), by_id(other)
    assert set(a) == set(b)
    for item in a:
        np.testing.assert_allclose(a[item][0], b[item][0], rtol=rtol, atol=1e-9)
        np.testing.assert_allclose(a[item][1], b[item][1], rtol=rtol, atol=1e-12)
        assert a[item][2] == b[item][2]


def plain(world, n_draws=60, **options):
    return [
        summarise_period(c, link, reference="P1", finite_draw_correction=False, **options)
        for c, link in fixed_prior_pairs(world, n_draws)
    ]


@pytest.fixture(scope="module")
def estimated_population():
    """Three small periods with sampled populations and links that vary over draws."""
    world = make_world(seed=21, n_items=25, links=True)
    pairs = []
    for m, period in enumerate(world.periods):
        rng = np.random.default_rng(m)
        link = constant_link(period, 200)
        if m:
            link = replace(
                link,
                A=link.A * np.exp(rng.normal(size=link.A.shape) * 0.05),
                B=link.B + 0.05 * rng.normal(size=link.B.shape),
            )
        pairs.append((sampled_period(world, period, 200, seed=m), link))
    return world, pairs


@pytest.mark.parametrize(("model", "categories"), [("2pl", None), ("gpcm", 4)])
@pytest.mark.parametrize("links", [False, True])
def test_fixed_prior_gives_the_pooled_posterior(model, categories, links):
    world = make_world(seed=3, model=model, categories=categories, links=links)
    consensus = combine(fixed_prior_pairs(world), spec=PLAIN)
    mean, covariance = pooled_fixed_prior(world)
    got = by_id(consensus)
    for j, item in enumerate(world.item_ids):
        if item in got:
            np.testing.assert_allclose(got[item][0], mean[j], atol=1e-7)
            np.testing.assert_allclose(got[item][1], covariance[j], rtol=1e-6)
    assert consensus.fallback_share == 0


def test_literal_option_is_the_paper_by_slow_loops(estimated_population):
    _, pairs = estimated_population
    got = by_id(combine(pairs, literal=True))
    expected = slow_consensus(pairs, tau=0.01)
    assert set(got) == set(expected)
    for item, (mean, covariance, fallback) in expected.items():
        assert got[item][2] == ("fallback" if fallback else "consensus")
        np.testing.assert_allclose(got[item][0], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[item][1], covariance, rtol=1e-5)


def test_one_period_alone_is_given_back(estimated_population):
    _, pairs = estimated_population
    summary = summarise_period(pairs[0][0])
    got = combine([summary]).groups["g"]
    np.testing.assert_allclose(got.mean, summary.groups["g"].mu, atol=1e-8)
    np.testing.assert_allclose(np.linalg.inv(got.covariance), summary.groups["g"].Lambda, rtol=1e-7)


@pytest.mark.property
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), links=st.booleans())
def test_equal_fixed_priors_count_the_prior_once(seed, links):
    world = make_world(seed=seed, n_items=8, n_periods=3, share=1.0, links=links)
    summaries = plain(world)
    got = combine(summaries, spec=PLAIN).groups["g"]
    Omega = np.linalg.inv(world.sigma)
    expected = sum(s.groups["g"].Lambda for s in summaries) - 2 * Omega
    np.testing.assert_allclose(np.linalg.inv(got.covariance), expected, rtol=1e-5)


@pytest.mark.property
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_period_without_information_changes_nothing(seed):
    world = make_world(seed=seed, n_items=8, n_periods=2, share=1.0)
    summaries = plain(world)
    g = summaries[1].groups["g"]
    nothing = replace(summaries[1], groups={"g": replace(g, mu=g.m, Lambda=g.Omega, curvature=0.0 * g.curvature)})
    fixed_population = [summaries[0], nothing]
    assert_same(combine(fixed_population), combine([summaries[0]]), rtol=1e-5)


@pytest.mark.property
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.permutations(range(4)))
def test_order_does_not_matter(seed, order):
    world = make_world(seed=seed, n_items=10, n_periods=4, links=True)
    summaries = plain(world)
    assert_same(combine(summaries), combine([summaries[i] for i in order]))


@pytest.mark.property
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), log_A=st.floats(-0.5, 0.5), B=st.floats(-1, 1))
def test_relinking_by_a_constant_commutes_with_combining(seed, log_A, B):
    world = make_world(seed=seed, n_items=10, n_periods=3, links=True)
    A = float(np.exp(log_A))
    pairs = [(fixed_prior_period(world, p, 60), p) for p in world.periods]

    def combined(move):
        out = []
        for calibration, p in pairs:
            link = constant_link(p, 60, "ref", A=p.A * (A if move else 1), B=(p.B * A + B) if move else p.B)
            out.append(summarise_period(calibration, link, finite_draw_correction=False))
        return by_id(combine(out))

    before, after = combined(False), combined(True)
    D = np.diag([A, 1.0])
    for item in before:
        moved = world.model.change_metric(before[item][0], A, B)
        np.testing.assert_allclose(after[item][0], moved, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(after[item][1], D @ before[item][1] @ D, rtol=1e-6)


def test_retraction_subtracts_exactly(estimated_population):
    _, pairs = estimated_population
    summaries = [summarise_period(c, link, reference="P1") for c, link in pairs]
    totals = sum_periods(summaries)
    without = retract_period(totals, summaries[1])
    fresh = sum_periods([summaries[0], summaries[2]])
    assert without.periods == ("P1", "P3")
    one, other = consensus_from_totals(without), consensus_from_totals(fresh)
    gone = [i for i in one.groups["g"].item_ids if i not in other.groups["g"].item_ids]
    a, b = by_id(one), by_id(other)
    for item in b:
        np.testing.assert_allclose(a[item][0], b[item][0], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(a[item][1], b[item][1], rtol=1e-8)
    # items only the retracted period saw stay in the bank, predicted from their features
    assert all(a[i][2] == "predicted" for i in gone)
    back = consensus_from_totals(add_period(without, summaries[1]))
    assert_same(back, consensus_from_totals(totals))
    with pytest.raises(DataError, match="'P2' is not in the totals"):
        retract_period(without, summaries[1])
    with pytest.raises(DataError, match="already in the totals"):
        add_period(totals, summaries[0])


def test_half_life_discounts_old_factors():
    world = make_world(seed=22, n_items=10, n_periods=3, share=1.0)
    summaries = plain(world)
    got = combine(summaries, spec=PLAIN.model_copy(update={"half_life": 1.0})).groups["g"]
    Omega = np.linalg.inv(world.sigma)
    factors = [s.groups["g"].Lambda - s.groups["g"].Omega for s in summaries]
    expected = factors[0] / 4 + factors[1] / 2 + factors[2] + Omega
    np.testing.assert_allclose(np.linalg.inv(got.covariance), expected, rtol=1e-5)


def test_items_that_lose_positive_definiteness_fall_back_and_are_counted():
    world = make_world(seed=23, n_items=10, n_periods=2, share=1.0)
    summaries = plain(world)
    g = summaries[0].groups["g"]
    Lambda = g.Lambda.copy()
    Lambda[3] = 0.01 * g.Omega[3]
    other = summaries[1].groups["g"].Lambda.copy()
    other[3] = 0.01 * summaries[1].groups["g"].Omega[3]
    summaries = [
        replace(summaries[0], groups={"g": replace(g, Lambda=Lambda)}),
        replace(summaries[1], groups={"g": replace(summaries[1].groups["g"], Lambda=other)}),
    ]
    consensus = combine(summaries)
    got = consensus.groups["g"]
    assert list(np.flatnonzero(got.source == "fallback")) == [3]
    assert consensus.fallback_share == pytest.approx(0.1)
    np.testing.assert_allclose(got.mean[3], world.X[3] @ world.beta, atol=1e-5)
    np.testing.assert_allclose(got.covariance[3], world.sigma, rtol=1e-4)


def test_items_nobody_answered_are_predicted():
    world = make_world(seed=24, n_items=12, n_periods=2, share=1.0)
    summaries = plain(world)
    X = np.array([[1.0, 0.5], [1.0, -2.0]])
    consensus = combine(summaries, items={"g": (["new-1", "new-2"], X)})
    got = by_id(consensus)
    assert got["new-1"][2] == "predicted"
    np.testing.assert_allclose(got["new-2"][0], X[1] @ world.beta, atol=1e-5)
    again = predict_items(consensus, "g", ["new-2"], X[1:])
    np.testing.assert_allclose(again.mean[0], got["new-2"][0])
    np.testing.assert_allclose(again.covariance[0], got["new-2"][1])
    with pytest.raises(DataError, match=r"group 'g'.*new-1.*shape"):
        combine(summaries, items={"g": (["new-1"], np.ones((1, 5)))})


def test_items_without_responses_do_not_count():
    world = make_world(seed=25, n_items=12, n_periods=2, share=1.0)
    calibrations = [fixed_prior_period(world, p, 60) for p in world.periods]
    group = calibrations[1].groups["g"]
    n_responses = group.n_responses.copy()
    n_responses[4] = 0
    calibrations[1] = replace(calibrations[1], groups={"g": replace(group, n_responses=n_responses)})
    got = combine([(c, constant_link(p, 60)) for c, p in zip(calibrations, world.periods, strict=True)], spec=PLAIN)
    g = got.groups["g"]
    assert g.n_periods[4] == 1
    alone = summarise_period(calibrations[0], finite_draw_correction=False).groups["g"]
    np.testing.assert_allclose(g.mean[4], alone.mu[4], atol=1e-6)


def test_draws_are_reproducible_item_by_item():
    world = make_world(seed=26, n_items=6, n_periods=2, share=1.0)
    consensus = combine(plain(world))
    one = item_draws(consensus, ["item-00002"], draws=4000, seed=7)
    several = item_draws(consensus, ["item-00001", "item-00002"], draws=4000, seed=7)
    np.testing.assert_array_equal(one["item-00002"], several["item-00002"])
    assert not np.allclose(several["item-00001"], several["item-00002"])
    mean, covariance, _ = by_id(consensus)["item-00002"]
    np.testing.assert_allclose(one["item-00002"].mean(axis=0), mean, atol=4 * np.sqrt(covariance.max() / 4000))
    np.testing.assert_allclose(np.cov(one["item-00002"].T), covariance, atol=0.1 * covariance.max())
    with pytest.raises(DataError, match="'nobody'"):
        item_draws(consensus, ["nobody"])


def test_two_hundred_features_with_and_without_conditional_means():
    world = make_world(seed=27, n_items=400, n_periods=2, n_features=200, share=1.0, error=(0.1, 0.3))
    for rao_blackwell in (True, False):
        summaries = []
        for m, period in enumerate(world.periods):
            calibration = sampled_period_cheap(world, period, m, rao_blackwell)
            summaries.append(summarise_period(calibration, constant_link(period, 300)))
        consensus = combine(summaries)
        g = consensus.groups["g"]
        assert consensus.fallback_share < 0.01
        z = (g.mean - world.xi) / g.sd
        assert 0.85 < np.sqrt((z**2).mean()) < 1.15
        V = np.diag(g.beta_covariance).reshape(200, 2)
        error = np.sqrt((((g.beta - world.beta) ** 2) / V).mean())
        # both periods have the same items, whose residuals beta* takes for independent: up to sqrt(2) too narrow
        assert 0.8 < error < 1.25 * np.sqrt(2)


def sampled_period_cheap(world, period, seed, rao_blackwell):
    """Posterior with Sigma known and beta estimated (400 coefficients), sampled exactly: beta first, then items."""
    from gaussian_worlds import calibration_from

    rng = np.random.default_rng(seed)
    S, (n, p), F = 300, period.y.shape, 200
    total = np.linalg.inv(period.R + world.sigma)
    P = np.einsum("jf,jg,jab->fagb", period.X, period.X, total, optimize=True).reshape(F * p, F * p) + 0.01 * np.eye(
        F * p
    )
    V = np.linalg.inv(P)
    b = V @ np.einsum("jf,jab,jb->fa", period.X, total, period.y, optimize=True).ravel()
    beta = (b + rng.normal(size=(S, F * p)) @ np.linalg.cholesky(V).T).reshape(S, F, p)
    omega = np.linalg.inv(world.sigma)
    C = np.linalg.inv(np.linalg.inv(period.R) + omega)
    shift = np.linalg.solve(period.R, period.y[:, :, None])[:, :, 0] + np.einsum(
        "jf,sfa,ab->sjb", period.X, beta, omega, optimize=True
    )
    xi = np.einsum("jab,sjb->sja", C, shift) + np.einsum(
        "jab,sjb->sja", np.linalg.cholesky(C), rng.normal(size=(S, n, p))
    )
    means = None
    if rao_blackwell:
        inner = np.linalg.inv(np.kron(period.X.T @ period.X, omega) + 0.01 * np.eye(F * p))
        means = (np.einsum("jf,sja,ab->sfb", period.X, xi, omega, optimize=True).reshape(S, -1) @ inner).reshape(
            S, F, p
        )
    sigma = np.repeat(world.sigma[None], S, 0)
    return calibration_from(world, period, xi, beta, sigma, beta_mean=means)


def test_uncertainty_of_the_metric_is_counted_once():
    """Posteriors R_m + P C P' with the same C: the pooled posterior is the product of the R_m, plus P C P'."""
    world = make_world(seed=27, n_items=15, n_periods=3, share=1.0, error=(0.1, 0.3))
    C = np.array([[[4e-4, 1e-4], [1e-4, 6e-4]]])
    location = world.X @ world.beta[:, 0]  # one place for all periods: then P is the same in all of them
    P = patterns(location, 2)
    shared = P @ C[0] @ P.transpose(0, 2, 1)
    prior = np.linalg.inv(world.sigma + shared)
    summaries, precision = [], np.tile(np.linalg.inv(world.sigma), (15, 1, 1))
    for summary in plain(world, wobble=False):
        g = summary.groups["g"]
        own = g.Lambda
        at = np.column_stack([location, g.mu[:, 1]])
        m = np.column_stack([location, g.m[:, 1]])
        group = replace(g, mu=at, m=m, Lambda=np.linalg.inv(np.linalg.inv(own) + shared), Omega=prior, curvature=None)
        summaries.append(replace(summary, groups={"g": group}, wobble=C))
        precision += own - np.linalg.inv(world.sigma)
    once = combine(summaries).groups["g"]
    expected = np.linalg.inv(precision) + shared
    np.testing.assert_allclose(once.covariance, expected, atol=3e-5)
    often = combine(summaries, spec=ConsensusSpec(shared_metric=False)).groups["g"]
    assert (expected - often.covariance)[:, 0, 0].min() > 1e-4
