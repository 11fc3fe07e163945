"""Which anchors stay, which go, and that the record says why."""

from __future__ import annotations

import numpy as np
import pytest

from concal.linking.anchors import anchor_weights, find_anchors, period_source
from concal.linking.period import link
from concal.linking.purify import paper_rule
from concal.spec import LinkingSpec


@pytest.fixture(scope="module")
def two_periods(make_calibration, make_items):
    model, ids, xi = make_items(60)
    later = (*ids[20:], *(f"new{k}" for k in range(10)))
    xi_later = np.vstack([xi[20:], xi[:10]])
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1, rhat={"i0030": 1.2}, noise=0.05)
    foc = make_calibration(
        "q2",
        {"v": ("x", model, later, xi_later)},
        A=1.2,
        B=0.3,
        seed=2,
        rhat={"i0031": 1.06, "i0032": 1.04},
        counts={"i0033": 0},
        noise=0.05,
    )
    return ref, foc


def test_candidates_are_the_common_items_and_screened(two_periods):
    ref, foc = two_periods
    found = find_anchors(period_source(foc), period_source(ref), "x", 1.05)
    assert found.item_ids == tuple(f"i{k:04d}" for k in range(20, 60))
    why = dict(zip(found.item_ids, found.dropped_by.tolist(), strict=True))
    assert {i: w for i, w in why.items() if w} == {"i0030": "rhat", "i0031": "rhat", "i0033": "responses"}
    assert found.n_kept == 37


def test_record_of_every_candidate(two_periods):
    ref, foc = two_periods
    table = link(foc, ref, spec=LinkingSpec(purify="paper")).anchors
    assert table.height == 40
    assert set(table["dropped_by"].drop_nulls().unique()) == {"rhat", "responses", "purification"}
    dropped = table.filter(table["dropped_by"] == "purification")
    assert dropped["round"].null_count() == 0
    assert dropped["residual"].null_count() == 0
    assert table.filter(table["kept"])["influence_B"].null_count() == 0
    assert table["displacement"].null_count() == 0  # dropped anchors too: that is where drift is seen
    assert table.filter(~table["kept"])["weight"].sum() == 0.0
    assert table.filter(table["kept"])["weight"].mean() == pytest.approx(1.0)


def purify_these(d_ref, d_foc, **options):
    n = len(d_ref)
    from concal.linking.anchors import Candidates

    place = np.stack([np.zeros(n, dtype=np.int64), np.arange(n)], axis=1)
    start = Candidates(
        "x",
        tuple(f"i{k}" for k in range(n)),
        ("v",) * n,
        place,
        place,
        np.full(n, 100),
        np.full(n, 100),
        np.full(n, "", dtype="U12"),
        np.zeros(n, dtype=np.int64),
        np.full(n, np.nan),
        np.full(n, np.nan),
    )
    return paper_rule(start, d_ref, d_foc, LinkingSpec(**options))


def test_purification_follows_the_papers_rule():
    rng = np.random.default_rng(3)
    d_foc = rng.normal(size=100)
    d_ref = 1.1 * d_foc + 0.2 + 0.1 * rng.normal(size=100)
    d_ref[:5] += 1.5
    done = purify_these(d_ref, d_foc)
    counts = [int((done.round == r).sum()) for r in range(1, 6)]
    assert counts == [10, 9, 8, 8, 7]  # a tenth of what is left, five times: 100, 90, 81, 73, 65
    assert (done.round[:5] == 1).all()
    np.testing.assert_array_less(0.8, np.abs(done.residual[:5]))
    of_all = purify_these(d_ref, d_foc, purify_of="all")
    assert [int((of_all.round == r).sum()) for r in range(1, 6)] == [10] * 5  # a tenth of the hundred, five times
    np.testing.assert_array_equal(of_all.round == 1, done.round == 1)


def test_a_share_of_all_never_empties_the_anchors():
    rng = np.random.default_rng(6)
    d_foc = rng.normal(size=10)
    d_ref = d_foc + 0.1 * rng.normal(size=10)
    done = purify_these(d_ref, d_foc, purify_of="all", purify_share=0.4, purify_rounds=20, min_anchors=2)
    assert done.n_kept == 2
    assert purify_these(d_ref[:0], d_foc[:0], purify_of="all").n_kept == 0


def test_first_round_is_the_top_decile_of_a_mean_sigma_link():
    rng = np.random.default_rng(4)
    d_foc = rng.normal(size=40)
    d_ref = d_foc + 0.2 * rng.normal(size=40)
    A = d_ref.std() / d_foc.std()
    size = np.abs(d_ref - A * d_foc - (d_ref.mean() - A * d_foc.mean()))
    done = purify_these(d_ref, d_foc, purify_rounds=1)
    assert set(np.flatnonzero(done.round == 1)) == set(np.argsort(size)[-4:])


def test_purification_stops_where_it_should():
    rng = np.random.default_rng(5)
    d_foc = rng.normal(size=12)
    d_ref = d_foc + 0.1 * rng.normal(size=12)
    assert purify_these(d_ref, d_foc).n_kept == 10  # never below min_anchors
    assert purify_these(d_ref, d_foc, purify_rounds=0).n_kept == 12
    assert purify_these(d_ref, d_foc, purify_share=0.0).n_kept == 12
    assert purify_these(1.2 * d_foc + 0.5, d_foc, min_anchors=2).n_kept == 12  # nothing to drop in a perfect link


def test_weights():
    omega = anchor_weights([100, 100, 1000], [100, 5, 5], "harmonic")
    assert omega.mean() == pytest.approx(1.0)
    assert omega[0] > 10 * omega[1]
    assert omega[2] == pytest.approx(omega[1], rel=0.06)  # the side with 5 responses decides
    np.testing.assert_array_equal(anchor_weights([1, 50], [3, 9], "unit"), [1.0, 1.0])
    np.testing.assert_allclose(
        anchor_weights([100, 100, 1000], [100, 5, 5], "counts"), np.array([40, 21, 201]) * 3 / 262
    )


def test_unknown_rhat_is_said(make_calibration, make_items):
    model, ids, xi = make_items(20)
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1)
    foc = make_calibration("q2", {"v": ("x", model, ids, xi)}, seed=2, rhat={ids[3]: np.nan, ids[4]: 1.2})
    answer = link(foc, ref)
    assert any("1 anchor without R-hat" in w for w in answer.warnings)
    assert answer.anchors.filter(answer.anchors["item_id"] == ids[4])["dropped_by"][0] == "rhat"
