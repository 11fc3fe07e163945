from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import (
    constant_link,
    fixed_prior_pairs,
    fixed_prior_period,
    gibbs,
    make_world,
    pooled_fixed_prior,
    sampled_period,
)

from concal.combine.joint import JointOptions
from concal.combine.periods import combine
from concal.combine.summary import summarise_period
from concal.errors import LinkError
from concal.spec import ConsensusSpec

PLAIN = ConsensusSpec(finite_draw_correction=False, tilt=0)


def plain_summaries(world, n_draws=400):
    return [
        summarise_period(c, link, reference="P1", finite_draw_correction=False, wobble=False)
        for c, link in fixed_prior_pairs(world, n_draws)
    ]


@pytest.mark.parametrize("links", [False, True])
def test_known_links_and_population_give_the_pooled_posterior(links):
    world = make_world(seed=11, links=links)
    options = JointOptions(fixed_links=True, fixed_population={"g": (world.beta, world.sigma)}, robust=False, draws=8)
    consensus = combine(plain_summaries(world), method="joint", spec=PLAIN, options=options)
    mean, covariance = pooled_fixed_prior(world)
    got = consensus.groups["g"]
    rows = [world.item_ids.index(i) for i in got.item_ids]
    np.testing.assert_allclose(got.mean, mean[rows], atol=1e-7)
    np.testing.assert_allclose(got.covariance, covariance[rows], rtol=1e-6)
    assert consensus.joint["g"].shape == (8, len(rows), 2)


def test_estimated_population_agrees_with_the_pooled_sampler():
    world = make_world(seed=12, n_items=150, n_periods=4, share=0.6, error=(0.4, 1.5))
    pairs = [(sampled_period(world, p, 2000, seed=m), constant_link(p, 2000)) for m, p in enumerate(world.periods)]
    summaries = [summarise_period(c, link, reference="P1", wobble=False) for c, link in pairs]
    options = JointOptions(fixed_links=True, robust=False, draws=800)
    joint = combine(summaries, method="joint", spec=PLAIN, options=options).groups["g"]
    analytic = combine(summaries, method="analytic").groups["g"]
    ids, pooled = gibbs(world, world.periods, 5000, seed=99)
    order = [joint.item_ids.index(i) for i in ids]
    sd, mean = pooled["xi"].std(axis=0), pooled["xi"].mean(axis=0)
    worst = {}
    for name, got in (("joint", joint), ("analytic", analytic)):
        worst[name] = np.sqrt((((got.mean[order] - mean) / sd) ** 2).mean())
        np.testing.assert_allclose((got.sd[order] / sd).mean(axis=0), 1.0, atol=0.02)
    # what is left of joint is Monte Carlo error (0.1 with 1,000 draws, 0.03 with 8,000); analytic is a plug-in
    assert worst["joint"] < 0.07
    assert worst["analytic"] < 0.15
    np.testing.assert_allclose(np.diag(joint.sigma), np.diag(pooled["sigma"].mean(axis=0)), rtol=0.06)


def test_unknown_links_are_found_and_their_uncertainty_is_right():
    """Links unknown, no item of the last period in the reference: placed through the period between."""
    z, errors = [], []
    for seed in range(4):
        world = make_world(seed=60 + seed, n_items=120, n_periods=3, links=True, share=1.0, error=(0.2, 0.5))
        n = 120
        keep = [range(80), range(40, n), range(80, n)]
        world = replace(world, periods=tuple(cut(p, k) for p, k in zip(world.periods, keep, strict=True)))
        summaries = [
            summarise_period(
                fixed_prior_period(world, p, 300), reference="P1", finite_draw_correction=False, wobble=False
            )
            for p in world.periods
        ]
        assert [s.linked for s in summaries] == [True, False, False]
        consensus = combine(summaries, method="joint", spec=PLAIN, options=JointOptions(draws=200))
        links = consensus.links.filter(consensus.links["period"] != "P1")
        truth = np.array([[p.A, p.B] for p in world.periods[1:]])
        z.append((links["A_mean"].to_numpy() - truth[:, 0]) / links["A_sd"].to_numpy())
        z.append((links["B_mean"].to_numpy() - truth[:, 1]) / links["B_sd"].to_numpy())
        g = consensus.groups["g"]
        rows = [world.item_ids.index(i) for i in g.item_ids]
        errors.append((g.mean - world.xi[rows]) / g.sd)
    assert 0.6 < np.sqrt((np.array(z) ** 2).mean()) < 1.45
    assert 0.93 < np.sqrt((np.concatenate(errors) ** 2).mean()) < 1.07
    joint = consensus.joint["g"]
    np.testing.assert_allclose(joint.mean(axis=0), g.mean, atol=5 * g.sd.max() / np.sqrt(200))
    # items only the last period saw move together with its link
    last = [j for j, i in enumerate(g.item_ids) if i in world.periods[2].item_ids]
    shared = np.cov(joint[:, last, 0].T)
    assert np.median(shared[np.triu_indices(len(last), 1)]) > 0


def cut(period, keep):
    keep = list(keep)
    return replace(
        period, item_ids=tuple(period.item_ids[j] for j in keep), X=period.X[keep], y=period.y[keep], R=period.R[keep]
    )


def test_periods_without_a_common_item_are_refused():
    world = make_world(seed=70, n_items=20, n_periods=2, share=1.0)
    world = replace(world, periods=(cut(world.periods[0], range(10)), cut(world.periods[1], range(10, 20))))
    summaries = [summarise_period(fixed_prior_period(world, p, 60), reference="P1") for p in world.periods]
    with pytest.raises(LinkError, match=r"'reading'.*'P1'; 'P2'.*bridge"):
        combine(summaries, method="joint", spec=PLAIN)


def test_reference_wobble_comes_back_as_uncertainty_of_the_links():
    world = make_world(seed=71, n_items=60, n_periods=2, share=1.0, error=(0.2, 0.4))
    summaries = plain_summaries(world)
    wobble = np.diag([0.01, 0.04])[None]
    shaken = [replace(summaries[0], wobble=wobble), summaries[1]]
    options = JointOptions(draws=400, robust=False, fixed_population={})
    calm = combine(summaries, method="joint", spec=PLAIN, options=options)
    loose = combine(shaken, method="joint", spec=PLAIN, options=options)
    assert calm.links["B_sd"][0] == 0
    assert 0.12 < loose.links["B_sd"][0] < 0.28
    gain = np.median(loose.groups["g"].covariance[:, 0, 0] - calm.groups["g"].covariance[:, 0, 0])
    assert gain > 0.02


def test_sampler_and_laplace_agree_and_repeat():
    world = make_world(seed=72, n_items=100, n_periods=3, links=True)
    summaries = plain_summaries(world)
    one = combine(summaries, method="joint", spec=PLAIN, options=JointOptions(draws=200))
    again = combine(summaries, method="joint", spec=PLAIN, options=JointOptions(draws=200))
    laplace = combine(summaries, method="joint", spec=PLAIN, options=JointOptions(draws=200, sampler="laplace"))
    np.testing.assert_array_equal(one.joint["g"], again.joint["g"])
    a, b = one.groups["g"], laplace.groups["g"]
    assert np.abs((a.mean - b.mean) / b.sd).max() < 0.25
    np.testing.assert_allclose(a.sd / b.sd, 1.0, atol=0.1)


@pytest.mark.slow
def test_two_hundred_features_jointly():
    from test_analytic import sampled_period_cheap

    world = make_world(seed=27, n_items=400, n_periods=2, n_features=200, share=1.0, error=(0.1, 0.3))
    summaries = [
        summarise_period(sampled_period_cheap(world, p, m, True), constant_link(p, 300))
        for m, p in enumerate(world.periods)
    ]
    g = combine(summaries, method="joint", spec=PLAIN, options=JointOptions(draws=100)).groups["g"]
    V = np.diag(g.beta_covariance).reshape(200, 2)
    assert 0.8 < np.sqrt((((g.beta - world.beta) ** 2) / V).mean()) < 1.2
    assert 0.85 < np.sqrt((((g.mean - world.xi) / g.sd) ** 2).mean()) < 1.15


def test_progress_is_told_from_the_start_to_the_last_draw():
    told = []

    def tell(share, text):
        told.append((share, text))

    pairs = fixed_prior_pairs(make_world(seed=21, links=True))
    combine(pairs, method="joint", options=JointOptions(draws=40), progress=tell)
    shares = [share for share, _ in told]
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert told[-1] == (1.0, "draw 40 of 40")
    assert any("pass 2 of 2" in text for _, text in told)


def test_items_nobody_answered_are_predicted_beside_tilted_ones():
    world = make_world(seed=73, n_items=60, n_periods=2, share=1.0)
    summaries = plain_summaries(world)
    X = np.array([[1.0, 0.5], [1.0, -2.0]])
    found = combine(summaries, method="joint", items={"g": (["new-1", "new-2"], X)}).groups["g"]
    rows = [found.item_ids.index(i) for i in ("new-1", "new-2")]
    assert found.source[rows].tolist() == ["predicted", "predicted"]
    np.testing.assert_allclose(found.mean[rows], X @ found.beta, atol=0.1)
    assert (found.sd[rows] > 0.9 * np.sqrt(np.diag(found.sigma))).all()
    without = combine(summaries, method="joint").groups["g"]
    np.testing.assert_allclose(found.mean[: world.xi.shape[0]], without.mean, atol=0.02)
