from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import constant_link, fixed_prior_period, make_world

from concal.combine.drift import benjamini_hochberg, find_drift, informative_part
from concal.combine.joint import JointOptions
from concal.combine.periods import combine
from concal.combine.summary import summarise_period
from concal.spec import ConsensusSpec

PLAIN = ConsensusSpec(finite_draw_correction=False, tilt=0)


@pytest.fixture(scope="module")
def drifted_anchors():
    """Three periods, 300 items; in the last one 20 % of its items became harder by one and a half units of d."""
    world = make_world(seed=31, n_items=300, n_periods=3, links=True, share=0.8, error=(0.1, 0.25))
    last = world.periods[2]
    moved = np.arange(0, len(last.item_ids), 5)
    y = last.y.copy()
    y[moved, 0] += 1.5 / last.A
    world = replace(world, periods=(*world.periods[:2], replace(last, y=y)))
    pairs = [(fixed_prior_period(world, p), constant_link(p, 400)) for p in world.periods]
    summaries = [
        summarise_period(c, link, reference="P1", finite_draw_correction=False, wobble=False) for c, link in pairs
    ]
    return world, summaries, {last.item_ids[j] for j in moved}


def test_drift_lists_the_items_that_moved(drifted_anchors):
    _, summaries, moved = drifted_anchors
    drift = find_drift(summaries, combine(summaries, spec=PLAIN))
    listed = drift.items.filter("drifted")
    hits = set(listed.filter(listed["period"] == "P3")["item_id"])
    testable = set(drift.items.filter(drift.items["period"] == "P3")["item_id"]) & moved
    assert len(hits & moved) > 0.9 * len(testable)
    here = listed.filter((listed["period"] == "P3") & listed["item_id"].is_in(list(moved)))
    assert set(here["direction"]) == {"harder"}
    assert here["score_shift"].max() < 0
    np.testing.assert_allclose(here["d_shift"].mean(), 1.5, atol=0.25)
    # leaving a harder item out of the link moves B the other way
    assert (here["leave_out_B"] > 0).mean() > 0.95


def test_nothing_moved_lists_next_to_nothing():
    world = make_world(seed=32, n_items=400, n_periods=3, share=0.8)
    pairs = [(fixed_prior_period(world, p), constant_link(p, 400)) for p in world.periods]
    summaries = [summarise_period(c, link, reference="P1", finite_draw_correction=False) for c, link in pairs]
    drift = find_drift(summaries, combine(summaries, spec=PLAIN))
    assert drift.items["drifted"].mean() < 0.005
    # p-values are uniform: the test has its size
    assert abs((drift.items["p_value"] < 0.1).mean() - 0.1) < 0.02
    np.testing.assert_allclose(drift.periods["inflation"], 1.0, atol=0.15)


def test_drifting_anchors_do_not_pull_the_joint_links(drifted_anchors):
    world, summaries, _ = drifted_anchors
    population = {"g": (world.beta, world.sigma)}
    found = {}
    for robust in (True, False):
        options = JointOptions(robust=robust, draws=100, fixed_population=population)
        links = combine(summaries, method="joint", spec=PLAIN, options=options).links
        row = links.filter(links["period"] == "P3")
        found[robust] = abs(row["B_mean"][0] - world.periods[2].B), row["B_sd"][0]
    assert found[True][0] < 4 * found[True][1]
    assert found[True][0] < 0.25 * found[False][0]


def test_benjamini_hochberg_by_hand():
    got = benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.5]))
    np.testing.assert_allclose(got, [0.04, 0.16 / 3, 0.16 / 3, 0.5])


def test_directions_without_information_move_nothing():
    rng = np.random.default_rng(8)
    sigma = np.array([[1.0, 0.1], [0.1, 0.09]])
    root = np.linalg.cholesky(sigma)
    U = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    unroot = np.linalg.inv(root)
    Q = unroot.T @ U @ np.diag([3.0, -0.5]) @ U.T @ unroot
    score = rng.normal(size=2)
    kept, moved = informative_part(Q[None], score[None], sigma)
    known = unroot.T @ U[:, 0]  # the direction the factor knows about
    np.testing.assert_allclose(kept[0], 3.0 * np.outer(known, known), atol=1e-12)
    np.testing.assert_allclose(moved[0], known * (U[:, 0] @ root.T @ score), atol=1e-12)
    whole = unroot.T @ U @ np.diag([3.0, 0.5]) @ U.T @ unroot
    kept, moved = informative_part(whole[None], score[None], sigma)
    np.testing.assert_allclose(kept[0], whole, atol=1e-12)
    np.testing.assert_allclose(moved[0], score, atol=1e-12)
