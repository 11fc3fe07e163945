"""Strata of a group: one population of d and log a, steps of their own; against densities written down plainly."""

import numpy as np
import pytest
from programme import simulate_period
from scipy import stats

from concal.calibration.kernels import LANES
from concal.calibration.layout import lay_out
from concal.calibration.matrices import by_lane
from concal.calibration.moves.scaling import Scaling
from concal.calibration.moves.sigma import family_rows, pack_family, propose_sigmas, unpack, unpack_family
from concal.calibration.moves.strata import draw_family, steps_of, unit_rate
from concal.calibration.period import calibrate_period
from concal.calibration.priors import NU, unit_power
from concal.calibration.state import initial_state
from concal.spec import Spec


def mixed(n_items=(6, 5, 4), n_persons=60, seed=1, features=1):
    groups = [(f"essay ({k} categories)", "t", ("gpcm", k), n, n) for k, n in zip((2, 3, 5), n_items, strict=True)]
    data, truth, theta = simulate_period(groups, n_persons, seed=seed, features=features)
    layout = lay_out(data)
    return data, layout, initial_state(layout, seed=3), truth, theta


def settled(layout, state, rng, sweeps=5):
    """A state whose strata agree about what they share."""
    family = layout.families[0]
    for _ in range(sweeps):
        draw_family(family, state.groups, 0.01, rng)
    return family


def log_prior(family, states, lane, sigmas):
    """Log density of (S, G_K, S_K) given the half-t scales, from its parts."""
    head = 2.0 * NU * np.diag(1.0 / states[0].sd_mixing[:2, lane])
    S = sigmas[0][:2, :2]
    value = stats.invwishart(NU + 1.0, head).logpdf(S)
    for s, sigma in zip(states, sigmas, strict=True):
        q = sigma.shape[0] - 2
        if q == 0:
            continue
        G = sigma[2:, :2] @ np.linalg.inv(S)
        own = sigma[2:, 2:] - G @ S @ G.T
        steps = 2.0 * NU * np.diag(1.0 / s.sd_mixing[2:, lane])
        value += stats.invwishart(NU + q + 1.0, np.atleast_2d(steps)).logpdf(np.atleast_2d(own))
        value += stats.matrix_normal(np.zeros((q, 2)), own, np.linalg.inv(head)).logpdf(G)
    return value


def parts_of(family, phi):
    """What phi stands for, as one vector: S, then G and S_K of every stratum."""
    found = []
    for k, values in enumerate(unpack_family(family, phi)):
        sigma = unpack(values)[0]
        S = sigma[:2, :2]
        if k == 0:
            found.append(S[np.tril_indices(2)])
        G = sigma[2:, :2] @ np.linalg.inv(S)
        found += [G.ravel(), (sigma[2:, 2:] - G @ S @ G.T)[np.tril_indices(sigma.shape[0] - 2)]]
    return np.concatenate(found)


def log_volume(family, phi, lane, step=1e-6):
    """Log determinant of d(S, G, S_K) / d phi, by differences."""
    columns = []
    for i in range(phi.shape[1]):
        up, down = (np.repeat(phi[lane : lane + 1], LANES, axis=0) for _ in range(2))
        up[:, i] += step
        down[:, i] -= step
        columns.append((parts_of(family, up) - parts_of(family, down)) / (2 * step))
    return np.linalg.slogdet(np.stack(columns, axis=1))[1]


class Fixed:
    """A reference that proposes what it is given."""

    def __init__(self, phi):
        self.phi = phi

    def propose(self, phi, rng):
        return self.phi, np.zeros(LANES)


def test_strata_of_a_group_are_one_family():
    _, layout, state, _, _ = mixed()
    (family,) = layout.families
    assert family.members == (0, 1, 2)
    assert family.n_spread == 2 + 0 + 1 + 3
    designs = [g.design.to_user for g in family.groups]
    np.testing.assert_array_equal(designs[0], designs[1])
    settled(layout, state, np.random.default_rng(0))
    first, *others = state.groups
    for s in others:
        np.testing.assert_array_equal(s.beta[:, :2], first.beta[:, :2])
        np.testing.assert_allclose(s.sigma[:2, :2], first.sigma, rtol=1e-12)
        np.testing.assert_array_equal(s.sd_mixing[:2], first.sd_mixing)


def test_a_proposed_sigma_is_weighed_by_its_prior():
    _, layout, state, _, _ = mixed()
    rng = np.random.default_rng(2)
    family, states = settled(layout, state, rng), state.groups
    phi = pack_family(family, states)
    new = phi + 0.1 * rng.standard_normal(phi.shape)
    proposed, ratio = propose_sigmas(family, states, Fixed(new), rng)
    for lane in (0, 3):
        old_sigmas, sigmas = [s.sigma[..., lane] for s in states], [sigma[..., lane] for sigma in proposed]
        expected = log_prior(family, states, lane, sigmas) - log_prior(family, states, lane, old_sigmas)
        expected += log_volume(family, new, lane) - log_volume(family, phi, lane)
        for g, old, now in zip(family.groups, old_sigmas, sigmas, strict=True):
            expected -= 0.5 * g.n_items * (np.linalg.slogdet(now)[1] - np.linalg.slogdet(old)[1])
        # the scales are integrated out: their conditional given Sigma leaves the density
        expected += log_scales(family, states, lane, old_sigmas) - log_scales(family, states, lane, sigmas)
        assert ratio[lane] == pytest.approx(expected, abs=1e-5)


def test_one_spread_of_the_strata_is_scaled():
    """Rows of all strata: the head's scales every stratum's d and log a, the others one step of one stratum."""
    _, layout, state, _, _ = mixed()
    rng = np.random.default_rng(3)
    family, states = settled(layout, state, rng), state.groups
    phi = pack_family(family, states)
    assert np.concatenate(family_rows(family)).tolist() == list(range(phi.shape[1]))
    scaling = Scaling(family_rows(family))
    places = [(0, 0), (0, 1), (1, 2), (2, 2), (2, 3), (2, 4)]  # stratum and coordinate of every row
    assert len(scaling.rows) == len(places) == family.n_spread
    for row, (k, c) in enumerate(places):
        scaling.length[:] = np.where(np.arange(len(places)) == row, 0.5, 1e-12)
        new, jacobian = scaling.propose(phi, rng)
        delta = new[:, scaling.rows[row][-1]] - phi[:, scaling.rows[row][-1]]
        for m, (values, was) in enumerate(zip(unpack_family(family, new), states, strict=True)):
            p = family.groups[m].free.size
            scaled = (np.arange(p) == c) & (row < 2 or m == k)
            factor = np.where(scaled, np.exp(delta)[:, None], 1.0)
            expected = factor[:, :, None] * by_lane(was.sigma) * factor[:, None, :]
            np.testing.assert_allclose(unpack(values), expected, rtol=1e-9)
        gap = 1e-6
        J = np.empty((phi.shape[1], phi.shape[1]))
        for i in range(phi.shape[1]):
            up, down = phi.copy(), phi.copy()
            up[:, i] += gap
            down[:, i] -= gap
            ends = []
            for value in (up, down):
                value[:, scaling.rows[row][:-1]] *= np.exp(delta)[:, None]
                value[:, scaling.rows[row][-1]] += delta
                ends.append(value[0])
            J[:, i] = (ends[0] - ends[1]) / (2 * gap)
        assert jacobian[0] == pytest.approx(np.linalg.slogdet(J)[1], abs=1e-6)


def log_scales(family, states, lane, sigmas):
    """Log density of the half-t scales given (S, G_K, S_K), from their conditionals."""
    S = sigmas[0][:2, :2]
    information, value = np.diag(np.linalg.inv(S)).copy(), 0.0
    for g, s, sigma in zip(family.groups, states, sigmas, strict=True):
        q, scale = sigma.shape[0] - 2, np.array(g.model.prior.sd)
        G = sigma[2:, :2] @ np.linalg.inv(S)
        P = np.linalg.inv(sigma[2:, 2:] - G @ S @ G.T)
        information += np.diag(G.T @ P @ G)
        own = stats.invgamma((NU + 2 + q) / 2, scale=NU * np.diag(P) + scale[2:] ** -2.0)
        value += own.logpdf(s.sd_mixing[2:, lane]).sum()
    head = stats.invgamma((NU + family.n_spread) / 2, scale=NU * information + scale[:2] ** -2.0)
    return value + head.logpdf(states[0].sd_mixing[:2, lane]).sum()


def test_a_change_of_unit_is_weighed_by_the_prior():
    _, layout, state, _, _ = mixed()
    family, states = settled(layout, state, np.random.default_rng(4)), state.groups
    tau, k = 0.01, family.groups[0].design.X.shape[1]

    def value(s):
        D = [np.diag([s, *np.ones(g.p - 1)]) for g in family.groups]
        sigmas = [d @ state_of.sigma[..., 0] @ d for d, state_of in zip(D, states, strict=True)]
        volume = k + 3 - sum(g.p - 2 for g in family.groups)  # B's d column, S, and G's d column, which shrinks
        hyper = -0.5 * tau * s**2 * (states[0].beta[:, 0, 0] ** 2).sum()
        return log_prior(family, states, 0, sigmas) + volume * np.log(s) + hyper

    for s in (0.8, 1.3):
        expected = value(s) - value(1.0) + 0.5 * tau * (s**2 - 1) * (states[0].beta[:, 0, 0] ** 2).sum()
        found = unit_power(k, family.n_spread) * np.log(s) - unit_rate(family, states)[0] * (s**-2 - 1.0)
        assert found == pytest.approx(expected, abs=1e-8)


def test_draws_given_items_and_items_given_draws_leave_the_prior_alone():
    """Items from the population, the population from the items, in turn: scales then follow their half-t prior."""
    _, layout, state, _, _ = mixed(n_items=(3, 3, 3))
    family, rng, tau = layout.families[0], np.random.default_rng(5), 1.0
    seen = {"S": [], "own": [], "C": [], "intercept": []}
    for sweep in range(3000):
        draw_family(family, state.groups, tau, rng)
        for s in state.groups:
            root = np.linalg.cholesky(by_lane(s.sigma))
            noise = np.einsum("lab,jbl->jal", root, rng.standard_normal(s.xi.shape))
            s.xi = s.mean + noise
        if sweep > 200:
            five = state.groups[2]
            seen["S"].append(np.sqrt(five.sigma[0, 0]))
            seen["own"].append(np.sqrt(five.sigma[3, 3]))
            seen["C"].append(five.beta[1, 2].copy())
            seen["intercept"].append(five.beta[0, 2].copy())
    scale = family.groups[2].model.prior.sd
    half_t = np.abs(stats.t(2).ppf([0.625, 0.75, 0.875]))  # quartiles of |t|
    for name, sd in (("S", scale[0]), ("own", scale[3])):
        found = [(np.concatenate(seen[name]) < q * sd).mean() for q in half_t]
        np.testing.assert_allclose(found, [0.25, 0.5, 0.75], atol=0.04)
    centre = family.groups[2].model.prior.mean[2]
    for name, mean in (("C", 0.0), ("intercept", centre)):
        normal = [(np.concatenate(seen[name]) < mean + scale[2] * q).mean() for q in stats.norm.ppf([0.25, 0.5, 0.75])]
        np.testing.assert_allclose(normal, [0.25, 0.5, 0.75], atol=0.04)


def test_sigma_taken_apart_and_put_together():
    _, layout, state, _, _ = mixed()
    family, s = settled(layout, state, np.random.default_rng(6)), state.groups[2]
    steps = steps_of(family, family.groups[2], s)
    sigma = by_lane(s.sigma)
    S = sigma[:, :2, :2]
    np.testing.assert_allclose(steps.G @ S, sigma[:, 2:, :2], atol=1e-10)
    np.testing.assert_allclose(steps.sigma + steps.G @ S @ np.swapaxes(steps.G, 1, 2), sigma[:, 2:, 2:], atol=1e-10)


@pytest.mark.parametrize("slopes", ["free", "equal"])
def test_a_small_stratum_leans_on_the_others(slopes):
    """Two items of five categories have the spread of d of all, and a slope in common where slopes are equal."""
    group = {"model": "gpcm", "dimension": "t", "slopes": slopes}
    options = {"max_sweeps": 700, "draws": 200, "min_ess": 30, "max_rhat": 1.2, "max_item_rhat": 1.2}
    spec = Spec.parse({"bank": {"dimensions": ["t"]}, "groups": {"essay": group}, "calibration": options})
    data, _, _, truth, _ = mixed(n_items=(20, 10, 2), n_persons=300, features=0)
    if slopes == "equal":
        from dataclasses import replace

        from concal.response import make_model

        groups = {
            n: replace(g, model=make_model("gpcm", g.model.n_categories, "equal")) for n, g in data.groups.items()
        }
        data = replace(data, groups=groups)
    found = calibrate_period(data, spec, seed=2)
    strata = list(found.groups.values())
    for other in strata[1:]:
        np.testing.assert_array_equal(other.beta[..., :2], strata[0].beta[..., :2])
        np.testing.assert_allclose(other.sigma[..., :2, :2], strata[0].sigma, rtol=1e-9)
    assert all(g.beta_mean is None for g in strata)
    for name, group in found.groups.items():
        mean, sd = group.flat("xi").mean(axis=0), group.flat("xi").std(axis=0)
        if slopes == "free":
            assert (np.abs(mean - truth[name]) < 4.5 * sd).all()
        else:
            np.testing.assert_array_equal(
                group.xi[..., 1], np.broadcast_to(strata[0].xi[..., :1, 1], group.xi.shape[:3])
            )
