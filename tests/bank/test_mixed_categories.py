"""A bank whose items have 2, 3 and 5 categories in one group, a category nobody used at first, and a rating scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.errors import DataError
from concal.evaluate.pooled import evaluate_bank
from concal.response import make_model
from concal.simulate import simulate_programme
from concal.spec import Spec

PERSONS = 200
K = {"two": 2, "three": 3, "five": 5}
SPEC = Spec.parse(
    {
        "bank": {"dimensions": ["t"]},
        "groups": {
            "essay": {"model": "gpcm", "dimension": "t", "features": "~ length"},
            "rating": {"model": "rsm", "categories": 4, "dimension": "t"},
        },
        "calibration": {"max_sweeps": 1500, "min_ess": 20, "max_rhat": 1.3, "max_item_rhat": 1.4, "draws": 200},
        "linking": {"min_anchors": 5, "purify": "score"},
    }
)


def truth() -> dict[str, tuple[str, np.ndarray]]:
    """Items by id: their model, and xi."""
    rng = np.random.default_rng(3)
    found = {}
    for name, k in K.items():
        steps = np.linspace(-1.0, 1.0, k - 1)[: k - 2] if k > 2 else np.zeros(0)
        for j in range(5):
            own = steps + rng.normal(0, 0.3, steps.size)
            found[f"{name}-{j}"] = ("gpcm", np.array([rng.normal(0, 0.8), rng.normal(-0.1, 0.2), *own]))
    for j in range(4):
        found[f"rate-{j}"] = ("rsm", np.array([rng.normal(0, 0.8), -0.2, -0.9, 0.1]))
    return found


ITEMS = pl.DataFrame(
    {
        "item_id": list(truth()),
        "group": ["essay"] * 15 + ["rating"] * 4,
        "categories": [K.get(item.split("-")[0], 4) for item in truth()],
        "length": np.linspace(0.0, 1.0, 19),
    }
)


def answers(period: str, mean: float, *, top: bool) -> pl.DataFrame:
    rng = np.random.default_rng(len(period))
    theta = mean + rng.standard_normal(PERSONS)
    frames = []
    for item, (name, xi) in truth().items():
        model = make_model(name, int(ITEMS.filter(pl.col("item_id") == item)["categories"][0]))
        score = model.simulate(theta, np.broadcast_to(xi, (PERSONS, xi.size)), rng)
        if item.startswith("five") and not top:
            score = np.minimum(score, 3)
        frames.append(
            pl.DataFrame({"person_id": [f"{period}-{i}" for i in range(PERSONS)], "score": score, "item_id": item})
        )
    return pl.concat(frames)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """In the first period nobody reaches the top of the five categories, in the second people do."""
    made = Bank.create(tmp_path_factory.mktemp("mixed") / "bank", SPEC)
    first = made.add("Q1", answers("Q1", 0.0, top=False), ITEMS)
    assert any("no score of 4 among 5 categories" in w for w in first.warnings)
    assert first.convergence is not None
    assert first.convergence.converged
    made.add("Q02", answers("Q02", 0.3, top=True), ITEMS)
    return made


@pytest.mark.parametrize("method", ["joint", "analytic", "paper"])
def test_items_come_back_whatever_the_method(bank: Bank, method: str) -> None:
    found = bank.consensus(method)
    assert set(found.groups) == {*(f"essay ({k} categories)" for k in K.values()), "rating"}
    for group in found.groups.values():
        xi = np.array([truth()[item][1] for item in group.item_ids])
        off = (group.mean - xi) / group.sd
        assert (np.linalg.eigvalsh(group.covariance) > 0).all()
        if group.model.n_categories == 5:
            assert np.abs(off[:, :2]).max() < 8.0  # the first period was cut off, so its items differ
        else:
            assert np.abs(off).max() < 4.5
    rating = found.groups["rating"].mean
    np.testing.assert_allclose(rating[:, 1:], np.broadcast_to(rating[0, 1:], rating[:, 1:].shape), atol=1e-5)


def test_the_population_of_d_and_log_a_is_the_groups(bank: Bank) -> None:
    strata = [g for name, g in bank.consensus("joint").groups.items() if name.startswith("essay")]
    for other in strata[1:]:
        np.testing.assert_allclose(other.beta[:, :2], strata[0].beta[:, :2], atol=1e-9)
        np.testing.assert_allclose(other.sigma[:2, :2], strata[0].sigma[:2, :2], atol=1e-9)


def test_every_table_and_export_has_the_items(bank: Bank, tmp_path: Path) -> None:
    wide = bank.parameters()
    assert wide.height == 19
    assert dict(wide.select("item_id", "categories").iter_rows())["three-0"] == 3
    slope = wide.filter(pl.col("group") == "rating")
    np.testing.assert_allclose(slope["d_logit"], slope["a"] * slope["d"], rtol=1e-9)
    assert (slope["d_logit_sd"] < slope["d_sd"]).any()
    for kind, name in (("csv", "items.csv"), ("mirt", "mirt.csv"), ("flexmirt", "flex.txt")):
        bank.export(tmp_path / name, format=kind)
        assert (tmp_path / name).stat().st_size > 200
    assert bank.fit()["item_id"].n_unique() == 19
    assert set(bank.drift()["item_id"]) <= set(truth())
    assert bank.information().items["item_id"].n_unique() == 19


def test_people_are_scored_and_new_items_predicted(bank: Bank) -> None:
    scored = bank.score(answers("Q1", 0.0, top=False))
    known = bank.abilities().filter(pl.col("period") == "Q1").sort("person_id")
    assert np.corrcoef(scored["theta_t"], known["theta"])[0, 1] > 0.99
    new = pl.DataFrame({"item_id": ["x", "y"], "group": "essay", "categories": [2, 5], "length": [0.5, 0.5]})
    predicted = bank.predict(new)
    assert predicted.filter(pl.col("item_id") == "y")["parameter"].to_list() == ["d", "log_a", "c_1", "c_2", "c_3"]
    d = predicted.filter(pl.col("parameter") == "d")["mean"]
    assert d[0] == pytest.approx(d[1], abs=1e-9)  # one population
    with pytest.raises(DataError, match=r"'essay \(4 categories\)' has no responses in any period"):
        bank.predict(new.with_columns(categories=4))


def test_an_item_keeps_its_number(bank: Bank) -> None:
    moved = ITEMS.with_columns(
        categories=pl.when(pl.col("item_id") == "three-0").then(4).otherwise(pl.col("categories"))
    )
    said = (
        r"1 item in another group, or with another number of categories, than in .*'three-0'.*; if its number was "
        r"wrong there .* put 'Q1' in again with the right one \(--replace\)"
    )
    with pytest.raises(DataError, match=said):
        bank.check("Q3", answers("Q003", 0.0, top=True), moved)


@pytest.mark.slow
def test_the_joint_consensus_is_the_pooled_fit(tmp_path: Path) -> None:
    group = {"model": "gpcm", "dimension": "t", "features": "~ length"}
    options = {"min_ess": 200, "max_rhat": 1.03, "draws": 800}
    spec = Spec.parse({"bank": {"dimensions": ["t"]}, "groups": {"essay": group}, "calibration": options})
    size = {"periods": 2, "items": 45, "examinees": 500, "responses_per_examinee": 25, "exposure_spread": 0.3}
    made = simulate_programme(spec, seed=3, **size)
    bank = Bank.create(tmp_path / "bank", spec)
    for period, frame in made.responses.items():
        bank.add(period, frame, made.items)
    found = evaluate_bank(bank).agreement.filter(pl.col("method") == "joint")
    assert set(found["parameter"]) == {"d", "log_a", "c_1", "c_2", "c_3"}
    assert found["mean_r"].min() > 0.99
    assert found["sd_ratio_low"].is_between(0.9, 1.1).all()
