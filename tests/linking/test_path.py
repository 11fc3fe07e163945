"""Ways to the reference metric for periods that hardly meet it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from concal import LinkError
from concal.consensus.result import Consensus, GroupConsensus
from concal.linking.period import link
from concal.linking.result import identity_link
from concal.spec import LinkingSpec


@dataclass
class Programme:
    periods: dict
    model: object
    ids: tuple
    xi: np.ndarray


@pytest.fixture(scope="module")
def chain(make_calibration, make_items):
    """q1 (reference) shares 40 items with q2, q2 shares 40 with q3; q1 and q3 share only 4."""
    model, ids, xi = make_items(120)
    pick = {"q1": range(60), "q2": range(20, 100), "q3": [*range(56, 120)], "far": range(110, 120)}
    metric = {"q1": (1.0, 0.0), "q2": (1.2, 0.3), "q3": (0.9, -0.5), "far": (1.1, 0.1)}
    periods = {}
    for k, (name, rows) in enumerate(pick.items()):
        rows = list(rows)
        items = {"v": ("x", model, [ids[r] for r in rows], xi[rows])}
        A, B = metric[name]
        periods[name] = make_calibration(name, items, A=A, B=B, seed=20 + k, noise=0.05)
    return Programme(periods, model, ids, xi)


def test_enough_anchors_go_straight(chain):
    p = chain.periods
    others = {"q3": (p["q3"], identity_link("q3", ("x",), 100))}
    assert link(p["q2"], p["q1"], others=others).path == {"x": ("q2", "q1")}


def test_through_another_period(chain):
    p = chain.periods
    first = link(p["q2"], p["q1"])
    second = link(p["q3"], p["q1"], others={"q2": (p["q2"], first)})
    assert second.path == {"x": ("q3", "q2", "q1")}
    np.testing.assert_allclose([second.A.mean(), second.B.mean()], [0.9, -0.5], atol=0.06)
    assert second.diagnostics["hops"][0] > first.diagnostics["hops"][0]
    assert second.B.std() > 0.5 * first.B.std()  # the first step's uncertainty is in the second


def test_three_steps(chain):
    p = chain.periods
    q2 = link(p["q2"], p["q1"])
    q3 = link(p["q3"], p["q1"], others={"q2": (p["q2"], q2)})
    far = link(p["far"], p["q1"], others={"q2": (p["q2"], q2), "q3": (p["q3"], q3)})
    assert far.path == {"x": ("far", "q3", "q2", "q1")}
    np.testing.assert_allclose([far.A.mean(), far.B.mean()], [1.1, 0.1], atol=0.15)


@pytest.mark.usefixtures("in_order")
def test_the_chain_is_draw_wise(chain):
    """Moving every draw of the middle period's link moves the outer link with it."""
    from dataclasses import replace

    p = chain.periods
    first = link(p["q2"], p["q1"])
    shift = np.linspace(-0.2, 0.2, 100)[:, None]
    moved = replace(first, B=first.B + shift)
    one = link(p["q3"], p["q1"], others={"q2": (p["q2"], first)})
    two = link(p["q3"], p["q1"], others={"q2": (p["q2"], moved)})
    np.testing.assert_allclose(two.B - one.B, shift, atol=0.05)


def consensus(chain, source="consensus"):
    n = len(chain.ids)
    group = GroupConsensus(
        "v",
        "x",
        chain.model,
        chain.ids,
        ("Intercept",),
        np.ones((n, 1)),
        chain.xi,
        np.tile(0.0025 * np.eye(2), (n, 1, 1)),
        np.full(n, source),
        np.full(n, 300),
        np.full(n, 2),
        np.zeros((1, 2)),
        np.eye(2),
    )
    return Consensus("analytic", "q1", ("x",), ("q1", "q2"), {"v": group})


def test_through_the_consensus_before_any_chain(chain):
    p = chain.periods
    others = {"q2": (p["q2"], link(p["q2"], p["q1"]))}
    answer = link(p["q3"], p["q1"], consensus=consensus(chain), others=others)
    assert answer.path == {"x": ("q3", "consensus", "q1")}
    np.testing.assert_allclose([answer.A.mean(), answer.B.mean()], [0.9, -0.5], atol=0.06)
    again = link(p["q3"], p["q1"], consensus=consensus(chain), others=others)
    np.testing.assert_array_equal(again.A, answer.A)


def test_predicted_items_of_the_consensus_are_no_anchors(chain):
    p = chain.periods
    others = {"q2": (p["q2"], link(p["q2"], p["q1"]))}
    answer = link(p["q3"], p["q1"], consensus=consensus(chain, "predicted"), others=others)
    assert answer.path == {"x": ("q3", "q2", "q1")}


def test_few_anchors_and_no_other_way_is_a_warning(chain):
    p = chain.periods
    answer = link(p["q3"], p["q1"])
    assert answer.path == {"x": ("q3", "q1")}
    assert any("only 4 anchors" in w and "min_anchors = 10" in w for w in answer.warnings)


def test_none_at_all_is_refused_with_the_counts(chain):
    p = chain.periods
    others = {"q2": (p["q2"], link(p["q2"], p["q1"]))}
    with pytest.raises(LinkError, match=r"'far'.*'x'.*at least 2 anchors.*q1: 0 shared, 0 usable"):
        link(p["far"], p["q1"], others=others)


def test_all_anchors_dropped_by_rhat(make_calibration, make_items):
    model, ids, xi = make_items(15)
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1)
    foc = make_calibration("q2", {"v": ("x", model, ids, xi)}, seed=2, rhat=dict.fromkeys(ids, 1.3))
    with pytest.raises(LinkError, match=r"15 shared, 0 usable \(15 dropped by R-hat > 1.05"):
        link(foc, ref)
    assert link(foc, ref, spec=LinkingSpec(max_rhat=1.5)).A.shape == (100, 1)


def test_a_dimension_without_items_is_left_alone(make_calibration, make_items):
    from dataclasses import replace

    model, ids, xi = make_items(15)
    ref = make_calibration("q1", {"v": ("x", model, ids, xi)}, seed=1)
    foc = replace(make_calibration("q2", {"v": ("x", model, ids, xi)}, seed=2), dimensions=("x", "y"))
    answer = link(foc, ref)
    assert (answer.A[:, 1] == 1).all()
    assert any("y: the period has no items" in w for w in answer.warnings)
