"""What other responses say of an ability, against posteriors on a fine grid."""

import numpy as np
import pytest
from programme import MODELS, simulate_period

from concal.calibration import others
from concal.calibration.layout import lay_out
from concal.calibration.others import MOST, item_points, told_by_others

THETA = np.linspace(-7.0, 7.0, 561)
IDS = [m[0] for m in MODELS]


def at_grid(group, xi):
    """Log-likelihoods of responses on the grid, (responses, nodes)."""
    one = np.ones(THETA.size)
    return np.stack(
        [
            group.model.log_likelihood(s * one, THETA, xi[j] * one[:, None])
            for j, s in zip(group.item, group.score, strict=True)
        ]
    )


def moments(log_density):
    weight = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    mean = weight @ THETA
    return mean, np.sqrt(weight @ THETA**2 - mean**2)


def exact(data, truth, dimension):
    """Posterior of a dimension with and, response by response in the order of items, without a response."""
    whole = np.tile(-0.5 * THETA**2, (data.person_ids.len(), 1))
    groups = {name: g for name, g in data.groups.items() if g.dimension == dimension}
    parts = {name: at_grid(g, truth[name]) for name, g in groups.items()}
    for name, g in groups.items():
        np.add.at(whole, g.person, parts[name])
    order = {name: np.lexsort((g.person, g.item)) for name, g in groups.items()}
    without = {name: moments((whole[g.person] - parts[name])[order[name]]) for name, g in groups.items()}
    return moments(whole), without


def known(truth):
    return {name: xi[None] for name, xi in truth.items()}


def assert_close(got, expected, within):
    off = (got.mean - expected[0]) / expected[1]
    assert np.sqrt((off**2).mean()) < within
    assert np.sqrt(((got.sd / expected[1] - 1.0) ** 2).mean()) < within


@pytest.mark.parametrize("per_person", [1, 6, 20])
@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_one_response_is_taken_out_of_any_posterior(model, per_person):
    """RMS errors in SDs; of one or six beta responses, one may tell more than `MOST` of what is known."""
    data, truth, _ = simulate_period([("g", "x", model, 20, per_person)], 120, seed=4)
    (mean, sd), without = exact(data, truth, "x")
    got = told_by_others(lay_out(data), known(truth), mean[:, None], sd[:, None])["g"]
    few = {1: 0.15, 6: 0.01, 20: 0.002}[per_person] if "beta" in model[0] else 0.001
    assert_close(got, without["g"], few)


def test_responses_of_all_groups_of_the_dimension_count():
    groups = [("a", "x", ("3pl", None), 12, 4), ("b", "x", ("gpcm", 4), 6, 2), ("c", "y", ("ordered_beta", None), 6, 3)]
    data, truth, _ = simulate_period(groups, 150, correlation=0.0, seed=2)
    keep = data.groups["b"].person >= 20  # some have no response of that group
    b = data.groups["b"]
    for name in ("person", "item", "score"):
        object.__setattr__(b, name, getattr(b, name)[keep])
    posterior, without = zip(*(exact(data, truth, dimension) for dimension in ("x", "y")), strict=True)
    mean, sd = (np.stack([p[k] for p in posterior], axis=1) for k in range(2))
    got = told_by_others(lay_out(data), known(truth), mean, sd)
    for name, expected in (without[0] | without[1]).items():
        assert_close(got[name], expected, 0.01 if name == "c" else 0.001)


def test_the_rest_of_the_posterior_is_a_normal_message():
    """A population with another mean and SD is found from the mean and the SD that the examinees have."""
    data, truth, _ = simulate_period([("g", "x", ("2pl", None), 20, 5)], 100, seed=3)
    g = data.groups["g"]
    parts = at_grid(g, truth["g"])
    whole = np.tile(-0.5 * ((THETA - 0.7) / 0.6) ** 2, (100, 1))
    np.add.at(whole, g.person, parts)
    mean, sd = moments(whole)
    order = np.lexsort((g.person, g.item))
    got = told_by_others(lay_out(data), known(truth), mean[:, None], sd[:, None])["g"]
    assert_close(got, moments((whole[g.person] - parts)[order]), 0.001)


@pytest.mark.parametrize("p", [2, 3, 5, 9])
def test_points_of_an_item(p):
    """Mean and covariance of the draws, no skewness."""
    rng = np.random.default_rng(p)
    draws = (rng.normal(size=(8, 50, 6, p)) @ rng.normal(size=(p, p)) + 3.0).astype(np.float32)
    draws[:, :, 0, 0] = 0.5  # a coordinate that is held
    points = item_points(draws)
    assert points.shape[0] == {2: 8, 3: 8, 5: 16, 9: 32}[p]
    flat = draws.reshape(-1, 6, p).astype(float)
    np.testing.assert_allclose(points.mean(axis=0), flat.mean(axis=0), atol=1e-5)
    away = points - points.mean(axis=0)
    for j in range(6):
        covariance = away[:, j].T @ away[:, j] / len(points)
        np.testing.assert_allclose(covariance, np.cov(flat[:, j].T, bias=True), atol=1e-4)
    assert abs(np.einsum("kja,kjb,kjc->jabc", away, away, away)).max() < 1e-6 * abs(away).max() ** 3 * len(points)


def items_after(model, truth, n, draws, rng):
    """Draws (draws, items, p) of the items' posteriors after n responses each: a wide prior, weighted, drawn again."""
    found = []
    for xi in truth:
        theta, one = rng.normal(size=n), np.ones((n, 1))
        score = model.simulate(theta, xi * one, rng)
        prior = np.array(model.prior.mean) + np.array([1.0, 0.4, 1.0]) * rng.normal(size=(4000, xi.size))
        ll = np.array([model.log_likelihood(score, theta, some * one).sum() for some in prior])
        weight = np.exp(ll - ll.max())
        found.append(prior[rng.choice(4000, draws, p=weight / weight.sum())])
    return np.stack(found, axis=1)


def test_doubt_about_items_is_not_taken_out_with_the_response():
    """Exact mixtures over what items may be: abilities after right and after wrong answers are where they should be."""
    model, n = ("3pl", None), 150
    data, truth, _ = simulate_period([("g", "x", model, 20, 6)], n, seed=6)
    g, layout, rng = data.groups["g"], lay_out(data), np.random.default_rng(6)
    items = items_after(g.model, truth["g"], 100, 400, rng)
    parts = np.stack([at_grid(g, xi)[:, ::4] for xi in items])  # (draws, responses, nodes)
    grid = THETA[::4]
    off = {"points": [], "mean": []}
    order = np.lexsort((g.person, g.item))
    for i in range(n):
        mine = np.flatnonzero(g.person == i)
        joint = np.exp(parts[:, mine].sum(axis=1) - 0.5 * grid**2)  # of the draw and theta, up to a constant
        weight, density = joint.sum(axis=1) / joint.sum(), joint.sum(axis=0) / joint.sum()
        mean = density @ grid
        sd = np.sqrt(density @ grid**2 - mean**2)
        at = np.searchsorted(np.cumsum(weight), (np.arange(4000) + 0.5) / 4000)
        points = item_points(items[np.minimum(at, 399)][None])
        everyone = np.full((n, 1), mean), np.full((n, 1), sd)
        places = [int(np.flatnonzero(order == r)[0]) for r in mine]
        for name, some in (("points", points), ("mean", points.mean(axis=0)[None])):
            got = told_by_others(layout, {"g": some}, *everyone)["g"].mean[places]
            for r, value in zip(mine, got, strict=True):
                left = np.exp(parts[:, mine].sum(axis=1) - parts[:, r] - 0.5 * grid**2).sum(axis=0)
                left /= left.sum()
                expected = left @ grid
                spread = np.sqrt(left @ grid**2 - expected**2)
                off[name].append((g.score[r], (value - expected) / spread))
    gap, rms = {}, {}
    for name, values in off.items():
        score, error = np.array(values).T
        gap[name], rms[name] = error[score == 0].mean() - error[score == 1].mean(), np.sqrt((error**2).mean())
    assert gap["mean"] > 0.02
    assert abs(gap["points"]) < 0.5 * gap["mean"]
    assert rms["points"] < 0.5 * rms["mean"]


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_nothing_explodes(model):
    """Best and worst answers throughout, and means and SDs that do not belong to the responses."""
    data, truth, _ = simulate_period([("g", "x", model, 12, 8)], 90, seed=5)
    g = data.groups["g"]
    top, low = (1.0, 0.0) if model[0] != "beta" else (0.999, 0.001)
    g.score[g.person < 30] = low
    g.score[(g.person >= 30) & (g.person < 60)] = top * g.model.max_score
    (mean, sd), without = exact(data, truth, "x")
    got = told_by_others(lay_out(data), known(truth), mean[:, None], sd[:, None])["g"]
    if "beta" not in model[0]:
        assert_close(got, without["g"], 0.001)
    rng = np.random.default_rng(5)
    for other in (mean + sd * rng.normal(size=90), 4.0 * rng.normal(size=90)):
        for spread in (0.1 * sd, sd * rng.uniform(0.8, 1.2, 90), 5.0 * sd):
            told = told_by_others(lay_out(data), known(truth), other[:, None], spread[:, None])["g"]
            own = np.lexsort((g.person, g.item))
            away = (told.mean - other[g.person[own]]) / spread[g.person[own]]
            assert np.isfinite(away).all()
            assert np.abs(away).max() < 12.0
            assert (told.sd < 1.001 * (1.0 - MOST) ** -0.5 * spread[g.person[own]]).all()


def test_blocks_of_examinees_change_nothing(monkeypatch):
    groups = [("a", "x", ("2pl", None), 12, 4), ("b", "x", ("beta", None), 6, 2)]
    data, truth, theta = simulate_period(groups, 90, seed=7)
    layout, sd = lay_out(data), np.full(theta.shape, 0.5)
    whole = told_by_others(layout, known(truth), theta, sd)
    monkeypatch.setattr(others, "_AT_A_TIME", 25)
    parts = told_by_others(layout, known(truth), theta, sd)
    for name in whole:
        for one, other in zip(whole[name], parts[name], strict=True):
            np.testing.assert_array_equal(one, other)
