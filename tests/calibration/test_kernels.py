"""The compiled passes against plain NumPy sums of the response models' derivatives."""

import numpy as np
import pytest
from programme import MODELS, simulate_period

from concal.calibration import kernels
from concal.calibration.kernels import LANES
from concal.calibration.layout import lay_out
from concal.calibration.moments import take_apart, width
from concal.calibration.moves.units import Responses, UnitSteps, accumulators
from concal.calibration.state import initial_state, jacobian
from concal.calibration.workers import Workers
from concal.metric import phi_of, xi_of


def period_and_state(model, n_persons=40, n_items=12, per_person=9):
    data, _, _ = simulate_period([("g", "reading", model, n_items, per_person)], n_persons)
    layout = lay_out(data)
    state = initial_state(layout, seed=3)
    rng = np.random.default_rng(5)
    state.theta[:] = rng.standard_normal(state.theta.shape)
    return layout, state


def passed(layout, state, lo=0, hi=None):
    """Accumulators of the first group's items lo..hi where they are."""
    g, s = layout.groups[0], state.groups[0]
    hi = g.n_items if hi is None else hi
    acc = accumulators(g, hi - lo)
    Responses(layout).accumulate(state, 0, s.xi, s.par, jacobian(g, s.xi), acc, lo, hi)
    return acc


def reference(group, state, lane):
    """Derivatives of every response in the order of the by-item layout."""
    item = np.repeat(np.arange(group.n_items), np.diff(group.item_start))
    theta = state.theta[group.item_person, group.dim, lane].astype(float)
    xi = state.groups[0].xi[item, :, lane]
    model = group.model
    par = np.moveaxis(model.kernel_parameters(xi), -1, 0)
    eta = par[0] * (theta - par[1])
    from concal.response.base import _chain_rule, n_extra_outputs
    from concal.response.registry import kernels as model_kernels

    out = np.zeros((n_extra_outputs(len(model.extras)), len(eta)))
    y = group.item_score.astype(float)
    ll, g, w = model_kernels(model.tag).extra_terms(model.tag, y, eta, par, out)
    return item, _chain_rule(par[0], eta, ll, g, w, out, model.extras_jacobian(xi))


@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
def test_item_pass_is_the_sum_over_responses(model):
    layout, state = period_and_state(model)
    g = layout.groups[0]
    acc = passed(layout, state)
    lower = np.tril_indices(g.p)
    for lane in (0, 5):
        item, d = reference(g, state, lane)
        for j in range(g.n_items):
            mine = item == j
            size = 1.0 + np.abs(d.log_likelihood[mine]).sum()
            np.testing.assert_allclose(acc[j, 0, lane], d.log_likelihood[mine].sum(), atol=3e-6 * size)
            gradient = d.xi_gradient[mine].sum(axis=0)
            np.testing.assert_allclose(acc[j, 1 : 1 + g.p, lane], gradient, rtol=2e-3, atol=2e-3)
            information = d.xi_information[mine].sum(axis=0)[lower]
            np.testing.assert_allclose(acc[j, 1 + g.p :, lane], information, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
def test_person_pass_is_the_sum_over_responses(model):
    layout, state = period_and_state(model)
    g = layout.groups[0]
    steps = UnitSteps(layout, 1, Workers(1))
    acc = np.zeros((layout.n_persons, 3, LANES))
    steps.person_pass(state, state.theta, acc, 0, layout.n_persons, 0)
    lane = 2
    _, d = reference(g, state, lane)
    for i in range(layout.n_persons):
        mine = g.item_person == i
        size = 1.0 + np.abs(d.log_likelihood[mine]).sum()
        np.testing.assert_allclose(acc[i, 0, lane], d.log_likelihood[mine].sum(), atol=3e-6 * size)
        np.testing.assert_allclose(acc[i, 1, lane], d.theta_gradient[mine].sum(), rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(acc[i, 2, lane], d.theta_information[mine].sum(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
def test_log_likelihood_passes_agree_with_the_full_ones(model):
    layout, state = period_and_state(model)
    g, s = layout.groups[0], state.groups[0]
    acc = passed(layout, state)
    total = np.empty((g.n_items, LANES))
    kernels.item_log_likelihood(
        g.model.tag, g.item_start, g.item_person, g.item_score, state.theta, g.dim, s.par, total, 0, g.n_items
    )
    np.testing.assert_allclose(total, acc[:, 0], rtol=1e-5, atol=1e-4)
    persons = np.zeros((layout.n_persons, LANES))
    kernels.person_log_likelihood(
        g.model.tag, g.person_start, g.person_item, g.person_score, state.theta, s.par, g.dim, persons, 0,
        layout.n_persons,
    )  # fmt: skip
    np.testing.assert_allclose(persons.sum(axis=0), total.sum(axis=0), rtol=1e-5)


def test_a_popular_item_is_summed_without_loss_of_precision():
    data, _, _ = simulate_period([("g", "reading", ("2pl", None), 3, 3)], 50_000)
    layout = lay_out(data)
    state = initial_state(layout, seed=3)
    state.theta[:] = np.random.default_rng(5).standard_normal(state.theta.shape)
    g = layout.groups[0]
    acc = passed(layout, state)
    item, d = reference(g, state, 0)
    for j in range(3):
        assert abs(acc[j, 0, 0] - d.log_likelihood[item == j].sum()) < 2e-3  # of about 30,000: 7e-8
        np.testing.assert_allclose(acc[j, 1:3, 0], d.xi_gradient[item == j].sum(axis=0), atol=5e-2)


def test_chunks_change_nothing():
    layout, state = period_and_state(("gpcm", 4))
    np.testing.assert_array_equal(passed(layout, state)[5:9], passed(layout, state, 5, 9))


def test_carry_keeps_the_standardised_place_and_its_jacobian():
    rng = np.random.default_rng(2)
    units, n = 5, 3
    x = rng.standard_normal((units, n, LANES))
    half = rng.standard_normal((units, n, n))
    Q = half @ np.swapaxes(half, 1, 2)
    rows, cols = np.tril_indices(n)
    information, pull = Q[:, rows, cols].astype(np.float32), rng.standard_normal((units, n)).astype(np.float32)
    Q[:, rows, cols] = Q[:, cols, rows] = information

    def precision(k):
        a = np.random.default_rng(k).standard_normal((n, n))
        return a @ a.T + np.eye(n)

    P, P2 = precision(1), precision(9)
    mean, mean2 = rng.standard_normal((units, n, LANES)), rng.standard_normal((units, n, LANES))
    lanes = lambda m: np.ascontiguousarray(np.broadcast_to(m[None, :, :, None], (1, n, n, LANES)))  # noqa: E731
    moved, change = np.empty_like(x), np.empty((units, LANES))
    own, zero = np.arange(units, dtype=np.int32), np.zeros(units, np.int32)
    old, new = kernels.Priors(lanes(P), zero, mean, own), kernels.Priors(lanes(P2), zero, mean2, own)
    kernels.carry(n, x, information, pull, old, new, moved, change, 0, units)
    lane = 4
    for i in range(units):
        C, C2 = np.linalg.inv(P + Q[i]), np.linalg.inv(P2 + Q[i])
        centre, centre2 = C @ (P @ mean[i, :, lane] + pull[i]), C2 @ (P2 @ mean2[i, :, lane] + pull[i])
        K, K2 = np.linalg.cholesky(P + Q[i]), np.linalg.cholesky(P2 + Q[i])
        expected = centre2 + np.linalg.solve(K2.T, K.T @ (x[i, :, lane] - centre))
        np.testing.assert_allclose(moved[i, :, lane], expected, rtol=1e-9)
        old, new = x[i, :, lane] - mean[i, :, lane], expected - mean2[i, :, lane]
        log_jacobian = np.log(np.diag(K)).sum() - np.log(np.diag(K2)).sum()
        want = 0.5 * old @ P @ old - 0.5 * new @ P2 @ new + log_jacobian
        np.testing.assert_allclose(change[i, lane], want, rtol=1e-5, atol=1e-5)


def log_likelihood_in_phi(group, state, j, phi, lane):
    """Log-likelihood of item j at slope and intercept phi, abilities as they are."""
    mine = slice(group.item_start[j], group.item_start[j + 1])
    theta = state.theta[group.item_person[mine], group.dim, lane].astype(float)
    y = group.item_score[mine].astype(float)
    xi = np.tile(xi_of(phi), (len(y), 1))
    par = np.moveaxis(group.model.kernel_parameters(xi), -1, 0)
    from concal.response.registry import kernels as model_kernels

    return model_kernels(group.model.tag).log_terms(group.model.tag, y, par[0] * (theta - par[1]), par)[0].sum()


@pytest.mark.parametrize("model", [("2pl", None), ("gpcm", 4), ("ordered_beta", None)], ids=["2pl", "gpcm", "ordered"])
def test_moment_sums_are_what_a_loop_adds_up(model):
    """Averages of [phi, l, phi phi', phi l'] over the chains in use, l by finite differences in phi."""
    layout, state = period_and_state(model)
    g, s = layout.groups[0], state.groups[0]
    acc, sums = passed(layout, state), np.zeros((g.n_items, width(g.p), 3))
    for lo, hi in ((0, 5), (5, g.n_items)):
        kernels.add_moments(g.p, s.xi, acc[lo:hi], sums, lo, hi)
    sums = sums.sum(axis=2)
    for j in (0, 4, 5, g.n_items - 1):
        expected = np.zeros(sums.shape[1])
        for lane in range(3):
            phi = phi_of(s.xi[j, :, lane])
            l, h = np.empty(g.p), 1e-5
            for u in range(g.p):
                step = h * np.eye(g.p)[u]
                up, down = (log_likelihood_in_phi(g, state, j, phi + k * step, lane) for k in (1, -1))
                l[u] = (up - down) / (2 * h)
            expected += np.concatenate([phi, l, np.outer(phi, phi).ravel(), np.outer(phi, l).ravel()])
        np.testing.assert_allclose(sums[j], expected, rtol=2e-3, atol=5e-3)
    found = take_apart(sums / 3, g.p)
    phi = phi_of(np.moveaxis(s.xi[:, :, :3], 1, 2))
    np.testing.assert_allclose(found.mean, phi.mean(axis=1), rtol=1e-9)
    for j in range(g.n_items):
        np.testing.assert_allclose(found.covariance[j], np.cov(phi[j].T, bias=True), atol=1e-9)
    l = np.moveaxis(acc[:, 1 : 1 + g.p, :3], 1, 2)
    a, d = np.exp(s.xi[:, 1, :3]), s.xi[:, 0, :3]
    l = np.concatenate([(-l[..., 0] / a)[..., None], ((l[..., 1] - d * l[..., 0]) / a)[..., None], l[..., 2:]], axis=-1)
    z, y = phi - phi.mean(axis=1, keepdims=True), l - l.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found.gradient, l.mean(axis=1), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.cross, np.einsum("jsa,jsb->jab", z, y) / 3, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("model", [("2pl", None), ("3pl", None)], ids=["2pl", "3pl"])
def test_item_moves_leave_the_posterior_as_it_is(model):
    """Items alone, abilities and population held fixed: their draws against the posterior summed over a grid."""
    layout, state = period_and_state(model, n_persons=60, n_items=10, per_person=2)
    g, s = layout.groups[0], state.groups[0]
    state.theta[:] = 1.5 + state.theta[:, :, :1]  # every chain alike, and off centre: moves bend
    s.sigma[:] = np.diag([1.0, 0.25, 0.25][: g.p])[:, :, None]
    s.mean[:] = s.mean[:, :, :1]
    steps = UnitSteps(layout, 4, Workers(1))
    draws = []
    for sweep in range(1, 3001):
        state.sweep = sweep
        steps.items(state, climbing=sweep <= 20)
        steps.refresh(state)
        if sweep > 100:
            draws.append(s.xi.copy())
    x = np.moveaxis(np.array(draws), 3, 1).reshape(-1, g.n_items, g.p)
    grid = [np.linspace(-6, 8, 141), np.linspace(-2.8, 2.8, 81), np.linspace(-4.5, 2.0, 31)][: g.p]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*grid, indexing="ij")], axis=1)
    for j in range(g.n_items):
        mine = slice(g.item_start[j], g.item_start[j + 1])
        theta, y = state.theta[g.item_person[mine], 0, 0].astype(float), g.item_score[mine].astype(float)
        z = (points - s.mean[j, :, 0]) / np.sqrt(np.diagonal(s.sigma[:, :, 0]))
        log_p = -0.5 * (z**2).sum(axis=1)
        for t, score in zip(theta, y, strict=True):
            p = g.model.expected_score(np.full(len(points), t), points)
            log_p += np.log(np.maximum(p if score else 1.0 - p, 1e-300))
        weight = np.exp(log_p - log_p.max())
        weight /= weight.sum()
        mean = weight @ points
        sd = np.sqrt(weight @ (points - mean) ** 2)
        bent = weight @ ((points[:, 0] - mean[0]) ** 2 * (points[:, 1] - mean[1]))
        u = x[:, j] - mean
        np.testing.assert_allclose(u.mean(axis=0) / sd, 0.0, atol=0.06)
        np.testing.assert_allclose(u.std(axis=0) / sd, 1.0, atol=0.05)
        scale = sd[0] ** 2 * sd[1]
        np.testing.assert_allclose((u[:, 0] ** 2 * u[:, 1]).mean() / scale, bent / scale, atol=0.15)


def test_products_of_items_are_added_up_over_the_chains():
    rng = np.random.default_rng(3)
    x, centre = rng.normal(size=(6, 3, LANES)), rng.normal(size=(6, 3))
    total, square = np.ones((6, 3)), np.ones((6, 3, 3))
    kernels.add_products(x, centre, total, square, 1, 5)
    z = x - centre[:, :, None]
    np.testing.assert_allclose(total[1:5], 1.0 + z[1:5].sum(axis=2))
    np.testing.assert_allclose(square[1:5], 1.0 + np.einsum("juc,jvc->juv", z, z)[1:5])
    assert (total[[0, 5]] == 1.0).all()
    assert (square[[0, 5]] == 1.0).all()
