"""Links that survive drift: which anchors go, what it does to B, and what the link says about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from concal.linking.criteria import Anchors, make_quadrature
from concal.linking.period import link
from concal.linking.two_groups import ScoreShifts, score_shifts, two_groups
from concal.response import make_model
from concal.spec import LinkingSpec

A_TRUE, B_TRUE = 1.2, 0.3
PAPER = LinkingSpec(purify="paper")


@pytest.fixture(scope="module")
def drifted(make_calibration, make_items):
    """345 anchors: 276 2pl that stayed, and 69 gpcm with noisy d, `shift` harder in the second period."""

    def build(seed, shift=0.5):
        stay = ("x", *make_items(276, "2pl", prefix="w", seed=seed))
        model, ids, xi = make_items(69, "gpcm", prefix="g", seed=seed + 50, categories=5)
        moved = xi.copy()
        moved[:, 0] += shift
        rng = np.random.default_rng(seed)
        sides = []
        for k, items in enumerate((xi, moved)):
            n = np.maximum(rng.lognormal(np.log(130), 0.8, size=345), 5).astype(int)
            counts = dict(zip((*stay[2], *ids), n, strict=True))
            groups = {"w": stay, "g": ("x", model, ids, items)}
            metric = {"A": A_TRUE, "B": B_TRUE} if k else {}
            sides.append(make_calibration(f"q{k}", groups, seed=2 * seed + k, counts=counts, informed=True, **metric))
        return sides

    return build


def bias(answer):
    """B's distance from the truth in its SDs."""
    return (answer.B.mean() - B_TRUE) / answer.B.std()


def dropped(answer, prefix=""):
    ids = answer.anchors.filter(answer.anchors["dropped_by"] == "purification")["item_id"]
    return {i for i in ids if i.startswith(prefix)}


def test_a_fifth_of_the_anchors_shifted(drifted):
    ours, papers = [], []
    for seed in range(3):
        ref, foc = drifted(seed)
        answer = link(foc, ref)
        ours.append(bias(answer))
        papers.append(bias(link(foc, ref, spec=PAPER)))
        assert len(dropped(answer, "g")) > 60
        assert len(dropped(answer, "w")) < 0.05 * 276
        assert any("were dropped as drifting" in w and "'g" in w for w in answer.warnings)
        gone = answer.anchors.filter(answer.anchors["dropped_by"] == "purification")
        assert (gone["residual"] < 0).mean() > 0.9  # harder
        assert (gone["drift_probability"] > 0.5).all()
        assert gone["round"].min() >= 1
    assert abs(np.mean(ours)) < 1.0
    assert np.abs(ours).max() < 2.5
    assert np.abs(papers).min() > 2.5
    assert np.abs(ours).max() < np.abs(papers).min()


def test_nothing_drifts(drifted):
    for seed in range(3):
        ref, foc = drifted(seed, shift=0.0)
        answer = link(foc, ref)
        assert len(dropped(answer)) <= 0.03 * 345
        assert answer.warnings == ()
        kept = answer.anchors.filter(answer.anchors["kept"])
        assert kept["residual"].null_count() == 0
        assert 0.8 < kept["residual"].std() < 1.2  # standardised


@pytest.mark.parametrize("model", ["2pl", "gpcm", "ordered_beta"])
@pytest.mark.parametrize("sides", [1, 2])
def test_every_format_and_both_sides(make_calibration, make_items, model, sides):
    m, ids, xi = make_items(120, model, categories=4 if model == "gpcm" else None)
    moved = xi.copy()
    moved[:36, 0] += np.where(np.arange(36) % sides == 0, 0.6, -0.6)
    ref = make_calibration("q1", {"v": ("x", m, ids, xi)}, seed=1)
    foc = make_calibration("q2", {"v": ("x", m, ids, moved)}, A=A_TRUE, B=B_TRUE, seed=2)
    answer = link(foc, ref)
    assert abs(bias(answer)) < 2.5
    assert len(dropped(answer) & set(ids[:36])) >= 27
    assert len(dropped(answer) - set(ids[:36])) <= 5


@pytest.mark.parametrize("n", [3, 10, 12, 15])
def test_a_handful_of_anchors(make_calibration, make_items, n):
    model, ids, xi = make_items(n)
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1)
    moved = xi.copy()
    moved[: n // 5, 0] += 0.8
    for later, least in ((xi, min(n, 10)), (moved, min(n, 10))):
        foc = make_calibration("q2", {"v": ("x", model, ids, later)}, A=A_TRUE, B=B_TRUE, seed=2)
        answer = link(foc, ref)
        assert answer.diagnostics["anchors"][0] >= least
        assert abs(bias(answer)) < 3
    if n == 15:
        assert dropped(answer) == set(ids[:3])


def test_precise_anchors_and_no_noise_at_all(make_calibration, make_items):
    model, ids, xi = make_items(40)
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1, noise=0.0)
    moved = xi.copy()
    moved[:8, 0] += 0.5
    foc = make_calibration("q2", {"v": ("x", model, ids, moved)}, A=A_TRUE, B=B_TRUE, seed=2, noise=0.0)
    answer = link(foc, ref)
    assert dropped(answer) == set(ids[:8])
    np.testing.assert_allclose(answer.B, B_TRUE, atol=1e-5)


def test_small_misfit_everywhere_drops_few(make_calibration, make_items):
    model, ids, xi = make_items(200)
    moved = xi.copy()
    moved[:, 0] += 0.15 * np.random.default_rng(8).normal(size=200)
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1, noise=0.05)
    foc = make_calibration("q2", {"v": ("x", model, ids, moved)}, seed=2, noise=0.05)
    assert len(dropped(link(foc, ref))) <= 0.05 * 200


def test_deterministic_and_whatever_the_order_of_items(drifted):
    ref, foc = drifted(0)
    one = link(foc, ref)
    np.testing.assert_array_equal(one.A, link(foc, ref, threads=1).A)
    group = foc.groups["g"]
    order = np.random.default_rng(1).permutation(group.n_items)
    shuffled = replace(
        group,
        item_ids=tuple(group.item_ids[k] for k in order),
        xi=group.xi[:, :, order],
        n_responses=group.n_responses[order],
        rhat=group.rhat[order],
    )
    two = link(replace(foc, groups={**foc.groups, "g": shuffled}), ref)
    np.testing.assert_array_equal(one.A, two.A)
    assert one.anchors.equals(two.anchors)
    assert one.warnings == two.warnings


def test_rounds_and_probability_are_options(drifted):
    ref, foc = drifted(0)
    assert not dropped(link(foc, ref, spec=LinkingSpec(purify_rounds=0)))
    strict = link(foc, ref, spec=LinkingSpec(purify_probability=0.99))
    assert dropped(strict) < dropped(link(foc, ref))
    assert link(foc, ref, spec=LinkingSpec(min_anchors=340)).diagnostics["anchors"][0] == 340


GOLDEN = [  # of the release before there was another rule
    ({}, 1.116762111264254, 0.27353718633752505, 0.030618704871158187, [70, 12, 11, 10, 9, 8], 25.727532563845056),
    (
        {"purify_of": "all"},
        1.1060854722306162,
        0.25791759175162715,
        0.03290034948014429,
        [60, 12, 12, 12, 12, 12],
        25.664832668708833,
    ),
    (
        {"purify_share": 0.05, "purify_rounds": 3},
        1.1469287287326655,
        0.26223653111035156,
        0.027962263399556896,
        [102, 6, 6, 6],
        26.403927190424568,
    ),
]


@pytest.mark.usefixtures("in_order")
@pytest.mark.parametrize(("options", "A", "B", "sd", "rounds", "residuals"), GOLDEN)
def test_the_papers_rule_is_what_it_was(make_calibration, make_items, options, A, B, sd, rounds, residuals):
    model, ids, xi = make_items(120, "gpcm", categories=4, seed=9)
    moved = xi.copy()
    moved[:24, 0] += 0.5
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1, noise=0.15)
    foc = make_calibration("q2", {"v": ("x", model, ids, moved)}, A=1.2, B=0.3, seed=2, noise=0.15)
    answer = link(foc, ref, spec=LinkingSpec(purify="paper", **options))
    np.testing.assert_allclose([answer.A.mean(), answer.B.mean(), answer.B.std()], [A, B, sd], rtol=1e-5)
    assert np.bincount(answer.anchors["round"].fill_null(0).to_numpy()).tolist() == rounds
    assert answer.anchors["residual"].abs().sum() == pytest.approx(residuals, rel=1e-5)
    assert answer.anchors["drift_probability"].null_count() == 120
    assert not any("drifting" in w for w in answer.warnings)


def test_score_shifts_are_what_they_say(make_items):
    """u, s and g against plain curves; an item made easier by .1 has u = .1 g."""
    model, _, xi = make_items(6, "gpcm", categories=4)
    rng = np.random.default_rng(3)
    ref, foc = (xi + 0.1 * rng.normal(size=(30, *xi.shape)) for _ in range(2))
    q = make_quadrature()
    found = score_shifts([Anchors(model, model, ref, foc, np.ones(6))], q, 1.3, 0.2)
    there = model.expected_score(q.nodes, ref[:, :, None, :]) @ q.weights
    here = model.expected_score((q.nodes - 0.2) / 1.3, foc[:, :, None, :]) @ q.weights
    np.testing.assert_allclose(found.mean, here.mean(axis=0) - there.mean(axis=0), atol=1e-5)
    variance = there.var(axis=0, ddof=1) + here.var(axis=0, ddof=1)
    np.testing.assert_allclose(found.sd, np.sqrt(variance), rtol=1e-4)
    easier = xi.copy()
    easier[:, 0] -= 0.01
    small = score_shifts([Anchors(model, model, xi[None], easier[None], np.ones(6))], q, 1.0, 0.0)
    np.testing.assert_allclose(small.mean, 0.01 * small.gain, rtol=0.01)


def test_two_groups_finds_center_and_minority():
    rng = np.random.default_rng(4)
    gain, sd = rng.uniform(0.05, 0.25, 300), rng.uniform(0.01, 0.03, 300)
    shift = np.where(np.arange(300) < 90, -0.7, 0.0) + 0.2
    found = two_groups(ScoreShifts(gain * shift + sd * rng.normal(size=300), sd, gain, np.zeros(300, int)))
    assert found.center == pytest.approx(0.2, abs=0.03)
    clear = gain / sd > 8
    assert ((found.probability > 0.5) == (shift < 0))[clear].mean() > 0.97
    assert found.misfit < 0.05


def test_a_format_that_moved_as_a_whole_has_its_own_share():
    rng = np.random.default_rng(5)
    gain, sd = np.full(345, 0.2), np.full(345, 0.08)  # .4 on the metric: a shift of .6 is 1.5 SDs of one anchor
    group = (np.arange(345) >= 276).astype(int)
    u = gain * np.where(group == 1, 0.6, 0.0) + sd * rng.normal(size=345)
    apart = two_groups(ScoreShifts(u, sd, gain, group))
    together = two_groups(ScoreShifts(u, sd, gain, np.zeros(345, int)))
    stayed, moved = apart.probability[:276] <= 0.5, apart.probability[276:] > 0.5
    assert stayed.mean() > 0.97
    assert moved.mean() > 0.8
    assert moved.mean() > (together.probability[276:] > 0.5).mean() + 0.1
    assert apart.center == pytest.approx(0.0, abs=0.05)


def test_few_effective_anchors_are_warned_about(make_calibration, make_items):
    model, ids, xi = make_items(30)
    few = dict.fromkeys(ids[4:], 3)
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1)
    foc = make_calibration("q2", {"v": ("x", model, ids, xi)}, seed=2, counts=few)
    assert any("effective anchors of" in w for w in link(foc, ref).warnings)
    usual = make_calibration("q2", {"v": ("x", model, ids, xi)}, seed=2)
    assert not any("effective" in w for w in link(usual, ref).warnings)


def test_methods_that_disagree_are_warned_about(make_calibration, make_items):
    """Five easy items far off: the moments of d follow them, the curves do not."""
    model, ids, xi = make_items(60)
    moved = xi.copy()
    moved[:5, 0] -= 3.0
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1, noise=0.03)
    foc = make_calibration("q2", {"v": ("x", model, ids, moved)}, seed=2, noise=0.03)
    warnings = link(foc, ref, spec=LinkingSpec(purify_rounds=0)).warnings
    assert any("other methods" in w and "log_mean_mean" in w for w in warnings)
    assert not any("other methods" in w for w in link(foc, ref).warnings)


def test_halves_that_disagree_are_warned_about(make_calibration, make_items):
    """Every item moved by much more than its SD: the halves' links differ by more than theirs."""
    model, ids, xi = make_items(40)
    moved = xi.copy()
    moved[:, 0] += 0.5 * np.random.default_rng(1).normal(size=40)
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1, noise=0.02)
    foc = make_calibration("q2", {"v": ("x", model, ids, moved)}, seed=2, noise=0.02)
    spec = LinkingSpec(purify_rounds=0)
    assert any("halves of the anchors disagree" in w for w in link(foc, ref, spec=spec).warnings)
    same = make_calibration("q2", {"v": ("x", model, ids, xi)}, seed=2, noise=0.02)
    assert link(same, ref, spec=spec).warnings == ()


def test_well_behaved_links_are_not_warned_about(make_calibration, make_items):
    model, ids, xi = make_items(60)
    for seed in range(20):
        ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=2 * seed + 100)
        foc = make_calibration("q2", {"v": ("x", model, ids, xi)}, A=0.9, B=-0.2, seed=2 * seed + 101)
        assert link(foc, ref).warnings == ()


def test_an_item_that_changed_its_format_has_curves_on_both_sides(make_items):
    binary, _, xi = make_items(8)
    graded = make_model("gpcm", 3)
    other = np.concatenate([xi, np.zeros((8, 1))], axis=1)
    found = score_shifts([Anchors(binary, graded, xi[None], other[None], np.ones(8))], make_quadrature(), 1.0, 0.0)
    assert np.isfinite(found.mean).all()
