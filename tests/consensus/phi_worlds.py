"""Programmes of Gaussian factors in slope and intercept: no responses, no draws, everything known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from concal import metric
from concal.consensus.factors.period import GroupFactors, PeriodFactors, Placed
from concal.consensus.gaussian import log_cholesky
from concal.response import make_model

DIMENSIONS = ("reading",)


@dataclass(frozen=True)
class PhiWorld:
    """Items xi (n, p) from N(X beta, Sigma), links (periods, 2) = (log A, B), and the periods' placed factors."""

    model: object
    X: np.ndarray
    beta: np.ndarray
    sigma: np.ndarray
    item_ids: tuple[str, ...]
    xi: np.ndarray
    links: np.ndarray
    placed: tuple[Placed, ...]


def phi_world(
    seed=1, n_items=30, n_periods=3, model="2pl", categories=None, share=0.7, n_features=2, links=True,
    error=(0.1, 0.4), tau=1e-3, centre=None, drift=None, guided=(), beta_sd=0.1, effect=0.2,
):  # fmt: skip
    """`error`: range of the items' standard errors of phi; `drift`: {(period, item): change of d, or of (d, log a)};
    `effect`: SD of the features' coefficients.
    """
    rng = np.random.default_rng(seed)
    model = make_model(model, categories)
    p = len(model.parameters)
    X = np.column_stack([np.ones(n_items), rng.normal(size=(n_items, n_features - 1))])
    sd = np.array([0.9, 0.35, *[0.4] * (p - 2)])
    root = np.diag(sd) + np.tril(0.1 * rng.normal(size=(p, p)), -1)
    sigma = root @ root.T
    beta = effect * rng.normal(size=(n_features, p))
    beta[0] = (np.array(model.prior.mean) if centre is None else np.array(centre)) + 0.1 * rng.normal(size=p)
    xi = X @ beta + rng.normal(size=(n_items, p)) @ root.T
    ids = tuple(f"item-{j:03d}" for j in range(n_items))
    where = np.zeros((n_periods, 2))
    if links:
        where[1:] = rng.normal(size=(n_periods - 1, 2)) * [0.15, 0.4]
    placed = []
    for m in range(n_periods):
        here = np.arange(n_items) if share >= 1 else np.sort(rng.choice(n_items, int(share * n_items), replace=False))
        truth = xi[here].copy()
        for k, j in enumerate(here):
            change = np.atleast_1d((drift or {}).get((m, int(j)), 0.0))
            truth[k, : change.size] += change
        A, B = np.exp(where[m, 0]), where[m, 1]
        phi = metric.own_phi(metric.phi_of(truth), A, B)
        L = rng.uniform(*error, size=(here.size, 1, 1)) * (np.eye(p) + 0.2 * rng.normal(size=(here.size, p, p)))
        R = L @ L.transpose(0, 2, 1)
        phi = phi + np.einsum("jab,jb->ja", np.linalg.cholesky(R), rng.normal(size=(here.size, p)))
        Q = np.linalg.inv(R)
        Q = 0.5 * (Q + Q.transpose(0, 2, 1))
        back = metric.invert(metric.Constants(A, B))
        own_beta = metric.move_beta(beta, back.A, back.B)
        own_sigma = metric.move_item_covariance(sigma, back.A)
        V = beta_sd**2 / here.size * np.kron(np.eye(n_features), own_sigma)
        group = GroupFactors(
            name="g", dimension="reading", model=model, item_ids=tuple(ids[j] for j in here),
            features=("1", *(f"f{k}" for k in range(1, n_features))), coding="c", X=X[here],
            n_responses=np.full(here.size, 50), Q=Q, h=np.einsum("jab,jb->ja", Q, phi),
            mean=metric.move_items(xi[here], back.A, back.B), covariance=np.tile(0.1 * np.eye(p), (here.size, 1, 1)),
            worst_rhat=np.ones(here.size), b=own_beta, V=V, beta_precision=np.linalg.inv(V), sigma=own_sigma,
            sigma_coordinates=log_cholesky(own_sigma), hyperprior=tau * np.eye(n_features), obtained="draws",
            guided=m in guided,
        )  # fmt: skip
        factors = PeriodFactors(f"P{m + 1}", DIMENSIONS, {"g": group}, np.zeros((1, 2, 2)))
        placed.append(Placed(factors, "P1", where[m][None].copy(), np.zeros((1, 2, 2))))
    return PhiWorld(model, X, beta, sigma, ids, xi, where, tuple(placed))


def changed(placed, *, wobble=None, link_mean=None, link_covariance=None, linked=True, warnings=(), **group):
    """A placed period with other values."""
    factors = placed.factors
    groups = {"g": replace(factors.groups["g"], **group)}
    factors = replace(factors, groups=groups, warnings=warnings, wobble=factors.wobble if wobble is None else wobble)
    return replace(
        placed,
        factors=factors,
        link_mean=placed.link_mean if link_mean is None else np.asarray(link_mean, dtype=float),
        link_covariance=placed.link_covariance if link_covariance is None else np.asarray(link_covariance, dtype=float),
        linked=linked,
    )


def lacking(placed):
    """The period as it is calibrated when nobody knows its items' features: their mean, and a spread with all in it."""
    group = placed.factors.groups["g"]
    known = group.X @ group.b
    sigma = group.sigma + np.cov(known, rowvar=False)
    V = sigma / len(group.item_ids)
    return changed(
        placed, X=group.X[:, :1], features=("1",), coding="none", lacking=group.features[1:],
        b=known.mean(axis=0, keepdims=True), V=V, beta_precision=np.linalg.inv(V), sigma=sigma,
        sigma_coordinates=log_cholesky(sigma), hyperprior=group.hyperprior[:1, :1],
    )  # fmt: skip


def only(placed, rows):
    """A placed period with some of its items."""
    group, rows = placed.factors.groups["g"], np.asarray(rows)
    parts = {name: getattr(group, name)[rows] for name in group.PER_ITEM if getattr(group, name) is not None}
    return changed(placed, item_ids=tuple(group.item_ids[j] for j in rows), **parts)


def by_id(consensus, group="g"):
    g = consensus.groups[group]
    return {item: (g.mean[j], g.covariance[j], str(g.source[j])) for j, item in enumerate(g.item_ids)}


def assert_same(one, other, tolerance=1e-9):
    a, b = by_id(one), by_id(other)
    assert set(a) == set(b)
    for item in a:
        np.testing.assert_allclose(a[item][0], b[item][0], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(a[item][1], b[item][1], rtol=tolerance, atol=tolerance)
        assert a[item][2] == b[item][2]
