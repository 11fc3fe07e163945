"""Links as unknowns: what holds them, sets of periods, and moves of the metric that leave the target as it is."""

from dataclasses import replace

import numpy as np
import pytest
from phi_worlds import changed, only, phi_world

from concal import metric
from concal.calibration import priors as priors_of
from concal.calibration.family import families
from concal.calibration.kernels import LANES
from concal.calibration.state import GroupState, kernel_parameters
from concal.calibration.workers import Workers
from concal.consensus.analytic.forms import unite_forms
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.joint.arrange import arrange, group_layout
from concal.consensus.joint.consensus import combine_jointly
from concal.consensus.joint.likelihood import Factors
from concal.consensus.joint.links import LinkPriors, LinkSteps, Member, connected
from concal.consensus.joint.state import JointState
from concal.errors import LinkError
from concal.spec import ConsensusSpec

TAU = 0.3  # strong enough to be seen


def pieces(placed, seed=1):
    """Everything the steps need: evidence, tables, layout, factors, priors and a scattered state."""
    totals = sum_periods(placed)
    evidence = unite_forms(totals.forms("g"))
    tables = arrange(placed, evidence, {})
    g = group_layout(evidence, tables, 0)
    factors = Factors([g], [tables])
    priors = LinkPriors(placed, [g], [tables])
    rng = np.random.default_rng(seed)
    n, p, F = g.n_items, g.p, g.design.X.shape[1]
    xi = evidence.prior_mean[tables.rows][:, :, None] + 0.3 * rng.normal(size=(n, p, LANES))
    beta = 0.5 * rng.normal(size=(F, p, LANES))
    root = np.eye(p) + 0.3 * np.tril(rng.normal(size=(LANES, p, p)), -1)
    sigma = np.moveaxis(0.5 * root @ root.transpose(0, 2, 1), 0, -1)
    mean = (g.design.X @ beta.reshape(F, -1)).reshape(xi.shape)
    mixing = rng.uniform(0.5, 2.0, (LANES, p)).T
    state = GroupState(xi, beta, beta.copy(), sigma, mixing, mean, kernel_parameters(g, xi))
    links = np.array([0.1, 0.3])[None, None, :, None] * rng.normal(size=(1, len(placed), 2, LANES))
    joint = JointState(1, [state], links, [])
    joint.refresh_links()
    return g, tables, factors, priors, joint


def log_joint(g, tables, priors, state, lane):
    """Log density of items, population, mixing variables given, and links: written out, no kernel."""
    s, links = state.groups[0], state.links[0, :, :, lane]
    xi, beta, sigma = s.xi[:, :, lane], s.beta[:, :, lane], s.sigma[:, :, lane]
    total = 0.0
    for f in range(tables.n_factors):
        log_A, B = links[tables.period[f]]
        phi = metric.own_phi(metric.phi_of(xi[tables.item[f]]), np.exp(log_A), B)
        total += tables.h[f] @ phi - 0.5 * phi @ tables.Q[f] @ phi
    r = xi - g.design.X @ beta
    omega = np.linalg.inv(sigma)
    total += -0.5 * np.einsum("ja,ab,jb->", r, omega, r) - 0.5 * len(r) * np.linalg.slogdet(sigma)[1]
    total += g.beta_prior(TAU).log_density(beta)
    total += priors_of.log_sigma(np.linalg.slogdet(sigma)[1], np.diag(omega), s.sd_mixing[:, lane])
    for m in range(links.shape[0]):
        log_A, B = links[m]
        if priors.free[0, m]:
            total += -0.5 * B**2 / priors_of.MU_VARIANCE + priors_of.log_unit(log_A)[0]
        else:
            gap = links[m] - priors.mean[0, m]
            total += -0.5 * gap @ priors.precision[0, m] @ gap
    return total


def moved(state, log_s, t):
    """The state on theta -> s (theta + t), all lanes alike."""
    s, new = np.exp(log_s), replace(state, links=state.links.copy(), groups=[])
    old = state.groups[0]
    group = replace(
        old,
        xi=np.moveaxis(metric.move_items(np.moveaxis(old.xi, 1, 2), s, s * t), 2, 1),
        mean=np.moveaxis(metric.move_items(np.moveaxis(old.mean, 1, 2), s, s * t), 2, 1),
        beta=np.moveaxis(metric.move_beta(np.moveaxis(old.beta, 2, 0), s, s * t), 0, 2),
        sigma=np.moveaxis(metric.move_item_covariance(np.moveaxis(old.sigma, -1, 0), s), 0, -1),
    )
    new.groups = [group]
    new.links[0, :, 1] = s * (state.links[0, :, 1] + t)
    new.links[0, :, 0] += log_s
    return new


def log_volume(g, n_periods, log_s):
    """Log Jacobian of the scaling: d of every item, B of every link, the d column of beta, D Sigma D."""
    return (g.n_items + n_periods + g.design.X.shape[1] + g.p + 1) * log_s


class Told:
    """A generator that says what it is told."""

    def __init__(self, *normals, uniforms=None):
        self.normals, self.uniforms = list(normals), uniforms

    def standard_normal(self, size):
        return np.broadcast_to(self.normals.pop(0), size).copy()

    def random(self, size):
        return np.broadcast_to(self.uniforms, size).copy()


@pytest.fixture(params=["2pl", "gpcm"])
def setting(request):
    world = phi_world(seed=6, n_items=12, model=request.param, categories=4 if request.param == "gpcm" else None)
    wobble = np.array([[[0.01, 0.004], [0.004, 0.03]]])
    return pieces([changed(world.placed[0], wobble=wobble), *world.placed[1:]])


def test_shift_of_the_metric_is_drawn_from_its_conditional(setting):
    """Along t the log joint density is a parabola: its maximum is the draw's mean, its curvature the precision."""
    g, tables, factors, priors, state = setting
    steps = LinkSteps(factors, priors, 1, Workers(1))
    mine = [Member(families([g])[0], state.groups, g.beta_prior(TAU))]
    t = steps._draw_shift(state.links[0], 0, mine, Told(0.0))
    spread = steps._draw_shift(state.links[0], 0, mine, Told(1.0)) - t
    lane = 4
    values = [log_joint(g, tables, priors, moved(state, 0.0, t[lane] + k * spread[lane]), lane) for k in (-1, 0, 1)]
    assert values[1] - values[0] == pytest.approx(0.5, abs=1e-7)
    assert values[1] - values[2] == pytest.approx(0.5, abs=1e-7)


def test_scale_of_the_metric_is_accepted_as_it_must_be(setting):
    """The ratio is the change of the log joint density plus the log Jacobian plus the proposals' densities, to 1e-8."""
    g, tables, factors, priors, state = setting
    steps = LinkSteps(factors, priors, 1, Workers(1))
    mine = [Member(families([g])[0], state.groups, g.beta_prior(TAU))]

    def proposal(links):
        P, r = priors.precision[0], links - priors.mean[0][:, :, None]
        return -np.einsum("mb,mbl->l", P[:, 0], r) / P[:, 0, 0].sum(), 1.0 / np.sqrt(P[:, 0, 0].sum())

    for z in (-1.3, 0.4, 1.1):
        centre, spread = proposal(state.links[0])
        log_s = centre + spread * z
        ratio = np.empty(LANES)
        for lane in range(LANES):
            new = moved(state, log_s[lane], 0.0)
            change = log_joint(g, tables, priors, new, lane) - log_joint(g, tables, priors, state, lane)
            back = proposal(new.links[0])[0][lane]
            forth = -0.5 * z**2
            ratio[lane] = change + log_volume(g, 3, log_s[lane]) - 0.5 * ((log_s[lane] + back) / spread) ** 2 - forth
        assert np.abs(ratio).max() > 1e-3
        just, over = np.exp(np.minimum(ratio, -1e-9) - 2e-8), np.exp(ratio + 2e-8)
        kept = steps._draw_log_scale(state.links[0], 0, mine, Told(z, uniforms=just))
        np.testing.assert_allclose(kept, log_s, rtol=1e-12)
        low = ratio < -1e-6
        refused = steps._draw_log_scale(state.links[0], 0, mine, Told(z, uniforms=np.where(low, over, 0.5)))
        np.testing.assert_array_equal(refused[low], 0.0)


def test_moves_of_the_metric_carry_everything_and_change_no_factor(setting):
    _, tables, factors, priors, state = setting
    steps = LinkSteps(factors, priors, 1, Workers(1))
    before = replace(state, links=state.links.copy(), groups=[replace(s, **copies(s)) for s in state.groups])
    steps.move_metric(state, [TAU], np.random.default_rng(3))
    assert np.abs(state.links - before.links).max() > 1e-3
    for lane in (0, 7):
        # what s and t were
        log_s = state.links[0, 0, 0, lane] - before.links[0, 0, 0, lane]
        t = state.links[0, 0, 1, lane] / np.exp(log_s) - before.links[0, 0, 1, lane]
        expected = moved(before, log_s, t)
        for name in ("xi", "mean", "beta"):
            got = getattr(state.groups[0], name)[:, :, lane]
            np.testing.assert_allclose(got, getattr(expected.groups[0], name)[:, :, lane], atol=1e-10)
        np.testing.assert_allclose(state.groups[0].sigma[..., lane], expected.groups[0].sigma[..., lane], atol=1e-10)
        np.testing.assert_allclose(state.links[..., lane], expected.links[..., lane], atol=1e-10)
        for f in range(tables.n_factors):
            seen = []
            for at in (before, state):
                log_A, B = at.links[0, tables.period[f], :, lane]
                xi = at.groups[0].xi[tables.item[f], :, lane]
                seen.append(metric.own_phi(metric.phi_of(xi), np.exp(log_A), B))
            np.testing.assert_allclose(seen[0], seen[1], atol=1e-9)


def copies(s):
    return {name: getattr(s, name).copy() for name in ("xi", "mean", "beta", "beta_mean", "sigma")}


def test_moves_leave_the_priors_of_the_links_as_they_are():
    """Factors without information: links, items and population wander over their prior; the held link shows its own."""
    world = phi_world(seed=7, n_items=8, n_periods=2)
    C = np.array([[0.01, 0.004], [0.004, 0.03]])
    group = [p.factors.groups["g"] for p in world.placed]
    placed = [
        changed(world.placed[0], Q=1e-9 * group[0].Q, h=0.0 * group[0].h, wobble=C[None]),
        changed(world.placed[1], Q=1e-9 * group[1].Q, h=0.0 * group[1].h),
    ]
    _, _, factors, priors, state = pieces(placed)
    steps = LinkSteps(factors, priors, 3, Workers(1))
    drawn = []
    for sweep in range(1500):
        state.sweep += 1
        steps.move(state)
        if sweep % 2:
            continue
        drawn.append(state.links[0].copy())
    drawn = np.moveaxis(np.array(drawn)[50:], 3, 1).reshape(-1, 2, 2)
    np.testing.assert_allclose(np.cov(drawn[:, 0].T), C, rtol=0.15, atol=1e-3)
    precision = np.exp(-2.0 * drawn[:, 1, 0])  # Gamma(3/2, 1/2)
    assert precision.mean() == pytest.approx(3.0, rel=0.1)
    assert drawn[:, 1, 1].std() == pytest.approx(np.sqrt(priors_of.MU_VARIANCE), rel=0.1)


def test_sets_of_periods_that_hang_together():
    world = phi_world(seed=8, n_items=20, n_periods=4, share=1.0)
    placed = [
        only(world.placed[0], range(10)),
        only(world.placed[1], range(10, 20)),
        only(world.placed[2], range(5, 10)),
        only(world.placed[3], range(15, 20)),
    ]
    totals = sum_periods(placed)
    tables = arrange(placed, unite_forms(totals.forms("g")), {})
    assert connected(4, [tables]) == [[0, 2], [1, 3]]
    loose = [replace(placed[0]), *(replace(p, linked=False) for p in placed[1:])]
    g = group_layout(unite_forms(totals.forms("g")), tables, 0)
    with pytest.raises(LinkError, match=r"'reading'.*2 sets.*'P1', 'P3'; 'P2', 'P4'.*bridge"):
        LinkPriors(loose, [g], [tables])
    # the better of the set's own links holds it
    narrow, wide = 0.001 * np.eye(2)[None], 0.1 * np.eye(2)[None]
    linked = [
        placed[0],
        changed(placed[1], link_covariance=wide),
        placed[2],
        changed(placed[3], link_covariance=narrow),
    ]
    priors = LinkPriors(linked, [g], [tables])
    assert priors.free.tolist() == [[False, True, True, False]]
    np.testing.assert_allclose(priors.mean[0, 3], world.links[3])
    np.testing.assert_allclose(priors.precision[0, 3], np.eye(2) / (0.001 + 1e-8))
    assert priors.precision[0, 0, 0, 0] == pytest.approx(1e8)  # a reference without wobble is as good as fixed
    with pytest.raises(LinkError, match="'P9' is not among the periods"):
        LinkPriors([replace(p, reference="P9") for p in placed], [g], [tables])


def test_held_links_are_not_estimated():
    world = phi_world(n_periods=4, seed=5)
    wrong = [
        replace(p, link_mean=p.link_mean + np.array([0.1, 0.2]), held=True) if p.period == "P3" else p
        for p in world.placed
    ]
    _, _, _, priors, _ = pieces(wrong)
    assert priors.free[0].tolist() == [False, True, False, True]  # the reference, and P3
    found = combine_jointly(wrong, sum_periods(wrong), ConsensusSpec())
    links = {row["period"]: row for row in found.links.iter_rows(named=True)}
    np.testing.assert_allclose(np.log(links["P3"]["A_mean"]), world.links[2, 0] + 0.1, atol=1e-3)
    np.testing.assert_allclose(links["P3"]["B_mean"], world.links[2, 1] + 0.2, atol=1e-3)
    # the others move as far as a quarter of wrong evidence pulls them, no further
    assert abs(links["P2"]["B_mean"] - world.links[1, 1]) < 0.2


def test_a_held_link_places_its_set_of_periods():
    world = phi_world(n_periods=4, seed=6, n_items=40, share=1.0)
    apart = [only(p, range(20)) if k < 2 else only(p, range(20, 40)) for k, p in enumerate(world.placed)]
    held = [replace(p, held=p.period == "P4") for p in apart]
    assert pieces(apart)[3].free[0].tolist() == [False, True, False, True]  # the first of equally good links
    assert pieces(held)[3].free[0].tolist() == [False, True, True, False]
