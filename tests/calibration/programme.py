"""Small data sets for the engine's tests."""

from __future__ import annotations

import numpy as np
import polars as pl

from concal.data.period import GroupData, PeriodData
from concal.response import make_model

MODELS = [("2pl", None), ("3pl", None), ("gpcm", 4), ("grm", 4), ("beta", None), ("ordered_beta", None)]


def simulate_group(name, dimension, model, theta, n_items, per_person, rng, features=0):
    """Items and responses of one group: random items for every examinee."""
    p, sd = len(model.parameters), np.array(model.prior.sd)
    X = np.ones((n_items, 1 + features))
    X[:, 1:] = rng.standard_normal((n_items, features))
    beta = np.zeros((1 + features, p))
    beta[0] = model.prior.mean
    beta[1:] = 0.3 * sd * rng.standard_normal((features, p))
    xi = X @ beta + 0.8 * sd * rng.standard_normal((n_items, p))
    item = np.argsort(rng.random((len(theta), n_items)), axis=1)[:, :per_person].astype(np.int32)
    person = np.repeat(np.arange(len(theta), dtype=np.int32), per_person)
    item = item.ravel()
    score = model.simulate(theta[person], xi[item], rng)
    ids = tuple(f"{name}-{j:03d}" for j in range(n_items))
    names = ("1", *(f"x{k}" for k in range(features)))
    return GroupData(name, dimension, model, ids, names, X, person, item, score), xi


def simulate_period(groups, n_persons, *, correlation=0.5, seed=1, features=0):
    """One period; `groups` lists (name, dimension, (model, categories), items, responses per examinee)."""
    rng = np.random.default_rng(seed)
    dimensions = tuple(dict.fromkeys(g[1] for g in groups))
    D = len(dimensions)
    R = np.full((D, D), correlation) + (1 - correlation) * np.eye(D)
    theta = rng.multivariate_normal(np.zeros(D), R, size=n_persons)
    data, truth = {}, {}
    for name, dimension, (model, categories), n_items, per_person in groups:
        ability = theta[:, dimensions.index(dimension)]
        made = make_model(model, categories)
        data[name], truth[name] = simulate_group(name, dimension, made, ability, n_items, per_person, rng, features)
    ids = pl.Series("person_id", [f"p{i}" for i in range(n_persons)])
    period = PeriodData("2026Q1", dimensions, ids, data, ("2026Q1",), np.zeros(n_persons, np.int32))
    return period, truth, theta
