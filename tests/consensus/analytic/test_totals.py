"""Sums over periods: zero, plus, fading, and every way to the same sums."""

from dataclasses import fields, replace

import numpy as np
import pytest
from phi_worlds import assert_same, changed, only, phi_world
from scipy.linalg import block_diag

from concal import metric
from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.totals import add_period, no_totals, period_totals, sum_periods
from concal.consensus.combine import combine
from concal.consensus.gaussian import widen
from concal.errors import DataError, LinkError, SpecError
from concal.response import make_model
from concal.spec import ConsensusSpec


@pytest.fixture(scope="module")
def world():
    return phi_world(seed=2)


def assert_identical(one, other):
    assert set(one.groups) == set(other.groups)
    for key, form in one.groups.items():
        for field in fields(form):
            a, b = getattr(form, field.name), getattr(other.groups[key], field.name)
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(a, b, err_msg=field.name)
            else:
                assert a == b, field.name
    np.testing.assert_array_equal(one.link_mean, other.link_mean)
    np.testing.assert_array_equal(one.link_covariance, other.link_covariance)
    assert (one.periods, one.warnings, one.reference) == (other.periods, other.warnings, other.reference)


def test_zero_plus_a_period_is_the_period(world):
    first = world.placed[0]
    zero = no_totals("P1", first.factors.dimensions, first.factors.wobble)
    assert_identical(zero + period_totals(first, zero.wobble), period_totals(first, zero.wobble))
    assert_identical(zero.faded(1.0) + period_totals(first, zero.wobble), sum_periods([first]))


@pytest.mark.parametrize("half_life", [None, 1.7])
def test_adding_one_more_is_summing_again_bit_for_bit(world, half_life):
    kept = sum_periods(world.placed[:1], half_life)
    for m in (2, 3):
        kept = add_period(kept, world.placed[m - 1], half_life)
        assert_identical(kept, sum_periods(world.placed[:m], half_life))


def test_sums_are_those_of_a_loop(world):
    totals = sum_periods(world.placed)
    form = totals.groups["g:0"]
    for item in ("item-000", "item-007", "item-021"):
        Q, h, n = np.zeros((2, 2)), np.zeros(2), 0
        for m, placed in enumerate(world.placed):
            group = placed.factors.groups["g"]
            if item in group.item_ids:
                j, (log_A, B) = group.item_ids.index(item), world.links[m]
                M = np.array([[1.0, B], [0.0, np.exp(log_A)]])
                Q += M.T @ group.Q[j] @ M
                h += M.T @ group.h[j]
                n += 1
        j = form.item_ids.index(item)
        np.testing.assert_allclose(form.Q[j], Q, rtol=1e-12)
        np.testing.assert_allclose(form.h[j], h, rtol=1e-12)
        assert (form.n_periods[j], form.n_responses[j]) == (n, 50 * n)
    assert form.population_weight == 3.0
    assert form.item_weight == sum(p.factors.groups["g"].n_items for p in world.placed)


def test_half_life_halves_everything_but_counts(world):
    one, other = (
        sum_periods(world.placed, 1.0).groups["g:0"],
        [period_totals(p, np.zeros((1, 2, 2))) for p in world.placed],
    )
    expected = other[0].groups["g:0"].faded(0.25) + other[1].groups["g:0"].faded(0.5) + other[2].groups["g:0"]
    for name in ("Q", "h", "beta_precision", "beta_shift", "sigma", "hyperprior"):
        np.testing.assert_allclose(getattr(one, name), getattr(expected, name), rtol=1e-12)
    assert one.population_weight == pytest.approx(1.75)
    np.testing.assert_array_equal(one.n_periods, sum_periods(world.placed).groups["g:0"].n_periods)


def test_a_tiny_half_life_leaves_the_newest_period(world):
    with np.errstate(all="raise", under="ignore"):
        faded = consensus_from_totals(sum_periods(world.placed, 0.01))
    alone = consensus_from_totals(sum_periods(world.placed[2:]))
    last = set(alone.groups["g"].item_ids)
    g, a = faded.groups["g"], alone.groups["g"]
    rows = [j for j, item in enumerate(g.item_ids) if item in last]
    order = [a.item_ids.index(g.item_ids[j]) for j in rows]
    np.testing.assert_allclose(g.mean[rows], a.mean[order], atol=1e-8)


def test_order_does_not_matter_without_a_half_life(world):
    expected = consensus_from_totals(sum_periods(world.placed))
    for order in ((2, 0, 1), (1, 2, 0), (2, 1, 0)):
        shuffled = [world.placed[m] for m in order]
        assert_same(consensus_from_totals(sum_periods(shuffled)), expected, 1e-9)


def test_widening_is_the_sum_of_covariances():
    """(P^-1 + G C G')^-1, also where P cannot be inverted."""
    rng = np.random.default_rng(1)
    root, G = rng.normal(size=(5, 3, 3)), rng.normal(size=(5, 3, 2))
    P, mean = root @ root.transpose(0, 2, 1), rng.normal(size=(5, 3))
    C = np.array([[0.3, 0.1], [0.1, 0.2]])
    wide, shift = widen(P, np.einsum("jab,jb->ja", P, mean), G, C)
    for j in range(5):
        np.testing.assert_allclose(np.linalg.inv(wide[j]), np.linalg.inv(P[j]) + G[j] @ C @ G[j].T, rtol=1e-8)
        np.testing.assert_allclose(np.linalg.solve(wide[j], shift[j]), mean[j], rtol=1e-8)
    flat, nothing = widen(np.zeros((1, 3, 3)), np.zeros((1, 3)), G[:1], C)
    assert not flat.any()
    assert not nothing.any()


def test_only_what_is_not_wobble_of_a_link_widens(world):
    """A change (u, v) of the period's own metric is (u, A v - B u) on the reference's, one of the link (u, v - B u)."""
    second = world.placed[1]
    C = np.array([[[0.01, 0.002], [0.002, 0.03]]])
    own, shared = np.array([[[0.004, 0.0], [0.0, 0.01]]]), np.array([[[0.002, 0.0], [0.0, 0.005]]])
    got = period_totals(changed(second, link_covariance=C, wobble=own), shared).groups["g:0"]
    group, (log_A, B) = second.factors.groups["g"], world.links[1]
    A = np.exp(log_A)
    Q, _ = metric.move_factor(group.Q, group.h, A, B)
    a = np.exp(group.mean[:, 1]) / A
    link, before = np.array([[1.0, 0.0], [-B, 1.0]]), np.array([[1.0, 0.0], [-B, A]])
    noise = link @ C[0] @ link.T - before @ own[0] @ before.T - shared[0]
    assert np.linalg.eigvalsh(noise)[0] > 0
    for j in (0, 3):
        P = np.array([[0.0, -a[j]], [-a[j], 0.0]])
        expected = np.linalg.inv(np.linalg.inv(Q[j]) + P @ noise @ P.T)
        np.testing.assert_allclose(got.Q[j], expected, rtol=1e-8)
    joined = np.linalg.inv(link) @ (before @ own[0] @ before.T + shared[0]) @ np.linalg.inv(link).T
    calm = period_totals(changed(second, link_covariance=joined[None], wobble=own), shared).groups["g:0"]
    np.testing.assert_allclose(calm.Q, Q, rtol=1e-9)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_relinking_by_a_constant_commutes_with_combining(share):
    """Everything moved to A theta + B, links and their covariances alike: the consensus moves, and nothing else."""
    world = phi_world(seed=5, tau=1e-12)
    A, B = 1.3, -0.7
    G = block_diag(1.0, A)
    before, after = [], []
    for m, placed in enumerate(world.placed):
        C = share * np.array([[1e-3, 2e-4], [2e-4, 2e-3]]) if m else np.zeros((2, 2))
        before.append(changed(placed, link_covariance=C[None]))
        log_A0, B0 = placed.link_mean[0]
        after.append(changed(placed, link_mean=[[log_A0 + np.log(A), A * B0 + B]], link_covariance=(G @ C @ G.T)[None]))
    one = consensus_from_totals(sum_periods(before)).groups["g"]
    other = consensus_from_totals(sum_periods(after)).groups["g"]
    np.testing.assert_allclose(other.mean, metric.move_items(one.mean, A, B), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.covariance, metric.move_item_covariance(one.covariance, A), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.sigma, metric.move_item_covariance(one.sigma, A), rtol=1e-9)
    np.testing.assert_allclose(other.beta, metric.move_beta(one.beta, A, B), rtol=1e-8, atol=1e-8)


def test_a_period_without_information_changes_nothing(world):
    """Zero factors that tell no population."""
    group = world.placed[1].factors.groups["g"]
    silent = changed(world.placed[1], Q=0.0 * group.Q, h=0.0 * group.h, guided=True)
    one = consensus_from_totals(sum_periods([world.placed[0], silent]))
    other = consensus_from_totals(sum_periods(world.placed[:1]))
    a, b = one.groups["g"], other.groups["g"]
    rows = [a.item_ids.index(i) for i in b.item_ids]
    np.testing.assert_allclose(a.mean[rows], b.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(a.covariance[rows], b.covariance, rtol=1e-12)
    rest = np.setdiff1d(np.arange(len(a.item_ids)), rows)
    mean, covariance = (v[rest] for v in (a.mean, a.covariance))
    np.testing.assert_allclose(mean, a.X[rest] @ a.beta, atol=1e-4)
    assert np.linalg.eigvalsh(covariance - a.sigma).min() > -1e-4


def test_the_wobble_of_the_reference_comes_on_top(world):
    C = np.array([[[4e-3, 1e-3], [1e-3, 9e-3]]])
    loose = [changed(world.placed[0], wobble=C), *world.placed[1:]]
    one, other = (consensus_from_totals(sum_periods(p)).groups["g"] for p in (loose, world.placed))
    P = np.zeros((len(one.item_ids), 2, 2))
    P[:, 0, 0], P[:, 1, 0], P[:, 0, 1] = one.mean[:, 0], -1.0, 1.0
    np.testing.assert_allclose(one.covariance - other.covariance, P @ C[0] @ P.transpose(0, 2, 1), atol=1e-12)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-12)


def test_what_does_not_fit_is_refused(world):
    one, two = world.placed[:2]
    with pytest.raises(DataError, match="'P1' is there twice"):
        sum_periods([one, one])
    writing = replace(two, factors=replace(two.factors, dimensions=("writing",)))
    with pytest.raises(DataError, match=r"'P2' has dimensions \['writing'\]"):
        sum_periods([one, writing])
    with pytest.raises(LinkError, match="'P2' is linked to 'P9'"):
        sum_periods([one, replace(two, reference="P9")])
    renamed = replace(two.factors.groups["g"], name="h")
    with pytest.raises(DataError, match=r"items .* are in group 'h'"):
        sum_periods([one, replace(two, factors=replace(two.factors, groups={"h": renamed}))])
    other = phi_world(seed=2, model="3pl").placed[1]
    with pytest.raises(SpecError, match=r"'P2', group 'g': 3pl.*2pl.*group of its own"):
        sum_periods([one, other])
    with pytest.raises(DataError, match="no period"):
        sum_periods([])


def test_warnings_of_all_periods_are_kept_once(world):
    shaken = [changed(p, warnings=("group 'g': doubtful",)) for p in world.placed]
    totals = sum_periods(shaken)
    assert totals.warnings == tuple(f"period 'P{m}': group 'g': doubtful" for m in (1, 2, 3))
    assert consensus_from_totals(totals).warnings == totals.warnings


def test_link_table_has_the_moments_of_a_lognormal(world):
    C = np.array([[[0.02, 0.0], [0.0, 0.05]]])
    shaken = [world.placed[0], changed(world.placed[1], link_covariance=C)]
    table = consensus_from_totals(sum_periods(shaken)).links
    A = np.exp(np.random.default_rng(1).normal(world.links[1, 0], np.sqrt(0.02), 400_000))
    row = table.row(1, named=True)
    assert row["A_mean"] == pytest.approx(A.mean(), rel=2e-3)
    assert row["A_sd"] == pytest.approx(A.std(), rel=1e-2)
    assert row["B_sd"] == pytest.approx(np.sqrt(0.05))
    assert table.row(0)[2:] == (1.0, 0.0, 0.0, 0.0)


def test_models_of_a_form_are_compared_by_value(world):
    assert make_model("2pl") == world.model
    assert only(world.placed[0], [0, 1]).factors.groups["g"].n_items == 2


@pytest.mark.parametrize("method", ["analytic", "joint"])
def test_a_group_that_has_faded_to_nothing_is_predicted(method):
    """Twelve periods ago at the shortest half-life: its weight is below the smallest number there is."""
    world = phi_world(seed=2, n_items=20, n_periods=13, share=1.0)
    placed = []
    for m, period in enumerate(world.placed):
        group = period.factors.groups["g"]
        kept = replace(group, name="kept", item_ids=tuple(f"kept-{item}" for item in group.item_ids))
        groups = {"g": group, "kept": kept} if m == 0 else {"kept": kept}
        placed.append(replace(period, factors=replace(period.factors, groups=groups)))
    g = combine(placed, method=method, spec=ConsensusSpec(half_life=0.01)).groups["g"]
    assert np.isfinite(g.mean).all()
    assert (g.sd.min(axis=0) > 0.5 * np.sqrt(np.diag(g.sigma))).all(), "nothing is known of them but the population"
