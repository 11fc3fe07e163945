"""Programmes whose period posteriors are known exactly: Gaussian measurements of the items, no responses.

A period measures item j on its own metric with known error, y ~ N(x_j, R_j). With a fixed population the period's
posterior is Gaussian and its draws are given the exact moments; with an estimated one it is sampled by Gibbs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from concal.calibration.result import Calibration, Convergence, GroupDraws
from concal.linking.result import Link
from concal.response import make_model

DIMENSIONS = ("reading",)
CONVERGED = Convergence(True, 1000, 100, 1, 0.0, 1.0, 1000.0, 1.0)


@dataclass(frozen=True)
class Measured:
    """One period of one group: items, errors R (n, p, p), measurements y (n, p) on the period's own metric."""

    period: str
    item_ids: tuple[str, ...]
    X: np.ndarray
    y: np.ndarray
    R: np.ndarray
    A: float
    B: float


@dataclass(frozen=True)
class World:
    model: object
    beta: np.ndarray
    sigma: np.ndarray
    item_ids: tuple[str, ...]
    X: np.ndarray
    xi: np.ndarray
    periods: tuple[Measured, ...]
    features: tuple[str, ...]


def own_metric(xi, A, B):
    out = np.array(xi, dtype=float)
    out[..., 0] = (out[..., 0] - B) / A
    out[..., 1] += np.log(A)
    return out


def make_world(
    seed=1,
    n_items=40,
    n_periods=3,
    n_features=2,
    model="2pl",
    categories=None,
    links=False,
    share=0.7,
    error=(0.2, 2.0),
):
    rng = np.random.default_rng(seed)
    model = make_model(model, categories)
    p = len(model.parameters)
    X = np.column_stack([np.ones(n_items), rng.normal(size=(n_items, n_features - 1))])
    sd = np.linspace(0.9, 0.4, p)
    root = np.tril(rng.normal(size=(p, p)) * 0.2, -1) + np.diag(sd)
    sigma = root @ root.T
    beta = rng.normal(size=(n_features, p)) * 0.3
    xi = X @ beta + rng.normal(size=(n_items, p)) @ root.T
    ids = tuple(f"item-{j:05d}" for j in range(n_items))
    periods = []
    for m in range(n_periods):
        A, B = (1.0, 0.0) if m == 0 or not links else (float(np.exp(rng.normal() * 0.2)), float(rng.normal() * 0.5))
        here = np.sort(rng.choice(n_items, int(share * n_items), replace=False)) if share < 1 else np.arange(n_items)
        x = own_metric(xi[here], A, B)
        scale = rng.uniform(*error, size=here.size)[:, None] * sd
        noise = rng.normal(size=(here.size, p, p)) * 0.2 + np.eye(p)
        L = scale[:, :, None] * noise
        R = L @ L.transpose(0, 2, 1)
        y = x + np.einsum("jab,jb->ja", np.linalg.cholesky(R), rng.normal(size=(here.size, p)))
        periods.append(Measured(f"P{m + 1}", tuple(ids[j] for j in here), X[here], y, R, A, B))
    features = ("1", *(f"f{i}" for i in range(1, n_features)))
    return World(model, beta, sigma, ids, X, xi, tuple(periods), features)


def exact_draws(rng, mean, covariance, n_draws):
    """Draws (S, n, p) whose sample mean and covariance are exactly these, item by item."""
    n, p = mean.shape
    z = rng.normal(size=(n, n_draws, p))
    z -= z.mean(axis=1, keepdims=True)
    sample = np.einsum("jsa,jsb->jab", z, z) / (n_draws - 1)
    z = np.einsum("jab,jsb->jsa", np.linalg.inv(np.linalg.cholesky(sample)), z)
    x = mean[:, None] + np.einsum("jab,jsb->jsa", np.linalg.cholesky(covariance), z)
    return x.transpose(1, 0, 2)


def posterior(y, R, prior_mean, sigma):
    precision = np.linalg.inv(R) + np.linalg.inv(sigma)
    covariance = np.linalg.inv(precision)
    shift = np.linalg.solve(R, y[..., None])[..., 0] + prior_mean @ np.linalg.inv(sigma)
    return np.einsum("jab,jb->ja", covariance, shift), covariance


def own_population(world, period):
    """The population on the period's own metric."""
    D = np.eye(world.sigma.shape[0])
    D[0, 0] = 1 / period.A
    beta = world.beta.copy()
    beta[:, 0] /= period.A
    beta[0, 0] -= period.B / period.A
    beta[0, 1] += np.log(period.A)
    return beta, D @ world.sigma @ D


def calibration_from(world, period, xi, beta, sigma, chains=4, beta_mean=None, tau=0.01, n_responses=None, group="g"):
    """Wrap draws (S, n, p), (S, F, p), (S, p, p) as a Calibration."""
    n, p = xi.shape[1:]

    def shaped(v):
        return None if v is None else v.reshape(chains, -1, *v.shape[1:])

    draws = GroupDraws(
        name=group,
        dimension=DIMENSIONS[0],
        model=world.model,
        item_ids=period.item_ids,
        features=world.features,
        X=period.X,
        xi=shaped(xi),
        beta=shaped(beta),
        sigma=shaped(sigma),
        beta_mean=shaped(beta_mean),
        n_responses=np.full(n, 50, dtype=np.int64) if n_responses is None else n_responses,
        rhat=np.ones((n, p)),
        ess_bulk=np.full((n, p), float(xi.shape[0])),
        ess_tail=np.full((n, p), float(xi.shape[0])),
    )
    F = len(world.features)
    return Calibration(
        period.period, DIMENSIONS, {group: draws}, None, CONVERGED, tau, {group: tau * np.eye(F)}, 1, "synthetic"
    )


def constant_link(period, n_draws, reference="P1", A=None, B=None):
    A = period.A if A is None else A
    B = period.B if B is None else B
    return Link(
        period.period, reference, DIMENSIONS, np.full((n_draws, 1), A), np.full((n_draws, 1), B), pl.DataFrame()
    )


def fixed_prior_period(world, period, n_draws=400, seed=5):
    """The period's calibration under the true, fixed population: exact moments."""
    rng = np.random.default_rng([seed, int(period.period[1:])])
    beta, sigma = own_population(world, period)
    mean, covariance = posterior(period.y, period.R, period.X @ beta, sigma)
    xi = exact_draws(rng, mean, covariance, n_draws)
    return calibration_from(world, period, xi, np.repeat(beta[None], n_draws, 0), np.repeat(sigma[None], n_draws, 0))


def fixed_prior_pairs(world, n_draws=400):
    return [(fixed_prior_period(world, period, n_draws), constant_link(period, n_draws)) for period in world.periods]


def thin(calibration, keep):
    """The calibration with only some items."""
    group = next(iter(calibration.groups.values()))
    rows = [j for j, i in enumerate(group.item_ids) if i in keep]
    small = replace(
        group,
        item_ids=tuple(group.item_ids[j] for j in rows),
        X=group.X[rows],
        xi=group.xi[:, :, rows],
        n_responses=group.n_responses[rows],
        rhat=group.rhat[rows],
        ess_bulk=group.ess_bulk[rows],
        ess_tail=group.ess_tail[rows],
    )
    return replace(calibration, groups={group.name: small})


def gibbs(world, periods, n_draws=1000, warmup=200, seed=1, tau=0.01):
    """Hierarchical normal model of one or several periods by Gibbs: items, beta, Sigma; links known.

    Returns item ids, draws of xi (S, n, p), beta (S, F, p), Sigma, conditional means of beta. The metric is that of
    the first period given.
    """
    rng = np.random.default_rng(seed)
    p, F = world.xi.shape[1], len(world.features)
    seen = sorted({i for period in periods for i in period.item_ids})
    place = {item: j for j, item in enumerate(seen)}
    X = world.X[[world.item_ids.index(i) for i in seen]]
    n = len(seen)
    precision, shift = np.zeros((n, p, p)), np.zeros((n, p))
    first = periods[0]
    for period in periods:
        A, B = period.A / first.A, (period.B - first.B) / first.A  # period's metric to the first period's
        E, e = np.eye(p), np.zeros(p)
        E[0, 0] = 1 / A
        e[:2] = -B / A, np.log(A)
        for j, item in enumerate(period.item_ids):
            Q = np.linalg.inv(period.R[j])
            precision[place[item]] += E @ Q @ E
            shift[place[item]] += E @ Q @ (period.y[j] - e)
    beta, sigma = np.zeros((F, p)), np.eye(p)
    gram = X.T @ X
    T = tau * np.kron(np.eye(F), np.diag(np.array(world.model.prior.sd) ** -2.0))
    pull = T @ [*world.model.prior.mean, *[0.0] * ((F - 1) * p)]
    out = {"xi": [], "beta": [], "sigma": [], "beta_mean": []}
    for s in range(warmup + n_draws):
        omega = np.linalg.inv(sigma)
        covariance = np.linalg.inv(precision + omega)
        mean = np.einsum("jab,jb->ja", covariance, shift + X @ beta @ omega)
        xi = mean + np.einsum("jab,jb->ja", np.linalg.cholesky(covariance), rng.normal(size=(n, p)))
        P = np.kron(gram, omega) + T
        V = np.linalg.inv(P)
        b = V @ ((X.T @ xi @ omega).ravel() + pull)
        beta = (b + np.linalg.cholesky(V) @ rng.normal(size=F * p)).reshape(F, p)
        r = xi - X @ beta
        scale = np.linalg.cholesky(np.linalg.inv(r.T @ r + 0.01 * np.eye(p)))
        z = np.tril(rng.normal(size=(p, p)), -1) + np.diag(np.sqrt(rng.chisquare(n + p + 1 - np.arange(p))))
        sigma = np.linalg.inv(scale @ z @ z.T @ scale.T)
        if s >= warmup:
            for name, value in zip(out, (xi, beta, sigma, b.reshape(F, p)), strict=True):
                out[name].append(value.copy())
    return tuple(seen), {name: np.array(v) for name, v in out.items()}


def sampled_period(world, period, n_draws=1000, seed=1, rao_blackwell=True):
    """The period calibrated alone, population estimated."""
    ids, draws = gibbs(world, [period], n_draws, seed=seed)
    assert ids == period.item_ids
    return calibration_from(
        world,
        period,
        draws["xi"],
        draws["beta"],
        draws["sigma"],
        beta_mean=draws["beta_mean"] if rao_blackwell else None,
    )
