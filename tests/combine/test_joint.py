import numpy as np
import pytest
from gaussian_worlds import fixed_prior_pairs, gibbs, make_world, pooled_fixed_prior, sampled_period, constant_link

from concal.combine.joint import JointOptions
from concal.combine.periods import combine
from concal.combine.summary import summarise_period
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
    ids, pooled = gibbs(world, world.periods, 6000, seed=99)
    order = [joint.item_ids.index(i) for i in ids]
    sd, mean = pooled["xi"].std(axis=0), pooled["xi"].mean(axis=0)
    for name, got in (("joint", joint), ("analytic", analytic)):
        z = (got.mean[order] - mean) / sd
        ratio = got.sd[order] / sd
        print(name, np.sqrt((z**2).mean()), ratio.mean(0), ratio.std(0))
        assert np.sqrt((z**2).mean()) < 0.08
        np.testing.assert_allclose(ratio.mean(axis=0), 1.0, atol=0.015)
    print(joint.sigma, pooled["sigma"].mean(0), analytic.sigma)
    np.testing.assert_allclose(np.diag(joint.sigma), np.diag(pooled["sigma"].mean(axis=0)), rtol=0.05)
