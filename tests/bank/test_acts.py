"""Acts on single items: what they change, what they leave alone, how they are undone and when they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from concal.bank.acts import Acts
from concal.bank.bank import Bank
from concal.bank.building.periods import Periods
from concal.bank.store.manifest import Act
from concal.errors import BankError
from concal.spec import Spec

from .places import Place, copy_bank
from .programme import SPEC, fake_calibrator, items_table, responses_table
from .test_pure import add, changed, reads


def with_periods(path: Path, spec: Spec = SPEC) -> Bank:
    bank = Bank.create(path, spec)
    for k, period in enumerate(("Q1", "Q2", "Q3")):
        add(bank, period, k)
    return bank


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_periods(tmp_path_factory.mktemp("acts") / "bank").path


@pytest.fixture
def bank(built: Path, any_place: Place) -> Bank:
    copy_bank(built, any_place / "bank")
    return Bank(any_place / "bank")


def same_numbers(one: Any, other: Any) -> None:
    for left, right in ((one.items(), other.items()), (one.links(), other.links()), (one.drift(), other.drift())):
        assert_frame_equal(left, right, check_exact=True)
    assert one.snapshot.totals_key == other.snapshot.totals_key


def row(bank: Bank, item: str) -> dict[str, Any]:
    return bank.items([item]).row(0, named=True)


# exclude


def test_an_excluded_factor_does_not_count_and_is_no_anchor(bank: Bank) -> None:
    before = row(bank, "v05")
    done = bank.exclude("v05", "Q2", reason="leaked")
    assert (done.action, done.relinked) == ("exclude v05 in Q2", ("Q2",))
    after = row(bank, "v05")
    assert after["n_periods"] == before["n_periods"] - 1
    assert after["n_responses"] == before["n_responses"] - 30
    assert after["mean"] != before["mean"]
    anchors = bank.anchors("Q2").filter(item_id="v05")
    assert anchors["dropped_by"].to_list() == ["responses"]
    assert "v05" not in bank.answered_items()["Q2"]["reading"]
    assert bank.drift().filter(item_id="v05")["period"].sort().to_list() == ["Q1", "Q3"]
    data = bank.period_data("Q2").groups["vocabulary"]
    assert "v05" not in {data.item_ids[j] for j in data.item}
    history = bank.history().row(-1, named=True)
    assert (history["action"], history["reason"]) == ("exclude v05 in Q2", "leaked")
    assert bank.acts().row(0) == ("exclude", "v05", "Q2", None, None, "leaked", False)
    assert bank.show()["acts"] == ["exclude v05 in Q2"]


def test_nothing_else_is_linked_or_read_again(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    links = {name: entry.link for name, entry in bank.snapshot.periods.items()}
    read = reads(monkeypatch)
    bank.exclude("v05", "Q3")
    assert {name for name, entry in bank.snapshot.periods.items() if entry.link != links[name]} == {"Q3"}
    assert not [path for path in read if path.startswith("data/Q2") and "draws" in path]


def test_include_undoes_exclude(bank: Bank) -> None:
    start = bank.at(bank.version)
    bank.exclude("v05", "Q2")
    bank.exclude("e03", "Q1")  # of the reference: all links follow
    bank.include("v05", "Q2")
    done = bank.include("e03", "Q1")
    assert done.action == "include e03 in Q1"
    same_numbers(bank, start)
    assert bank.acts().height == 0


@pytest.mark.parametrize(
    ("item", "period", "said"),
    [
        ("v05", "Q9", "there is no period 'Q9'"),
        ("nobody", "Q1", "there is no item 'nobody' in any period"),
        ("v00", "Q2", "was not answered in period 'Q2'; it was in 'Q1'"),
        ("v00", "Q1", "no period would be left that says anything about 'v00'"),
    ],
)
def test_exclude_is_refused_with_the_reason(bank: Bank, item: str, period: str, said: str) -> None:
    with pytest.raises(BankError, match=said):
        bank.exclude(item, period)
    assert bank.refresh().version == 3


def test_twice_is_refused_and_so_is_undoing_what_was_not_done(bank: Bank) -> None:
    with pytest.raises(BankError, match="is not excluded in period 'Q2'; excluded are: none"):
        bank.include("v05", "Q2")
    bank.exclude("v05", "Q2")
    with pytest.raises(BankError, match="excluded in period 'Q2' already"):
        bank.exclude("v05", "Q2")


# split


def test_a_split_item_is_two_items(bank: Bank) -> None:
    before = row(bank, "v05")
    done = bank.split("v05", ["Q2"], onwards=False, reason="reworded")
    assert done.action == "split v05 in Q2 as v05@Q2"
    old, new = row(bank, "v05"), row(bank, "v05@Q2")
    assert (old["n_periods"], new["n_periods"]) == (2, 1)
    assert old["n_responses"] + new["n_responses"] == before["n_responses"]
    assert (new["group"], new["source"]) == ("vocabulary", "consensus")
    group = bank.consensus().groups["vocabulary"]
    X = dict(zip(group.item_ids, group.X.tolist(), strict=True))
    assert X["v05"] == X["v05@Q2"], "the new id inherits the features"
    assert not bank.anchors("Q2").filter(pl.col("item_id").is_in(["v05", "v05@Q2"])).height
    assert set(bank.period_draws("Q2", ["v05", "v05@Q2"])) == {"v05@Q2"}
    np.testing.assert_array_equal(
        bank.period_draws("Q2", ["v05@Q2"])["v05@Q2"], bank.at(3).period_draws("Q2", ["v05"])["v05"]
    )
    assert "v05@Q2" in bank.period_data("Q2").groups["vocabulary"].item_ids
    assert "v05@Q2" in bank.calibration("Q2").group_of()
    assert set(bank.parameters()["item_id"]) >= {"v05", "v05@Q2"}


def test_later_periods_follow_a_split_that_goes_on(bank: Bank) -> None:
    bank.split("v05", "Q2", new_id="v05b")
    assert bank.snapshot.acts[0].periods == ("Q2", "Q3")
    add(bank, "Q4", 3)
    assert row(bank, "v05")["n_periods"] == 1
    assert row(bank, "v05b")["n_periods"] == 3
    bank.join("v05b")
    assert row(bank, "v05")["n_periods"] == 4
    assert bank.items().filter(item_id="v05b").height == 0


def test_a_period_that_has_the_new_id_itself_is_taken_at_its_word(bank: Bank) -> None:
    bank.split("v05", "Q2", new_id="v05b")
    table = responses_table("Q4", 3)
    renamed = items_table().vstack(items_table().filter(item_id="v05").with_columns(item_id=pl.lit("v05b")))
    answers = table.vstack(table.filter(item_id="v05").with_columns(item_id=pl.lit("v05b")))
    bank.add("Q4", answers, renamed, calibrator=fake_calibrator)
    assert row(bank, "v05")["n_periods"] == 2
    assert row(bank, "v05b")["n_periods"] == 3


def test_join_undoes_split(bank: Bank) -> None:
    start = bank.at(bank.version)
    bank.split("v05", "Q2")
    bank.split("v05@Q2", "Q3")
    assert [row(bank, item)["n_periods"] for item in ("v05", "v05@Q2", "v05@Q2@Q3")] == [1, 1, 1]
    with pytest.raises(BankError, match="was split further into 'v05@Q2@Q3'; join that first"):
        bank.join("v05@Q2")
    bank.exclude("e04", "Q2")
    bank.join("v05@Q2@Q3")
    bank.join("v05@Q2")
    bank.include("e04", "Q2")
    same_numbers(bank, start)


def test_an_exclusion_holds_whatever_is_split(bank: Bank) -> None:
    bank.split("v05", "Q2")
    bank.exclude("v05@Q2", "Q2")
    assert row(bank, "v05@Q2")["n_periods"] == 1
    bank.join("v05@Q2")
    assert row(bank, "v05")["n_periods"] == 2
    bank.include("v05", "Q2")
    assert row(bank, "v05")["n_periods"] == 3


def test_a_split_starts_where_it_was_asked_to_though_the_item_is_excluded_there(bank: Bank) -> None:
    bank.exclude("v05", "Q2")
    bank.split("v05", "Q2")
    assert [row(bank, item)["n_periods"] for item in ("v05", "v05@Q2")] == [1, 1]
    bank.include("v05@Q2", "Q2")
    assert [row(bank, item)["n_periods"] for item in ("v05", "v05@Q2")] == [1, 2]


@pytest.mark.parametrize("onwards", [True, False])
def test_a_split_of_nothing_but_an_excluded_period_is_refused(bank: Bank, onwards: bool) -> None:
    bank.exclude("v05", "Q3")
    with pytest.raises(BankError, match="no period would be left that says anything about 'v05@Q3'"):
        bank.split("v05", "Q3", onwards=onwards)


@pytest.mark.parametrize(
    ("item", "periods", "options", "said"),
    [
        ("v05", ["Q9"], {}, "there is no period 'Q9'"),
        ("nobody", ["Q2"], {}, "there is no item 'nobody'"),
        ("v00", ["Q2"], {}, "was not answered in period 'Q2'"),
        ("v05", ["Q1"], {}, "no period would be left that says anything about 'v05'"),
        ("v05", ["Q1", "Q2", "Q3"], {}, "no period would be left"),
        ("v05", ["Q2"], {"new_id": "v06"}, "the id 'v06' is taken"),
        ("v05", ["Q2"], {"new_id": " "}, "cannot be an item's id"),
        ("v05", [], {}, "needs at least one period"),
    ],
)
def test_split_is_refused_with_the_reason(
    bank: Bank, item: str, periods: list[str], options: dict[str, str], said: str
) -> None:
    with pytest.raises(BankError, match=said):
        bank.split(item, periods, **options)
    assert bank.refresh().version == 3
    with pytest.raises(BankError, match="no item was split off as 'v05@Q2'; there are: none"):
        bank.join("v05@Q2")


# periods that go and come


def test_an_act_rests_while_its_period_is_gone(bank: Bank) -> None:
    bank.exclude("v05", "Q3")
    bank.split("v06", "Q3")
    held = bank.items()
    bank.retract("Q3")
    assert bank.acts()["idle"].to_list() == [True, True]
    assert bank.items().filter(item_id="v06@Q3").height == 0
    add(bank, "Q3", 2)
    assert bank.acts()["idle"].to_list() == [False, False]
    assert_frame_equal(bank.items(), held)


@pytest.mark.parametrize("has_the_item", [True, False])
def test_a_split_that_goes_on_is_the_same_before_and_after_a_period_came(any_place: Place, has_the_item: bool) -> None:
    """Whether the item was split before the next period came or after it, and whatever is retracted then."""
    banks = [Bank.create(any_place / name, SPEC) for name in ("before", "after")]
    for bank in banks:
        for k, period in enumerate(("Q1", "Q2")):
            add(bank, period, k)
        if bank is banks[0]:
            bank.split("v05", "Q2")
        add(bank, "Q3", 2 if has_the_item else 6)
        if bank is banks[1]:
            bank.split("v05", "Q2")
        retracted = bank.retract("Q2")
        rests = [text for text in retracted.warnings if "split v05 from Q2 on as v05@Q2: rests" in text]
        assert len(rests) == (not has_the_item)
        assert row(bank, "v05")["n_periods"] == 1
        assert bank.scoring(joint=False).split.now == ({"v05": "v05@Q2"} if has_the_item else {})
        add(bank, "Q4", 3)
        assert row(bank, "v05@Q2")["n_periods"] == 1 + has_the_item
    same_numbers(*banks)
    assert banks[0].snapshot.acts == banks[1].snapshot.acts


def test_a_split_that_rests_holds_for_the_next_period(bank: Bank, built: Path, any_place: Place) -> None:
    """Added before its only period is retracted or after it: the same bank."""
    other = Bank(copy_bank(built, any_place / "other"))
    for one in (bank, other):
        one.split("v05", "Q3")
    add(bank, "Q4", 3)
    bank.retract("Q3")
    assert any("split v05 from Q3 on as v05@Q3: rests" in text for text in other.retract("Q3").warnings)
    assert other.scoring(joint=False).split.now == {}
    add(other, "Q4", 3)
    assert row(other, "v05@Q3")["n_periods"] == 1
    same_numbers(bank, other)


def test_the_last_id_an_item_had_that_the_bank_has_is_what_its_ids_mean_now() -> None:
    acts = Acts(
        (
            Act(kind="split", item="a", periods=("P2",), onwards=True, new_id="b"),
            Act(kind="split", item="b", periods=("P3",), onwards=True, new_id="c"),
        ),
        ("P1", "P2"),
    )
    assert acts.meanings(None, {"a", "b", "c"}) == {"a": "c", "b": "c"}
    assert acts.meanings(None, {"a", "b"}) == {"a": "b"}
    assert acts.meanings(None, {"a", "c"}) == {"a": "c", "b": "c"}
    assert acts.meanings("P1", {"a", "b", "c"}) == {}


def test_an_exclusion_that_rests_is_said_by_the_update(bank: Bank) -> None:
    bank.exclude("v05", "Q3")
    assert any("exclude v05 in Q3: rests" in text for text in bank.retract("Q3").warnings)
    assert not any("rests" in text for text in bank.retract("Q2").warnings)


def test_a_replaced_period_keeps_its_acts(bank: Bank) -> None:
    bank.exclude("v05", "Q2")
    bank.add("Q2", responses_table("Q2", 1, seed=5), items_table(), replace=True, calibrator=fake_calibrator)
    assert row(bank, "v05")["n_periods"] == 2


def test_two_writers(bank: Bank) -> None:
    """An act made on a head that another writer has moved on from is judged on the new one."""
    second = Bank(bank.path)
    second.exclude("v01", "Q2")
    with pytest.raises(BankError, match="no period would be left"):
        bank.exclude("v01", "Q1")


@pytest.mark.parametrize("method", ["joint", "paper"])
def test_every_method_follows(any_place: Place, method: str) -> None:
    bank = with_periods(any_place / "bank", changed(SPEC, "consensus", method=method, draws=50))
    before = bank.items()
    bank.exclude("v05", "Q2")
    bank.split("e05", "Q3")
    assert row(bank, "v05")["n_periods"] == 2
    assert row(bank, "e05@Q3")["n_periods"] == 1
    bank.join("e05@Q3")
    bank.include("v05", "Q2")
    assert_frame_equal(bank.items(), before)


def test_what_acts_mean_for_a_period() -> None:
    acts = Acts(
        (
            Act(kind="split", item="a", periods=("P2",), onwards=True, new_id="b"),
            Act(kind="split", item="b", periods=("P4",), new_id="c"),
            Act(kind="exclude", item="a", periods=("P4",)),
        ),
        ("P1", "P2", "P3", "P4"),
    )
    assert acts.adjustment("P1", ["a", "x"]).renamed == {}
    assert acts.adjustment("P3", ["a", "x"]).renamed == {"a": "b"}
    assert acts.adjustment("P4", ["a", "x"]).renamed == {"a": "c"}
    assert acts.adjustment("P4", ["a", "x"]).excluded == {"a"}
    assert acts.adjustment("P4", ["x"]) == acts.adjustment("P1", ["x"])
    assert acts.adjustment("P3", ["a", "b"]).renamed == {}
    assert not acts.concern("P1")
    assert acts.adjustment("P3", ["a"]).stored("a") is None


def test_periods_without_acts_are_as_stored(bank: Bank) -> None:
    bank.split("v05", "Q2")
    stored = Periods(bank._store, bank.snapshot.periods)
    assert "v05" in stored["Q2"].calibration().group_of()
    assert "v05@Q2" in bank.factors("Q2").groups["vocabulary"].item_ids
