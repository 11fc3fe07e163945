import numpy as np
import pytest
from gaussian_worlds import constant_link, fixed_prior_pairs, fixed_prior_period, make_world, pooled_fixed_prior

import concal
from concal.combine.periods import combine
from concal.combine.summary import summarise_period
from concal.combine.totals import add_period, retract_period, sum_periods
from concal.spec import ConsensusSpec

PLAIN = ConsensusSpec(finite_draw_correction=False)


def by_id(consensus, group="g"):
    g = consensus.groups[group]
    return {i: (g.mean[j], g.covariance[j], g.source[j]) for j, i in enumerate(g.item_ids)}


@pytest.mark.parametrize(("model", "categories"), [("2pl", None), ("gpcm", 4)])
@pytest.mark.parametrize("links", [False, True])
def test_fixed_prior_gives_the_pooled_posterior(model, categories, links):
    try:
        world = make_world(seed=3, model=model, categories=categories, links=links)
    except concal.SpecError:
        pytest.skip(f"{model} is not registered")
    consensus = combine(fixed_prior_pairs(world), spec=PLAIN)
    mean, covariance = pooled_fixed_prior(world)
    got = by_id(consensus)
    for j, item in enumerate(world.item_ids):
        if item in got:
            np.testing.assert_allclose(got[item][0], mean[j], atol=1e-7)
            np.testing.assert_allclose(got[item][1], covariance[j], rtol=1e-6)
    assert consensus.fallback_share == 0


def test_one_period_alone_is_given_back():
    world = make_world(seed=4)
    calibration = fixed_prior_period(world, world.periods[0])
    summary = summarise_period(calibration)
    got = combine([summary]).groups["g"]
    np.testing.assert_allclose(got.mean, summary.groups["g"].mu, atol=1e-9)
    np.testing.assert_allclose(np.linalg.inv(got.covariance), summary.groups["g"].Lambda, rtol=1e-8)
