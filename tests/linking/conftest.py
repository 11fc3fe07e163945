"""Synthetic calibrations: known items, posterior noise as a period of finite size would leave it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from concal.calibration.result import Abilities, Calibration, Convergence, GroupDraws
from concal.metric import move_items
from concal.response import make_model


def build(
    period, items, *, A=1.0, B=0.0, n_draws=100, noise=0.1, seed=0, counts=None, rhat=None, n_persons=20, informed=False
):
    """A calibration whose own metric is theta = (theta_ref - B) / A.

    `items`: dict of group -> (dimension, model, item_ids, xi on the reference metric (items, p)). Every item's
    posterior is centred at truth plus noise; draws scatter around that with SD `noise`, or, `informed`, with the
    covariance that the item's number of responses leaves.
    """
    rng = np.random.default_rng([seed, 77])  # not the stream the items came from
    groups, dimensions = {}, []
    for name, (dimension, model, ids, xi_ref) in items.items():
        if dimension not in dimensions:
            dimensions.append(dimension)
        xi = move_items(np.asarray(xi_ref), 1.0 / A, -B / A)
        n, p = xi.shape
        scale = np.array([noise] * 2 + [0.5 * noise] * (p - 2))
        n_responses = np.full(n, 200) if counts is None else np.array([counts.get(i, 200) for i in ids])
        root = left_by_responses(model, xi, n_responses) if informed else np.tile(np.diag(scale), (n, 1, 1))
        center = xi + np.einsum("jab,jb->ja", root, rng.normal(size=(n, p)))
        draws = center + np.einsum("jab,csjb->csja", root, rng.normal(size=(4, n_draws // 4, n, p)))
        worst = np.ones((n, p)) if rhat is None else np.array([[rhat.get(i, 1.0)] * p for i in ids])
        beta = np.tile(xi.mean(axis=0), (4, n_draws // 4, 1, 1)) + 0.02 * rng.normal(size=(4, n_draws // 4, 1, p))
        sigma = np.tile(np.cov(xi.T) + 0.1 * np.eye(p), (4, n_draws // 4, 1, 1))
        groups[name] = GroupDraws(
            name, dimension, model, tuple(ids), ("Intercept",), np.ones((n, 1)), draws.astype(np.float32), beta, sigma,
            n_responses.astype(np.int64), worst, np.full((n, p), 500.0), np.full((n, p), 500.0),
        )  # fmt: skip
    dims = tuple(dimensions)
    shape = (4, n_draws // 4, len(dims))
    abilities = Abilities(
        pl.Series("person_id", [f"{period}-{i}" for i in range(n_persons)]),
        rng.normal(size=(n_persons, len(dims))),
        np.full((n_persons, len(dims)), 0.3),
        np.full((n_persons, len(dims)), 30),
        0.05 * rng.normal(size=shape),
        1.0 + 0.05 * rng.normal(size=shape),
        np.tile(np.eye(len(dims)), (4, n_draws // 4, 1, 1)),
    )
    convergence = Convergence(True, 1000, 500, 1, 1.0, 1.01, 500.0, 1.0)
    precision = {name: 0.01 * np.eye(1) for name in groups}
    return Calibration(period, dims, groups, abilities, convergence, 0.01, precision, 1)


def left_by_responses(model, xi, counts):
    """Roots of posterior covariances: expected information of N(0, 1) examinees, and the items' own spread as prior."""
    t = np.linspace(-4.0, 4.0, 41)
    w = np.exp(-0.5 * t * t)
    n, p = xi.shape
    score = np.full(n * t.size, 0.0 if model.n_categories else 0.5)
    each = model.derivatives(score, np.tile(t, n), np.repeat(xi, t.size, axis=0)).xi_information
    information = np.einsum("k,jkab->jab", w / w.sum(), each.reshape(n, t.size, p, p)) * counts[:, None, None]
    return np.linalg.cholesky(np.linalg.inv(information + np.linalg.inv(np.cov(xi.T))))


def some_items(n, model="2pl", *, prefix="i", seed=1, categories=None):
    """Item ids and xi on the reference metric."""
    rng = np.random.default_rng(seed)
    m = make_model(model, categories)
    sd = np.array(m.prior.sd)
    xi = np.array(m.prior.mean) + np.minimum(sd, 1.0) * rng.normal(size=(n, len(m.parameters)))
    return m, tuple(f"{prefix}{k:04d}" for k in range(n)), xi


@pytest.fixture
def in_order(monkeypatch):
    """Draw s of a period meets draw s of its target, so that what happens to one draw can be followed."""
    monkeypatch.setattr("concal.linking.period.partners", lambda draws, n_target: draws % n_target)


@pytest.fixture(scope="session")
def make_calibration():
    return build


@pytest.fixture(scope="session")
def make_items():
    return some_items
