"""The joint posterior against plain NumPy Metropolis within Gibbs, on a world small enough for it."""

import numpy as np
import pytest
from phi_worlds import changed, phi_world

from concal import metric
from concal.calibration import priors
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.joint.consensus import combine_jointly
from concal.response.two_pl import TwoPL
from concal.spec import ConsensusSpec

TAU = 0.01


def slow_chains(placed, sd, *, chains=48, sweeps=1500, warmup=300, seed=1):
    """Items, one free link, beta and Sigma, 2pl without features: draws of each, (draws, ...).

    Target: factors x N(xi; beta, Sigma) x N(beta; 0, diag(sd^2) / tau) x the half-t prior of Sigma (written with its
    mixing variables integrated out) x B ~ N(0, 100), A^-2 ~ Gamma(3/2, 1/2). The reference's link is its wobble.
    """
    rng = np.random.default_rng(seed)
    groups = [p.factors.groups["g"] for p in placed]
    ids = sorted(set(groups[0].item_ids) | set(groups[1].item_ids))
    n = len(ids)
    Q, h = np.zeros((2, n, 2, 2)), np.zeros((2, n, 2))
    for m, g in enumerate(groups):
        rows = [ids.index(i) for i in g.item_ids]
        Q[m, rows], h[m, rows] = g.Q, g.h
    hold = np.linalg.inv(placed[0].factors.wobble[0] + 1e-8 * np.eye(2))

    def log_factors(xi, link):
        """(chains, n), links (chains, 2 periods, 2)."""
        a = np.exp(xi[..., 1])
        total = np.zeros(a.shape)
        for m in range(2):
            A, B = np.exp(link[:, m, :1]), link[:, m, 1:]
            phi = np.stack([a * (B - xi[..., 0]), A * a], axis=-1)
            total += (phi * h[m]).sum(axis=-1) - 0.5 * np.einsum("cja,jab,cjb->cj", phi, Q[m], phi)
        return total

    def log_items(xi, beta, omega):
        r = xi - beta[:, None]
        return -0.5 * np.einsum("cja,cab,cjb->cj", r, omega, r)

    def log_links(link):
        held = -0.5 * np.einsum("ca,ab,cb->c", link[:, 0], hold, link[:, 0])
        log_A, B = link[:, 1].T
        return held - 0.5 * B**2 / priors.MU_VARIANCE + priors.log_unit(log_A)[0]

    def log_sigma(z):
        """Of log-Cholesky coordinates z (chains, 3): prior times the volume element."""
        L = np.zeros((z.shape[0], 2, 2))
        L[:, 0, 0], L[:, 1, 0], L[:, 1, 1] = np.exp(z[:, 0]), z[:, 1], np.exp(z[:, 2])
        sigma = L @ L.transpose(0, 2, 1)
        omega = np.linalg.inv(sigma)
        value = priors.log_sigma_alone(2.0 * (z[:, 0] + z[:, 2]), np.diagonal(omega, axis1=1, axis2=2).T, sd)
        return value + 3.0 * z[:, 0] + 2.0 * z[:, 2], sigma, omega

    xi = 0.3 * rng.normal(size=(chains, n, 2))
    link, beta = np.zeros((chains, 2, 2)), np.zeros((chains, 2))
    z = np.tile([np.log(0.9), 0.0, np.log(0.35)], (chains, 1)) + 0.1 * rng.normal(size=(chains, 3))
    prior_sigma, sigma, omega = log_sigma(z)
    scales = np.array([0.25, 0.12])
    root = np.linalg.cholesky(placed[0].factors.wobble[0] + 1e-8 * np.eye(2))
    out = []
    for sweep in range(sweeps):
        for k in range(3):
            step = scales * np.exp(rng.normal(size=(chains, n, 1)) - 0.5 * k) * rng.normal(size=(chains, n, 2))
            new = xi + step
            ratio = (
                log_factors(new, link)
                + log_items(new, beta, omega)
                - log_factors(xi, link)
                - log_items(xi, beta, omega)
            )
            xi = np.where((np.log(rng.random((chains, n))) < ratio)[..., None], new, xi)
        for m in (1, 0, 1):
            new = link.copy()
            jump = 0.06 * rng.normal(size=(chains, 2)) if m else rng.normal(size=(chains, 2)) @ root.T
            new[:, m] += np.exp(rng.normal(size=(chains, 1)) - 0.5) * jump
            ratio = (
                log_factors(xi, new).sum(axis=1) + log_links(new) - log_factors(xi, link).sum(axis=1) - log_links(link)
            )
            link = np.where((np.log(rng.random(chains)) < ratio)[:, None, None], new, link)
        C = np.linalg.inv(n * omega + TAU * np.diag(sd**-2.0))
        mean = np.einsum("cab,cbd,cd->ca", C, omega, xi.sum(axis=1))
        beta = mean + np.einsum("cab,cb->ca", np.linalg.cholesky(C), rng.normal(size=(chains, 2)))
        for _ in range(3):
            new = z + 0.25 * rng.normal(size=(chains, 3)) * np.exp(rng.normal(size=(chains, 1)) - 0.5)
            new = np.where(np.abs(new).max(axis=1, keepdims=True) < 9.0, new, z)
            found = log_sigma(new)

            def terms(prior, S, O, xi=xi, beta=beta):
                return prior - 0.5 * n * np.linalg.slogdet(S)[1] + log_items(xi, beta, O).sum(axis=1)

            take = np.log(rng.random(chains)) < terms(*found) - terms(prior_sigma, sigma, omega)
            z = np.where(take[:, None], new, z)
            prior_sigma, sigma, omega = log_sigma(z)
        if sweep >= warmup:
            out.append((xi, link.copy(), beta, sigma))
    return ids, [np.concatenate(column) for column in zip(*out, strict=True)]


@pytest.fixture(scope="module")
def tiny():
    """15 items, two periods, a reference whose metric wobbles."""
    world = phi_world(seed=12, n_items=15, n_periods=2, n_features=1, share=0.87, error=(0.12, 0.35), tau=TAU)
    first = changed(world.placed[0], wobble=np.array([[[0.002, 0.0005], [0.0005, 0.004]]]))
    second = changed(world.placed[1], link_covariance=np.array([[[0.01, 0.0], [0.0, 0.02]]]))
    return world, [first, second]


def test_means_and_spreads_of_everything(tiny):
    """Links within .1 and items within .08 posterior SDs of the slow chains' means, SD ratios within 5 %."""
    _, placed = tiny
    got = combine_jointly(placed, sum_periods(placed), ConsensusSpec(seed=5))
    ids, (xi, link, beta, sigma) = slow_chains(placed, np.array(TwoPL().prior.sd))
    g = got.groups["g"]
    order = [g.item_ids.index(i) for i in ids]
    mean, sd = xi.mean(axis=0), xi.std(axis=0)
    off, ratio = (g.mean[order] - mean) / sd, g.sd[order] / sd
    assert np.sqrt((off**2).mean()) < 0.08
    assert np.abs(off).max() < 0.25
    np.testing.assert_allclose(ratio.mean(axis=0), 1.0, atol=0.05)
    A, B = np.exp(link[:, :, 0]), link[:, :, 1]
    for name, values in (("A", A), ("B", B)):
        for m in range(2):
            row = got.links.row(m, named=True)
            assert abs(row[f"{name}_mean"] - values[:, m].mean()) < 0.15 * values[:, m].std()
            assert row[f"{name}_sd"] == pytest.approx(values[:, m].std(), rel=0.1)
    np.testing.assert_allclose((g.beta[0] - beta.mean(axis=0)) / beta.std(axis=0), 0.0, atol=0.15)
    np.testing.assert_allclose(np.sqrt(np.diag(g.beta_covariance)) / beta.std(axis=0), 1.0, atol=0.08)
    np.testing.assert_allclose((g.sigma - sigma.mean(axis=0)) / sigma.std(axis=0), 0.0, atol=0.15)
    # items of both periods move together with the links
    moved = np.corrcoef(np.column_stack([metric.phi_of(xi)[:, 0, 0], B[:, 1]]).T)
    assert np.isfinite(moved).all()
