"""What groups of examinees say about an item: the gradient and information of their own responses."""

import numpy as np
import pytest
from programme import MODELS

from concal import metric
from concal.calibration.fit.by_group import TABLE_BINS, group_evidence
from concal.calibration.fit.cells import Responses
from concal.calibration.fit.predict import predict_responses
from concal.calibration.tables import table_of_responses
from concal.response import make_model


@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
def test_factors_are_gradient_and_information_in_slope_and_intercept(model):
    model, rng = make_model(*model), np.random.default_rng(1)
    xi = np.array(model.prior.mean) + 0.5 * np.array(model.prior.sd) * rng.standard_normal((2, len(model.prior.sd)))
    item = np.repeat([0, 1], [18, 0])
    mean, sd, group = rng.normal(size=18), np.full(18, 0.4), rng.integers(0, 2, 18)
    score = model.simulate(mean, xi[item], rng)
    got = group_evidence(model, xi, Responses(item, score, mean, sd), group, 2)
    assert got.n.tolist() == [[(group == 0).sum(), (group == 1).sum()], [0, 0]]
    assert not got.Q[1].any()
    K = np.eye(xi.shape[1])
    a, d = np.exp(xi[0, 1]), xi[0, 0]
    K[0, 0], K[0, 1], K[1, 1] = -1 / a, -d / a, 1 / a  # d xi / d phi
    for g in range(2):
        l, Q = np.zeros(xi.shape[1]), np.zeros((xi.shape[1],) * 2)
        for i in np.flatnonzero(group == g):
            found = predict_responses(model, xi[:1], mean[i : i + 1], sd[i : i + 1])
            Q += np.einsum("y,yp,yq->pq", found.probability[0], found.gradient[0], found.gradient[0])
            step = 1e-4
            for k in range(xi.shape[1]):
                up, down = (
                    np.log(marginal(model, xi[0] + sign * step * np.eye(xi.shape[1])[k], score[i], mean[i], sd[i]))
                    for sign in (1, -1)
                )
                l[k] += (up - down) / (2 * step)
        np.testing.assert_allclose(got.Q[0, g], K.T @ Q @ K, rtol=1e-6, atol=1e-8)
        phi = metric.phi_of(xi[0])
        np.testing.assert_allclose(got.h[0, g] - got.Q[0, g] @ phi, K.T @ l, atol=0.05)


@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
def test_tables_are_those_of_the_groups_own_responses(model):
    model, rng = make_model(*model), np.random.default_rng(2)
    xi = np.array(model.prior.mean) + np.zeros((2, 1))
    item, group = np.repeat([0, 1], 60), rng.integers(0, 2, 120)
    mean, sd = rng.normal(size=120), rng.uniform(0.3, 0.5, 120)
    score = model.simulate(mean, xi[item], rng)
    got = group_evidence(model, xi, Responses(item, score, mean, sd), group, 2).table
    for g in range(2):
        own = group == g
        encoded = model.encode_score(score[own])
        expected = table_of_responses(model, 2, item[own], encoded, mean[own], sd[own], TABLE_BINS)
        for found, values in zip(got, expected, strict=True):
            np.testing.assert_array_equal(found[:, g], values)
    np.testing.assert_array_equal(got.cell_count.sum(axis=(1, 2, 3)), [60, 60])


def marginal(model, xi, y, mean, sd):
    """p(y) averaged over N(mean, sd) with the engine's nodes."""
    from concal.calibration.fit.nodes import NODES, WEIGHTS

    theta = mean + sd * NODES
    return WEIGHTS @ np.exp(model.log_likelihood(np.full(NODES.size, y), theta, np.tile(xi, (NODES.size, 1))))


@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
def test_a_group_far_from_the_common_place_is_told_where_it_is(model):
    """Its slope is right, and its information is what it is at its own place."""
    model, rng = make_model(*model), np.random.default_rng(2)
    common = np.tile(model.prior.mean, (40, 1))
    common[:, 0], common[:, 1] = rng.normal(0, 0.5, 40), -0.4
    own = common.copy()
    own[:, 0], own[:, 1] = own[:, 0] + 0.6, own[:, 1] + 0.6
    item = np.repeat(np.arange(40), 1500)
    mean, sd = rng.normal(0, 0.9, item.size), np.full(item.size, 0.3)
    score = model.simulate(mean + sd * rng.standard_normal(item.size), own[item], rng)
    got = group_evidence(model, common, Responses(item, score, mean, sd), np.zeros(item.size, dtype=int), 1)
    phi = np.linalg.solve(got.Q[:, 0], got.h[:, 0, :, None])[..., 0]
    d, log_a = -phi[:, 0] / phi[:, 1], np.log(phi[:, 1])
    assert np.mean(log_a - own[:, 1]) == pytest.approx(0.0, abs=0.03)
    assert np.mean(d - own[:, 0]) == pytest.approx(0.0, abs=0.03)
    at = np.column_stack([d, log_a, phi[:, 2:]])
    near = group_evidence(model, at, Responses(item, score, mean, sd), np.zeros(item.size, dtype=int), 1)
    assert np.median(got.Q[:, 0, 0, 0] / near.Q[:, 0, 0, 0]) == pytest.approx(1.0, abs=0.03)
