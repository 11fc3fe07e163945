"""Examinees left out of a period for another that is retracted or replaced: the bank says whom it misses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.bank.exchange.arviz import write_arviz
from concal.calibration.result import Calibration
from concal.data.check import check_period
from concal.errors import BankError

from .programme import SPEC, by_person_group, fake_calibrator, items_table, responses_table

BACK = [f"Q1-{i:03d}" for i in range(7)]


def responses(period: str, first: int, returning: list[str] | None = None) -> pl.DataFrame:
    """A period's responses, the first of its examinees under the ids of these."""
    frame = responses_table(period, first)
    ids = frame["person_id"].unique(maintain_order=True).to_list()
    return frame.with_columns(pl.col("person_id").replace(dict(zip(ids, returning or [], strict=False))))


def add(bank: Bank, period: str, frame: pl.DataFrame, **options: Any) -> Any:
    return bank.add(period, frame, items_table(), calibrator=fake_calibrator, **options)


def missed(warnings: Any) -> list[str]:
    return [text for text in warnings if "in no period of the bank" in text]


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """Seven examinees of Q1 are in Q2 too, and two of these in Q3."""
    bank = Bank.create(tmp_path / "bank", SPEC)
    add(bank, "Q1", responses("Q1", 0))
    add(bank, "Q2", responses("Q2", 2, BACK))
    add(bank, "Q3", responses("Q3", 4, BACK[:2]))
    return bank


def standing(bank: Bank) -> list[str]:
    return missed(bank.show()["warnings"])


def test_nobody_is_missed_while_the_earlier_period_is_there(bank: Bank) -> None:
    assert not standing(bank)
    assert not missed(bank.combine(method="analytic").warnings)


def test_a_retraction_says_whom_it_leaves_uncounted(bank: Bank) -> None:
    update = bank.retract("Q1")
    second, third = missed(update.warnings)
    assert second == (
        "7 examinees of period 'Q2' in no period of the bank: 'Q1-000', 'Q1-001', 'Q1-002', 'Q1-003', 'Q1-004' and 2 "
        "more; their responses were left out of 'Q2' because another period had them, which is gone or came back "
        "without them: add 'Q2' again from its file to count them (replace, --replace)"
    )
    assert third.startswith("2 examinees of period 'Q3' in no period of the bank: 'Q1-000', 'Q1-001';")
    assert standing(bank) == [second, third], "as long as it is true"
    assert missed(bank.consensus("joint", joint=False).warnings) == [second, third]


def test_it_holds_until_the_period_comes_again(bank: Bank) -> None:
    bank.retract("Q1")
    add(bank, "Q4", responses("Q4", 1))
    assert len(standing(bank)) == 2
    update = add(bank, "Q2", responses("Q2", 2, BACK), replace=True)
    assert not missed(update.warnings), "those of Q3 are in Q2 now"
    assert not standing(bank)
    assert set(BACK) <= set(bank.period_data("Q2").person_ids)


def test_a_replacement_without_them_says_so(bank: Bank) -> None:
    without = responses("Q1", 0).filter(~pl.col("person_id").is_in(BACK[:3]))
    (second, third) = missed(add(bank, "Q1", without, replace=True).warnings)
    assert second.startswith("3 examinees of period 'Q2'")
    assert third.startswith("2 examinees of period 'Q3'")
    add(bank, "Q1", responses("Q1", 0), replace=True)
    assert not standing(bank)


def test_the_way_does_not_matter(bank: Bank) -> None:
    """Retracted and added again, the bank is what it was."""
    before = bank.consensus()
    bank.retract("Q3")
    add(bank, "Q3", responses("Q3", 4, BACK[:2]))
    assert bank.consensus().warnings == before.warnings
    assert bank.items().equals(bank.at(3).items())


def test_only_who_is_looked_for_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concal.bank.building import uncounted

    bank = Bank.create(tmp_path / "bank", SPEC)
    add(bank, "Q1", responses("Q1", 0))
    monkeypatch.setattr(uncounted, "read_persons", lambda reader: pytest.fail("nobody was left out"))
    add(bank, "Q2", responses("Q2", 2))


# examinees who count twice, and decisions that count nobody out


def draws(period: str, first: int, people: list[str] | None = None) -> Calibration:
    """A period as another engine hands it over."""
    checked = check_period(responses(period, first, people), items_table(), SPEC, period=period)
    return fake_calibrator(checked.data, SPEC, period=period, seed=0)


def twice(warnings: Any) -> list[str]:
    return [text for text in warnings if "count twice" in text]


def test_imported_examinees_the_bank_has_are_said_as_long_as_the_period_stays(bank: Bank) -> None:
    people = [*BACK, "Q3-005"]
    update = bank.add_calibration(draws("Q4", 1, people), design_states=bank.design_states(), items=items_table())
    (said,) = twice(update.warnings)
    assert said.startswith(
        "8 of 30 examinees of these draws were in other periods when they came (7 in 'Q1', 1 in 'Q3'): 'Q1-000', "
        "'Q1-001', 'Q1-002', 'Q1-003', 'Q1-004' and 3 more; their responses count twice"
    )
    bank.combine(half_life=2.0)
    assert twice(bank.show()["warnings"]) == [f"Q4: {said}"]
    clean = bank.add_calibration(draws("Q4", 1), design_states=bank.design_states(), items=items_table(), replace=True)
    assert not twice(clean.warnings)
    assert not twice(bank.show()["warnings"])


def test_draws_of_a_period_the_bank_has_are_refused_under_another_name(bank: Bank, tmp_path: Path) -> None:
    file = write_arviz(bank.calibration("Q1"), tmp_path / "q1.nc")
    with pytest.raises(BankError, match=r"all 30 examinees of period 'Q9' are in period 'Q1': .*add them as 'Q1' with"):
        bank.add_draws("Q9", file, items=items_table(), accept_unconverged=True)
    assert bank.refresh().version == 3
    again = bank.add_draws("Q1", file, items=items_table(), accept_unconverged=True, replace=True)
    assert not [text for text in twice(again.warnings) if "'Q1'" in text]


def test_an_exclusion_without_effect_is_said_while_it_is_true(tmp_path: Path) -> None:
    second = pl.when(pl.col("person_id").str.slice(-1).cast(pl.Int32) % 2 == 1).then(pl.lit("b")).otherwise(pl.lit("a"))
    frame = responses("Q2", 2)
    bank = Bank.create(tmp_path / "bank", SPEC)
    add(bank, "Q1", responses("Q1", 0))
    bank.add("Q2", frame.with_columns(person_group=second), items_table(), calibrator=by_person_group)
    bank.exclude("v05", "Q2", person_group="b")
    wanted = ["1 exclusion of groups of examinees in 'Q2' without effect: 'v05 for b'"]

    def said(warnings: Any) -> list[str]:
        return [text.split(";")[0] for text in warnings if "without effect" in text]

    assert said(bank.show()["warnings"]) == []
    assert said(add(bank, "Q2", frame, replace=True).warnings) == wanted
    assert said(add(bank, "Q3", responses("Q3", 4)).warnings) == wanted
    assert said(bank.show()["warnings"]) == wanted
    assert said(bank.include("v05", "Q2", person_group="b").warnings) == []


def test_what_earlier_periods_warned_of_is_shown(bank: Bank) -> None:
    shown = bank.show()["warnings"]
    assert [text for text in shown if text.endswith(": a doubt")] == ["Q1: a doubt", "Q2: a doubt", "Q3: a doubt"]
    assert any(text.startswith("Q2: ") and text.split(": ", 1)[1] in bank.link("Q2").warnings for text in shown)
