"""Items that moved are listed in the period they moved in; where nothing moved nothing is."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from phi_worlds import phi_world

from concal.calibration.fit.pvalues import benjamini_hochberg
from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.drift.difference import score_change
from concal.consensus.drift.drift import find_drift
from concal.consensus.joint.consensus import combine_jointly
from concal.spec import ConsensusSpec

MOVED = {(2, j): (1.5 if j % 24 else -1.5) for j in range(0, 120, 12)} | {(1, 5): 1.5}


@pytest.fixture(scope="module")
def drifted():
    return phi_world(seed=41, n_items=120, share=0.9, error=(0.04, 0.12), drift=MOVED)


@pytest.fixture(scope="module")
def still():
    return phi_world(seed=42, n_items=250, share=0.8, error=(0.05, 0.4), n_periods=4)


def drift_of(placed, half_life=None, **options):
    return find_drift(placed, consensus_from_totals(sum_periods(placed, half_life)), half_life=half_life, **options)


def test_items_are_flagged_in_their_period_with_the_right_direction(drifted):
    table = drift_of(drifted.placed).items
    listed = {(r["period"], r["item_id"]): r for r in table.filter("drifted").iter_rows(named=True)}
    tested = {(r["period"], r["item_id"]) for r in table.iter_rows(named=True)}
    for (m, j), change in MOVED.items():
        key = (f"P{m + 1}", f"item-{j:03d}")
        if key in tested:
            row = listed[key]
            assert row["direction"] == ("harder" if change > 0 else "easier")
            assert np.sign(row["score_shift"]) == -np.sign(change)
            assert row["d_shift"] == pytest.approx(change, abs=4 * row["d_shift_sd"] + 0.3)
            assert row["score_size"] > 0.05
            # without it the link's B goes the other way
            assert np.sign(row["leave_out_B"]) == np.sign(change)
    items = {f"item-{j:03d}" for _, j in MOVED}
    others = [key for key in listed if key[1] not in items]
    assert len(others) <= 3


def test_the_worst_period_of_an_item_is_the_one_it_moved_in(drifted):
    table = drift_of(drifted.placed).items
    for m, j in MOVED:
        mine = table.filter(table["item_id"] == f"item-{j:03d}").sort("p_value")
        if mine.height == 3:  # with two periods either may have moved
            assert mine["period"][0] == f"P{m + 1}"


def test_nothing_is_listed_where_nothing_moved(still):
    found = drift_of(still.placed)
    assert found.items["drifted"].mean() < 0.005
    assert abs((found.items["p_value"] < 0.1).mean() - 0.1) < 0.03
    np.testing.assert_allclose(found.periods["inflation"], 1.0, atol=0.2)
    assert found.periods["tested"].sum() == found.items.height
    np.testing.assert_allclose(found.periods["mean_score_shift"], 0.0, atol=0.02)


def test_items_of_one_period_are_not_tested(still):
    counts = np.zeros(250, int)
    for p in still.placed:
        for i in p.factors.groups["g"].item_ids:
            counts[int(i[-3:])] += 1
    tested = drift_of(still.placed).items["item_id"].value_counts()
    for item, n in tested.iter_rows():
        assert n == counts[int(item[-3:])] > 1
    alone = drift_of(still.placed[:1])
    assert alone.items.is_empty()
    assert alone.periods.is_empty()


def test_order_of_periods_matters_only_where_two_disagree(drifted):
    one, other = (drift_of([drifted.placed[m] for m in order]).items for order in ((0, 1, 2), (2, 0, 1)))
    tied = [t.filter("drifted").group_by("item_id").agg(n=pl.len()) for t in (one, other)]
    assert tied[0].sort("item_id").equals(tied[1].sort("item_id"))
    three = one["item_id"].value_counts().filter(pl.col("count") == 3)["item_id"].implode()
    one, other = (t.filter(pl.col("item_id").is_in(three) | pl.col("movers").is_null()) for t in (one, other))
    columns = ["item_id", "period", "distance", "p_value", "d_shift"]
    one, other = (t.select(columns).sort("item_id", "period") for t in (one, other))
    assert one.select("item_id", "period").equals(other.select("item_id", "period"))
    for name in columns[2:]:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-9)


def test_half_life_fades_what_the_others_say(drifted):
    """At a tiny half-life nothing is left of the others but the prior; the newest factor stands alone."""
    plain, faded = drift_of(drifted.placed), drift_of(drifted.placed, half_life=0.02)
    last = faded.items.filter(faded.items["period"] == "P3")
    strong = plain.items.filter(plain.items["period"] == "P3")
    assert last["distance"].max() < 0.3 * strong["distance"].max()
    assert (last["p_value"] < 0.01).mean() < 0.05


def test_the_list_follows_the_rate(drifted):
    table = drift_of(drifted.placed, fdr=0.2).items
    strict = drift_of(drifted.placed, fdr=1e-6).items
    assert strict["drifted"].sum() < table["drifted"].sum()
    assert (table.filter("drifted")["item_q_value"] <= 0.2).all()


def test_what_matters_most_for_scores_comes_first(drifted):
    table = drift_of(drifted.placed).items
    n = table["drifted"].sum()
    assert table["drifted"][:n].all()
    for part in (table[:n], table[n:]):
        assert part["score_size"].drop_nulls().is_sorted(descending=True)
        assert part["score_size"].is_null().cast(int).is_sorted()


def test_scores_shift_where_the_examinees_are(drifted):
    """The same periods with examinees far above the items: hardly anybody's score changes."""
    consensus = consensus_from_totals(sum_periods(drifted.placed))
    near = find_drift(drifted.placed, consensus)
    flagged = near.items.filter("drifted")
    model, xi = drifted.model, np.array([[0.0, 0.0]])
    here, there = (score_change(model, xi, xi + np.array([[0.5, 0.0]]), np.ones(1), np.array([b])) for b in (0.0, 5.0))
    assert here[0] == pytest.approx(-here[1], rel=0.1)
    assert abs(there[0]) < 0.1 * abs(here[0])
    assert (flagged["score_size"] >= flagged["score_shift"].abs() - 1e-12).all()


def test_intervals_of_the_shifts_hold_what_moved():
    rng = np.random.default_rng(7)
    moves = {(2, j): rng.uniform(0.4, 1.0, 2) * rng.choice([-1, 1], 2) for j in range(0, 120, 3)}
    world = phi_world(seed=44, n_items=120, share=1.0, error=(0.05, 0.15), links=False, drift=moves)
    table = drift_of(world.placed).items.filter(period="P3")
    rows = {r["item_id"]: r for r in table.iter_rows(named=True)}
    truth = np.array([moves.get((2, int(name[-3:])), np.zeros(2)) for name in rows])
    for k, name in enumerate(("d", "log_a")):
        shift, sd = (np.array([r[f"{name}_shift{part}"] for r in rows.values()]) for part in ("", "_sd"))
        inside = np.abs(shift - truth[:, k]) < 1.645 * sd
        moved = truth[:, k] != 0.0
        assert inside[moved].mean() >= 0.8
        assert 0.8 <= inside[~moved].mean() <= 0.98
        fit = (shift[moved] @ truth[moved, k]) / (truth[moved, k] @ truth[moved, k])
        assert fit == pytest.approx(1.0, abs=0.1)


def test_shifts_do_not_depend_on_how_alike_the_items_are(drifted):
    """An item that moved is as far away in a bank whose items are nearly alike."""
    consensus = consensus_from_totals(sum_periods(drifted.placed))
    tight = replace(consensus.groups["g"], sigma=np.diag([1.0, 0.03**2]))
    columns = ["d_shift", "d_shift_sd", "log_a_shift", "log_a_shift_sd", "score_shift", "score_size"]
    shifts = []
    for group in (consensus.groups["g"], tight):
        table = find_drift(drifted.placed, replace(consensus, groups={"g": group}), fdr=0.0).items
        shifts.append(table.sort("item_id", "period").select("item_id", "period", *columns))
    one, other = shifts[0].join(shifts[1], on=["item_id", "period"], suffix="_tight"), shifts[1]
    assert one.height > 0.9 * other.height
    for name in columns:
        np.testing.assert_allclose(one[name], one[f"{name}_tight"])


def test_a_period_whose_others_all_moved_has_nothing_to_differ_from(drifted):
    table = drift_of(drifted.placed).items
    alone = table.filter((pl.col("movers").str.count_matches(",") + 2 == pl.len().over("item_id")) & ~pl.col("drifted"))
    assert alone.height
    assert alone["d_shift"].is_null().all()
    assert alone["direction"].is_null().all()
    assert table.filter("drifted")["d_shift"].is_not_null().all()


def test_joint_links_are_used_where_they_are_in_force(drifted):
    consensus = combine_jointly(drifted.placed, sum_periods(drifted.placed), ConsensusSpec(seed=1))
    table = find_drift(drifted.placed, consensus).items
    flagged = set(table.filter("drifted").select("period", "item_id").iter_rows())
    keys = {(f"P{m + 1}", f"item-{j:03d}") for m, j in MOVED}
    tested = set(table.select("period", "item_id").iter_rows())
    assert len(keys & flagged) >= 0.9 * len(keys & tested)


def test_benjamini_hochberg_by_hand():
    got = benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.5]))
    np.testing.assert_allclose(got, [0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert benjamini_hochberg(np.zeros(0)).size == 0
    rng = np.random.default_rng(1)
    p = np.sort(rng.random(50))
    q = benjamini_hochberg(p)
    assert (np.diff(q) >= 0).all()
    slow = [min(1.0, *(p[k] * 50 / (k + 1) for k in range(j, 50))) for j in range(50)]
    np.testing.assert_allclose(q, slow)
    order = rng.permutation(50)
    np.testing.assert_allclose(benjamini_hochberg(p[order]), q[order])
