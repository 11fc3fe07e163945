"""Who moved: the test of agreement against loops and with the size it says, and the outlying periods named."""

from itertools import combinations

import numpy as np
import pytest
from phi_worlds import changed, phi_world
from scipy import stats

from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.drift.displacement import INFORMATIVE, directions
from concal.consensus.drift.drift import find_drift
from concal.consensus.drift.homogeneity import conflict, item_agreement, known_parts
from concal.consensus.drift.movers import AGREE, find_movers
from concal.consensus.gaussian import units_of


def drift_of(placed, **options):
    return find_drift(placed, consensus_from_totals(sum_periods(placed)), **options)


def some_factors(n_items=300, n_periods=4, p=2, moves=None, seed=0, precision=(20.0, 200.0)):
    """Factors (items * periods) sorted by item, their items, a value common to each item, and units of the prior."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(rng.normal(size=(n_items, 1, p)), n_periods, axis=1)
    for (item, period), by in (moves or {}).items():
        truth[item, period] += by
    q = rng.uniform(*precision, (n_items, n_periods, 1, 1))
    root = np.eye(p) + 0.2 * rng.normal(size=(n_items, n_periods, p, p))
    Q = q * (root @ np.swapaxes(root, -1, -2))
    noise = np.einsum("jmab,jmb->jma", np.linalg.cholesky(np.linalg.inv(Q)), rng.normal(size=truth.shape))
    h = np.einsum("jmab,jmb->jma", Q, truth + noise)
    item = np.repeat(np.arange(n_items), n_periods)
    unit = np.tile(np.eye(p), (item.size, 1, 1))
    return Q.reshape(-1, p, p), h.reshape(-1, p), item, np.zeros((item.size, p)), units_of(unit)


def test_conflict_is_the_weighted_sum_of_squares():
    Q, h, item, centre, unit = some_factors(n_items=5, p=3)
    parts = known_parts(Q, h, centre, directions(Q, unit))
    squared, degrees, _ = item_agreement(parts, item, 5)
    for j in range(5):
        mine = item == j
        estimate = np.linalg.solve(Q[mine], h[mine][..., None])[..., 0]
        common = np.linalg.solve(Q[mine].sum(axis=0), h[mine].sum(axis=0))
        rest = estimate - common
        assert squared[j] == pytest.approx(np.einsum("ma,mab,mb->", rest, Q[mine], rest), rel=1e-8)
        assert degrees[j] == 9


def test_where_the_centre_lies_and_what_is_not_known_do_not_matter():
    Q, h, item, centre, unit = some_factors(n_items=40)
    blind = item % 3 == 0
    weak = np.where(blind[:, None, None], np.diag([1.0, 0.5 * INFORMATIVE]) * 30, Q)
    weak[:, 0, 1] = weak[:, 1, 0] = np.where(blind, 0.0, weak[:, 0, 1])
    weak[blind, 1, 1] = 0.5 * INFORMATIVE
    h[blind, 1] = 1e3  # what a factor says where it knows nothing
    one = item_agreement(known_parts(weak, h, centre, directions(weak, unit)), item, 40)
    other = item_agreement(known_parts(weak, h, centre + 0.7, directions(weak, unit)), item, 40)
    np.testing.assert_array_equal(one[1], other[1])
    assert set(one[1]) == {3, 6}
    np.testing.assert_allclose(one[0][item[~blind]], other[0][item[~blind]], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n_periods", [2, 4, 10])
def test_false_flags_at_the_nominal_rate(n_periods):
    Q, h, item, centre, unit = some_factors(4000, n_periods, seed=n_periods)
    squared, degrees, combined = item_agreement(known_parts(Q, h, centre, directions(Q, unit)), item, 4000)
    assert stats.kstest(stats.chi2.sf(squared, degrees), "uniform").pvalue > 0.001
    for level in (0.05, 0.01, 0.002):
        share = (combined < level).mean()
        assert abs(share - level) < 0.25 * level + 3 * np.sqrt(level / 4000)


@pytest.mark.parametrize("n_periods", [4, 10])
def test_the_mover_is_named(n_periods):
    """A tenth of the items moves in one period by four standard errors; nothing else does."""
    rng = np.random.default_rng(3)
    n = 1500
    world = phi_world(seed=8, n_items=n, n_periods=n_periods, share=1.0, error=(0.1, 0.15), links=False)
    moved = {int(j): int(rng.integers(n_periods)) for j in range(0, n, 10)}
    placed = list(world.placed)
    for m in range(n_periods):
        group = placed[m].factors.groups["g"]
        h = group.h.copy()
        for j, at in moved.items():
            if at == m:
                h[j] += group.Q[j] @ [0.6 * rng.choice([-1.0, 1.0]), 0.0]
        placed[m] = changed(placed[m], h=h)
    items = drift_of(placed).items
    flagged = items.filter(items["movers"].is_not_null()).unique("item_id")
    named = {int(i.removeprefix("item-")): m for i, m in flagged.select("item_id", "movers").iter_rows()}
    caught = [j for j in named if j in moved]
    assert 1 - len(caught) / len(named) < 0.09
    assert len(caught) > 0.7 * len(moved)
    assert np.mean([named[j] == f"P{moved[j] + 1}" for j in caught]) > 0.9


def movers_of(moves, n_periods, n_items=1, **options):
    Q, h, item, centre, unit = some_factors(n_items, n_periods, moves=moves, precision=(900.0, 1000.0), **options)
    parts = known_parts(Q, h, centre, directions(Q, unit))
    found = find_movers(parts, item, np.arange(n_items)).reshape(n_items, n_periods)
    return [tuple(np.flatnonzero(row)) for row in found]


@pytest.mark.parametrize(
    ("n_periods", "by", "named"),
    [
        (2, {0: 1.0}, (1,)),  # of two that disagree the earlier one keeps the place
        (2, {1: 1.0}, (1,)),
        (3, {0: 1.0}, (0,)),
        (4, {1: 1.0}, (1,)),
        (4, {0: 1.0, 1: 1.0}, (2, 3)),  # two against two
        (4, {0: 1.0, 1: -1.0}, (0, 1)),
        (5, {1: 1.0, 3: -1.0}, (1, 3)),
        (8, {5: 1.0, 6: 1.0, 7: 1.0}, (5, 6, 7)),
        (30, {4: 1.0, 11: 1.0, 20: -1.0, 29: 2.0}, (4, 11, 20, 29)),  # too many subsets to look at all
    ],
)
def test_the_outlying_subset(n_periods, by, named):
    moves = {(0, m): np.array([size, -size]) for m, size in by.items()}
    assert movers_of(moves, n_periods, seed=n_periods) == [named]


def test_the_smallest_subset_by_brute_force():
    rng = np.random.default_rng(1)
    moves = {(j, int(m)): rng.normal(size=2) for j in range(30) for m in rng.choice(6, rng.integers(1, 4), False)}
    Q, h, item, centre, unit = some_factors(30, 6, moves=moves, precision=(20.0, 60.0), seed=2)
    parts = known_parts(Q, h, centre, directions(Q, unit))
    found = find_movers(parts, item, np.arange(30)).reshape(30, 6)

    def agreement(j, kept):
        at = 6 * j + np.array(kept)
        sums = (a[at].sum(axis=0)[None] for a in (parts.Q, parts.h, parts.own, parts.rank))
        squared, degrees = conflict(*sums)
        return stats.chi2.sf(squared[0], degrees[0]) if degrees[0] else 1.0

    for j in range(30):
        n = found[j].sum()
        assert 1 <= n <= 3
        best = [
            max(agreement(j, [m for m in range(6) if m not in s]) for s in combinations(range(6), k)) for k in (1, 2, 3)
        ]
        assert all(b < AGREE for b in best[: n - 1])
        if n < 3:
            assert agreement(j, np.flatnonzero(~found[j])) == pytest.approx(best[n - 1])


def test_innocent_periods_are_compared_with_innocent_ones():
    """One period of four moved far: the others stay quiet, though it would spoil a mean over all of them."""
    world = phi_world(seed=7, n_items=60, n_periods=4, share=1.0, error=(0.05, 0.1), drift={(2, 7): 3.0}, links=False)
    table = drift_of(world.placed).items.filter(item_id="item-007")
    assert table.filter("drifted")["period"].to_list() == ["P3"]
    assert table["movers"].unique().to_list() == ["P3"]
    assert (table.filter(~table["drifted"])["distance"] < 4).all()


def test_a_whole_period_that_conflicts_shows_in_its_inflation():
    world = phi_world(seed=6, n_items=80, n_periods=5, share=1.0, error=(0.1, 0.2), links=False)
    fine = drift_of(world.placed).periods
    assert (fine["inflation"] < fine["inflation_high"]).all()
    assert (fine["inflation"] > fine["inflation_low"]).all()
    off = [*world.placed[:4], changed(world.placed[4], link_mean=[[0.0, 0.6]])]
    periods = drift_of(off).periods
    bad = periods.filter(periods["inflation"] > periods["inflation_high"])
    assert "P5" in bad["period"].to_list()


def test_factors_of_few_responses_do_not_count_for_the_inflation():
    world = phi_world(seed=6, n_items=80, n_periods=3, share=1.0, error=(0.1, 0.2), links=False)
    fine = drift_of(world.placed).periods
    last = world.placed[-1]
    group = last.factors.groups["g"]
    few = np.arange(80) < 30
    wrong = group.h + np.where(few[:, None], np.einsum("jab,b->ja", group.Q, [3.0, 0.0]), 0.0)
    thin = changed(last, h=wrong, n_responses=np.where(few, 19, 50))
    row = drift_of([*world.placed[:2], thin]).periods.row(-1, named=True)
    assert (row["tested"], row["judged"]) == (80, 50)
    assert row["inflation"] < row["inflation_high"]
    assert fine["judged"].to_list() == [80, 80, 80]
    nobody = drift_of([*world.placed[:2], changed(last, n_responses=np.full(80, 5))]).periods.row(-1, named=True)
    assert (nobody["judged"], nobody["inflation"]) == (0, None)
