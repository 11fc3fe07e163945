"""Population steps against their conditional distributions, worked out plainly."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from programme import simulate_period

from concal.calibration.family import Family
from concal.calibration.kernels import LANES
from concal.calibration.layout import lay_out
from concal.calibration.moves.correlation import CorrelationMove, z_from_correlation
from concal.calibration.moves.expansion import expand
from concal.calibration.moves.population import (
    draw_beta,
    draw_sigma,
    inverse_wishart,
)
from concal.calibration.moves.sigma import SigmaMove, log_density, pack, unpack
from concal.calibration.moves.units import UnitSteps
from concal.calibration.priors import NU, BetaPrior, beta_moments, correlation_of_z, log_sigma_alone
from concal.calibration.standardise import standardise
from concal.calibration.state import initial_state
from concal.calibration.workers import Workers
from concal.response import make_model


def small(features=2, dimensions=1):
    groups = [("g", "reading", ("2pl", None), 25, 8)]
    if dimensions == 2:
        groups.append(("h", "listening", ("gpcm", 3), 20, 6))
    data, _, _ = simulate_period(groups, 60, features=features)
    layout = lay_out(data)
    return layout, initial_state(layout, seed=4)


def test_chains_start_far_apart():
    """Farther than a period leaves open: means by a typical spread, spreads by half, correlations too."""
    layout, state = small(dimensions=2)
    for g, s in zip(layout.groups, state.groups, strict=True):
        sd = np.array(g.model.prior.sd)
        assert (s.beta[0].std(axis=1) > 0.4 * sd).all()
        spread = np.sqrt(np.einsum("iil->il", s.sigma))
        assert (spread.std(axis=1) > 0.15 * sd).all()
        np.testing.assert_array_equal(s.mean, np.repeat(s.beta[:1], g.n_items, axis=0))
    assert state.R[0, 0, 1].std() > 0.1
    np.testing.assert_allclose(np.einsum("miil->mil", state.R), 1.0)
    assert np.linalg.eigvalsh(state.R[0].transpose(2, 0, 1)).min() > 0


def test_beta_is_drawn_from_its_conditional():
    layout, state = small()
    g, s = layout.groups[0], state.groups[0]
    s.sigma[:] = np.array([[0.7, 0.1], [0.1, 0.2]])[:, :, None]
    s.xi[:] = s.xi[:, :, :1]
    tau, rng = 0.3, np.random.default_rng(1)
    drawn = []
    for _ in range(4000):
        draw_beta(g, s, tau, rng)
        drawn.append(np.moveaxis(s.beta, 2, 0).reshape(LANES, -1))
    drawn = np.concatenate(drawn)
    X, P = g.design.X, np.linalg.inv(s.sigma[:, :, 0])
    prior = np.tile(tau / np.array(g.model.prior.sd) ** 2, X.shape[1])
    precision = np.kron(X.T @ X, P) + np.diag(prior)  # feature-major
    centre = np.zeros((X.shape[1], 2))
    centre[0] = g.model.prior.mean
    mean = np.linalg.solve(precision, (X.T @ s.xi[:, :, 0] @ P).ravel() + prior * centre.ravel())
    np.testing.assert_allclose(s.beta_mean[:, :, 0].ravel(), mean, rtol=1e-8)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.01)
    np.testing.assert_allclose(np.cov(drawn.T), np.linalg.inv(precision), atol=0.002)


def test_sigma_is_drawn_from_its_conditional():
    layout, state = small()
    g, s = layout.groups[0], state.groups[0]
    s.xi[:], s.mean[:], s.sd_mixing[:] = s.xi[:, :, :1], s.mean[:, :, :1], 1.0
    rng, drawn = np.random.default_rng(1), []
    residual = s.xi[:, :, 0] - s.mean[:, :, 0]
    psi = residual.T @ residual + 2 * NU * np.eye(2)
    df = NU + 1 + g.n_items
    for _ in range(3000):
        s.sd_mixing[:] = 1.0
        draw_sigma(g, s, rng)
        drawn.append(np.moveaxis(s.sigma, -1, 0).copy())
    np.testing.assert_allclose(np.concatenate(drawn).mean(axis=0), psi / (df - 3), rtol=0.02, atol=1e-3)


def test_inverse_wishart_mean_and_spread():
    psi = np.broadcast_to(np.array([[2.0, 0.5], [0.5, 1.0]]), (40_000, 2, 2)).copy()
    drawn = inverse_wishart(12.0, psi, np.random.default_rng(3))
    np.testing.assert_allclose(drawn.mean(axis=0), psi[0] / 9.0, rtol=0.02)
    variance = 2 * psi[0, 0, 0] ** 2 / ((12 - 3) ** 2 * (12 - 5))
    np.testing.assert_allclose(drawn[:, 0, 0].var(), variance, rtol=0.08)


def test_uniform_correlations_have_the_known_marginal():
    """Under a uniform R of three dimensions, (r + 1) / 2 ~ Beta(3/2, 3/2); importance-weighted from the z prior."""
    rng = np.random.default_rng(4)
    z = 0.9 * rng.standard_normal((200_000, 3))
    R, log_prior = correlation_of_z(z, 3)
    weight = np.exp(log_prior + 0.5 * (z**2).sum(axis=1) / 0.81)
    weight /= weight.sum()
    for i, j in ((1, 0), (2, 0), (2, 1)):
        second_moment = (weight * R[:, i, j] ** 2).sum()
        assert abs(second_moment - 0.25) < 0.01
    np.testing.assert_allclose(z_from_correlation(R[:5]), z[:5], rtol=1e-6)


def test_log_cholesky_coordinates_round_trip_and_jacobian():
    rng = np.random.default_rng(5)
    half = rng.standard_normal((LANES, 3, 3))
    sigma = half @ np.swapaxes(half, 1, 2) + np.eye(3)
    phi = pack(sigma)
    scale = np.array([1.0, 0.3, 2.0])
    group = SimpleNamespace(free=np.arange(3), model=SimpleNamespace(prior=SimpleNamespace(sd=tuple(scale))))
    family = Family((0,), (group,))
    back, log_prior = unpack(phi), log_density(family, [phi])
    np.testing.assert_allclose(back, sigma, rtol=1e-10)
    rows, cols = np.tril_indices(3)
    eps = 1e-6
    for lane in (0, 3):
        J = np.empty((6, 6))
        for k in range(6):
            up, down = phi.copy(), phi.copy()
            up[lane, k] += eps
            down[lane, k] -= eps
            difference = unpack(up)[lane] - unpack(down)[lane]
            J[:, k] = difference[rows, cols] / (2 * eps)
        _, log_det = np.linalg.slogdet(sigma[lane])
        density = log_sigma_alone(log_det, np.diag(np.linalg.inv(sigma[lane])), scale)
        want = density + np.linalg.slogdet(J)[1] - 3 * np.log(2.0)  # the constant 2^p of d Sigma / d L
        np.testing.assert_allclose(log_prior[lane], want, rtol=1e-5)


def test_expansion_leaves_the_likelihood_alone():
    layout, state = small(dimensions=2)
    state.theta[:] = np.random.default_rng(6).standard_normal(state.theta.shape)
    steps = UnitSteps(layout, 1, Workers(1))

    def log_likelihood():
        steps.refresh(state)
        acc = np.zeros((layout.n_persons, 6, LANES))
        steps.person_pass(state, state.theta, acc, 0, layout.n_persons, 0)
        return acc[:, 0].sum(axis=0)

    before, old = log_likelihood(), state.theta.copy()
    standardised = [_standardised_items(s) for s in state.groups]
    scale, shift = expand(layout, state, steps.sums(state), 0.01, np.random.default_rng(7))
    steps.rescale(state, scale, shift)
    assert np.abs(state.theta - old).max() > 1e-3  # something did move
    np.testing.assert_allclose(log_likelihood(), before, rtol=2e-6)
    for s, kept in zip(state.groups, standardised, strict=True):
        np.testing.assert_allclose(_standardised_items(s), kept, rtol=1e-6, atol=1e-8)


def _standardised_items(s):
    residual = np.moveaxis(s.xi - s.mean, 2, 0)
    return np.einsum("lij,lij->li", residual @ np.linalg.inv(np.moveaxis(s.sigma, -1, 0)), residual)


def test_expansion_draws_from_the_density_along_the_orbit():
    """With no items but one group's hyperpriors, many repetitions from one state give the target's moments."""
    layout, state = small(features=0)
    state.theta[:] = 1.5 * np.random.default_rng(8).standard_normal(state.theta.shape[:2])[:, :, None] + 0.4
    steps = UnitSteps(layout, 1, Workers(1))
    sums = steps.sums(state)
    shifts, rng = [], np.random.default_rng(9)
    saved = [(s.xi.copy(), s.beta.copy(), s.mean.copy(), s.beta_mean.copy(), s.sigma.copy()) for s in state.groups]
    for _ in range(300):
        scale, shift = expand(layout, state, sums, 0.01, rng)
        shifts.append((shift / scale)[0])
        for s, (xi, beta, mean, beta_mean, sigma) in zip(state.groups, saved, strict=True):
            s.xi, s.beta, s.mean = xi.copy(), beta.copy(), mean.copy()
            s.beta_mean, s.sigma = beta_mean.copy(), sigma.copy()
    n, total = layout.n_persons, sums.first[0, 0, 0]
    t = np.concatenate(shifts)
    np.testing.assert_allclose(t.mean(), -total / (n + 0.01), atol=4 * n**-0.5 / np.sqrt(t.size))
    np.testing.assert_allclose(t.std(), (n + 0.01) ** -0.5, rtol=0.06)


def test_standardised_design_gives_back_the_users_units():
    rng = np.random.default_rng(10)
    X = np.column_stack([np.ones(30), 1000 + 50 * rng.standard_normal(30), rng.standard_normal(30) / 100])
    design = standardise(X)
    beta = rng.standard_normal((3, 2))
    np.testing.assert_allclose(X @ (design.to_user @ beta), design.X @ beta, rtol=1e-8)
    np.testing.assert_allclose(design.X[:, 1:].std(axis=0), 1.0)


def test_a_proposed_correlation_of_one_is_refused():
    data, _, _ = simulate_period([("g", "reading", ("2pl", None), 8, 4), ("h", "listening", ("2pl", None), 8, 4)], 30)
    layout = lay_out(data)
    state = initial_state(layout, seed=3)
    steps = UnitSteps(layout, 1, Workers(1))
    transport = CorrelationMove(layout)
    transport.reference.ready = True
    transport.reference.propose = lambda phi, rng: (phi + 100.0, np.zeros(len(phi)))
    before = state.R.copy()
    transport.move(state, steps, np.random.default_rng(1), adapting=False)
    np.testing.assert_array_equal(state.R, before)


def test_columns_that_hardly_vary_are_scaled_by_half_of_their_range():
    """By its SD a rare category would be allowed effects of any size; one item with a mean code changes nothing."""
    rng = np.random.default_rng(2)
    rare = np.arange(200) < 4
    number = rng.normal(5.0, 2.0, 200)
    X = np.column_stack([np.ones(200), rare, number, rare * number, np.full(200, 3.0)])
    scale = 1.0 / np.diag(standardise(X).to_user)
    np.testing.assert_allclose(scale, [1.0, 0.5, number.std(), 0.5 * number[:4].max(), 1.0])
    X[100, 1] = 0.02
    np.testing.assert_allclose(1.0 / np.diag(standardise(X).to_user)[1], 0.5)
    half = np.column_stack([np.ones(200), np.arange(200) < 100])
    np.testing.assert_allclose(1.0 / np.diag(standardise(half).to_user)[1], 0.5)


def test_prior_of_coefficients_is_the_same_in_the_users_units():
    """beta_user = T beta with beta ~ N(m e_0, I s^2 / tau): the mean stays, the precision is T^-T T^-1 tau / s^2."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(50), rng.normal(2020.0, 3.0, 50), np.arange(50) < 5])
    design, typical = standardise(X), make_model("gpcm", 4).prior
    mean, precision = beta_moments(design.prior_precision(0.3), typical)
    T, sd = np.kron(design.to_user, np.eye(4)), np.tile(typical.sd, 3)
    np.testing.assert_allclose(T @ np.diag(sd**2 / 0.3) @ T.T @ precision, np.eye(12), atol=1e-5)
    own = np.zeros((3, 4))
    own[0] = typical.mean
    np.testing.assert_allclose(mean, design.to_user @ own, atol=1e-12)
    drawn = np.array([BetaPrior.of(typical, 0.3).draw(3, rng) for _ in range(4000)])
    np.testing.assert_allclose(drawn.mean(axis=0), own, atol=0.15)
    np.testing.assert_allclose(drawn.std(axis=0), np.tile(np.array(typical.sd) / 0.3**0.5, (3, 1)), rtol=0.05)


def test_any_group_moves_along_a_spread_that_is_hardly_known():
    layout, _ = small()
    move = SigmaMove(layout)
    assert all(move._has_a_tail(k) for k in move.families)  # small, whatever is known
    for scaling in move.scalings.values():
        scaling.length[:] = 0.1
    assert all(move._has_a_tail(k) for k in move.families)
    large = replace(layout, groups=[replace(g, n_items=1000) for g in layout.groups])
    move = SigmaMove(large)
    for k, scaling in move.scalings.items():
        assert move._has_a_tail(k)  # not yet known
        scaling.length[:] = 0.1
        assert not move._has_a_tail(k)
        scaling.forget()
        assert move._has_a_tail(k)
