"""The main property: the product of a few periods' factors is the exact product, for every response model."""

import numpy as np
import pytest
from exact_periods import (
    arranged,
    exact_period,
    factor_of,
    gradient,
    importance_points,
    log_prior,
    marginal,
    moments_of,
    prior_of,
    weights_of,
)

from concal import metric
from concal.calibration.workers import Workers
from concal.consensus.joint.relocate import relocate
from concal.response import make_model

MODELS = {"2pl": None, "3pl": None, "gpcm": 3, "grm": 3, "beta": None, "ordered_beta": None}
LINKS = [(1.0, 0.0), (1.2, 0.3), (0.85, -0.4)]
# By how much d of the item differs between neighbouring periods that disagree: about five posterior SDs of one period
# with 300 responses. (With five responses everything is compatible with everything, so more is asked.)
SHIFT = {name: 0.3 if "beta" in name else 0.8 for name in MODELS}

# Largest distance of a posterior mean in exact SDs and of an SD ratio from 1, over all coordinates: what three seeds
# gave is in the comments of each line, as (agreeing, disagreeing).
TABLE = {
    # dense
    ("2pl", 300): (0.1, 0.02),  # .006 .008, .038 .005
    ("3pl", 300): (0.3, 0.15),  # .10 .10, .18 .04
    ("gpcm", 300): (0.12, 0.02),  # .012 .009, .095 .009
    ("grm", 300): (0.1, 0.02),  # .018 .004, .065 .005
    ("beta", 300): (0.35, 0.03),  # .030 .008, .245 .014: the precision, of ratings that differ by six SDs
    ("ordered_beta", 300): (0.4, 0.03),  # .062 .006, .295 .016
    # five responses: at most .06 and .02 in any model
    **{(name, 5): (0.1, 0.04) for name in MODELS},
}
GAUSSIAN = {
    ("agree", 300): (0.3, 0.2),  # at most .16, .14 (3pl)
    ("agree", 5): (0.3, 0.2),  # at most .19, .15 (ordered_beta)
    ("differ", 5): (1.2, 0.3),  # at most .94, .20 (beta's precision)
    ("differ", 300): (3.0, 0.4),  # 1.3 to 1.9, .2; 3pl 2.4: why there is a table
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    """Function (responses, shift) -> periods, points, and the exact posterior at them."""
    model = make_model(request.param, MODELS[request.param])
    mean, sigma = prior_of(model)
    sd = np.sqrt(np.diag(sigma))
    truth = mean + 0.5 * sd * np.random.default_rng(50).normal(size=mean.size)
    kept = {}

    def build(n, shift):
        if (n, shift) not in kept:
            items = [truth + (m - 1) * shift * np.eye(1, mean.size)[0] for m in range(len(LINKS))]
            periods = [exact_period(model, xi, n, [0, m], *LINKS[m]) for m, xi in enumerate(items)]

            def exact(xi):
                phi = metric.phi_of(xi)
                return sum(p.log_likelihood(phi) for p in periods) + log_prior(xi, mean, sigma)

            xi, log_proposal = importance_points(exact, truth, sd)
            weight = weights_of(exact(xi), log_proposal)
            assert 1.0 / (weight**2).sum() > 300  # the points are enough
            kept[n, shift] = [factor_of(p) for p in periods], xi, log_proposal, moments_of(weight, xi)
        return kept[n, shift]

    return model, build


def compare(model, xi, log_proposal, exact, log_factor):
    """Distance of means in exact SDs, and of SD ratios from one; the largest over coordinates."""
    mean, sigma = prior_of(model)
    weight = weights_of(log_factor + log_prior(xi, mean, sigma), log_proposal)
    m, C = moments_of(weight, xi)
    sd = np.sqrt(np.diag(exact[1]))
    return np.abs((m - exact[0]) / sd).max(), np.abs(np.sqrt(np.diag(C)) / sd - 1.0).max()


CASES = [(300, "agree"), (300, "differ"), (5, "agree"), (5, "differ")]


def shift_of(model, n, kind):
    return 0.0 if kind == "agree" else SHIFT[model.name] if n == 300 else 1.0


@pytest.mark.parametrize(("n", "kind"), CASES)
def test_tables_with_their_remainder(case, n, kind):
    model, build = case
    factors, xi, log_proposal, exact = build(n, shift_of(model, n, kind))
    log_factor = sum(f.table(metric.phi_of(xi)) for f in factors)
    off, ratio = compare(model, xi, log_proposal, exact, log_factor)
    assert off < TABLE[model.name, n][0]
    assert ratio < TABLE[model.name, n][1]


@pytest.mark.parametrize(("n", "kind"), CASES)
def test_gaussians_in_slope_and_intercept(case, n, kind):
    model, build = case
    factors, xi, log_proposal, exact = build(n, shift_of(model, n, kind))
    log_factor = sum(f.gaussian(metric.phi_of(xi)) for f in factors)
    off, ratio = compare(model, xi, log_proposal, exact, log_factor)
    assert off < GAUSSIAN[kind, n][0]
    assert ratio < GAUSSIAN[kind, n][1]


@pytest.mark.parametrize(("n", "kind"), CASES)
def test_tables_as_quadratics_where_the_consensus_lies(case, n, kind):
    """What the joint chains see. As good as the tables but for 3pl, whose posterior is far from Gaussian when dense:

    there a quadratic knows the place (.12 SD) and not the width (SDs of d and logit c down to half the exact ones).
    """
    model, build = case
    factors, xi, log_proposal, exact = build(n, shift_of(model, n, kind))
    link = np.array([[np.log(A), B] for A, B in LINKS])
    Q, h, _ = relocate(model, arranged(factors), exact[0][None], exact[1][None], link, Workers(1))
    Q, h = metric.move_factor(Q, h, *(np.array(column) for column in zip(*LINKS, strict=True)))
    Q, h, phi = Q.sum(axis=0), h.sum(axis=0), metric.phi_of(xi)
    off, ratio = compare(model, xi, log_proposal, exact, phi @ h - 0.5 * np.einsum("na,ab,nb->n", phi, Q, phi))
    assert off < TABLE[model.name, n][0]
    narrow = model.name == "3pl" and n == 300
    assert ratio < (0.6 if narrow else 0.07)


def test_the_reference_itself(case):
    """Exact slopes against differences of the exact values."""
    _, build = case
    period = build(5, 0.0)[0][0].period
    xi = period.group.xi[0, :5, 0].astype(float)
    phi, h = metric.phi_of(xi), 1e-5
    for u in range(xi.shape[1]):
        step = h * np.eye(xi.shape[1])[u]
        up, down = marginal(period, metric.xi_of(phi + step)), marginal(period, metric.xi_of(phi - step))
        np.testing.assert_allclose(gradient(period, xi)[:, u], (up - down) / (2 * h), rtol=1e-4, atol=1e-4)
