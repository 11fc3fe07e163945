"""What the bank measures, against the slow way."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from concal.evaluate.digest import ABILITY_EDGES, histogram
from concal.evaluate.targeting import BEST, bank_information, information_curves, location_histogram, targeting_table
from concal.response import make_model
from concal.score.information import item_information


@pytest.mark.parametrize(("name", "mean"), [("2pl", [0.5, 0.2]), ("gpcm", [0.0, -0.2, 0.5, -0.5])])
def test_information_is_averaged_over_the_posterior(name, mean):
    model = make_model(name, None if name == "2pl" else 4)
    mean, theta = np.array([mean[: len(model.parameters)]]), np.array([-2.0, 0.0, 1.0, 3.0])
    p = mean.shape[1]
    covariance = np.array([0.02 * np.eye(p) + 0.005])
    found, spread = information_curves(model, mean, covariance, theta)
    draws = np.random.default_rng(1).multivariate_normal(mean[0], covariance[0], 40_000)
    each = item_information(model, draws, theta)
    np.testing.assert_allclose(found[0], each.mean(axis=0), rtol=0.01)
    np.testing.assert_allclose(spread[0], np.log(each).std(axis=0), rtol=0.1, atol=0.02)


def a_bank(n, rng):
    model = make_model("2pl")
    groups = {
        "words": SimpleNamespace(dimension="reading", model=model, mean=rng.normal(1.0, 1.0, (n, 2)) * [1, 0.1]),
        "texts": SimpleNamespace(dimension="reading", model=model, mean=np.array([[-9.0, 0.0]])),
    }
    return SimpleNamespace(dimensions=("reading", "writing"), groups=groups)


def test_the_banks_information_and_its_best_items():
    bank, theta = a_bank(50, np.random.default_rng(2)), np.array([-1.0, 1.0])
    curves = {name: item_information(g.model, g.mean, theta) for name, g in bank.groups.items()}
    found = bank_information(bank, curves, theta)
    every = np.concatenate(list(curves.values()))
    assert found["dimension"].to_list() == ["reading", "reading"]  # no item measures writing
    np.testing.assert_allclose(found["information"], every.sum(axis=0))
    np.testing.assert_allclose(found["sem_best"], np.sort(every, axis=0)[::-1][:BEST].sum(axis=0) ** -0.5)
    fewer = bank_information(bank, {"words": curves["words"][:3], "texts": curves["texts"]}, theta)
    np.testing.assert_allclose(fewer["sem_best"], fewer["information"] ** -0.5)


def test_where_examinees_are_and_items_are_not():
    bank, theta = a_bank(200, np.random.default_rng(3)), np.linspace(-4, 4, 17)
    curves = {name: item_information(g.model, g.mean, theta) for name, g in bank.groups.items()}
    located = location_histogram(bank)
    assert located["count"].sum() == 201
    assert located["count"][0] == 1  # the one far outside
    people = np.random.default_rng(4).normal(-1.0, 0.5, 10_000)
    seen = pl.concat(histogram(people[k::2], ABILITY_EDGES, period=f"P{k}", dimension="reading") for k in (0, 1))
    known = bank_information(bank, curves, theta)
    row = targeting_table(known, located, seen).row(0, named=True)
    low, high = row["examinees_from"], row["examinees_to"]
    assert low <= np.quantile(people, 0.05) < low + 0.25
    assert high - 0.25 < np.quantile(people, 0.95) <= high
    d = np.concatenate([g.mean[:, 0] for g in bank.groups.values()])
    assert row["items_there"] == pytest.approx(((d >= low) & (d < high)).mean())
    there = known.filter(pl.col("theta").is_between(low, high))
    assert row["sem_most"] == there["sem_best"].max()
    assert row["thinnest_at"] == there["theta"].min()  # items are easier to find above
    nobody = targeting_table(known, located, seen.clear())
    assert nobody.columns == ["dimension", "items"]
