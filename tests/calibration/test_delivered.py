"""The Monte Carlo error of what is delivered, when a run stops, and what it says until then."""

from types import SimpleNamespace

import numpy as np
import pytest

from concal.calibration.delivered import DeliveredError, delivered_error, item_errors, most
from concal.calibration.moments import width
from concal.calibration.targets import Forecast, Reached, shortfall, stretch, worst_ess, worst_rhat
from concal.calibration.trace import Evenly
from concal.spec import CalibrationSpec

CHAINS, SWEEPS, P = 8, 200, 2


def chain_sums(rng, items, Q, noise):
    """Sums of chains whose gradients are l = g - Q (phi - mean) + noise: what a quadratic likelihood gives."""
    sums = np.zeros((items, width(P), CHAINS))
    V = np.array([[0.09, 0.02], [0.02, 0.04]])
    phi = np.array([0.3, 1.0]) + rng.standard_normal((SWEEPS, items, CHAINS, P)) @ np.linalg.cholesky(V).T
    l = -(phi - [0.3, 1.0]) @ Q.T + noise * rng.standard_normal(phi.shape)
    products = [np.einsum("snci,sncj->ncij", phi, other).reshape(items, CHAINS, -1) for other in (phi, l)]
    for rows, part in zip(
        (slice(0, P), slice(P, 2 * P), slice(2 * P, 2 * P + P * P), slice(2 * P + P * P, None)),
        (phi.sum(axis=0), l.sum(axis=0), *products),
        strict=True,
    ):
        sums[:, rows] = np.moveaxis(part, 1, 2)
    return sums


def factor(sums):
    """The reference: moments of all draws, Q by a regression, item by item."""
    found = []
    for item in sums.sum(axis=2) / (CHAINS * SWEEPS):
        phi, l = item[:P], item[P : 2 * P]
        V = item[2 * P : 2 * P + P * P].reshape(P, P) - np.outer(phi, phi)
        Q = -np.linalg.inv(V) @ (item[2 * P + P * P :].reshape(P, P) - np.outer(phi, l))
        found.append((phi, l, V, (Q + Q.T) / 2))
    return found


def test_a_quadratic_likelihood_has_next_to_no_error():
    Q = np.array([[8.0, 1.0], [1.0, 15.0]])
    means, sds = item_errors(chain_sums(np.random.default_rng(1), 30, Q, 0.0), SWEEPS, P)
    assert means.max() < 1e-6  # gradients know it exactly, however few the draws
    assert sds.max() < 1e-6


def test_errors_are_what_repeated_runs_differ_by():
    """The spread over 200 independent runs of the factor's posterior, against what each run says about itself."""
    rng, Q, prior = np.random.default_rng(2), np.array([[8.0, 1.0], [1.0, 15.0]]), np.diag([3.0, 10.0])
    places, spreads, told = [], [], []
    for _ in range(200):
        sums = chain_sums(rng, 1, Q, 4.0)
        phi, l, _, Qhat = factor(sums)[0]
        covariance = np.linalg.inv(Qhat + prior)
        places.append(covariance @ (l + Qhat @ phi + prior @ [0.3, 1.0]))
        spreads.append(0.5 * np.log(np.diag(covariance)))
        told.append([errors[0] for errors in item_errors(sums, SWEEPS, P)])
    V = np.array([[0.09, 0.02], [0.02, 0.04]])
    told = np.sqrt(np.mean(np.square(told), axis=0))
    # in units of the chains' V, which here is close to the posterior's (Q + prior)^-1
    posterior = np.sqrt(np.diag(np.linalg.inv(Q + prior)))
    scale = np.diag(np.linalg.inv(Q + prior)) / np.diag(V)
    np.testing.assert_allclose(np.std(places, axis=0) / posterior, told[0] * np.sqrt(scale), rtol=0.25)
    np.testing.assert_allclose(np.std(spreads, axis=0), told[1] * scale, rtol=0.25)


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_what_most_items_are_within_is_not_the_scatter_of_the_estimates(spread):
    rng = np.random.default_rng(3)
    true = 0.02 * np.exp(0.5 * spread * rng.standard_normal(4000))
    estimated = true * np.sqrt(rng.chisquare(CHAINS - 1, true.size) / (CHAINS - 1))
    assert most(estimated, CHAINS - 1) == pytest.approx(np.quantile(true, 0.99), rel=0.08)


class Averages:
    """Sums of 30 items, of which the first ones have no response."""

    chains, count = CHAINS, CHAINS * SWEEPS

    def __init__(self, unanswered):
        sums = chain_sums(np.random.default_rng(5), 30, np.diag([8.0, 15.0]), 2.0)
        sums[:unanswered, P : 2 * P] = sums[:unanswered, 2 * P + P * P :] = 0.0
        self.sums = [sums]
        n = np.where(np.arange(30) < unanswered, 0, 40)
        group = SimpleNamespace(p=P, item_start=np.concatenate([[0], np.cumsum(n)]))
        self.layout = SimpleNamespace(groups=[group])


@pytest.mark.parametrize("unanswered", [1, 5, 30])
def test_items_without_a_response_do_not_count(unanswered):
    """Their errors are exactly zero, which is no error that scatters around that of the others."""
    means, sds = item_errors(Averages(unanswered).sums[0][unanswered:], SWEEPS, P)
    expected = [most(values.ravel(), CHAINS - 1) for values in (means, sds)] if unanswered < 30 else [0.0, 0.0]
    np.testing.assert_allclose(delivered_error(Averages(unanswered)), expected)


def test_what_a_handful_of_items_are_within_is_no_more_than_the_largest():
    errors = np.array([0.001, 0.002, 0.001, 0.04, 0.006])
    assert most(errors, CHAINS - 1) == 0.04
    assert most(np.array([0.02, 0.021, 0.022]), CHAINS - 1) <= 0.022


def test_an_undefined_ess_is_none_and_never_enough():
    assert worst_ess(np.array([300.0, np.nan])) == 0.0
    reached = Reached(1.0, worst_ess(np.array([np.nan, 500.0])), DeliveredError(0.0, 0.0))
    assert stretch(reached, CalibrationSpec(min_ess=400)) > 1.0


def test_an_undefined_rhat_is_the_worst_wherever_it_stands():
    for order in ([1.01, np.nan, 1.2], [np.nan, 1.2], [1.2, np.nan]):
        assert worst_rhat(np.array(order)) == np.inf
    assert worst_rhat(np.array([1.01, 1.2])) == 1.2


def test_stretch_and_words():
    spec = CalibrationSpec()
    reached = Reached(1.03, 150.0, DeliveredError(0.1, 0.03))
    assert stretch(reached, spec) == pytest.approx(4.0)
    assert "10.0% of an SD (target 5%)" in shortfall(reached, spec, 300)
    by_ess = CalibrationSpec(min_ess=300.0)
    assert stretch(reached, by_ess) == pytest.approx(2.0)
    assert "ESS 150 (target 300)" in shortfall(reached, by_ess, 300)
    assert stretch(reached._replace(max_rhat=np.inf), by_ess) == np.inf


def test_forecast_has_no_end_before_a_look_and_then_a_range():
    forecast, spec = Forecast(), CalibrationSpec()
    assert forecast.range(125) == (125, None)
    for sweeps, error in ((125, 0.1), (250, 0.06), (400, 0.055)):
        forecast.add(sweeps, Reached(1.02, 500.0, DeliveredError(error, 0.01)), spec)
    low, high = forecast.range(450)
    assert 450 <= low < high
    assert low == pytest.approx(450, abs=40)
    assert high < 700


@pytest.mark.parametrize("n", [5, 8, 9, 37, 100])
def test_evenly_keeps_evenly_spaced_values_and_the_last_block(n):
    kept = Evenly(8)
    for k in range(1, n + 1):
        kept.add(np.array(k))
    values = [int(v) for v in kept.values]
    assert values == list(range(kept.thin, n + 1, kept.thin))
    assert len(values) <= 8
    assert len(values) >= min(n, 4)
