"""The compiled sums against plain NumPy, for every response model there is."""

from __future__ import annotations

import numpy as np
import pytest

from concal.linking import kernels
from concal.linking.criteria import Anchors, Loss, make_loss, make_quadrature
from concal.linking.solve import Criterion, _Objective
from concal.metric import move_items
from concal.response import make_model, model_class, model_names

MODELS = list(model_names())


def anchors(name, n=40, draws=2, seed=0):
    model = make_model(name, 4 if model_class(name).polytomous else None)
    rng = np.random.default_rng(seed)
    center, sd = np.array(model.prior.mean), np.minimum(np.array(model.prior.sd), 1.0)
    ref = center + sd * rng.normal(size=(draws, n, center.size))
    foc = move_items(ref, 1 / 1.2, -0.3) + 0.05 * rng.normal(size=ref.shape)
    return Anchors(model, model, ref, foc, rng.uniform(0.5, 2.0, size=n))


def slow_value(block, criterion, x, B):
    """The criterion of METHOD.md written down directly."""
    t, w = criterion.quadrature.nodes, criterion.quadrature.weights
    A = np.exp(x)
    total = 0.0
    sides = ("ref", "focal") if criterion.grid_metric == "symmetric" else (criterion.grid_metric,)
    for side in sides:
        at_ref, at_foc = (t, (t - B) / A) if side == "ref" else (A * t + B, t)
        r = block.ref_model.expected_score(at_ref, block.ref[0][:, None, :])
        r = r - block.foc_model.expected_score(at_foc, block.foc[0][:, None, :])
        if criterion.method == "stocking_lord":
            total += criterion.loss.value(block.omega @ r)[0] @ w
        else:
            total += block.omega @ criterion.loss.value(r)[0] @ w
    return total / block.omega.sum()


LOSSES = [make_loss("squared"), make_loss("pseudo_huber", delta=0.05), make_loss("power", power=0.7, eps=1e-3)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("metric", ["ref", "focal", "symmetric"])
@pytest.mark.parametrize("loss", LOSSES, ids=["squared", "pseudo_huber", "power"])
def test_value_and_gradient(name, metric, loss):
    block = anchors(name)
    criterion = Criterion("haebara", loss, make_quadrature(np.linspace(-5, 5, 41)), metric)
    x, B, which = np.array([0.1]), np.array([0.2]), np.array([0])
    value, gradient, hessian = _Objective([block], criterion, exact=True)(x, B, which)
    assert value[0] == pytest.approx(slow_value(block, criterion, x[0], B[0]), rel=1e-10)
    h = 1e-5
    for k, (dx, db) in enumerate(((h, 0.0), (0.0, h))):
        up, down = (slow_value(block, criterion, x[0] + s * dx, B[0] + s * db) for s in (1, -1))
        assert gradient[0, k] == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-9)
    single = _Objective([block], criterion, exact=False)(x, B, which)
    np.testing.assert_allclose(single[1], gradient, rtol=1e-4, atol=2e-7)
    np.testing.assert_allclose(single[2], hessian, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("metric", ["ref", "focal", "symmetric"])
@pytest.mark.parametrize("loss", LOSSES, ids=["squared", "pseudo_huber", "power"])
def test_stocking_lord_gradient(metric, loss):
    block = anchors("3pl")
    criterion = Criterion("stocking_lord", loss, make_quadrature(), metric)
    objective = _Objective([block], criterion, exact=True)
    x, B, which, h = np.array([0.1]), np.array([0.2]), np.array([0]), 1e-5
    value, gradient, _ = objective(x, B, which)
    assert value[0] == pytest.approx(slow_value(block, criterion, 0.1, 0.2), rel=1e-10)
    for k, (dx, db) in enumerate(((h, 0.0), (0.0, h))):
        up, down = (slow_value(block, criterion, 0.1 + s * dx, 0.2 + s * db) for s in (1, -1))
        assert gradient[0, k] == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("metric", ["ref", "focal", "symmetric"])
def test_hessian_is_close_to_differences_of_the_gradient(metric):
    block = anchors("2pl")
    objective = _Objective([block], Criterion("haebara", LOSSES[1], make_quadrature(), metric), exact=True)
    x, B, which, h = np.array([0.1]), np.array([0.2]), np.array([0]), 1e-5
    hessian = objective(x, B, which)[2][0]
    columns = []
    for dx, db in ((h, 0.0), (0.0, h)):
        up, down = (objective(x + s * dx, B + s * db, which)[1][0] for s in (1, -1))
        columns.append((up - down) / (2 * h))
    # second derivatives of curves come from neighbouring nodes: a few percent of the Newton matrix
    np.testing.assert_allclose(hessian, np.array(columns), atol=0.05 * np.abs(hessian).max())


def test_padding():
    nodes = np.linspace(-6, 6, 61)
    padded = kernels.pad_nodes(nodes)
    assert padded.size == kernels.padded_size(61) == 64
    np.testing.assert_allclose(np.diff(padded), 0.2)
    np.testing.assert_array_equal(padded[1:62], nodes)


def test_root_kernel_equals_power_one():
    block = anchors("2pl")
    q = make_quadrature()
    at = np.array([0.05]), np.array([-0.1]), np.array([1])
    root = _Objective([block], Criterion("haebara", Loss(kernels.ROOT, 1e-3, 1.0), q), exact=True)(*at)
    power = _Objective([block], Criterion("haebara", Loss(kernels.POWER, 1e-3, 1.0), q), exact=True)(*at)
    for one, other in zip(root, power, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
