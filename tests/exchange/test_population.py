"""Populations of imported items, where another program gave none."""

from __future__ import annotations

import numpy as np
import pytest

from concal.bank.exchange.population import gibbs, population_of_draws
from concal.response import make_model


@pytest.mark.parametrize("of", ["draws", "estimates"])
def test_features_count_whatever_their_units(of: str) -> None:
    """A year of issue and a proportion: their effects per SD are found, though the prior is on the scale of an item."""
    rng, model = np.random.default_rng(4), make_model("2pl")
    year, share = rng.normal(2020.0, 4.0, 400), rng.normal(0.3, 0.05, 400)
    X = np.column_stack([np.ones(400), year, share])
    effects = np.array([[0.5, 0.2], [-0.4, 0.1]])
    z = (X[:, 1:] - X[:, 1:].mean(axis=0)) / X[:, 1:].std(axis=0)
    xi = z @ effects + rng.normal(size=(400, 2)) * [0.6, 0.2]
    if of == "draws":
        beta, _ = population_of_draws(np.repeat(xi[None], 100, axis=0), X, model, 0.1, rng)
    else:
        beta = gibbs(xi, np.full(xi.shape, 0.05), X, model, 0.1, 100, rng)[1]
    found = beta[:, 1:].mean(axis=0) * X[:, 1:].std(axis=0)[:, None]
    np.testing.assert_allclose(found, effects, atol=0.08)
