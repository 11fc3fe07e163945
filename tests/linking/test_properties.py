"""What any linking method must hold, whatever the items."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concal.linking.parameters import link_parameters
from concal.metric import move_items
from concal.response import make_model, model_class, model_names
from concal.response.natural import natural_from_xi

pytestmark = pytest.mark.property
METHODS = ["haebara", "stocking_lord", "mean_mean", "mean_sigma", "log_mean_mean"]
CURVES = [("haebara", "squared"), ("haebara", "pseudo_huber"), ("haebara", "power"), ("stocking_lord", "squared")]


def table(model, xi, ids=None):
    ids = [f"i{k:03d}" for k in range(len(xi))] if ids is None else ids
    return {"item_id": np.array(ids), **natural_from_xi(model, xi)}


def items(model, n, seed):
    rng = np.random.default_rng(seed)
    sd = np.minimum(np.array(model.prior.sd), 0.7)
    return np.array(model.prior.mean) + sd * rng.normal(size=(n, sd.size))


def pair(seed, n=25, A=1.25, B=-0.4, noise=0.15):
    model = make_model("2pl")
    xi = items(model, n, seed)
    rng = np.random.default_rng(seed + 1000)
    return model, xi, move_items(xi, 1 / A, -B / A) + noise * rng.normal(size=xi.shape)


seeds = st.integers(0, 10_000)
slopes = st.floats(0.5, 2.0)
shifts = st.floats(-1.5, 1.5)
quick = settings(max_examples=15, deadline=None, derandomize=True)


@pytest.mark.parametrize("name", list(model_names()))
@pytest.mark.parametrize("method", METHODS)
def test_exact_recovery_when_curves_match(name, method):
    model = make_model(name, 4 if model_class(name).polytomous else None)
    xi = items(model, 12, 5)
    foc = move_items(xi, 1 / 1.3, -0.6 / 1.3)
    answer = link_parameters(table(model, xi), table(model, foc), method=method, model=model)
    np.testing.assert_allclose([answer.A, answer.B], [1.3, 0.6], atol=1e-8)


@quick
@given(seed=seeds, A=slopes, B=shifts)
def test_exact_recovery_anywhere(seed, A, B):
    model = make_model("2pl")
    xi = items(model, 15, seed)
    foc = move_items(xi, 1 / A, -B / A)
    for method, loss in CURVES:
        answer = link_parameters(table(model, xi), table(model, foc), method=method, loss=loss, power=1.5, eps=1e-3)
        np.testing.assert_allclose([answer.A, answer.B], [A, B], atol=1e-7)


@quick
@given(seed=seeds, C=slopes, D=shifts)
def test_equivariance_of_the_focal_metric(seed, C, D):
    """The period on a metric theta' = C theta + D has the link (A / C, B - A D / C); nodes stay on the reference."""
    model, ref, foc = pair(seed)
    for method, loss in CURVES:
        options = {"method": method, "loss": loss, "power": 1.5, "eps": 1e-3}
        one = link_parameters(table(model, ref), table(model, foc), **options)
        two = link_parameters(table(model, ref), table(model, move_items(foc, C, D)), **options)
        np.testing.assert_allclose([two.A, two.B], [one.A / C, one.B - one.A * D / C], atol=1e-7)


@quick
@given(seed=seeds, C=slopes, D=shifts)
def test_equivariance_of_both_metrics_for_moments(seed, C, D):
    model, ref, foc = pair(seed)
    for method in ("mean_mean", "mean_sigma", "log_mean_mean"):
        one = link_parameters(table(model, ref), table(model, foc), method=method)
        two = link_parameters(table(model, move_items(ref, C, D)), table(model, foc), method=method)
        np.testing.assert_allclose([two.A, two.B], [C * one.A, C * one.B + D], atol=1e-9)


@quick
@given(seed=seeds)
def test_order_of_anchors_is_irrelevant(seed):
    model, ref, foc = pair(seed)
    order = np.random.default_rng(seed).permutation(len(ref))
    shuffled = {name: values[order] for name, values in table(model, foc).items()}
    for method, loss in CURVES:
        options = {"method": method, "loss": loss, "power": 1.5, "eps": 1e-3}
        assert link_parameters(table(model, ref), table(model, foc), **options) == link_parameters(
            table(model, ref), shuffled, **options
        )


@quick
@given(seed=seeds)
def test_reference_to_itself(seed):
    model, ref, _ = pair(seed)
    for method in METHODS:
        answer = link_parameters(table(model, ref), table(model, ref), method=method)
        np.testing.assert_allclose([answer.A, answer.B], [1.0, 0.0], atol=1e-9)


@quick
@given(seed=seeds)
def test_swapping_roles_inverts_the_symmetric_link(seed):
    model, ref, foc = pair(seed)
    for method, loss in CURVES:
        options = {"method": method, "loss": loss, "power": 1.5, "eps": 1e-3, "grid_metric": "symmetric"}
        there = link_parameters(table(model, ref), table(model, foc), **options)
        back = link_parameters(table(model, foc), table(model, ref), **options)
        np.testing.assert_allclose([back.A, back.B], [1 / there.A, -there.B / there.A], atol=1e-7)


@quick
@given(seed=seeds)
def test_swapping_roles_swaps_ref_and_focal(seed):
    model, ref, foc = pair(seed)
    there = link_parameters(table(model, ref), table(model, foc), grid_metric="ref")
    back = link_parameters(table(model, foc), table(model, ref), grid_metric="focal")
    np.testing.assert_allclose([back.A, back.B], [1 / there.A, -there.B / there.A], atol=1e-7)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("metric", ["ref", "focal", "symmetric"])
def test_drifted_anchors_move_the_robust_link_less(seed, metric):
    """20 % of the anchors drift to one side by 0.8; only B is asked, since location drift is what moves it."""
    model, ref, foc = pair(seed, n=100, noise=0.03)
    drifted = foc.copy()
    drifted[:20, 0] += 0.8
    moved = {}
    for loss in ("squared", "pseudo_huber"):
        options = {"loss": loss, "grid_metric": metric}
        clean = link_parameters(table(model, ref), table(model, foc), **options)
        dirty = link_parameters(table(model, ref), table(model, drifted), **options)
        moved[loss] = np.hypot(np.log(dirty.A / clean.A), dirty.B - clean.B)
    assert moved["pseudo_huber"] < 0.5 * moved["squared"]


@quick
@given(seed=seeds)
def test_a_repeated_anchor_is_a_doubled_weight(seed):
    model, ref, foc = pair(seed, n=10)
    ids = [f"i{k:03d}" for k in range(10)]
    twice = (
        table(model, np.vstack([ref, ref[:1]]), [*ids, "copy"]),
        table(model, np.vstack([foc, foc[:1]]), [*ids, "copy"]),
    )
    weights = np.ones(10)
    weights[0] = 2.0
    for method, loss in CURVES:
        options = {"method": method, "loss": loss, "power": 1.5, "eps": 1e-3}
        one = link_parameters(table(model, ref), table(model, foc), weights=weights, **options)
        two = link_parameters(*twice, **options)
        np.testing.assert_allclose([one.A, one.B], [two.A, two.B], atol=1e-8)


@pytest.mark.parametrize(("A", "B"), [(0.2, 3.0), (5.0, -4.0), (3.0, 0.0), (0.4, -2.0)])
@pytest.mark.parametrize("metric", ["ref", "focal", "symmetric"])
def test_metrics_far_apart(A, B, metric):
    """Far links are found as well where the nodes see the items (a metric five times as wide needs wide nodes)."""
    model = make_model("2pl")
    xi = items(model, 30, 3)
    foc = move_items(xi, 1 / A, -B / A)
    nodes = np.linspace(-12, 12, 121)
    for method, loss in CURVES:
        options = {"method": method, "loss": loss, "power": 1.5, "eps": 1e-3, "grid_metric": metric}
        answer = link_parameters(table(model, xi), table(model, foc), nodes=nodes, node_weights=np.ones(121), **options)
        np.testing.assert_allclose([answer.A, answer.B], [A, B], atol=1e-6)


@pytest.mark.parametrize(("method", "loss"), CURVES)
def test_two_anchors(method, loss):
    model = make_model("2pl")
    xi = np.array([[-0.5, 0.1], [0.7, -0.2]])
    foc = move_items(xi, 1 / 1.4, 0.3)
    answer = link_parameters(table(model, xi), table(model, foc), method=method, loss=loss, power=1.5, eps=1e-3)
    np.testing.assert_allclose([answer.A, answer.B], [1.4, -0.42], atol=1e-7)


@quick
@given(seed=seeds, noise=st.floats(0.05, 0.8))
def test_newton_ends_where_a_derivative_free_search_ends(seed, noise):
    """Noisy anchors, robust loss: the minimum found is not worse than a simplex search's."""
    from scipy import optimize

    from concal.linking.criteria import Anchors, make_loss, make_quadrature
    from concal.linking.solve import Criterion, _Objective, solve

    model, ref, foc = pair(seed, n=12, noise=noise)
    block = Anchors(model, model, ref[None], foc[None], np.ones(12))
    criterion = Criterion("haebara", make_loss("pseudo_huber"), make_quadrature())
    answer = solve([block], criterion, exact=True)
    objective = _Objective([block], criterion, exact=True)

    def at(point):
        return float(objective(point[:1], point[1:], np.array([0]))[0][0])

    ours = at(np.array([np.log(answer.A[0]), answer.B[0]]))
    simplex = optimize.minimize(at, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    assert ours <= simplex.fun + 1e-6
