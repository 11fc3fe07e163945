"""The function people call: methods, links, errors; draws and predictions from what it returns."""

from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import constant_link, fixed_prior_pairs, make_world, thin
from phi_worlds import phi_world

import concal
from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.combine import Evidence, combine, consensus_of, place, refuse_no_numbers
from concal.consensus.draws import item_draws
from concal.consensus.factors.make import make_factors
from concal.consensus.predict import predict_items
from concal.errors import DataError, LinkError
from concal.spec import ConsensusSpec


@pytest.fixture(scope="module")
def pairs():
    """Three periods of draws under a known population, links known."""
    return fixed_prior_pairs(make_world(seed=41, n_items=20, links=True, error=(0.2, 0.5)))


@pytest.fixture(scope="module")
def consensus():
    return consensus_from_totals(sum_periods(phi_world(seed=26, n_items=15).placed))


def test_each_method_can_be_asked_for(pairs):
    found = {method: combine(pairs, method=method) for method in ("analytic", "joint", "paper")}
    assert {name: c.method for name, c in found.items()} == {m: m for m in found}
    assert combine(pairs, spec=ConsensusSpec(method="analytic")).method == "analytic"
    assert concal.combine(pairs, method="analytic").method == "analytic"
    reference = found["analytic"].groups["g"]
    for c in found.values():
        g = c.groups["g"]
        rows = [g.item_ids.index(i) for i in reference.item_ids]
        off = (g.mean[rows] - reference.mean) / reference.sd
        assert np.sqrt((off**2).mean()) < 0.6
        assert c.periods == ("P1", "P2", "P3")
        assert c.reference == "P1"


def test_draws_and_their_factors_are_the_same(pairs):
    placed = [place(make_factors(c), link, reference="P1") for c, link in pairs]
    one, other = combine(pairs, method="analytic"), combine(placed, method="analytic")
    np.testing.assert_array_equal(one.groups["g"].mean, other.groups["g"].mean)
    np.testing.assert_array_equal(one.groups["g"].covariance, other.groups["g"].covariance)


def test_only_what_a_method_needs_is_read(pairs):
    placed = [place(make_factors(c), link) for c, link in pairs]

    def never():
        raise AssertionError("was read")

    evidence = Evidence(never, lambda: sum_periods(placed), never)
    assert consensus_of(evidence, ConsensusSpec(method="analytic")).method == "analytic"
    evidence = Evidence(never, never, lambda: pairs)
    assert consensus_of(evidence, ConsensusSpec(method="paper")).method == "paper"


def test_a_period_without_a_link_is_the_reference_or_not_linked(pairs):
    factors = make_factors(pairs[0][0])
    assert place(factors, None).linked
    assert place(factors, None).reference == "P1"
    assert not place(factors, None, reference="P2").linked
    C = np.array([[0.01, 0.002], [0.002, 0.04]])
    rng = np.random.default_rng(1)
    moved = rng.multivariate_normal([0.1, -0.3], C, size=400)
    link = replace(pairs[1][1], A=np.exp(moved[:, :1]), B=moved[:, 1:])
    placed = place(make_factors(pairs[1][0]), link)
    np.testing.assert_allclose(placed.link_mean[0], moved.mean(axis=0))
    np.testing.assert_allclose(placed.link_covariance[0], np.cov(moved.T), rtol=1e-9)


def test_bad_arguments_are_named(pairs):
    (one, first), (two, second), _ = pairs
    with pytest.raises(DataError, match="no period"):
        combine([])
    with pytest.raises(DataError, match="method must be"):
        combine(pairs, method="median")
    with pytest.raises(LinkError, match="'P1' was given the link of period 'P2'"):
        combine([(one, second), (two, second)])
    with pytest.raises(LinkError, match="A > 0"):
        combine([(one, first), (two, replace(second, A=-second.A))])
    with pytest.raises(LinkError, match="dimensions"):
        combine([(one, first), (two, replace(second, dimensions=("writing",)))])
    with pytest.raises(LinkError, match="none of the periods is linked"):
        combine([(one, None), (two, None)])
    with pytest.raises(DataError, match="works on linked draws"):
        combine([place(make_factors(one), first), (two, second)], method="paper")
    with pytest.raises(LinkError, match="'P3' is linked to 'P2'"):
        combine([(one, None), (two, second), (pairs[2][0], replace(pairs[2][1], reference="P2"))], method="analytic")


def test_a_consensus_without_numbers_is_refused(consensus):
    """Whatever the way: nothing that is no number is handed over, or committed."""
    group = consensus.groups["g"]
    mean, covariance = group.mean.copy(), group.covariance.copy()
    mean[2, 0], covariance[4, 1, 1] = np.nan, 0.0
    broken = replace(consensus, groups={"g": replace(group, mean=mean, covariance=covariance)})
    refuse_no_numbers(consensus)
    with pytest.raises(
        DataError, match=rf"group 'g'.*analytic.*2 items \('{group.item_ids[2]}', '{group.item_ids[4]}'\)"
    ):
        refuse_no_numbers(broken)
    world = phi_world(seed=26, n_items=15, share=1.0)
    factors = world.placed[0].factors
    bad = replace(factors, groups={"g": replace(factors.groups["g"], h=np.full_like(factors.groups["g"].h, np.nan))})
    with np.errstate(all="ignore"), pytest.raises(DataError, match="15 items"):
        combine([replace(world.placed[0], factors=bad)], method="analytic")


def test_items_of_any_period_are_in_the_consensus(pairs):
    some = [(thin(c, set(c.groups["g"].item_ids[m::3])), link) for m, (c, link) in enumerate(pairs)]
    got = combine(some, method="analytic").groups["g"]
    expected = {i for c, _ in some for i in c.groups["g"].item_ids}
    assert set(got.item_ids) == expected
    assert (got.n_periods > 0).all()


def test_draws_are_reproducible_item_by_item(consensus):
    one = item_draws(consensus, ["item-002"], draws=4000, seed=7)
    several = item_draws(consensus, ["item-001", "item-002"], draws=4000, seed=7)
    np.testing.assert_array_equal(one["item-002"], several["item-002"])
    assert not np.allclose(several["item-001"], several["item-002"])
    g = consensus.groups["g"]
    j = g.item_ids.index("item-002")
    np.testing.assert_allclose((one["item-002"].mean(axis=0) - g.mean[j]) / g.sd[j], 0.0, atol=0.07)
    np.testing.assert_allclose(np.cov(one["item-002"].T), g.covariance[j], atol=0.1 * g.covariance[j].max())
    with pytest.raises(DataError, match="'nobody'"):
        item_draws(consensus, ["nobody"])


def test_new_items_are_predicted_from_their_features(consensus):
    X = np.array([[1.0, 0.5], [1.0, -2.0]])
    got, g = predict_items(consensus, "g", ["new-1", "new-2"], X), consensus.groups["g"]
    np.testing.assert_allclose(got.mean, X @ g.beta)
    for x, covariance in zip(X, got.covariance, strict=True):
        K = np.kron(x[None], np.eye(2))
        np.testing.assert_allclose(covariance, g.sigma + K @ g.beta_covariance @ K.T, rtol=1e-9)
    assert got.source.tolist() == ["predicted", "predicted"]
    with pytest.raises(DataError, match="no group 'h'"):
        predict_items(consensus, "h", ["x"], X[:1])
    with pytest.raises(DataError, match=r"'new-1'.*shape"):
        predict_items(consensus, "g", ["new-1"], np.ones((1, 5)))


def test_constant_links_have_no_covariance():
    world = make_world(seed=2, links=True)
    mean, covariance = constant_link(world.periods[1], 50).moments()
    np.testing.assert_allclose(mean[0], [np.log(world.periods[1].A), world.periods[1].B])
    np.testing.assert_allclose(covariance, 0.0, atol=1e-15)
