import numpy as np
import pytest
from gaussian_worlds import fixed_prior_pairs, make_world

from concal.combine.factors import arrange_factors
from concal.combine.hessian import hessian
from concal.combine.posterior import JointPosterior, evaluate, make_buffers, make_layout
from concal.combine.sigma_scale import log_prior, sigma_coordinates, sigma_root
from concal.combine.specification import unite_forms
from concal.combine.summary import summarise_period
from concal.combine.totals import sum_periods


def small_posterior(model="2pl", categories=None):
    world = make_world(seed=8, n_items=12, n_periods=3, model=model, categories=categories, links=True)
    summaries = [summarise_period(c, link, reference="P1") for c, link in fixed_prior_pairs(world)]
    totals = sum_periods(summaries)
    order = {m: i for i, m in enumerate(totals.periods)}
    united = {name: unite_forms(forms, order, None, np.zeros((2, 2))) for name, forms in totals.groups.items()}
    groups = arrange_factors(summaries, united, [1.0, 1.0, 0.8])
    layout = make_layout(groups, 3, 1)
    precision = np.zeros((1, 3, 2, 2))
    precision[0, 0] = [[300.0, 20.0], [20.0, 200.0]]
    posterior = JointPosterior(groups, layout, np.zeros((1, 3, 2)), precision, np.ones(layout.size, dtype=bool))
    rng = np.random.default_rng(2)
    theta = rng.normal(size=layout.size) * 0.2
    return posterior, theta


@pytest.mark.parametrize(("model", "categories"), [("2pl", None), ("gpcm", 4)])
def test_gradient_and_curvature_are_the_derivatives(model, categories):
    posterior, theta = small_posterior(model, categories)
    buffers = make_buffers(posterior)
    at = evaluate(posterior, theta, buffers)
    gradient = at.gradient.copy()
    H = hessian(posterior, theta, at)
    step = 1e-5
    numeric, numeric_H = np.empty_like(theta), np.empty_like(H)
    for i in range(theta.size):
        shift = np.zeros_like(theta)
        shift[i] = step
        up = evaluate(posterior, theta + shift, make_buffers(posterior))
        down = evaluate(posterior, theta - shift, make_buffers(posterior))
        numeric[i] = (up.value - down.value) / (2 * step)
        numeric_H[i] = (up.gradient - down.gradient) / (2 * step)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-4 * np.abs(gradient).max())
    np.testing.assert_allclose(H, numeric_H, rtol=1e-5, atol=1e-6 * np.abs(H).max())


def test_marginal_density_against_plain_linear_algebra():
    """The kernel's value differences equal a direct Gaussian integral, item by item."""
    posterior, theta = small_posterior()
    group = posterior.groups["g"]
    layout = posterior.layout

    def plain(theta):
        links = theta[layout.link(0)].reshape(-1, 2)
        psi = theta[layout.sigma["g"]]
        L = np.array([[np.exp(psi[0]), 0.0], [psi[1] * np.exp(psi[2]), np.exp(psi[2])]])
        sigma = L @ L.T
        beta = theta[layout.beta["g"]].reshape(-1, 2)
        total = log_prior(psi, group.prior_sd)[0] - 0.5 * np.sum(beta * (group.hyperprior @ beta))
        total -= 0.5 * links[0] @ posterior.link_precision[0, 0] @ links[0]
        for j in range(group.n_items):
            pairs = range(group.start[j], group.start[j + 1])
            if not len(pairs):
                continue
            m = group.X[j] @ beta
            P, s, c = np.linalg.inv(sigma), np.linalg.solve(sigma, m), -0.5 * m @ np.linalg.solve(sigma, m)
            for i in pairs:
                u, B = links[group.period[i]]
                E, e = np.diag([np.exp(-u), 1.0]), np.array([-B * np.exp(-u), u])
                w = group.weight[i]
                P = P + w * E @ group.Q[i] @ E
                s = s + w * E @ (group.h[i] - group.Q[i] @ e)
                c += w * (group.h[i] @ e - 0.5 * e @ group.Q[i] @ e)
            total += c + 0.5 * s @ np.linalg.solve(P, s) - 0.5 * np.linalg.slogdet(P)[1]
            total -= 0.5 * np.linalg.slogdet(sigma)[1]
        return total

    other = theta + np.random.default_rng(3).normal(size=theta.size) * 0.1
    got = [evaluate(posterior, t, make_buffers(posterior)).value for t in (theta, other)]
    np.testing.assert_allclose(got, [plain(theta), plain(other)], rtol=1e-9)


def test_sigma_prior_is_half_t_and_uniform_correlations_by_change_of_variables():
    """The density equals half-t(2) times uniform correlations times a numerical Jacobian, up to a constant."""
    scale = np.array([1.0, 0.3, 0.5])
    rng = np.random.default_rng(5)

    def spread_and_correlation(c):
        root = sigma_root(c, 3)
        sigma = root @ root.T
        sd = np.sqrt(np.diag(sigma))
        R = sigma / np.outer(sd, sd)
        return np.concatenate([sd, R[np.tril_indices(3, -1)]])

    def direct(c):
        values = spread_and_correlation(c)
        jacobian = np.array(
            [(spread_and_correlation(c + h) - spread_and_correlation(c - h)) / 2e-6 for h in 1e-6 * np.eye(6)]
        )
        log_t = -1.5 * np.log1p(values[:3] ** 2 / (2 * scale**2)).sum()
        return log_t + np.linalg.slogdet(jacobian)[1]

    points = rng.normal(size=(4, 6)) * 0.5
    ours = np.array([log_prior(c, scale)[0] for c in points])
    other = np.array([direct(c) for c in points])
    np.testing.assert_allclose(ours - ours[0], other - other[0], atol=1e-5)
    for c in points:
        step = 1e-6
        numeric = [(log_prior(c + h, scale)[0] - log_prior(c - h, scale)[0]) / (2 * step) for h in step * np.eye(6)]
        np.testing.assert_allclose(log_prior(c, scale)[1], numeric, atol=1e-6)
        np.testing.assert_allclose(sigma_coordinates(sigma_root(c, 3) @ sigma_root(c, 3).T), c, atol=1e-10)
