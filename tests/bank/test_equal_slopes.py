"""A bank with equal slopes: one slope for every item, whatever the method, close to the pooled fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.evaluate.pooled import evaluate_bank
from concal.score.items import ScoringItems
from concal.spec import Spec

ITEMS, PERSONS = 15, 250


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """Two periods that share nine items; abilities differ in mean and spread."""
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["x"]},
            "groups": {"g": {"model": "1pl", "dimension": "x", "features": "~ length"}},
            "calibration": {"max_sweeps": 1500, "min_ess": 100, "max_rhat": 1.08, "max_item_rhat": 1.2},
            "linking": {"min_anchors": 5, "purify": "score"},
        }
    )
    rng = np.random.default_rng(5)
    place = np.linspace(-1.5, 1.5, ITEMS)
    ids = [f"i{j:02d}" for j in range(ITEMS)]
    items = pl.DataFrame({"item_id": [*ids, "new"], "length": np.arange(ITEMS + 1, dtype=float)})
    made = Bank.create(tmp_path_factory.mktemp("equal") / "bank", spec)
    for period, mean, sd, used in (("Q1", 0.0, 1.0, range(12)), ("Q2", 0.4, 1.3, range(3, 15))):
        theta = mean + sd * rng.standard_normal((PERSONS, 1))
        right = rng.random((PERSONS, len(used))) < 1 / (1 + np.exp(1.2 * (place[list(used)] - theta)))
        wide = pl.DataFrame(right.astype(float), schema=[ids[j] for j in used])
        wide.insert_column(0, pl.Series("person", [f"{period}-{i}" for i in range(PERSONS)]))
        made.add(period, wide, items, wide=True)
    return made


@pytest.mark.parametrize("method", ["joint", "analytic", "paper"])
def test_every_item_has_the_groups_slope(bank: Bank, method: str) -> None:
    group = bank.consensus(method).groups["g"]
    assert len(group.item_ids) == ITEMS + 1  # one of them predicted
    np.testing.assert_allclose(group.mean[:, 1], group.mean[0, 1], atol=1e-6)
    assert 0.9 < np.exp(group.mean[0, 1]) < 1.6
    assert (np.linalg.eigvalsh(group.covariance) > 0).all()
    answered = group.source == "consensus"
    assert 0.02 < group.sd[answered, 1].min() <= group.sd[answered, 1].max() < 0.2
    order = np.array([int(item[1:]) for item, yes in zip(group.item_ids, answered, strict=True) if yes])
    off = (group.mean[answered, 0] - np.linspace(-1.5, 1.5, ITEMS)[order]) / group.sd[answered, 0]
    assert np.abs(off).max() < 4


def test_tables_links_and_drift_hold_it_too(bank: Bank, tmp_path: Path) -> None:
    assert bank.parameters()["a"].round(6).n_unique() == 1
    bank.export(tmp_path / "items.csv")
    assert pl.read_csv(tmp_path / "items.csv")["a"].round(6).n_unique() == 1
    links = bank.links().filter(pl.col("period") == "Q2")
    assert abs(links["A"][0] - 1.3) < 0.3
    assert bank.drift().height > 0
    predicted = bank.predict(pl.DataFrame({"item_id": ["z"], "length": [3.0]}))
    assert predicted.filter(pl.col("parameter") == "log_a")["mean"][0] == pytest.approx(
        bank.items()["mean"][1], abs=1e-6
    )


def test_every_draw_has_one_slope(bank: Bank) -> None:
    """Draws on request, joint draws, and those that people are scored with; of answered and of predicted items."""
    ids = ["i00", "i11", "new"]
    xi = bank.draws(ids)["xi"].to_numpy()[0]
    np.testing.assert_allclose(xi[..., 1], np.broadcast_to(xi[:, :1, 1], xi.shape[:2]), atol=1e-5)
    group = bank.consensus().groups["g"]
    at = [group.item_ids.index(item) for item in ids]
    np.testing.assert_allclose(xi.mean(axis=0), group.mean[at], atol=5 * group.sd[at].max() / np.sqrt(len(xi)))
    np.testing.assert_allclose(xi.std(axis=0), group.sd[at], rtol=0.1)
    assert abs(np.corrcoef(xi[:, 0, 0], xi[:, 1, 0])[0, 1]) < 0.9  # locations are the items' own
    joint = bank.consensus(joint=True).joint["g"]
    np.testing.assert_allclose(joint[..., 1], np.broadcast_to(joint[:, :1, 1], joint.shape[:2]), atol=1e-5)
    independent = ScoringItems.of(bank.consensus("analytic"), seed=1)
    assert not independent.joint
    for s in range(3):
        (drawn,) = independent.draw(s, [np.array(at[:2])])
        np.testing.assert_allclose(drawn[:, 1], drawn[0, 1], atol=1e-5)


@pytest.mark.slow
def test_it_agrees_with_the_pooled_fit(bank: Bank) -> None:
    found = evaluate_bank(bank).agreement.filter(pl.col("method") == "joint")
    ratio = dict(zip(found["parameter"], found["sd_ratio_low"], strict=True))
    assert 0.9 < ratio["d"] < 1.1
    assert 0.85 < ratio["log_a"] < 1.2
