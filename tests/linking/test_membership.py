"""Who drifted, drawn: against every possible answer."""

import itertools

import numpy as np
import pytest
from scipy.special import betainc, gammaln
from scipy.stats import norm

from concal.linking.membership import center_given, center_moves
from concal.linking.two_groups import DELTA, STAYED, ScoreShifts, component_variances, two_groups

ALPHA = np.full(DELTA.size, 1.0 / (DELTA.size - 1))
ALPHA[0] += STAYED


def some_shifts(mean, sd=0.05, gain=0.2):
    mean = np.asarray(mean, dtype=np.float64)
    return ScoreShifts(mean, np.full(mean.size, sd), np.full(mean.size, gain), np.zeros(mean.size, dtype=np.intp))


def exact_moves(shifts, found, kept):
    """Mean and SD of m(z) - m(decided) over all memberships z, shares and centre integrated out."""
    variance = component_variances(shifts, found.misfit**2)
    u, g = shifts.mean, shifts.gain
    z = np.array(list(itertools.product(range(DELTA.size), repeat=u.size)))
    counts = (z[:, :, None] == np.arange(DELTA.size)).sum(axis=1) + ALPHA
    v = variance[np.arange(u.size), z]
    precision = (g * g / v).sum(axis=1)
    centers = (g * (u - g * DELTA[z]) / v).sum(axis=1) / precision
    density = norm.logpdf(u, g * (centers[:, None] + DELTA[z]), np.sqrt(v)).sum(axis=1) - 0.5 * np.log(precision)
    half = np.log1p(-betainc(counts[:, 0], counts[:, 1:].sum(axis=1), 0.5))  # P(pi_0 >= 1/2 | z)
    log_p = gammaln(counts).sum(axis=1) + density + half
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    best = np.exp(norm.logpdf(u[:, None], g[:, None] * (found.center + DELTA), np.sqrt(variance)))
    z = np.where(kept, 0, 1 + (best * found.share[0])[:, 1:].argmax(axis=1))
    v = variance[np.arange(u.size), z]
    moves = centers - np.sum(g * (u - g * DELTA[z]) / v) / np.sum(g * g / v)
    mean = float(p @ moves)
    return mean, float(np.sqrt(p @ (moves - mean) ** 2))


@pytest.mark.parametrize("mean", [[0.0, 0.05, 0.15, 0.2], [0.3, 0.0, 0.01, 0.0]])
def test_moves_are_those_of_the_exact_posterior(mean, monkeypatch):
    monkeypatch.setattr("concal.linking.membership._SWEEPS", 20_000)
    shifts = some_shifts(mean)
    found = two_groups(shifts)
    kept = found.probability <= 0.5
    moves = center_moves(shifts, found, kept, 20_000)
    expected, sd = exact_moves(shifts, found, kept)
    assert moves.mean() == pytest.approx(expected, abs=0.08 * sd)
    assert moves.std() == pytest.approx(sd, rel=0.1)


def test_center_given_memberships_is_a_weighted_mean():
    rng = np.random.default_rng(1)
    shifts = ScoreShifts(rng.normal(size=30), rng.uniform(0.05, 0.2, 30), rng.uniform(0.1, 0.3, 30), np.zeros(30, int))
    variance = component_variances(shifts, 0.01)
    z = rng.integers(0, DELTA.size, 30)
    location, weight = [], []
    for j in range(30):
        location.append(shifts.mean[j] / shifts.gain[j] - DELTA[z[j]])
        weight.append(shifts.gain[j] ** 2 / variance[j, z[j]])
    mean, precision = center_given(shifts, z, variance)
    assert mean == pytest.approx(np.average(location, weights=weight))
    assert precision == pytest.approx(sum(weight))


def test_nothing_moves_where_nobody_drifted_and_doubt_is_where_it_belongs():
    rng = np.random.default_rng(2)
    still = some_shifts(rng.normal(0.0, 0.02, 200), sd=0.02)
    found = two_groups(still)
    moves = center_moves(still, found, found.probability <= 0.5, 250)
    assert np.abs(moves).max() < 0.02 / 0.2 / np.sqrt(200)  # less than the standard error of the centre
    # a fifth moved by one and a half of their SDs: nobody can say who, and the link must not pretend to know
    mean = rng.normal(0.0, 0.06, 200)
    mean[:40] += 0.5 * 0.2
    noisy = some_shifts(mean, sd=0.06)
    found = two_groups(noisy)
    moves = center_moves(noisy, found, found.probability <= 0.5, 250)
    assert moves.std() > 0.5 * 0.06 / 0.2 / np.sqrt(200)


def test_moves_are_the_same_every_time_and_used_again_from_the_start():
    shifts = some_shifts(np.linspace(-0.1, 0.3, 30))
    found = two_groups(shifts)
    kept = found.probability <= 0.5
    many = center_moves(shifts, found, kept, 600)
    assert (many[:40] == center_moves(shifts, found, kept, 40)).all()
    assert (many[:250] == many[250:500]).all()


def test_very_precise_anchors_and_several_groups():
    mean = np.concatenate([np.zeros(50), np.full(20, 0.5)])
    group = np.repeat([0, 1], [50, 20]).astype(np.intp)
    shifts = ScoreShifts(mean, np.full(70, 1e-6), np.full(70, 0.2), group)
    found = two_groups(shifts)
    moves = center_moves(shifts, found, found.probability <= 0.5, 100)
    assert np.isfinite(moves).all()
    assert np.abs(moves).max() < 0.02
