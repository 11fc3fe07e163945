"""Published estimates of classical data sets, reproduced within what a weak prior explains.

The published numbers are maximum likelihood for theta ~ N(0, 1). With four or five items the population model pulls
discriminations strongly towards each other, so our posterior mean must differ, by a predictable amount: near its
maximum the marginal likelihood is N(xi_ML, H^-1), and with a draw (beta, Sigma) of the population model the items'
mean is (H + Omega)^-1 (H xi_ML + Omega X beta), Omega = Sigma^-1. Averaged over the draws this is what the published
numbers and the prior together say; the engine must agree with it in means and SDs. The marginal likelihood itself is
checked against the published maximum (Gauss-Hermite, 61 nodes, no code of the engine).
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from concal.calibration.period import calibrate
from concal.spec import Spec

# a Gaussian likelihood is an approximation: locations of easy items are skewed
RMS, LARGEST = 0.3, 0.7

pytestmark = [pytest.mark.real, pytest.mark.reference]


class Fit(NamedTuple):
    """Draws of xi (draws, items, p), beta (draws, 1, p), Sigma (draws, p, p); answer patterns and their counts."""

    xi: np.ndarray
    beta: np.ndarray
    sigma: np.ndarray
    patterns: np.ndarray
    counts: np.ndarray


def fit(path, model, items, categories=None, lowest=0):
    table = pl.read_csv(path).select(
        person_id=pl.col("examinee").cast(pl.String), item_id="item", score=pl.col("score") - lowest
    )
    group = {"model": model, "dimension": "trait"} | ({"categories": categories} if categories else {})
    options = {"max_sweeps": 6000, "min_ess": 250, "max_rhat": 1.03}
    spec = Spec.parse({"bank": {"dimensions": ["trait"]}, "groups": {"items": group}, "calibration": options})
    draws = calibrate(table, pl.DataFrame({"item_id": items, "group": "items"}), spec).groups["items"]
    order = [draws.item_ids.index(i) for i in items]
    wide = table.pivot(on="item_id", index="person_id", values="score").select(items)
    patterns, counts = np.unique(wide.to_numpy().astype(int), axis=0, return_counts=True)
    return Fit(draws.flat("xi")[:, order], draws.flat("beta"), draws.flat("sigma"), patterns, counts)


def xi_from_intercepts(a, intercept):
    """Item vectors (d, log a, log gaps) from logit P(X >= k) = a theta + intercept_k."""
    a, intercept = np.array(a), np.array(intercept).reshape(len(a), -1)
    gaps = np.diff(-intercept, axis=1)
    return np.column_stack([-intercept.mean(axis=1) / a, np.log(a), np.log(gaps)])


def marginal_log_likelihood(xi, found):
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    c = np.cumsum(np.concatenate([np.zeros((len(xi), 1)), np.exp(xi[:, 2:])], axis=1), axis=1)
    c = c - c.mean(axis=1, keepdims=True)
    eta = np.exp(xi[:, 1:2]) * (nodes - xi[:, :1])
    above = 1.0 / (1.0 + np.exp(c[:, :, None] - eta[:, None, :]))  # (items, K - 1, nodes)
    ones = np.ones_like(above[:, :1])
    p = np.concatenate([ones, above], axis=1) - np.concatenate([above, 0.0 * ones], axis=1)
    joint = np.prod(p[np.arange(len(xi)), found.patterns], axis=1)  # (patterns, nodes)
    return float(found.counts @ np.log(joint @ (weights / weights.sum())))


def information(xi, found, step=1e-3):
    """Minus the second derivatives of the marginal log-likelihood in all coordinates, by central differences."""
    n = xi.size
    moves = step * np.eye(n).reshape(n, *xi.shape)
    H = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
            values = [s * t * marginal_log_likelihood(xi + s * moves[i] + t * moves[j], found) for s, t in signs]
            H[i, j] = H[j, i] = -sum(values) / (4.0 * step * step)
    return H


def predicted(xi_ml, found):
    """Mean and SD of the items by the published estimates, their information, and the draws of the population."""
    H = information(xi_ml, found)
    n_items = len(xi_ml)
    covariances, means = [], []
    for beta, sigma in zip(found.beta, found.sigma, strict=True):
        omega = np.kron(np.eye(n_items), np.linalg.inv(sigma))
        C = np.linalg.inv(H + omega)
        means.append(C @ (H @ xi_ml.ravel() + omega @ np.tile(beta[0], n_items)))
        covariances.append(np.diag(C))
    means = np.array(means)
    sd = np.sqrt(np.mean(covariances, axis=0) + means.var(axis=0))
    return means.mean(axis=0).reshape(xi_ml.shape), sd.reshape(xi_ml.shape)


def check(found, a, intercept, log_likelihood):
    xi_ml = xi_from_intercepts(a, intercept)
    assert marginal_log_likelihood(xi_ml, found) == pytest.approx(log_likelihood, abs=0.02)
    mean, sd = predicted(xi_ml, found)
    z = (found.xi.mean(axis=0) - mean) / sd
    ratio = found.xi.std(axis=0) / sd
    assert np.sqrt((z**2).mean()) < RMS, z.round(2)
    assert np.abs(z).max() < LARGEST, z.round(2)
    assert 0.85 < np.median(ratio) < 1.15, ratio.round(2)


@pytest.fixture
def published(shared_data):
    return json.loads((shared_data / "published.json").read_text())


@pytest.mark.parametrize(("name", "key"), [("lsat7", "lsat7_2pl_ml"), ("lsat6", "lsat6_2pl_ml")])
def test_lsat(shared_data, published, name, key):
    answer = published[key]["recomputed_here"]  # agrees with the published digits; has all of them
    found = fit(shared_data / "classics" / f"{name}.csv", "2pl", answer["items"])
    check(found, answer["a"], answer["d"], answer["logLik"])
    if "a" in published[key]:
        np.testing.assert_allclose(published[key]["a"], answer["a"], atol=0.01)
        np.testing.assert_allclose(published[key]["d"], answer["d"], atol=0.01)


def test_spelling(shared_data, published):
    answer = published["spelling_recomputed"]["2pl"]
    found = fit(shared_data / "classics" / "spelling.csv", "2pl", answer["items"])
    check(found, answer["a"], answer["d"], answer["logLik"])


def test_science_graded(shared_data, published):
    answer = published["science_graded_ml"]
    found = fit(shared_data / "classics" / "science.csv", "grm", answer["items"], categories=4, lowest=1)
    check(found, answer["a"], answer["d"], answer["logLik_recomputed"])
