"""Periods whose items lack a column of the formula, in a bank: what it goes by, what it says, where items are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.bank.building.coding import newest_coding
from concal.errors import DataError
from concal.simulate import simulate_programme
from concal.spec import Spec

from .programme import SPEC, fake_calibrator, items_table, responses_table

WHOLE, LACKING = {"formula": "~ length", "lacking": []}, {"formula": "~ length", "lacking": ["length"]}


class Coded(NamedTuple):
    """A period: coding and response model of one group."""

    state: Any
    model: str

    def coding(self) -> Any:
        return {"g": self.state}

    def strata(self) -> Any:
        return {"g": {"g": self.model}}


@pytest.mark.parametrize(
    ("periods", "in_force"),
    [
        ([(WHOLE, "gpcm4"), (LACKING, "gpcm4")], WHOLE),
        ([(WHOLE, "gpcm4"), (LACKING, "gpcm3")], LACKING),
        ([(WHOLE, "2pl"), (None, "2pl"), (LACKING, "2pl")], None),
        ([(LACKING, "2pl")], LACKING),
    ],
    ids=["the older is whole", "but of another response model", "draws without a coding lack nothing", "no other"],
)
def test_the_coding_in_force_is_that_of_the_population(periods: Any, in_force: Any) -> None:
    """The same rule as `form_in_force`: features would otherwise be coded for another population's coefficients."""
    assert newest_coding({f"Q{k}": Coded(*period) for k, period in enumerate(periods)}) == {"g": in_force}  # type: ignore[arg-type]


EMPTY = pl.lit(None, dtype=pl.Float64)


def add(bank: Bank, period: str, first: int, items: pl.DataFrame, **options: Any) -> Any:
    return bank.add(period, responses_table(period, first, 10), items, calibrator=fake_calibrator, **options)


def made(path: Path, *known: bool, method: str = "analytic") -> Bank:
    """Periods two items apart, `known` says of each whether its item table has the feature."""
    content = SPEC.model_dump()
    bank = Bank.create(path, Spec.parse({**content, "consensus": {"method": method}}))
    for k, has in enumerate(known):
        add(bank, f"Q{k + 1}", 2 * k, items_table() if has else items_table().with_columns(length=EMPTY))
    return bank


@pytest.mark.parametrize("known", [(True, False), (False, True), (True, False, True), (True, True, False)])
def test_the_newest_formula_that_a_period_had_whole_is_in_force(tmp_path: Path, known: tuple[bool, ...]) -> None:
    bank = made(tmp_path / "bank", *known)
    group = bank.consensus().groups["vocabulary"]
    assert group.features == ("1", "length")
    assert bank.design_states()["vocabulary"]["formula"] == "~ length"
    for k, has in enumerate(known):
        own = bank.calibration(f"Q{k + 1}").groups["vocabulary"]
        assert own.features == (("1", "length") if has else ("1",))
        assert own.lacking == (() if has else ("length",))
    asked = pl.DataFrame({"item_id": ["new"], "group": ["vocabulary"], "length": [2.0]})
    assert bank.predict(asked)["mean"].is_finite().all()
    with pytest.raises(DataError, match="length"):
        bank.predict(asked.drop("length"))


def test_other_items_are_where_they_were(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "bank", SPEC)
    add(bank, "Q1", 0, items_table().filter(~pl.col("item_id").is_in(["v10", "v11"])))
    before = bank.consensus().groups["vocabulary"]
    update = add(bank, "Q2", 2, items_table().with_columns(length=EMPTY))
    assert any("'length' is empty for all 10 items of this period" in w for w in update.warnings)
    assert any("no period has every feature of the formula" in w and "2 items" in w for w in update.warnings)
    group = bank.consensus().groups["vocabulary"]
    np.testing.assert_array_equal(group.beta, before.beta)
    np.testing.assert_array_equal(group.sigma, before.sigma)
    for item in ("v00", "v01", "v14", "v15"):  # only in the first period; answered by nobody
        old, new = before.item_ids.index(item), group.item_ids.index(item)
        np.testing.assert_allclose(group.mean[new], before.mean[old], rtol=1e-12)
        np.testing.assert_allclose(group.covariance[new], before.covariance[old], rtol=1e-9)
    assert np.isnan(group.X[[group.item_ids.index(i) for i in ("v10", "v11")]]).all()


@pytest.mark.parametrize("method", ["analytic", "paper"])
def test_a_bank_is_a_function_of_its_periods(tmp_path: Path, method: str) -> None:
    bank = made(tmp_path / "bank", True, False, True, method=method)
    bank.retract("Q3")
    assert bank.items().equals(made(tmp_path / "other", True, False, method=method).items())
    bank.retract("Q1")
    assert bank.consensus().groups["vocabulary"].features == ("1",), "nobody knows the feature any more"
    assert set(bank.items()["source"]) <= {"consensus", "fallback", "predicted"}


def test_filling_in_brings_the_feature_back(tmp_path: Path) -> None:
    bank = made(tmp_path / "bank", True, False)
    add(bank, "Q2", 2, items_table(), replace=True)
    whole = made(tmp_path / "whole", True, True)
    assert bank.items().equals(whole.items())


def test_what_the_table_of_another_period_says_of_an_item_counts(tmp_path: Path) -> None:
    """Items that only a period without the feature has, described by the next period's table."""
    bank = made(tmp_path / "bank", False, True)
    group = bank.consensus().groups["vocabulary"]
    length = dict(zip(*items_table()["item_id", "length"], strict=True))
    for item in ("v00", "v01"):
        assert group.X[group.item_ids.index(item)].tolist() == [1.0, length[item]]
    assert not any("no period has every feature" in w for w in bank.show()["warnings"])
    poor = Bank.create(tmp_path / "poor", SPEC)
    add(poor, "Q1", 0, items_table().with_columns(length=EMPTY))
    add(poor, "Q2", 2, items_table().filter(~pl.col("item_id").is_in(["v00", "v01"])))
    assert any("no period has every feature" in w and "'v00', 'v01'" in w for w in poor.show()["warnings"])


def test_a_table_without_the_column(tmp_path: Path) -> None:
    bank = made(tmp_path / "bank", True)
    add(bank, "Q2", 2, items_table().drop("length"))
    assert bank.items().equals(made(tmp_path / "empty", True, False).items())


def test_numbers_of_categories_that_only_a_poor_period_has(tmp_path: Path) -> None:
    """Strata of one group whose forms in force differ follow populations of their own."""
    groups = {"essay": {"model": "gpcm", "dimension": "r", "features": "~ length"}}
    options = {"linking": {"min_anchors": 3}, "consensus": {"method": "analytic"}}
    spec = Spec.parse({"bank": {"dimensions": ["r"]}, "groups": groups, **options})
    ids = [f"e{k:02d}" for k in range(16)]
    table = pl.DataFrame({"item_id": ids, "group": "essay", "categories": [3] * 8 + [4] * 8, "length": range(16)})
    answers = responses_table("Q1", 0, 16).filter(pl.col("item_id").is_in(ids), pl.col("score") < 3)
    bank = Bank.create(tmp_path / "bank", spec)
    bank.add("Q1", answers.filter(pl.col("item_id") < "e08"), table, calibrator=fake_calibrator)
    other = answers.with_columns(person_id="b" + pl.col("person_id"))
    bank.add("Q2", other, table.with_columns(length=EMPTY), calibrator=fake_calibrator)
    found = bank.consensus("joint").groups
    assert {name: group.features for name, group in found.items()} == {
        "essay (3 categories)": ("1", "length"),
        "essay (4 categories)": ("1",),
    }
    assert all(np.isfinite(group.mean).all() for group in found.values())


OPTIONS = {"max_sweeps": 2000, "min_ess": 100, "max_rhat": 1.1, "max_item_rhat": 1.4, "item_share": 0.8, "draws": 300}
PROGRAMME = Spec.parse(
    {
        "bank": {"dimensions": ["t"]},
        "groups": {"g": {"model": "2pl", "dimension": "t", "features": "~ length"}},
        "linking": {"min_anchors": 5},
        "consensus": {"method": "analytic"},
        "calibration": OPTIONS,
    }
)


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bank]:
    """One programme with the feature known in both periods, in the first alone, and in the second alone."""
    size = {"periods": 2, "items": 40, "examinees": 400, "responses_per_examinee": 16, "turnover": 0.3}
    programme = simulate_programme(PROGRAMME, seed=3, exposure_spread=0.3, **size)
    empty = programme.items.with_columns(length=EMPTY)
    folder, found = tmp_path_factory.mktemp("lacking"), {}
    for name, tables in {
        "both": (programme.items, programme.items),
        "first": (programme.items, empty),
        "second": (empty, programme.items),
    }.items():
        found[name] = Bank.create(folder / name, PROGRAMME)
        for (period, frame), table in zip(programme.responses.items(), tables, strict=True):
            found[name].add(period, frame, table)
    return found


@pytest.mark.parametrize("method", [pytest.param("joint", marks=pytest.mark.slow), "analytic"])
@pytest.mark.parametrize("name", ["first", "second"])
def test_items_are_where_they_are_with_the_feature(banks: dict[str, Bank], name: str, method: str) -> None:
    known, found = (banks[which].consensus(method).groups["g"] for which in ("both", name))
    rows = [found.item_ids.index(item) for item in known.item_ids]
    seen = known.n_periods > 0
    off = ((found.mean[rows] - known.mean) / known.sd)[seen]
    assert np.sqrt((off**2).mean()) < 0.25
    assert (found.sd[rows] / known.sd)[seen].mean() == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(np.diag(found.sigma) / np.diag(known.sigma), 1.0, atol=0.35)


def test_the_engine_finds_what_it_finds_without_the_terms(banks: dict[str, Bank], tmp_path: Path) -> None:
    """The coefficients are not in the period, whose items are those of the formula without them, bit for bit."""
    bare = PROGRAMME.model_copy(update={"groups": {"g": PROGRAMME.groups["g"].model_copy(update={"features": "~ 1"})}})
    poor = banks["second"]
    first = poor.period_names[0]
    plain = Bank.create(tmp_path / "plain", bare)
    data = poor.period_data(first)
    g = data.groups["g"]
    responses = pl.DataFrame(
        {"person_id": data.person_ids.gather(g.person), "item_id": np.array(g.item_ids)[g.item], "score": g.score}
    )
    plain.add(first, responses, pl.DataFrame({"item_id": list(g.item_ids), "group": "g"}))
    one, other = (bank.calibration(first).groups["g"] for bank in (poor, plain))
    np.testing.assert_array_equal(one.xi, other.xi)
    np.testing.assert_array_equal(one.beta, other.beta)


@pytest.fixture(scope="module")
def one_slope(tmp_path_factory: pytest.TempPathFactory) -> list[Bank]:
    """Equal slopes, items described by their own periods' tables alone: the feature in both, and in the first."""
    content = PROGRAMME.model_dump(mode="json", exclude_none=True)
    content["groups"]["g"]["model"] = "1pl"
    content["linking"]["purify"] = "paper"
    spec = Spec.parse(content)
    size = {"periods": 2, "items": 40, "examinees": 400, "responses_per_examinee": 16, "turnover": 0.3}
    programme = simulate_programme(spec, seed=4, exposure_spread=0.3, **size)
    empty = programme.items.with_columns(length=EMPTY)
    folder, banks = tmp_path_factory.mktemp("one_slope"), []
    for name, tables in (("both", (programme.items, programme.items)), ("first", (programme.items, empty))):
        banks.append(Bank.create(folder / name, spec))
        for (period, frame), table in zip(programme.responses.items(), tables, strict=True):
            banks[-1].add(period, frame, table.join(frame, on="item_id", how="semi"))
    return banks


@pytest.mark.parametrize(("method", "wider"), [("joint", 0.1), ("analytic", 0.1), ("paper", 0.4)])
def test_groups_with_one_slope_have_it_whatever_form_describes_their_items(
    one_slope: list[Bank], method: str, wider: float
) -> None:
    """Items with the feature and without it have populations of their own, and one slope that both periods tell.

    In the paper's method periods of one form alone tell what belongs to the population.
    """
    known, found = (bank.consensus(method).groups["g"] for bank in one_slope)
    assert found.mean[:, 1] == pytest.approx(found.mean[0, 1], abs=1e-6)
    assert np.isnan(found.X[:, 0]).any()
    rows = [found.item_ids.index(item) for item in known.item_ids]
    seen = known.n_periods > 0
    off = ((found.mean[rows] - known.mean) / known.sd)[seen]
    assert np.sqrt((off**2).mean(axis=0)).max() < 0.3
    ratio = (found.sd[rows] / known.sd)[seen].mean(axis=0)
    assert (np.abs(ratio - 1.0) < [0.1, wider]).all()
