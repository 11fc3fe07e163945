"""Plausible values given person variables: the tilted prior, the sampler's steps, regressions that are recovered."""

import numpy as np
import polars as pl
import pytest
from worlds import brute_force, make_bank, people, simulate

from concal.calibration.workers import Workers
from concal.errors import DataError
from concal.score.covariates import covariate_matrix
from concal.score.pool import pool, regression_of
from concal.score.regression import Regression, draw_regression
from concal.score.rows import LikelihoodRows
from concal.score.score import ScoreOptions, draw_plausible_values
from concal.score.stages import posterior


def test_a_tilted_prior_is_a_prior_with_another_mean():
    bank = make_bank([("2pl", None), ("gpcm", 4)], dimensions=2, correlation=0.6)
    _, answered = simulate(bank, 8, 4)
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(8), rng.standard_normal(8)])
    regression = Regression(np.array([[0.3, -0.2], [1.1, -0.7]]), np.array([[0.7, 0.2], [0.2, 0.4]]))
    rows, workers = LikelihoodRows.of(bank.items, answered), Workers(1)
    target = regression.target(X, lambda some, nodes: some.mean_table(nodes, workers))
    found = posterior(bank.items, rows, answered, target, regression.grid(X), workers)
    for p in range(8):
        mean, covariance = brute_force(
            bank, answered, p, mean=X[p] @ regression.coefficients, covariance=regression.covariance, per_axis=200
        )
        np.testing.assert_allclose(found.mean[p], mean, atol=1e-6)
        np.testing.assert_allclose(found.covariance[p], covariance, atol=1e-6)


def test_regression_given_abilities():
    rng = np.random.default_rng(6)
    n, D = 60, 2
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    theta = X @ np.array([[0.5, 0.0], [1.0, -1.0]]) + rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 2]], n)
    drawn = [draw_regression(theta, X, rng) for _ in range(20_000)]
    centre = np.linalg.lstsq(X, theta, rcond=None)[0]
    S = (theta - X @ centre).T @ (theta - X @ centre)
    freedom = n - X.shape[1]
    np.testing.assert_allclose(np.mean([d.covariance for d in drawn], axis=0), S / (freedom - D - 1), rtol=0.02)
    b = np.array([d.coefficients for d in drawn])
    np.testing.assert_allclose(b.mean(axis=0), centre, atol=0.01)
    exact = np.einsum("a,k->ak", np.diag(np.linalg.inv(X.T @ X)), np.diag(S) / (freedom - D - 1))
    np.testing.assert_allclose(b.var(axis=0), exact, rtol=0.05)


@pytest.fixture(scope="module")
def world():
    """Abilities that depend on two variables no period knows of, measured by short tests."""
    bank = make_bank([("2pl", None), ("2pl", None)], n_items=60, dimensions=2, sd=0.05, n_draws=10, correlation=0.6)
    rng = np.random.default_rng(8)
    n = 3000
    hours, school = rng.exponential(2.0, n), rng.choice(["a", "b", "c"], n)
    shift = 0.3 * (hours - 2.0) + 0.8 * (school == "b")
    theta = np.column_stack([shift, 0.5 * shift - 0.2]) + rng.multivariate_normal([0, 0], [[0.6, 0.3], [0.3, 0.6]], n)
    _, answered = simulate(bank, n, 8, theta=theta)
    who = people(answered)
    variables = pl.DataFrame({"person_id": who.person_ids, "hours": hours, "school": school})
    return bank, theta, who, variables


def slopes(values, variables):
    joined = values.join(variables.with_columns(b=pl.col("school") == "b"), on="person_id")
    pooled = pool(joined, regression_of("theta_dim0", "hours", "b"))
    return {row["name"]: row for row in pooled.iter_rows(named=True)}


def test_regressions_on_covariates_are_recovered(world):
    bank, theta, who, variables = world
    blind = slopes(draw_plausible_values(bank, who, 5, ScoreOptions()), variables)
    values = draw_plausible_values(bank, who, 5, ScoreOptions(), covariates=variables)
    told = slopes(values, variables)
    for name, truth in (("hours", 0.3), ("b", 0.8)):
        assert blind[name]["estimate"] < 0.8 * truth  # attenuated
        assert abs(told[name]["estimate"] - truth) < 3 * told[name]["se"] < 0.35 * truth
    spread = [values.filter(pv=k)["theta_dim0"].var() for k in range(1, 6)]
    assert np.mean(spread) == pytest.approx(theta[:, 0].var(), rel=0.08)


def test_the_same_seed_gives_the_same_values(world):
    bank, _, who, variables = world
    once = draw_plausible_values(bank, who, 2, ScoreOptions(threads=1), covariates=variables)
    again = draw_plausible_values(bank, who, 2, ScoreOptions(threads=3), covariates=variables.reverse())
    assert once.equals(again)


def test_covariates_that_cannot_be_used(world):
    bank, _, who, variables = world
    ids = who.person_ids

    def refused(table, match):
        with pytest.raises(DataError, match=match):
            covariate_matrix(table, ids, "person_id")

    refused(variables.drop("hours", "school"), "no column beside")
    refused(variables.head(2999), "1 examinee without a row")
    refused(pl.concat([variables, variables.head(3)]), "3 examinees with several rows")
    refused(variables.with_columns(again=pl.col("hours") * 2), "determine each other")
    refused(variables.with_columns(pl.col("hours") / 0), "not finite")
    refused(variables.with_columns(pl.col("hours").cast(pl.String)), "different values")
    refused(variables.rename({"person_id": "who"}), "missing column 'person_id'")
    with pytest.raises(DataError, match="make the prior themselves"):
        draw_plausible_values(bank, who, 2, ScoreOptions(prior="P1"), covariates=variables)
