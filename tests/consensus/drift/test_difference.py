"""Items as one side has them: against a general optimiser, and by the likelihood alone where it says enough."""

import numpy as np
import pytest
from scipy.optimize import minimize

from concal import metric
from concal.consensus.drift.difference import WIDE, of_the_others, own_estimates
from concal.response import make_model


def some(model, n=30, seed=1, size=1.0):
    """Factors whose own estimates are items near the typical, of `size` times the precision of a unit."""
    rng = np.random.default_rng(seed)
    p = len(model.parameters)
    xi = np.array(model.prior.mean) + np.array(model.prior.sd) * rng.normal(size=(n, p))
    root = np.eye(p) + 0.3 * rng.normal(size=(n, p, p))
    Q = size * rng.uniform(5.0, 200.0, (n, 1, 1)) * root @ root.transpose(0, 2, 1)
    return xi, Q, np.einsum("jab,jb->ja", Q, metric.phi_of(xi))


@pytest.mark.parametrize("model", [make_model("2pl", None), make_model("gpcm", 4)], ids=["2pl", "gpcm"])
def test_a_general_optimiser_agrees(model):
    xi, Q, h = some(model)
    centre = xi + 0.5 * np.random.default_rng(2).normal(size=xi.shape)
    scale = WIDE * np.array(model.prior.sd)
    got = own_estimates(model, Q, h, centre)
    for j in range(xi.shape[0]):
        best = best_of(Q[j], h[j], centre[j], scale)
        np.testing.assert_allclose(got.xi[j], best, atol=1e-4)


def best_of(Q, h, centre, scale):
    """Where the factor under the prior N(centre, scale^2) is largest, by a general optimiser."""

    def minus_log(x):
        phi = metric.phi_of(x)
        return 0.5 * phi @ Q @ phi - h @ phi + 0.5 * (((x - centre) / scale) ** 2).sum()

    return minimize(minus_log, centre, method="BFGS", options={"gtol": 1e-8}).x


def test_much_evidence_speaks_for_itself():
    """However far the consensus lies; the covariance is that of the factor, carried to xi."""
    model = make_model("2pl", None)
    xi, Q, h = some(model, size=1e4)
    got = own_estimates(model, Q, h, xi + np.array([1.0, -1.0]))
    np.testing.assert_allclose(got.xi, xi, atol=1e-3)
    step = 1e-6
    for j in range(xi.shape[0]):
        J = np.stack(
            [(metric.phi_of(xi[j] + step * e) - metric.phi_of(xi[j] - step * e)) / (2 * step) for e in np.eye(2)], 1
        )
        np.testing.assert_allclose(got.covariance[j], np.linalg.inv(J.T @ Q[j] @ J), rtol=0.01)


def test_no_evidence_leaves_the_wide_prior():
    model = make_model("2pl", None)
    got = own_estimates(model, np.zeros((1, 2, 2)), np.zeros((1, 2)), np.array([[0.3, -0.2]]))
    np.testing.assert_allclose(got.xi, [[0.3, -0.2]])
    np.testing.assert_allclose(got.covariance[0], np.diag(np.square(WIDE * np.array(model.prior.sd))))


def test_a_slope_below_zero_stays_finite():
    """A factor may be centred where no item is: a slope of zero or less."""
    Q = np.array([[[40.0, 5.0], [5.0, 30.0]]])
    h = np.einsum("jab,jb->ja", Q, [[0.2, -0.3]])
    got = own_estimates(make_model("2pl", None), Q, h, np.zeros((1, 2)))
    assert np.isfinite(got.xi).all()
    assert got.xi[0, 1] < -1.0
    assert np.isfinite(got.covariance).all()


@pytest.mark.parametrize(("Q01", "phi"), [(0.06, (-0.3, -2.3)), (-0.06, (0.27, -3.1)), (-0.18, (1.0, -2.2))])
def test_few_responses_that_say_a_slope_is_negative(Q01, phi):
    """Factors as five responses make them, against the item: the estimate is still the optimum, within .005 SD."""
    model = make_model("2pl", None)
    scale = WIDE * np.array(model.prior.sd)
    Q = np.array([[1.0, Q01], [Q01, 0.62]])
    h, centre = Q @ phi, np.array([-0.4, -0.1])
    got = own_estimates(model, Q[None], h[None], centre[None])
    away = got.xi[0] - best_of(Q, h, centre, scale)
    assert away @ np.linalg.solve(got.covariance[0], away) < 0.005**2


def test_others_are_those_of_the_item_that_did_not_move():
    rng = np.random.default_rng(3)
    item, moved = np.array([0, 0, 0, 1, 1, 2]), np.array([False, True, False, True, False, False])
    Q, h = rng.normal(size=(6, 2, 2)), rng.normal(size=(6, 2))
    total, shift, there = of_the_others(Q, h, item, 3, moved)
    for f in range(6):
        rest = [k for k in range(6) if item[k] == item[f] and k != f and not moved[k]]
        assert there[f] == bool(rest)
        np.testing.assert_allclose(total[f], Q[rest].sum(axis=0), atol=1e-12)
        np.testing.assert_allclose(shift[f], h[rest].sum(axis=0), atol=1e-12)
