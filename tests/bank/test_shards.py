"""A period in shards: who goes where, what is put together, what is refused, what comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.calibration.period import calibrate_period
from concal.calibration.streams import seed_of
from concal.consensus.factors.make import make_factors
from concal.consensus.shards import unite_shards
from concal.data.deal import deal, most_shards, shard_of, with_shards
from concal.data.period import GroupData, PeriodData
from concal.errors import ConvergenceError, DataError
from concal.response import make_model
from concal.spec import Spec

SPEC = Spec.parse(
    {
        "bank": {"dimensions": ["ability"]},
        "groups": {"g": {"model": "2pl", "dimension": "ability"}},
        "linking": {"min_anchors": 3},
        "calibration": {
            "draws": 400,
            "min_ess": 50,
            "max_rhat": 1.1,
            "item_share": 0.8,
            "max_item_rhat": 1.5,
            "max_sweeps": 2000,
        },
        "consensus": {"method": "analytic"},
    }
)


def simulated(items: int = 24, examinees: int = 900, seed: int = 1) -> tuple[PeriodData, Any]:
    rng, model = np.random.default_rng(seed), make_model("2pl")
    xi = np.column_stack([rng.normal(0, 1, items), rng.normal(0, 0.3, items)])
    theta = rng.normal(size=examinees)
    item = np.argsort(rng.random((examinees, items)), axis=1)[:, :20].ravel().astype(np.int32)
    person = np.repeat(np.arange(examinees, dtype=np.int32), 20)
    score = model.simulate(theta[person], xi[item], rng)
    ids = tuple(f"i{j:02d}" for j in range(items))
    group = GroupData("g", "ability", model, ids, ("1",), np.ones((items, 1)), person, item, score)
    persons = pl.Series("person_id", [f"p{i}" for i in range(examinees)])
    return PeriodData("P", ("ability",), persons, {"g": group}, ("P",), np.zeros(examinees, np.int32)), xi


def tables(data: PeriodData) -> tuple[pl.DataFrame, pl.DataFrame]:
    g = data.groups["g"]
    responses = pl.DataFrame(
        {
            "person_id": data.person_ids.gather(g.person),
            "item_id": [g.item_ids[j] for j in g.item],
            "score": g.score,
        }
    )
    return responses, pl.DataFrame({"item_id": list(g.item_ids), "group": ["g"] * len(g.item_ids)})


def test_every_response_is_in_one_shard_and_the_same_one_always() -> None:
    data, _ = simulated()
    parts = deal(data, 4)
    assert sum(part.n_responses for part in parts) == data.n_responses
    assert sorted(pl.concat([p.person_ids for p in parts]).to_list()) == sorted(data.person_ids.to_list())
    assert max(p.person_ids.len() for p in parts) < 1.3 * min(p.person_ids.len() for p in parts)
    shuffled = replace(data, person_ids=data.person_ids.reverse())
    assert (shard_of(shuffled, 4) == shard_of(data, 4)[::-1]).all()
    whole, split = data.groups["g"], [p.groups["g"] for p in parts]
    triple = {(data.person_ids[int(p)], i, s) for p, i, s in zip(whole.person, whole.item, whole.score, strict=True)}
    again = {
        (part.person_ids[int(p)], i, s)
        for part, g in zip(parts, split, strict=True)
        for p, i, s in zip(g.person, g.item, g.score, strict=True)
    }
    assert triple == again
    assert deal(data, 1) == [data]


def test_shards_that_would_be_too_small_are_refused_with_the_number_that_does() -> None:
    data, _ = simulated()
    assert most_shards(data) == 4
    with pytest.raises(DataError, match=r"use 4 shards at most"):
        deal(data, 5)
    with pytest.raises(DataError, match="one or more"):
        deal(data, 0)


def test_every_shard_has_examinees_of_every_group() -> None:
    data, _ = simulated()
    population = np.zeros(900, np.int32)
    population[[3, 500, 501, 777]] = 1
    grouped = replace(data, populations=("large", "small"), population=population)
    parts = deal(grouped, 4)
    assert [np.bincount(part.population).tolist() for part in parts] == [[224, 1]] * 4
    fewer = replace(grouped, population=np.where(np.arange(900) == 3, 0, population))
    assert most_shards(fewer) == 3
    with pytest.raises(DataError) as caught:
        with_shards(fewer, SPEC, 4)
    assert str(caught.value) == (
        "period 'P': 4 shards, but 1 group of examinees has fewer: 'small' (3 examinees); every shard needs some of "
        "each group: use 3 shards at most, merge small groups, or leave their examinees out"
    )


def test_the_number_of_shards_follows_from_the_size() -> None:
    data, _ = simulated()
    by_size = Spec.parse({**SPEC.model_dump(), "calibration": {"max_responses_per_shard": 6000}})
    assert with_shards(data, by_size, None).calibration.shards == 3
    assert with_shards(data, by_size, 2).calibration.shards == 2
    assert with_shards(data, SPEC, None) == SPEC
    assert len({seed_of(7, k, n) for n in (2, 4) for k in range(n)}) == 6


@pytest.fixture(scope="module")
def united() -> Any:
    data, truth = simulated()
    whole = calibrate_period(data, SPEC, seed=1)
    shards = [calibrate_period(part, SPEC, seed=10 + k) for k, part in enumerate(deal(data, 3))]
    return data, truth, whole, shards, unite_shards(shards, data, SPEC, seed=1)


def test_shards_give_what_the_whole_period_gives(united: Any) -> None:
    _, _, whole, _, together = united
    one, two = whole.groups["g"].flat("xi"), together.groups["g"].flat("xi")
    distance = (two.mean(axis=0) - one.mean(axis=0)) / one.std(axis=0)
    assert np.sqrt((distance**2).mean()) < 0.3
    assert np.abs(np.log(two.std(axis=0) / one.std(axis=0)).mean(axis=0)).max() < 0.08
    mean, sd = whole.abilities.mean[:, 0], whole.abilities.sd[:, 0]
    assert np.sqrt(np.mean(((together.abilities.mean[:, 0] - mean) / sd) ** 2)) < 0.12
    assert abs(np.log(together.abilities.sd[:, 0] / sd).mean()) < 0.03
    assert abs(together.abilities.draw_mean.mean()) < 0.1
    assert abs(together.abilities.draw_sd.mean() - 1.0) < 0.1
    assert together.fit is not None
    assert (together.groups["g"].n_responses == whole.groups["g"].n_responses).all()


def test_the_period_factor_is_the_product_of_the_shards_factors(united: Any) -> None:
    _, _, whole, shards, together = united
    made, sums = make_factors(together).groups["g"], [make_factors(s).groups["g"] for s in shards]
    total = np.asarray(sum(g.Q for g in sums))
    relative = np.linalg.norm(made.Q - total, axis=(1, 2)) / np.linalg.norm(total, axis=(1, 2))
    assert np.median(relative) < 0.15, "links between shards are small"
    ratio = np.linalg.det(made.Q) / np.linalg.det(make_factors(whole).groups["g"].Q)
    assert abs(np.median(np.log(ratio))) < 0.15
    wobble, own = make_factors(together).wobble[0], make_factors(shards[0]).wobble[0]
    assert wobble[1, 1] < 0.7 * own[1, 1], "three shards know the metric better than one"


def test_groups_of_examinees_keep_their_distributions_in_shards() -> None:
    data, _ = simulated()
    right = np.bincount(data.groups["g"].person, data.groups["g"].score)
    high = right + np.random.default_rng(2).normal(0, 4, right.size) > 10
    data = replace(data, populations=("low", "high"), population=high.astype(np.int32))
    shards = [calibrate_period(part, SPEC, seed=10 + k) for k, part in enumerate(deal(data, 2))]
    together = unite_shards(shards, data, SPEC, seed=1)
    assert together.abilities is not None
    assert together.abilities.populations == ("low", "high")
    means = [s.abilities.population_mean.mean(axis=(0, 1))[:, 0] for s in (*shards, together)]  # type: ignore[union-attr]
    np.testing.assert_allclose(means[2], np.mean(means[:2], axis=0), atol=0.25)
    assert means[2][1] > means[2][0] + 0.5


def test_a_sharded_period_enters_the_bank_as_one(tmp_path: Path) -> None:
    data, _ = simulated()
    responses, items = tables(data)
    bank = Bank.create(tmp_path / "bank", SPEC)
    told: list[str] = []
    bank.add(
        "Q1",
        responses,
        items,
        shards=3,
        progress=lambda stage, share, message: told.append(stage),
    )
    assert {"calibrate shard 1", "calibrate shard 3"} <= set(told)
    assert bank.period_names == ("Q1",)
    assert bank.calibration("Q1").engine == "concal, 3 shards"
    assert bank.calibration("Q1").convergence.converged
    assert list((tmp_path / "bank" / "work").iterdir()) == []
    later = responses.with_columns((pl.lit("later-") + pl.col("person_id")).alias("person_id"))
    bank.add("Q2", later, items)
    assert bank.links().height > 0
    assert bank.verify().ok
    with pytest.raises(DataError, match="shards at most"):
        bank.add("Q3", later.with_columns(pl.col("person_id").str.reverse()), items, shards=50)
    assert bank.version == 2


def test_an_interrupted_run_keeps_the_shards_that_are_done(tmp_path: Path) -> None:
    data, _ = simulated()
    responses, items = tables(data)
    bank = Bank.create(tmp_path / "bank", SPEC)
    done: list[int] = []

    def run(part: PeriodData, spec: Spec, **options: Any) -> Any:
        if len(done) == 1:
            done.append(0)
            raise KeyboardInterrupt
        done.append(part.n_responses)
        return calibrate_period(part, spec, **options)

    with pytest.raises(KeyboardInterrupt):
        bank.add("Q1", responses, items, shards=2, calibrator=run)
    bank.add("Q1", responses, items, shards=2, calibrator=run)
    assert len(done) == 3, "the first shard was not calibrated again"
    assert bank.version == 1


def test_shards_that_have_not_converged_are_refused_and_go_on_where_they_stopped(tmp_path: Path) -> None:
    data, _ = simulated()
    responses, items = tables(data)
    bank = Bank.create(tmp_path / "bank", SPEC)
    resumed: list[bool] = []

    def run(part: PeriodData, spec: Spec, *, checkpoint: Path, **options: Any) -> Any:
        resumed.append(checkpoint.exists())
        return calibrate_period(part, spec, checkpoint=checkpoint, **options)

    with pytest.raises(ConvergenceError, match="goes on where it stopped"):
        bank.add("Q1", responses, items, shards=2, calibrator=run, max_sweeps=100)
    assert bank.version == 0
    assert resumed == [False, False]
    bank.add("Q1", responses, items, shards=2, calibrator=run)
    assert resumed == [False, False, True, True], "with more sweeps, from where it was"
    assert bank.calibration("Q1").convergence.converged
    assert list((tmp_path / "bank" / "work").iterdir()) == []
