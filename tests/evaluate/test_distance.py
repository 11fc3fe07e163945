"""The distance from the pooled fit, split into the links' part and the items'; and what is said of a poor one."""

import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from pooled_worlds import PERIODS, make_world
from reported_bank import make_bank

from concal.bank.bank import Bank
from concal.bank.evaluation import Evaluation
from concal.evaluate.agreement import agreement
from concal.evaluate.distance import consensus_at, split_distance
from concal.evaluate.links import pooled_links
from concal.evaluate.verdict import MOST_DISTANCE, poor_agreement


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    return make_bank(tmp_path_factory.mktemp("distance") / "bank", n=40)


def test_pooled_links_take_the_examinees_to_where_the_pooled_fit_has_them():
    world = make_world()
    own = world.calibrations[PERIODS[1]]
    abilities = replace(own.abilities, draw_mean=own.abilities.draw_mean + 0.1, draw_sd=own.abilities.draw_sd * 1.25)
    calibrations = {**world.calibrations, PERIODS[1]: replace(own, abilities=abilities)}
    found = pooled_links(calibrations, world.pooled, PERIODS)
    assert found.rows() == [
        (PERIODS[0], "reading", 1.0, 0.0),
        (PERIODS[0], "writing", 1.0, 0.0),
        (PERIODS[1], "reading", pytest.approx(1.1 / 1.25), pytest.approx(0.4 - 0.1 * 1.1 / 1.25)),
        (PERIODS[1], "writing", pytest.approx(0.8 / 1.25), pytest.approx(-0.2 - 0.1 * 0.8 / 1.25)),
    ]


@pytest.mark.parametrize("method", ["analytic", "paper"])
def test_at_its_own_links_a_consensus_is_nearly_itself_and_follows_others(bank, method, tmp_path):
    bank = Bank(shutil.copytree(bank.path, tmp_path / "bank"))
    bank.combine(method=method)
    stored = bank.consensus()
    same = consensus_at(bank, stored.links, method)
    moved = consensus_at(
        bank, stored.links.with_columns(pl.col("B_mean") + 0.4 * (pl.col("period") != "2026Q1")), method
    )
    for name, group in stored.groups.items():
        seen = group.n_periods > 0
        ids = [i for i, s in zip(group.item_ids, seen, strict=True) if s]
        assert list(same.groups[name].item_ids) == ids
        # links are known here, and as uncertain as they are there
        np.testing.assert_allclose(same.groups[name].mean[:, 0], group.mean[seen, 0], atol=0.15)
        later = (group.n_periods > 1)[seen]
        shift = moved.groups[name].mean[later, 0] - same.groups[name].mean[later, 0]
        assert 0.15 < shift.mean() < 0.4  # two of three periods moved by .4


def test_links_and_items_make_up_the_distance():
    world = make_world(shift=0.3)
    pairs = agreement(world.consensus, world.pooled, world.calibrations.values()).pairs
    sd = pairs.filter(parameter="d")["pooled_sd"].to_numpy()
    halfway = {
        name: replace(group, mean=group.mean - np.array([0.2, *[0.0] * (group.mean.shape[1] - 1)]))
        for name, group in world.consensus.groups.items()
    }
    row = split_distance(pairs, {"analytic": replace(world.consensus, groups=halfway)}).row(0, named=True)
    assert row["parameter"] == "d"
    scale = np.sqrt(np.mean(sd**-2.0))
    # float32 draws
    assert row["distance"] == pytest.approx(0.3 * scale, rel=1e-3)
    assert row["by_links"] == pytest.approx(0.2 * scale, rel=1e-3)
    assert row["by_items"] == pytest.approx(0.1 * scale, rel=1e-3)
    assert split_distance(pairs, {}).height == 0


def evaluation(links=0.1, items=0.1, ratio=1.0, **cost):
    world = make_world(ratio=ratio)
    found = agreement(world.consensus, world.pooled, world.calibrations.values())
    distance = pl.DataFrame(
        {"method": ["analytic"], "parameter": ["d"], "n": [120], "distance": [links + items], "by_links": [links],
         "by_items": [items]}
    )  # fmt: skip
    return Evaluation(
        "pooled", PERIODS[0], PERIODS, ("analytic",), found.table, found.overall, distance, pl.DataFrame(),
        pl.DataFrame(), found.pairs, {"by_method": {"analytic": {"share": 0.0, "items": 0}}}, cost,
    )  # fmt: skip


def test_good_agreement_says_nothing():
    assert poor_agreement(evaluation()) == ()


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"links": 0.5}, "the links"),
        ({"items": 0.5}, "the method"),
        ({"items": 0.5, "pooled_converged": False, "pooled_max_rhat": 1.4}, "has not converged (R-hat 1.40)"),
    ],
)
def test_poor_agreement_names_bound_and_cause(given, cause):
    (text,) = poor_agreement(evaluation(**given))
    assert "0.60 pooled SDs" in text
    assert str(MOST_DISTANCE) in text
    assert cause in text


def test_wrong_spread_is_poor_too():
    texts = poor_agreement(evaluation(ratio=0.8))
    assert any("SDs of d are 0.80 at low exposure" in text for text in texts)
