"""Items with 2, 3 and 5 categories in one group by every way into a bank: shards, priors from the bank, draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.bank.exchange.draws import calibration_from_draws
from concal.errors import DataError
from concal.simulate import simulate_programme
from concal.spec import Spec

OPTIONS = {"max_sweeps": 2000, "min_ess": 100, "max_rhat": 1.1, "max_item_rhat": 1.4, "item_share": 0.8, "draws": 200}
GROUP = {"model": "gpcm", "dimension": "t", "features": "~ length"}
PROGRAMME = {
    "bank": {"dimensions": ["t"]},
    "groups": {"essay": GROUP},
    "linking": {"min_anchors": 5},
    "consensus": {"method": "analytic"},
}
SPEC = Spec.parse({**PROGRAMME, "calibration": OPTIONS})
TOLD = Spec.parse({**PROGRAMME, "calibration": {**OPTIONS, "prior": "bank"}})
STRATA = [f"essay ({k} categories)" for k in (2, 3, 5)]


def simulated(seed: int) -> Any:
    size = {"periods": 2, "items": 24, "examinees": 420, "responses_per_examinee": 16, "turnover": 0.1}
    return simulate_programme(SPEC, seed=seed, exposure_spread=0.3, **size)


def calibrated(programme: Any, path: Path) -> Bank:
    """Both periods as they come."""
    made = Bank.create(path, SPEC)
    for period, frame in programme.responses.items():
        made.add(period, frame, programme.items)
    return made


@pytest.fixture(scope="module")
def programme() -> Any:
    return simulated(5)


@pytest.fixture(scope="module")
def bank(programme: Any, tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return calibrated(programme, tmp_path_factory.mktemp("ways") / "bank")


def apart(one: Bank, other: Bank, method: str) -> tuple[float, float]:
    """Root mean square difference of items' means in SDs, and mean log ratio of SDs, over all strata."""
    off, ratio = [], []
    theirs = other.consensus(method).groups
    for name, group in one.consensus(method).groups.items():
        assert theirs[name].item_ids == group.item_ids
        off.append(((theirs[name].mean - group.mean) / group.sd).ravel())
        ratio.append(np.log(theirs[name].sd / group.sd).ravel())
    return float(np.sqrt(np.mean(np.concatenate(off) ** 2))), float(np.concatenate(ratio).mean())


def test_shards(bank: Bank, programme: Any, tmp_path: Path) -> None:
    split = Bank.create(tmp_path / "bank", SPEC)
    split.add("2026Q1", programme.responses["2026Q1"], programme.items, shards=2)
    whole, together = bank.calibration("2026Q1"), split.calibration("2026Q1")
    assert list(together.groups) == list(whole.groups) == STRATA
    first = together.groups[STRATA[0]]
    for name in STRATA:
        one, two = whole.groups[name], together.groups[name]
        off = (two.flat("xi").mean(axis=0) - one.flat("xi").mean(axis=0)) / one.flat("xi").std(axis=0)
        assert np.sqrt((off**2).mean()) < 0.35
        assert abs(np.log(two.flat("xi").std(axis=0) / one.flat("xi").std(axis=0)).mean()) < 0.1
        assert two.beta_mean is None  # what strata share has no conditional mean of its own
        np.testing.assert_allclose(two.beta[..., :2], first.beta[..., :2], atol=1e-9)
        np.testing.assert_allclose(two.sigma[..., :2, :2], first.sigma[..., :2, :2], atol=1e-9)
    split.add("2026Q2", programme.responses["2026Q2"], programme.items)
    for method in ("joint", "analytic"):
        off, ratio = apart(bank, split, method)
        assert off < 0.4
        assert abs(ratio) < 0.1


def test_priors_from_the_bank(bank: Bank, programme: Any, tmp_path: Path) -> None:
    told = Bank.create(tmp_path / "bank", TOLD)
    for period, frame in programme.responses.items():
        told.add(period, frame, programme.items)
    second = told.calibration("2026Q2")
    assert all(g.guide_mean is not None for g in second.groups.values())
    for method in ("joint", "analytic"):
        off, ratio = apart(bank, told, method)
        assert off < 0.4
        assert abs(ratio) < 0.1


@pytest.mark.slow
def test_a_number_of_categories_that_is_new_has_its_own_population(programme: Any, tmp_path: Path) -> None:
    told = Bank.create(tmp_path / "bank", TOLD)
    few = programme.items.filter(pl.col("categories") < 5)
    first = programme.responses["2026Q1"].filter(pl.col("item_id").is_in(few["item_id"].implode()))
    told.add("2026Q1", first, few)
    told.add("2026Q2", programme.responses["2026Q2"], programme.items)
    second = told.calibration("2026Q2")
    assert [g.guide_mean is None for g in second.groups.values()] == [False, False, True]
    new = told.consensus("joint").groups[STRATA[2]]
    truth = programme.truth.items.filter(pl.col("period") == "2026Q2").pivot(
        on="parameter", index="item_id", values="value"
    )
    truth = pl.DataFrame({"item_id": list(new.item_ids)}).join(truth, on="item_id", how="left")
    off = (new.mean - truth.select(new.model.parameters).to_numpy()) / new.sd
    assert np.abs(off[:, 2:]).max() < 5.0


def imported(bank: Bank, programme: Any, folder: Path) -> Bank:
    """A bank made of the draws another one wrote to files."""
    other = Bank.create(folder / "imported", SPEC)
    for period in programme.responses:
        bank.export(folder / f"{period}.nc", format="arviz", period=period)
        other.add_draws(period, folder / f"{period}.nc", items=programme.items, accept_unconverged=True)
        for name, group in bank.calibration(period).groups.items():
            np.testing.assert_array_equal(other.calibration(period).groups[name].xi, group.xi)
    return other


def test_draws_of_a_file(bank: Bank, programme: Any, tmp_path: Path) -> None:
    other = imported(bank, programme, tmp_path)
    for method in ("joint", "analytic"):
        off, ratio = apart(bank, other, method)
        assert off < 0.5  # Gaussians of draws are noisier than what responses say
        assert abs(ratio) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_draws_of_a_file_without_a_spread(seed: int, tmp_path: Path) -> None:
    """Some draws of a step's SD are a hundred times smaller than others: they must not decide about items."""
    programme = simulated(seed)
    bank = calibrated(programme, tmp_path / "bank")
    off, ratio = apart(bank, imported(bank, programme, tmp_path), "joint")
    assert off < 0.5
    assert abs(ratio) < 0.1


def test_draws_that_do_not_say_their_number_of_categories_are_refused() -> None:
    xi = np.zeros((4, 50, 3, 3))
    with pytest.raises(DataError, match=r"'essay' do not say how many categories.*'xi_essay \(2 categories\)'"):
        calibration_from_draws("P", {"xi_essay": xi}, SPEC, item_ids={"essay": ["a", "b", "c"]})
