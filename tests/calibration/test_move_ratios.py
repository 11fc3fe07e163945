"""Log acceptance ratios of Metropolis moves against the model: difference of log densities, proposal, Jacobian.

Likelihoods are summed in float32 over eight responses and kernel parameters are float32: about 1e-6 of a response's
log-likelihood. So ratios of a unit with some tens of responses agree to `UNIT` (largest seen 4e-5), those of a whole
group to `WHOLE` (6e-5).
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
from scattered import TAU, scattered, spd
from scipy import stats
from test_model import LANE, difference, with_group

from concal.calibration import kernels
from concal.calibration.kernels import LANES
from concal.calibration.matrices import by_lane, inverse
from concal.calibration.model import Point
from concal.calibration.moves import shared
from concal.calibration.moves.beta import BetaMove, prior_share
from concal.calibration.moves.carrying import LEARN_EVERY, TAIL_DF, Sketch
from concal.calibration.moves.correlation import CorrelationMove, z_from_correlation
from concal.calibration.moves.population import own_block
from concal.calibration.moves.sigma import SigmaMove, pack
from concal.calibration.moves.units import ITEM_STREAM, PERSON_STREAM, accumulators
from concal.calibration.priors import NU, correlation_of_z
from concal.compiler import kernel, put, uniforms

UNIT, WHOLE = 1e-4, 2e-4


@kernel
def kinds_of_move(seed, sweep, stream, out):
    for i in range(out.shape[0]):
        put(out, (i,), uniforms(seed, i, sweep, stream)[1])


def lower(n):
    return np.tril_indices(n)


def know(reference, size, rng):
    """A reference that learned something."""
    reference.mean = rng.standard_normal(size)
    reference.factor = np.linalg.cholesky(spd(rng, size)[..., 0])
    reference.inverse, reference.ready = np.linalg.inv(reference.factor), True


def sketch_units(sketch, n, rng):
    """A sketch of every unit; its matrices (units, n, n)."""
    root = rng.standard_normal((len(sketch.pull), n, n))
    sketch.information[:] = (root @ np.swapaxes(root, 1, 2))[:, *lower(n)]
    sketch.pull[:] = rng.standard_normal(sketch.pull.shape)
    Q = np.zeros(root.shape)
    Q[:, *lower(n)] = Q[:, lower(n)[1], lower(n)[0]] = sketch.information
    return Q


def log_reference(reference, phi):
    S = reference.factor @ reference.factor.T
    return stats.multivariate_t(reference.mean, S, TAIL_DF).logpdf(phi)


def log_stretch(old, new, Q):
    """Log Jacobian of carrying units from one precision to another."""
    return 0.5 * (np.linalg.slogdet(old + Q)[1] - np.linalg.slogdet(new + Q)[1]).sum()


@pytest.mark.parametrize("kind", ["plain", "pooled", "guided", "equal", "rating"])
def test_moves_of_sigma(kind):
    data, layout, state, steps = scattered(kind)
    rng, move = np.random.default_rng(4), SigmaMove(layout)
    at = Point.of(state, LANE)
    for k, g in enumerate(layout.groups):
        if g.guide is not None:
            continue
        s, q = state.groups[k], g.free.size
        know(move.references[k], q * (q + 1) // 2, rng)
        Q = sketch_units(move.sketches[k], g.p, rng)
        steps.likelihood.log_likelihood(state, k, s.xi, s.par, steps.item_ll[k], 0, g.n_items)
        whole = move.propose({k: move.references[k]}, state, steps, rng)[k]
        (new,) = whole.groups
        phi, new_phi = pack(own_block(g, s.sigma))[LANE], pack(own_block(g, new.sigma))[LANE]
        xi = new.xi[..., LANE].copy()
        xi[:, list(g.model.shared)] = at.groups[k].xi[:, list(g.model.shared)]  # stay where the group has them
        found = difference(data, with_group(at, k, xi=xi, sigma=new.sigma[..., LANE]), at)
        old_P, new_P = inverse(s.sigma)[..., LANE], inverse(new.sigma)[..., LANE]
        found += log_stretch(old_P, new_P, Q)
        diagonal = np.cumsum(np.arange(1, q + 1)) - 1
        found += ((q - np.arange(q) + 1) * (new_phi - phi)[diagonal]).sum()  # d Sigma / d phi
        found += log_reference(move.references[k], phi) - log_reference(move.references[k], new_phi)
        mixing = at.groups[k].sd_mixing[g.free]  # integrated out: its conditional given Sigma leaves the joint density
        found += log_mixing(layout.families[k], mixing, old_P) - log_mixing(layout.families[k], mixing, new_P)
        np.testing.assert_allclose(whole.log_ratio[LANE], found, atol=WHOLE, rtol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "pooled", "guided", "equal", "rating"])
def test_moves_of_one_spread(kind):
    data, layout, state, steps = scattered(kind)
    rng, move, moved = np.random.default_rng(7), SigmaMove(layout), set()
    at = Point.of(state, LANE)
    for k, g in enumerate(layout.groups):
        if g.guide is not None:
            continue
        s, scaling = state.groups[k], move.scalings[k]
        Q = sketch_units(move.sketches[k], g.p, rng)
        steps.likelihood.log_likelihood(state, k, s.xi, s.par, steps.item_ll[k], 0, g.n_items)
        for _ in range(10 * g.free.size):
            whole = move.propose({k: scaling}, state, steps, rng)[k]
            (new,), c = whole.groups, g.free[scaling.row]
            moved.add((k, scaling.row))
            old, now = s.sigma[..., LANE], new.sigma[..., LANE]
            delta = 0.5 * np.log(now[c, c] / old[c, c])
            scale = np.where(np.arange(g.p) == c, np.exp(delta), 1.0)
            np.testing.assert_allclose(now, scale[:, None] * old * scale, rtol=1e-9)
            xi = new.xi[..., LANE].copy()
            xi[:, list(g.model.shared)] = at.groups[k].xi[:, list(g.model.shared)]
            found = difference(data, with_group(at, k, xi=xi, sigma=now), at)
            old_P, new_P = inverse(s.sigma)[..., LANE], inverse(new.sigma)[..., LANE]
            found += log_stretch(old_P, new_P, Q)
            found += (g.free.size + 1) * delta  # of the map from Sigma to Sigma: its row and column c
            mixing = at.groups[k].sd_mixing[g.free]
            found += log_mixing(layout.families[k], mixing, old_P) - log_mixing(layout.families[k], mixing, new_P)
            np.testing.assert_allclose(whole.log_ratio[LANE], found, atol=WHOLE, rtol=1e-5)
    assert moved == {(k, c) for k, g in enumerate(layout.groups) if g.guide is None for c in range(g.free.size)}


def log_mixing(family, mixing, precision):
    """Log density of the half-t scales given Sigma of a group that is alone."""
    (g,) = family.groups
    rate = NU * np.diag(precision[np.ix_(g.free, g.free)]) + np.array(g.model.prior.sd)[g.free] ** -2.0
    return stats.invgamma((NU + g.free.size) / 2, scale=rate).logpdf(mixing).sum()


@pytest.mark.parametrize("kind", ["plain", "pooled", "guided", "equal", "rating"])
def test_moves_of_beta(kind):
    data, layout, state, steps = scattered(kind)
    rng, move = np.random.default_rng(5), BetaMove(layout)
    at = Point.of(state, LANE)
    for k, g in enumerate(layout.groups):
        assert bool(move.may[k]) == (g.guide is None)
        if g.guide is not None:
            continue
        s, sketch = state.groups[k], Sketch(g.n_items, g.p)
        for coordinates in ({move.may[k][-1]}, set(move.may[k])):
            move.which[k][:] = [[c in coordinates for c in range(g.p)]]
            know(move.references[k], move.which[k].sum(), rng)
            sketch_units(sketch, g.p, rng)
            steps.likelihood.log_likelihood(state, k, s.xi, s.par, steps.item_ll[k], 0, g.n_items)
            new = move.propose(k, state, steps, sketch, TAU, rng)
            xi, beta = new.xi[..., LANE].copy(), new.beta[..., LANE]
            xi[:, list(g.model.shared)] = at.groups[k].xi[:, list(g.model.shared)]  # stay where the group has them
            found = difference(data, with_group(at, k, xi=xi, beta=beta), at)
            phi, new_phi = (b[move.which[k]][:, LANE] for b in (s.beta, new.beta))
            assert (phi != new_phi).all()
            found += log_reference(move.references[k], phi) - log_reference(move.references[k], new_phi)
            np.testing.assert_allclose(new.log_ratio[LANE], found, atol=WHOLE, rtol=1e-5)


@pytest.mark.parametrize("small", [0, 10, 300])
def test_beta_moves_where_responses_say_little(small, monkeypatch):
    monkeypatch.setattr("concal.calibration.moves.beta.SMALL", small)
    _, layout, state, steps = scattered("plain")
    move, rng = BetaMove(layout), np.random.default_rng(6)
    sketches = [Sketch(g.n_items, g.p) for g in layout.groups]
    for g, sketch in zip(layout.groups, sketches, strict=True):
        for c in range(g.p):  # the last coordinate is hardly heard, log a half, d well
            sketch.information[:, c * (c + 3) // 2] = {0: 100.0, 1: 0.5, g.p - 1: 1e-3}.get(c, 100.0)
    for _ in range(LEARN_EVERY):
        move.move(state, steps, sketches, TAU, rng, adapting=True)
    for g, which, sketch, s in zip(layout.groups, move.which, sketches, state.groups, strict=True):
        share = prior_share(g, s, sketch)
        by_hand, P = np.zeros((g.p, g.n_items, LANES)), inverse(s.sigma)
        for c, j, lane in np.ndindex(by_hand.shape):
            by_hand[c, j, lane] = P[c, c, lane] / (P[c, c, lane] + sketch.information[j, c * (c + 3) // 2])
        np.testing.assert_allclose(share, by_hand.mean(axis=(1, 2)), rtol=1e-9)
        wanted = (share > 0.5) & (g.n_items < small or share[2:].max(initial=0.0) > 0.75)
        np.testing.assert_array_equal(which, np.tile(wanted, (which.shape[0], 1)))
    assert any(which[:, -1].all() for which in move.which)


def test_moves_of_the_correlation():
    data, layout, state, steps = scattered("plain")
    rng, move = np.random.default_rng(4), CorrelationMove(layout)
    know(move.reference, 1, rng)
    Q = sketch_units(move.sketch, layout.D, rng)
    acc = np.zeros((layout.n_persons, 6, LANES))
    steps.person_pass(state, state.theta, acc, 0, layout.n_persons, 0)
    steps.person_ll = np.ascontiguousarray(acc[:, 0])
    new = move.propose(state, steps, rng)
    at = Point.of(state, LANE)
    after = replace(at, R=new.R[None, ..., LANE], theta=new.theta[..., LANE].astype(float))
    z, new_z = z_from_correlation(by_lane(state.R[0]))[LANE], z_from_correlation(by_lane(new.R))[LANE]
    found = difference(data, after, at) + correlation_of_z(new_z, 2)[1] - correlation_of_z(z, 2)[1]
    found += log_stretch(inverse(state.R[0])[..., LANE], inverse(new.R)[..., LANE], Q)
    found += log_reference(move.reference, z) - log_reference(move.reference, new_z)
    np.testing.assert_allclose(new.log_ratio[LANE], found, atol=WHOLE, rtol=1e-5)


@pytest.mark.parametrize(("kind", "places"), [("equal", [(0, 1), (1, 1)]), ("rating", [(1, 1), (1, 2), (1, 3)])])
def test_moves_of_what_a_group_shares(kind, places):
    data, _, state, steps = scattered(kind)
    at = Point.of(state, LANE)
    for k, c in places:
        s, prior = state.groups[k], steps.layout.groups[k].beta_prior(TAU)[c]
        old, new = (shared.place_at(steps, state, (k,), c, s.beta[0, c] + step, prior) for step in (0.0, 0.2))
        beta, xi = at.groups[k].beta.copy(), at.groups[k].xi.copy()
        beta[0, c] = xi[:, c] = new.value[LANE]
        found = difference(data, with_group(at, k, beta=beta, xi=xi), at)
        for sign, here, there in ((-1, old, new), (1, new, old)):
            centre = here.value + np.clip(here.slope / here.information, -0.5, 0.5)
            found += sign * stats.t(6, centre, here.information**-0.5).logpdf(there.value)[LANE]
        np.testing.assert_allclose(shared.log_ratio(old, new, prior)[LANE], found, atol=WHOLE, rtol=1e-5)


class Aim:
    """Where a unit aims from x, by the formulas of `concal.calibration.kernels.newton` in plain NumPy."""

    def __init__(self, gradient, information, precision, gap):
        self.H, self.P, self.information = information + precision, precision, information
        g = gradient - precision @ gap
        self.step = np.linalg.solve(self.H, g)
        self.step *= min(1.0, 4.0 / np.sqrt(g @ np.linalg.solve(self.H, g)))

    def log_density(self, x, to, newton, spread, bent):
        """Of a proposal `to`, up to a constant that both ways share."""
        v = to - x
        log_jacobian = 0.0
        if bent:
            own = self.information[0, 0]
            pivot, kappa = self.information[1, 0] / own, own / (own + self.P[0, 0])
            log_jacobian = kappa * v[1]
            v = v.copy()
            v[0] = np.exp(log_jacobian) * (v[0] + pivot) - pivot * (1.0 + log_jacobian)
        gap = (v - newton * self.step) / spread
        return 0.5 * np.linalg.slogdet(self.H)[1] - 0.5 * gap @ self.H @ gap + log_jacobian


def kind_of(u):
    """Weight of the Newton step and scale of the noise."""
    if u < 0.08:
        return 0.0, 1.7
    return (1.0, 1.0) if u < 0.5 else (1.6, 0.8)


def unpack(acc, n):
    """Gradient and information of an accumulator (rows,)."""
    information = np.zeros((n, n))
    information[lower(n)] = acc[1 + n :]
    return acc[1 : 1 + n], information + np.tril(information, -1).T


def ratios_of_units(steps, x, prior, stream, passed, sweep):
    """Run the kernels over all units: proposals, log ratios, accumulators before and after."""
    units, n = x.shape[:2]
    proposal, forward = np.empty_like(x), np.empty((units, LANES))
    current, accepted = np.zeros((units, LANES)), np.zeros((units, LANES), np.float32)
    how = kernels.Step(False, stream != PERSON_STREAM, steps.seed, sweep, stream)
    before = passed(x)
    kernels.propose(n, x, before, prior, proposal, forward, current, how, 0, units)
    after = passed(proposal)
    kernels.accept(n, x.copy(), after, prior, proposal, forward, current, accepted, how, 0, units)
    u = np.zeros((units, LANES), np.float32)
    kinds_of_move(steps.seed, sweep, stream, u)
    return proposal, forward, before, after, u


def check_units(data, at, moved, x, prior, ratios, bent):
    """Every unit of one lane; `moved(i, value)` is the point with unit i elsewhere."""
    proposal, forward, before, after, u = ratios
    n, seen = x.shape[1], set()
    for i in range(len(x)):
        here, there = x[i, :, LANE].astype(float), proposal[i, :, LANE].astype(float)
        P, m = prior.precision[prior.which[i], ..., LANE], prior.mean[prior.mean_of[i], :, LANE]
        ways = [Aim(*unpack(acc[i, :, LANE], n), P, place - m) for acc, place in ((before, here), (after, there))]
        kind = kind_of(u[i, LANE])
        seen.add(kind)
        found = difference(data, moved(i, there), at)
        found += ways[1].log_density(there, here, *kind, bent) - ways[0].log_density(here, there, *kind, bent)
        np.testing.assert_allclose(forward[i, LANE], found, atol=UNIT, rtol=1e-4)
    return seen


@pytest.mark.parametrize("kind", ["plain", "pooled", "guided"])
def test_moves_of_items(kind):
    data, layout, state, steps = scattered(kind)
    at = Point.of(state, LANE)
    seen = set()
    for k, g in enumerate(layout.groups):

        def passed(x, k=k, g=g):
            acc = accumulators(g, g.n_items)
            x = np.ascontiguousarray(x)
            steps.likelihood.accumulate(
                state, k, x, *(f({k: x})[k] for f in (steps.parameters, steps.jacobians)), acc, 0, g.n_items
            )
            return acc

        def moved(j, value, k=k):
            xi = at.groups[k].xi.copy()
            xi[j] = value
            return with_group(at, k, xi=xi)

        prior, x = steps.prior(k, state), state.groups[k].xi
        ratios = ratios_of_units(steps, x, prior, ITEM_STREAM + 64 * k, passed, 5)
        seen |= check_units(data, at, moved, x, prior, ratios, bent=True)
    assert len(seen) == 3, "every kind of move was met"


@pytest.mark.parametrize("kind", ["plain", "pooled"])
def test_moves_of_examinees(kind):
    data, layout, state, steps = scattered(kind)
    at, pop = Point.of(state, LANE), layout.population

    def passed(theta):
        acc = np.zeros((layout.n_persons, 6, LANES))
        steps.person_pass(state, theta, acc, 0, layout.n_persons, 0)
        return acc

    def moved(i, value):
        theta = at.theta.copy()
        theta[i] = value
        return replace(at, theta=theta)

    prior = kernels.Priors(inverse(state.R), pop, state.mu, pop)
    ratios = ratios_of_units(steps, copy.copy(state.theta), prior, PERSON_STREAM, passed, 5)
    assert len(check_units(data, at, moved, state.theta, prior, ratios, bent=False)) == 3
