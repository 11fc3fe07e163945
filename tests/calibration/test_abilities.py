"""Abilities given draws of the items, against quadrature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from concal.calibration.abilities import abilities_given
from concal.calibration.kernels import LANES
from concal.calibration.layout import lay_out
from concal.data.period import GroupData, PeriodData
from concal.response import make_model

ITEMS, EXAMINEES, EACH, DRAWS = 20, 150, 10, 150


def period(seed: int = 1, shift: float = 0.0) -> tuple[PeriodData, np.ndarray]:
    """Examinees of two groups, the second `shift` higher; the true xi."""
    rng, model = np.random.default_rng(seed), make_model("2pl")
    xi = np.column_stack([rng.normal(0, 1, ITEMS), rng.normal(0, 0.3, ITEMS)])
    population = (np.arange(EXAMINEES) % 2).astype(np.int32)
    theta = rng.normal(size=EXAMINEES) + shift * population
    item = np.argsort(rng.random((EXAMINEES, ITEMS)), axis=1)[:, :EACH].ravel().astype(np.int32)
    person = np.repeat(np.arange(EXAMINEES, dtype=np.int32), EACH)
    score = model.simulate(theta[person], xi[item], rng)
    ids = tuple(f"i{j}" for j in range(ITEMS))
    group = GroupData("g", "ability", model, ids, ("1",), np.ones((ITEMS, 1)), person, item, score)
    persons = pl.Series("person_id", [f"p{i}" for i in range(EXAMINEES)])
    data = PeriodData("P", ("ability",), persons, {"g": group}, ("here", "there"), population)
    return data, xi


def one_population(data: PeriodData) -> PeriodData:
    return replace(data, populations=("P",), population=np.zeros(EXAMINEES, np.int32))


def by_quadrature(data: PeriodData, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means and SDs under N(0, 1), averaged over draws of the items (draw, item, parameter)."""
    grid = np.linspace(-6, 6, 241)
    g, first, second = data.groups["g"], np.zeros(EXAMINEES), np.zeros(EXAMINEES)
    for xi in draws:
        eta = np.exp(xi[g.item, 1])[:, None] * (grid - xi[g.item, 0][:, None])
        each = np.where(g.score[:, None] > 0, -np.log1p(np.exp(-eta)), -np.log1p(np.exp(eta)))
        log = np.zeros((EXAMINEES, grid.size)) - 0.5 * grid**2
        np.add.at(log, g.person, each)
        weight = np.exp(log - log.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        first += weight @ grid / len(draws)
        second += weight @ grid**2 / len(draws)
    return first, np.sqrt(second - first**2)


def draws_around(xi: np.ndarray, spread: float) -> np.ndarray:
    """(chain, draw, item, parameter)."""
    noise = np.random.default_rng(2).normal(0, spread, (LANES, DRAWS, *xi.shape))
    return (xi + noise).astype(np.float32)


def test_abilities_are_those_of_quadrature_over_the_items_draws() -> None:
    data, xi = period()
    data = one_population(data)
    for spread in (0.0, 0.3):
        draws = draws_around(xi, spread)
        found = abilities_given(data, lay_out(data), {"g": draws}, seed=3, threads=1)
        mean, sd = by_quadrature(data, draws.reshape(-1, ITEMS, 2)[::7].astype(np.float64))
        assert np.sqrt(np.mean(((found.mean[:, 0] - mean) / sd) ** 2)) < 0.06, "1,200 draws: .03, autocorrelated"
        assert abs(np.log(found.sd[:, 0] / sd).mean()) < 0.025
        assert np.corrcoef(found.mean[:, 0], mean)[0, 1] > 0.998
        np.testing.assert_allclose(found.draw_mean.mean(), mean.mean(), atol=0.02)
        assert (found.n_responses[:, 0] == EACH).all()


def test_threads_do_not_show() -> None:
    data, xi = period()
    draws = {"g": draws_around(xi, 0.1)[:, :20]}
    one, two = (abilities_given(data, lay_out(data), draws, seed=3, threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one.mean, two.mean)
    np.testing.assert_array_equal(one.draw_sd, two.draw_sd)


def test_groups_of_examinees_have_their_own_distributions() -> None:
    data, xi = period(shift=1.0)
    found = abilities_given(data, lay_out(data), {"g": draws_around(xi, 0.0)}, seed=3, threads=1)
    assert found.population_mean is not None
    assert found.population_mean.shape == (LANES, DRAWS, 2, 1)
    first, second = found.population_mean.mean(axis=(0, 1))[:, 0]
    assert abs(second - first - 1.0) < 0.4
    np.testing.assert_allclose(found.draw_mean.mean(), (first + second) / 2, atol=1e-9)
