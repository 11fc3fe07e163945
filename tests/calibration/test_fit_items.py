"""Item fit against loops over responses and enumerated patterns; calibrated under the model, and it finds misfit."""

import itertools

import numpy as np
import pytest
from programme import MODELS
from scipy.stats import gamma, norm, pearson3

from concal.calibration.fit.cells import Responses, make_cells
from concal.calibration.fit.discrepancies import discrepancies
from concal.calibration.fit.items import FREE, combined, item_fit
from concal.calibration.fit.nodes import NODES, WEIGHTS, possible_scores
from concal.calibration.fit.predict import predict_responses, total_gradient
from concal.calibration.fit.pvalues import (
    benjamini_hochberg,
    cauchy_score,
    from_cauchy,
    lower_tail,
    of_positive,
    of_skewed,
)
from concal.response import make_model

IDS = [m[0] for m in MODELS]


def items_of(model, n, rng):
    return np.array(model.prior.mean) + 0.7 * np.array(model.prior.sd) * rng.standard_normal((n, len(model.prior.sd)))


def responses_of(model, xi, counts, rng, sd=0.4):
    """Abilities N(m, sd), m normal; responses given the abilities."""
    item = np.repeat(np.arange(len(xi)), counts)
    mean = rng.normal(0, 0.9, item.size)
    score = model.simulate(mean + sd * rng.standard_normal(item.size), xi[item], rng)
    return item, score, mean, np.full(item.size, sd)


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_predictions_are_averages_over_the_ability(model):
    model, rng = make_model(*model), np.random.default_rng(1)
    xi, mean, sd = items_of(model, 6, rng), rng.normal(size=6), rng.uniform(0.2, 0.7, 6)
    got = predict_responses(model, xi, mean, sd)
    np.testing.assert_allclose(got.probability.sum(axis=1), 1.0)
    theta = mean[:, None] + sd[:, None] * NODES
    expected = (WEIGHTS * model.expected_score(theta, xi[:, None, :])).sum(axis=1)
    np.testing.assert_allclose(got.mean, expected, atol=2e-3)
    np.testing.assert_allclose(np.einsum("nm,nmp->np", got.probability, got.gradient), 0.0, atol=1e-10)
    h = 1e-4
    moved = (predict_responses(model, xi, mean + h, sd).mean - predict_responses(model, xi, mean - h, sd).mean) / (
        2 * h
    )
    np.testing.assert_allclose(got.slope, moved, atol=2e-3)
    atoms = slice(len(model.atoms))  # the grid between them moves with the item: see test_fit_nodes.py
    for k in range(xi.shape[1]):
        step = h * np.eye(xi.shape[1])[k]
        up, down = (
            np.log(predict_responses(model, xi + sign * step, mean, sd).probability[:, atoms]) for sign in (1, -1)
        )
        likely = got.probability[:, atoms] > 1e-4
        np.testing.assert_allclose(got.gradient[:, atoms, k][likely], ((up - down) / (2 * h))[likely], atol=5e-3)


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_observed_gradients_are_those_of_single_responses(model):
    model, rng = make_model(*model), np.random.default_rng(2)
    xi, mean, sd = items_of(model, 3, rng), rng.normal(size=3), np.full(3, 0.4)
    place = np.repeat(np.arange(3), 15)
    score = model.simulate(mean[place], xi[place], rng)
    found = predict_responses(model, xi, mean, sd)
    got = total_gradient(model, score, place, xi, mean, sd, found)
    theta = mean[:, None] + sd[:, None] * NODES
    slow = np.zeros_like(got)
    for y, k in zip(score, place, strict=True):
        one = model.derivatives(np.full(NODES.size, y), theta[k], np.tile(xi[k], (NODES.size, 1)))
        weight = WEIGHTS * np.exp(one.log_likelihood)
        slow[k] += weight @ one.xi_gradient / weight.sum()
    np.testing.assert_allclose(got, slow, atol=5e-2)


def test_densities_that_pile_up_at_the_ends_are_caught_by_the_grid():
    model = make_model("beta")
    for d, log_phi in itertools.product((-1.0, 0.0, 1.5), (1.0, 2.0, 4.0)):
        xi = np.array([[d, 0.3, log_phi]])
        scores = possible_scores(model, xi, np.zeros(1), np.full(1, 1e-6))
        n = scores.score.size
        density = np.exp(model.log_likelihood(scores.score[0], np.zeros(n), np.tile(xi, (n, 1))))
        assert density @ scores.width[0] == pytest.approx(1.0, abs=0.02)


def slow_fit(model, xi, score, mean, sd, bins=5):
    """One item, one response after the other; everybody a cell of their own (at most 20 responses)."""
    n = len(score)
    order = np.argsort(mean, kind="stable")
    h, s = np.zeros(bins + 2), np.zeros(xi.size)
    hh, hs, ss = np.zeros((bins + 2, bins + 2)), np.zeros((bins + 2, xi.size)), np.zeros((xi.size, xi.size))
    parts = []
    for rank, i in enumerate(order):
        found = predict_responses(model, xi[None], mean[i : i + 1], sd[i : i + 1])
        y, p, e, v = found.score[0], found.probability[0], found.mean[0], found.variance[0]
        place = rank * min(n, bins) // n
        terms = np.zeros((y.size, bins + 2))
        terms[:, place] = y - e
        terms[:, bins] = (y - e) ** 2 - v
        terms[:, bins + 1] = np.minimum((y - e) ** 2 / v, 9.0)
        terms[:, bins + 1] -= p @ terms[:, bins + 1]
        own = list(model.atoms).index(score[i])
        h += terms[own]
        s += found.gradient[0, own]
        for k in range(y.size):
            hh += p[k] * np.outer(terms[k], terms[k])
            hs += p[k] * np.outer(terms[k], found.gradient[0, k])
            ss += p[k] * np.outer(found.gradient[0, k], found.gradient[0, k])
        parts.append((p, terms, found.gradient[0]))
    K = hs @ np.linalg.pinv(ss)
    u, W = h - K @ s, hh - K @ hs.T
    D = np.sqrt(np.diag(hh)[:bins])
    values, vectors = np.linalg.eigh(W[:bins, :bins] / np.outer(D, D))
    L = (vectors / D[:, None])[:, values > FREE] / np.sqrt(values[values > FREE])
    free = [(p, terms - gradient @ K.T) for p, terms, gradient in parts]
    return u, W, L, free


@pytest.mark.parametrize("model", [("2pl", None), ("gpcm", 3)], ids=["2pl", "gpcm"])
def test_statistics_are_those_of_a_loop(model):
    model, rng = make_model(*model), np.random.default_rng(3)
    xi = items_of(model, 4, rng)
    item, score, mean, sd = responses_of(model, xi, np.array([20, 13, 7, 0]), rng)
    got, residuals = item_fit(model, xi, Responses(item, score, mean, sd))
    assert got.n_responses.tolist() == [20, 13, 7, 0]
    assert np.isnan(got.p_value[3])
    for j in range(3):
        own = item == j
        u, W, L, free = slow_fit(model, xi[j], score[own], mean[own], sd[own])
        np.testing.assert_allclose(got.chi_square[j], np.sum((L.T @ u[:5]) ** 2), rtol=1e-6)
        assert got.df[j] == L.shape[1]
        for k, p in ((5, got.infit_p[j]), (6, got.outfit_p[j])):
            if np.isnan(p):
                continue
            third = sum(p_y @ terms[:, k] ** 3 for p_y, terms in free)
            z, skew = u[k] / np.sqrt(W[k, k]), third / W[k, k] ** 1.5
            np.testing.assert_allclose(p, 2 * min(pearson3.sf(z, skew), pearson3.cdf(z, skew)), rtol=1e-5)
        found = predict_responses(model, np.tile(xi[j], (own.sum(), 1)), mean[own], sd[own])
        y = score[own] / model.max_score
        np.testing.assert_allclose(residuals[own], (y - found.mean) / np.sqrt(found.variance), rtol=1e-8)
        np.testing.assert_allclose(got.infit[j], np.sum((y - found.mean) ** 2) / np.sum(found.variance))
        square, usual = (
            np.minimum((z - found.mean[:, None]) ** 2 / found.variance[:, None], 9.0) for z in (y[:, None], found.score)
        )
        np.testing.assert_allclose(got.outfit[j], square.sum() / np.sum(found.probability * usual))


def test_mean_and_variance_of_chi_square_are_those_over_all_patterns():
    model, rng = make_model("2pl"), np.random.default_rng(4)
    xi, n = np.array([[0.3, 0.2]]), 9
    mean, sd = np.sort(rng.normal(0, 1, n)), np.full(n, 0.4)
    probability = predict_responses(model, np.repeat(xi, n, axis=0), mean, sd).probability
    total = np.zeros(3)
    for pattern in itertools.product((0, 1), repeat=n):
        score = np.array(pattern, dtype=float)
        got, _ = item_fit(model, xi, Responses(np.zeros(n, dtype=int), score, mean, sd))
        weight = np.prod(probability[np.arange(n), list(pattern)])
        total += weight * np.array([1.0, got.chi_square[0], got.chi_square[0] ** 2])
    assert total[0] == pytest.approx(1.0)
    df = got.df[0]
    variance = total[2] - total[1] ** 2
    assert total[1] == pytest.approx(df)
    expected = gamma.sf(got.chi_square[0], df**2 / variance, scale=variance / df)
    assert got.chi_square_p[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_under_the_model_five_in_a_hundred_are_flagged(model):
    """Items a posterior's width away from the truth: the discrepancies do not depend on it to first order."""
    model, rng = make_model(*model), np.random.default_rng(5)
    n_items, per_item = 600, 60
    xi = items_of(model, n_items, rng)
    item, score, mean, sd = responses_of(model, xi, np.full(n_items, per_item), rng)
    off = xi + 0.1 * np.array(model.prior.sd) * rng.standard_normal(xi.shape)
    got, _ = item_fit(model, off, Responses(item, score, mean, sd))
    for p in (got.chi_square_p, got.p_value):
        assert 0.03 < np.mean(p[np.isfinite(p)] <= 0.05) < 0.07
        assert 0.44 < np.mean(p[np.isfinite(p)] <= 0.5) < 0.56


def test_guessing_and_a_crossing_curve_are_found():
    model, rng = make_model("2pl"), np.random.default_rng(6)
    xi = np.column_stack([rng.normal(0.5, 0.3, 40), np.full(40, 0.6)])
    item, _, mean, sd = responses_of(model, xi, np.full(40, 2500), rng, sd=0.3)
    theta = mean + sd * rng.standard_normal(item.size)
    p = model.expected_score(theta, xi[item])
    p = np.where(item < 10, 0.3 + 0.7 * p, p)  # guessed
    p = np.where((item >= 10) & (item < 20), np.where(theta > 1.0, p - 0.3, p), p)  # the best are misled
    score = (rng.random(item.size) < p).astype(float)
    best = xi.copy()
    for _ in range(15):  # items at their best two-parameter curve, as a calibration would have them
        found = model.derivatives(score, theta, best[item])
        gradient = np.stack([np.bincount(item, found.xi_gradient[:, k]) for k in range(2)], axis=1)
        flat = found.xi_information.reshape(-1, 4)
        information = np.stack([np.bincount(item, flat[:, k]) for k in range(4)], axis=1).reshape(-1, 2, 2)
        best += np.linalg.solve(information, gradient[:, :, None])[:, :, 0]
    got, _ = item_fit(model, best, Responses(item, score, mean, sd))
    q = benjamini_hochberg(got.p_value)
    assert (q[:20] <= 0.05).mean() >= 0.9
    assert (q[20:] <= 0.05).mean() <= 0.1
    low_end = (got.observed - got.expected)[:10, 0]
    assert (low_end > 0).mean() >= 0.9  # more right answers than the curve allows


def test_p_values_from_moments():
    x = np.array([0.5, 3.0, 11.0])
    np.testing.assert_allclose(of_positive(x, np.full(3, 3.0), np.full(3, 6.0)), gamma.sf(x, 1.5, scale=2.0))
    z = np.array([-2.0, 0.4, 2.5])
    np.testing.assert_allclose(of_skewed(z, np.zeros(3)), 2 * norm.sf(np.abs(z)))
    for skew in (0.8, -0.8):
        two = 2 * np.minimum(pearson3.sf(z, skew), pearson3.cdf(z, skew))
        np.testing.assert_allclose(of_skewed(z, np.full(3, skew)), two, rtol=1e-8)
        np.testing.assert_allclose(lower_tail(z, np.full(3, skew)), pearson3.cdf(z, skew), rtol=1e-8)
    np.testing.assert_allclose(lower_tail(z, np.zeros(3)), norm.cdf(z))
    p = np.array([1e-40, 0.2, 0.9])
    np.testing.assert_allclose(from_cauchy(cauchy_score(p)), p, rtol=1e-6)
    both = combined(np.array([[0.01, np.nan], [np.nan, np.nan], [0.02, 0.02]]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(both[[0, 2]], [0.01, 0.02])
    assert np.isnan(both[1])


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_an_item_with_a_reversed_key_is_found(model):
    """It ends as flat as a curve may be, and fits that as well as its other parameters allow."""
    model, rng = make_model(*model), np.random.default_rng(9)
    xi = items_of(model, 40, rng)
    xi[:, 0], xi[:, 1] = rng.normal(0, 0.5, 40), 0.2
    item, score, mean, sd = responses_of(model, xi, np.full(40, 500), rng)
    score = np.where(item < 6, model.max_score - score, score)
    at, flat = xi.copy(), np.log(0.1)
    at[:6, 1] = flat
    for j in range(6):  # the location that gives the item's mean score at this slope
        own = item == j
        places = np.linspace(-60, 60, 4001)
        expected = [model.expected_score(mean[own], np.tile([d, flat, *xi[j, 2:]], (500, 1))).mean() for d in places]
        at[j, 0] = places[np.argmin(np.abs(np.array(expected) - score[own].mean() / model.max_score))]
    got, _ = item_fit(model, at, Responses(item, score, mean, sd))
    q = benjamini_hochberg(got.p_value)
    assert (got.falling_p[:6] < 1e-4).all()
    assert (q[:6] <= 0.05).all()
    size = np.sqrt((got.misfit[:6] ** 2).mean(axis=1))
    assert (size > 0.1).all(), "the trend is misfit: no slope makes up for it"
    assert (got.falling_p[6:] <= 0.05).mean() <= 0.15
    assert (q[6:] <= 0.05).mean() <= 0.06


def test_the_trend_of_the_residuals_is_that_of_a_loop():
    model, rng = make_model("gpcm", 3), np.random.default_rng(3)
    xi = items_of(model, 3, rng)
    item, score, mean, sd = responses_of(model, xi, np.array([20, 13, 7]), rng)
    cells = make_cells(model, xi, Responses(item, score, mean, sd), 5)
    sums, predicted = discrepancies(model, xi, score, cells, 5)
    for j in range(3):
        own = np.flatnonzero(cells.item == j)
        variance = cells.n[own] * predicted.variance[own]
        place = cells.theta - variance @ cells.theta[own] / variance.sum()
        trend = W = third = 0.0
        for r in np.flatnonzero(item == j):
            trend += place[cells.place[r]] * (score[r] / 2 - predicted.mean[cells.place[r]])
        for c in own:
            e = predicted.score[c] - predicted.mean[c]
            W += cells.n[c] * place[c] ** 2 * (predicted.probability[c] @ e**2)
            third += cells.n[c] * place[c] ** 3 * (predicted.probability[c] @ e**3)
        np.testing.assert_allclose([x[j] for x in sums.trend], [trend, W, third])


def test_with_equal_slopes_a_flat_item_is_found():
    """Among items of one slope an item with another one does not fit; its infit is tested, and says which way."""
    equal, free, rng = make_model("1pl"), make_model("2pl"), np.random.default_rng(7)
    xi = np.column_stack([rng.normal(0, 0.7, 60), np.zeros(60)])
    true = xi.copy()
    true[:5, 1], true[5:10, 1] = np.log(0.45), np.log(2.2)
    item, score, mean, sd = responses_of(free, true, np.full(60, 800), rng, sd=0.3)
    got, _ = item_fit(equal, xi, Responses(item, score, mean, sd))
    q = benjamini_hochberg(got.p_value)
    assert (q[:10] <= 0.05).mean() >= 0.9
    assert (q[10:] <= 0.05).mean() <= 0.06
    assert np.all(got.infit[:5] > 1.0)
    assert np.all(got.infit[5:10] < 1.0)
    assert np.isfinite(got.infit_p).mean() > 0.9
    assert np.isnan(item_fit(free, xi, Responses(item, score, mean, sd))[0].infit_p).mean() > 0.9


def test_p_values_are_those_of_the_draw_and_all_else_of_the_mean():
    model, rng = make_model("gpcm", 4), np.random.default_rng(6)
    xi = items_of(model, 30, rng)
    responses = responses_of(model, xi, 60, rng, sd=1.0)  # no cell is wide beside it: the same cells for both
    draw = xi + 0.2 * rng.standard_normal(xi.shape)
    got, residuals = item_fit(model, xi, Responses(*responses), draw=draw)
    (at_mean, same), (at_draw, _) = (
        item_fit(model, xi, Responses(*responses)),
        item_fit(model, draw, Responses(*responses)),
    )
    np.testing.assert_array_equal(residuals, same)
    for name in got._fields:
        expected = at_draw if name.endswith(("_p", "p_value")) else at_mean
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)
    assert not np.allclose(got.p_value, at_mean.p_value)


def test_few_responses_fit_as_well_at_a_draw_as_at_the_truth():
    """At the posterior mean they fit too well. Posteriors are weighted draws of the prior."""
    model, rng, n_items, n_draws = make_model("grm", 4), np.random.default_rng(8), 1500, 2000
    places, sd = np.array([-1.3, -0.6, 0.0, 0.6, 1.3]), 0.4
    place = np.tile(np.repeat(np.arange(5), 5), n_items)  # five examinees at each of five places
    item, xi = np.repeat(np.arange(n_items), 25), items_of(model, n_items, rng)
    score = model.simulate(places[place] + sd * rng.standard_normal(place.size), xi[item], rng)
    prior = items_of(model, n_draws, rng)
    log_p = np.empty((5, 4, n_draws))
    for k, y in itertools.product(range(5), range(4)):
        theta = places[k] + sd * NODES
        at = [model.log_likelihood(np.full(n_draws, y), np.full(n_draws, t), prior) for t in theta]
        log_p[k, y] = np.log(WEIGHTS @ np.exp(at))
    total = log_p[place, score.astype(int)].reshape(n_items, 25, n_draws).sum(axis=1)
    weight = np.exp(total - total.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    draw = prior[[rng.choice(n_draws, p=w) for w in weight]]
    fits = (
        item_fit(model, at, Responses(item, score, places[place], np.full(place.size, sd)))[0]
        for at in (xi, draw, weight @ prior)
    )
    at_truth, at_draw, at_mean = (fit.chi_square.sum() / fit.df.sum() for fit in fits)
    assert abs(at_draw - at_truth) < 0.03
    assert at_mean < min(at_truth, at_draw) - 0.03
