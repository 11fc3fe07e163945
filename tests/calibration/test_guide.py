"""Guided calibration: priors on another metric, the link to it, and what the sampler makes of both."""

from dataclasses import replace

import numpy as np
import pytest
from programme import simulate_period

from concal.calibration.kernels import LANES
from concal.calibration.known import INFLATION, guide_period
from concal.calibration.layout import lay_out
from concal.calibration.moves.expansion import expand
from concal.calibration.moves.link import _derivatives, _draw_link, _quadratic, draw_links, prior_mean, prior_precision
from concal.calibration.moves.units import AbilitySums
from concal.calibration.period import calibrate_period
from concal.calibration.standardise import standardise
from concal.calibration.state import initial_state
from concal.consensus.result import GroupConsensus
from concal.data.period import Guide
from concal.spec import Spec

LOG_A, B = 0.2, -0.4  # theta_bank = A theta + B


def to_bank(xi):
    moved = np.array(xi)
    moved[..., 0] = np.exp(LOG_A) * moved[..., 0] + B
    moved[..., 1] -= LOG_A
    return moved


def guided(n_persons=250, seed=3, spread=0.3):
    """A period whose items the bank knows to within `spread`, on a metric of its own."""
    period, truth, _ = simulate_period(
        [("g", "reading", ("2pl", None), 30, 12), ("h", "reading", ("gpcm", 4), 20, 8)], n_persons, seed=seed
    )
    rng = np.random.default_rng(seed)
    groups = {}
    for name, group in period.groups.items():
        n, p = truth[name].shape
        covariance = np.broadcast_to(spread**2 * (np.eye(p) + 0.3), (n, p, p)).copy()
        noise = rng.multivariate_normal(np.zeros(p), covariance[0], size=n)
        groups[name] = replace(group, guide=Guide(to_bank(truth[name]) + noise, covariance))
    return replace(period, groups=groups), truth


def spec_for(data, **calibration):
    groups = {
        name: {
            "model": g.model.name,
            "dimension": g.dimension,
            **({"categories": g.model.n_categories} if g.model.polytomous else {}),
        }
        for name, g in data.groups.items()
    }
    content = {"bank": {"name": "b", "dimensions": list(data.dimensions)}, "groups": groups}
    return Spec.parse(content | {"calibration": {"draws": 200, "min_ess": 150, **calibration}})


def log_prior(x, guide, j, log_A, shift):
    """Density of an item on the period's metric: that of its image on the bank's, and the stretch of d."""
    image = np.array(x)
    image[0] = np.exp(log_A) * image[0] + shift
    image[1] -= log_A
    gap = image - guide.mean[j]
    return log_A - 0.5 * gap @ np.linalg.solve(guide.covariance[j], gap)


def scattered_state(layout, seed=1):
    rng = np.random.default_rng(seed)
    state = initial_state(layout, seed)
    state.link[0] = np.stack([0.1 * rng.standard_normal(LANES), 0.3 * rng.standard_normal(LANES)])
    for g, s in zip(layout.groups, state.groups, strict=True):
        s.xi = s.xi + 0.2 * rng.standard_normal(s.xi.shape)
        s.mean = prior_mean(g, state.link[0])
    return state


def test_priors_on_the_period_metric_are_those_of_the_bank():
    layout = lay_out(guided()[0])
    state = scattered_state(layout)
    for g in layout.groups:
        mean, precision = prior_mean(g, state.link[0]), prior_precision(g, state.link[0])
        x, y = np.random.default_rng(2).normal(size=(2, g.p))
        for j, lane in ((0, 0), (7, 5)):
            log_A, shift = state.link[0, :, lane]
            difference = log_prior(x, g.guide, j, log_A, shift) - log_prior(y, g.guide, j, log_A, shift)
            got = [-0.5 * (v - mean[j, :, lane]) @ precision[j, :, :, lane] @ (v - mean[j, :, lane]) for v in (x, y)]
            assert got[0] - got[1] == pytest.approx(difference, rel=1e-9)


def link_density(layout, state, lane, log_A, shift):
    return sum(
        log_prior(s.xi[j, :, lane], g.guide, j, log_A, shift)
        for g, s in zip(layout.groups, state.groups, strict=True)
        for j in range(g.n_items)
    )


def test_derivatives_of_the_link_density_are_finite_differences():
    layout = lay_out(guided()[0])
    state = scattered_state(layout)
    G = sum(_quadratic(g, s.xi) for g, s in zip(layout.groups, state.groups, strict=True))
    x = np.full((2, LANES), 0.05)
    slope, (c00, c01, c11) = _derivatives(x, G, 50.0)
    lane, h = 3, 1e-3

    def at(u, v):
        return link_density(layout, state, lane, 0.05 + u, 0.05 + v)

    assert slope[0, lane] == pytest.approx((at(h, 0) - at(-h, 0)) / (2 * h), rel=1e-4)
    assert slope[1, lane] == pytest.approx((at(0, h) - at(0, -h)) / (2 * h), rel=1e-4)
    assert -c00[lane] == pytest.approx((at(h, 0) - 2 * at(0, 0) + at(-h, 0)) / h**2, rel=1e-4)
    assert -c11[lane] == pytest.approx((at(0, h) - 2 * at(0, 0) + at(0, -h)) / h**2, rel=1e-4)
    cross = (at(h, h) - at(h, -h) - at(-h, h) + at(-h, -h)) / (4 * h * h)
    assert -c01[lane] == pytest.approx(cross, rel=1e-3, abs=1e-2)


def test_drawn_links_have_the_moments_of_their_density():
    layout = lay_out(guided()[0])
    state = scattered_state(layout)
    for s in state.groups:
        s.xi[:] = s.xi[:, :, :1]  # every lane has the same density
    members = list(zip(layout.groups, state.groups, strict=True))
    rng, link, drawn = np.random.default_rng(5), np.zeros((2, LANES)), []
    for _ in range(1500):
        link = _draw_link(members, link, rng)
        drawn.append(link)
    drawn = np.concatenate(drawn, axis=1)
    centre, spread = drawn.mean(axis=1), drawn.std(axis=1)
    u, v = (c + np.linspace(-6, 6, 61) * s for c, s in zip(centre, spread, strict=True))
    density = np.array([[link_density(layout, state, 0, a, b) for b in v] for a in u])
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    for k, (values, marginal) in enumerate(((u, weight.sum(axis=1)), (v, weight.sum(axis=0)))):
        mean = marginal @ values
        sd = np.sqrt(marginal @ (values - mean) ** 2)
        assert centre[k] == pytest.approx(mean, abs=0.05 * sd)
        assert spread[k] == pytest.approx(sd, rel=0.05)


def test_expansion_leaves_items_where_they_are_on_the_banks_metric():
    layout = lay_out(guided()[0])
    state = scattered_state(layout)

    def images():
        A, shift = np.exp(state.link[0, 0]), state.link[0, 1]
        return [(A * s.xi[:, 0] + shift, s.xi[:, 1] - state.link[0, 0]) for s in state.groups]

    before, theta = images(), np.random.default_rng(6).normal(0.05, 1.04, state.theta.shape)
    sums = AbilitySums(theta.sum(axis=0)[None], (theta[:, 0] ** 2).sum(axis=0)[None, None, None])
    scale, shift = expand(layout, state, sums, 0.01, np.random.default_rng(1))
    assert np.abs(scale - 1.0).max() > 1e-4
    assert np.abs(shift).max() > 1e-4
    for (d, log_a), (d_now, log_a_now) in zip(before, images(), strict=True):
        np.testing.assert_allclose(d_now, d, atol=1e-10)
        np.testing.assert_allclose(log_a_now, log_a, atol=1e-10)
    for g, s in zip(layout.groups, state.groups, strict=True):
        np.testing.assert_allclose(s.mean, prior_mean(g, state.link[0]), atol=1e-10)


def test_draw_links_moves_the_prior_means_along():
    layout = lay_out(guided()[0])
    state = scattered_state(layout)
    before = state.link.copy()
    draw_links(layout, state, np.random.default_rng(1))
    assert (state.link != before).any()
    for g, s in zip(layout.groups, state.groups, strict=True):
        np.testing.assert_array_equal(s.mean, prior_mean(g, state.link[0]))


@pytest.fixture(scope="module")
def calibrated():
    """Six periods, guided: their data, what was simulated, and their calibrations."""
    return [(*(made := guided(seed=seed)), calibrate_period(made[0], spec_for(made[0]), seed=1)) for seed in range(6)]


def test_guided_posteriors_are_calibrated(calibrated):
    """Truth and guide are one draw of the prior: standardised errors on both metrics have unit spread."""
    own, linked, links = [], [], []
    for _, truth, fit in calibrated:
        for name, g in fit.groups.items():
            xi, link = g.flat("xi"), g.flat("guide_link")
            own.append(((xi.mean(axis=0) - truth[name]) / xi.std(axis=0)).ravel())
            d = np.exp(link[:, :1]) * xi[:, :, 0] + link[:, 1:]
            linked.append((d.mean(axis=0) - to_bank(truth[name])[:, 0]) / d.std(axis=0))
        links.append((link.mean(axis=0) - [LOG_A, B]) / link.std(axis=0))
    own, linked = np.concatenate(own), np.concatenate(linked)
    assert np.sqrt((own**2).mean()) == pytest.approx(1.0, abs=0.1)
    assert np.sqrt((linked**2).mean()) == pytest.approx(1.0, abs=0.15)
    assert np.abs(np.concatenate(links)).max() < 3.5


def test_a_guide_informs_and_the_draws_do_not_depend_on_threads(calibrated):
    data, _, fit = calibrated[0]
    alone = replace(data, groups={name: replace(g, guide=None) for name, g in data.groups.items()})
    free = calibrate_period(alone, spec_for(alone), seed=1)
    for name, g in fit.groups.items():
        assert g.flat("xi")[:, :, 0].std(axis=0).mean() < free.groups[name].flat("xi")[:, :, 0].std(axis=0).mean()
    again = calibrate_period(data, spec_for(data, threads=1), seed=1)
    np.testing.assert_array_equal(again.groups["g"].xi, fit.groups["g"].xi)
    np.testing.assert_array_equal(again.groups["h"].guide_link, fit.groups["h"].guide_link)


def test_an_interrupted_guided_run_goes_on_where_it_was(calibrated, tmp_path):
    data, _, fit = calibrated[0]

    def stop(progress):
        if progress.sweep == 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_period(data, spec_for(data), seed=1, checkpoint=tmp_path / "run.npz", progress=stop)
    resumed = calibrate_period(data, spec_for(data), seed=1, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(resumed.groups["h"].xi, fit.groups["h"].xi)
    np.testing.assert_array_equal(resumed.groups["g"].guide_link, fit.groups["g"].guide_link)


def known_group(group, rows, features=("1",)):
    """A consensus that has seen the items `rows` of a group."""
    rng = np.random.default_rng(4)
    p, n = len(group.model.parameters), len(rows)
    return GroupConsensus(
        group.name,
        group.dimension,
        group.model,
        tuple(group.item_ids[j] for j in rows),
        features,
        np.ones((n, 1)),
        rng.normal(size=(n, p)),
        np.broadcast_to(0.04 * np.eye(p), (n, p, p)).copy(),
        np.full(n, "consensus"),
        np.full(n, 20),
        np.where(np.arange(n) == 0, 0, 2),
        rng.normal(size=(1, p)),
        np.eye(p),
        0.01 * np.eye(p),
    )


def test_guides_come_from_the_consensus_and_new_items_from_its_population():
    period, _, _ = simulate_period([("g", "reading", ("2pl", None), 6, 3), ("h", "reading", ("2pl", None), 6, 3)], 40)
    known = known_group(period.groups["g"], [4, 1, 2])  # item 4 is known, but nobody has answered it
    made = guide_period(period, {"g": known, "h": known_group(period.groups["h"], [1], ("1", "length"))})
    guide = made.groups["g"].guide
    np.testing.assert_array_equal(guide.mean[[1, 2]], known.mean[1:])
    np.testing.assert_array_equal(guide.covariance[[1, 2]], INFLATION * known.covariance[1:])
    for j in (0, 3, 4, 5):
        np.testing.assert_allclose(guide.mean[j], known.beta[0])
        np.testing.assert_allclose(guide.covariance[j], known.sigma + known.beta_covariance)
    assert made.groups["h"].guide is None  # other features: its population is learned anew


def test_convergence_is_judged_on_what_is_sampled(calibrated):
    """Coefficients of guided groups only describe their items; the link to the bank must have converged."""
    _, _, fit = calibrated[0]
    assert all(g.population_ess == {} for g in fit.groups.values())
    assert fit.convergence.min_ess_population > 150


def test_a_guided_group_may_have_fewer_items_than_features():
    period, _ = guided()
    g = period.groups["g"]
    X = np.column_stack([np.ones(30), np.zeros(30), np.full(30, 0.1), np.random.default_rng(1).normal(size=(30, 40))])
    wide = replace(g, X=X, features=("1", *(f"x{k}" for k in range(42))))
    fit = calibrate_period(replace(period, groups={**period.groups, "g": wide}), spec_for(period), seed=1)
    assert np.isfinite(fit.groups["g"].beta).all()
    flat = standardise(X)
    assert not flat.X[:, 1:3].any()
    assert np.isfinite(np.linalg.inv(flat.to_user)).all()
