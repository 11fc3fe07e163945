"""Haebara's criterion with a common curve per anchor."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from concal import LinkError
from concal.linking import joint
from concal.linking.criteria import Anchors, make_loss, make_quadrature
from concal.linking.joint import solve_joint
from concal.linking.parameters import link_parameters
from concal.metric import move_items

QUADRATURE = make_quadrature(np.linspace(-4.0, 4.0, 41))
LOSSES = {
    "squared": make_loss("squared"),
    "pseudo_huber": make_loss("pseudo_huber", delta=0.05),
    "power": make_loss("power", power=1.5, eps=1e-3),
}
FORMATS = [("2pl", None), ("3pl", None), ("gpcm", 4), ("grm", 3), ("beta", None), ("ordered_beta", None)]


def two_tables(make_items, name="2pl", categories=None, *, A=1.3, B=-0.4, noise=0.0, n=12):
    """The same items seen from two metrics, with noise of their own on either side."""
    model, _, xi = make_items(n, name, categories=categories)
    rng = np.random.default_rng(5)
    foc = move_items(xi, 1.0 / A, -B / A) + noise * rng.normal(size=xi.shape)
    ref = xi + noise * rng.normal(size=xi.shape)
    return Anchors(model, model, ref[None], foc[None], np.linspace(0.5, 1.5, n))


def reversed_tables(anchors):
    return Anchors(anchors.foc_model, anchors.ref_model, anchors.foc, anchors.ref, anchors.omega)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("name", "categories"), FORMATS, ids=[f[0] for f in FORMATS])
def test_matching_curves_are_recovered(make_items, name, categories, loss):
    anchors = two_tables(make_items, name, categories)
    np.testing.assert_allclose(solve_joint(anchors, LOSSES[loss], QUADRATURE), [1.3, -0.4], atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("name", "categories"), FORMATS, ids=[f[0] for f in FORMATS])
def test_reversed_tables_give_the_inverse(make_items, name, categories, loss):
    anchors = two_tables(make_items, name, categories, noise=0.1)
    A, B = solve_joint(anchors, LOSSES[loss], QUADRATURE)
    back = solve_joint(reversed_tables(anchors), LOSSES[loss], QUADRATURE)
    assert abs(A - 1.3) > 1e-4  # the noise did move the link, so there is something to compare
    np.testing.assert_allclose(back, [1.0 / A, -B / A], atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_agrees_with_a_general_optimiser(make_items, loss):
    """The criterion written out for 2PL items, minimised without derivatives of ours."""
    anchors = two_tables(make_items, noise=0.15, n=5)
    t, w = QUADRATURE.nodes, QUADRATURE.weights
    (d_ref, log_a_ref), (d_foc, log_a_foc) = anchors.ref[0].T, anchors.foc[0].T

    def curve(theta, d, log_a):
        return 1.0 / (1.0 + np.exp(-np.exp(log_a)[:, None] * (theta - d[:, None])))

    def at(point):
        A, B, (d, log_a) = np.exp(point[0]), point[1], point[2:].reshape(2, -1)
        to_ref = curve(t, d, log_a) - curve(t, d_ref, log_a_ref)
        to_foc = curve(A * t + B, d, log_a) - curve(t, d_foc, log_a_foc)
        return 1e4 * float(anchors.omega @ sum(LOSSES[loss].value(z)[0] for z in (to_ref, to_foc)) @ w)

    start = np.r_[np.log(1.3), -0.4, d_ref, log_a_ref]
    found = optimize.minimize(at, start, method="BFGS", options={"gtol": 1e-6, "maxiter": 2000})
    want = [np.exp(found.x[0]), found.x[1]]
    np.testing.assert_allclose(solve_joint(anchors, LOSSES[loss], QUADRATURE), want, atol=1e-5)


def test_a_drifted_anchor_moves_the_robust_link_less(make_items):
    anchors = two_tables(make_items, n=20)
    anchors.foc[0, 3, 0] += 1.0
    off = [abs(solve_joint(anchors, LOSSES[loss], QUADRATURE)[1] + 0.4) for loss in ("squared", "pseudo_huber")]
    assert off[1] < 0.5 * off[0]


def test_scale_of_weights_is_irrelevant(make_items):
    one = two_tables(make_items, noise=0.1)
    other = Anchors(one.ref_model, one.foc_model, one.ref, one.foc, 700.0 * one.omega)
    loss = LOSSES["pseudo_huber"]
    np.testing.assert_allclose(solve_joint(one, loss, QUADRATURE), solve_joint(other, loss, QUADRATURE), atol=1e-10)
    unit = Anchors(one.ref_model, one.foc_model, one.ref, one.foc, np.ones(12))
    assert np.abs(np.subtract(solve_joint(one, loss, QUADRATURE), solve_joint(unit, loss, QUADRATURE))).max() > 1e-4


def test_public_name_and_common_items_only():
    ref = {"item_id": ["i", "j", "k", "x"], "a": [1.0, 0.8, 1.4, 1.0], "d": [-1.0, 0.2, 1.1, 3.0]}
    foc = {"item_id": ["k", "j", "i", "y"], "a": [2.8, 1.6, 2.0, 9.0], "d": [0.3, -0.15, -0.75, 0.0]}
    answer = link_parameters(ref, foc, method="haebara_joint")
    np.testing.assert_allclose([answer.A, answer.B], [2.0, 0.5], atol=1e-9)
    assert answer.converged
    assert answer.anchors == ("i", "j", "k")
    assert link_parameters(ref, foc, method="haebara_joint", grid_metric="own") == answer


def test_no_minimum_is_an_error(make_items, monkeypatch):
    monkeypatch.setattr(joint, "_MAX_PASSES", 1)
    anchors = two_tables(make_items, noise=0.2)
    with pytest.raises(LinkError, match=r"haebara_joint found no minimum; it stopped at A = .*symmetric"):
        solve_joint(anchors, LOSSES["squared"], QUADRATURE)
