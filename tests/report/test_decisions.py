"""What was decided about items, and what contradicts itself, is on the page."""

from __future__ import annotations

import shutil

import polars as pl
import pytest
from reported_bank import PERIODS
from unpacked import read_page

from concal.bank.bank import Bank
from concal.consensus.drift.alarms import Alarm
from concal.evaluate.attention import attention
from concal.report.page import build_page
from concal.report.panels.seen import seen_items
from concal.report.view import View


@pytest.fixture(scope="module")
def decided(reported, tmp_path_factory):
    bank = Bank(shutil.copytree(reported[0].path, tmp_path_factory.mktemp("decided") / "bank"))
    often = bank.items().filter(pl.col("n_periods") == 3)["item_id"].unique(maintain_order=True).to_list()
    often = [item for item in often if item.startswith("essay")]
    bank.exclude(often[0], PERIODS[1], reason="leaked <i>")
    bank.split(often[1], PERIODS[2], reason="reworded")
    return bank, often, View(bank)


def test_decisions_are_shown_with_their_reasons(decided):
    _, often, view = decided
    page = build_page(view)
    assert "What was decided" in page
    assert "leaked &lt;i&gt;" in page
    assert f"{often[1]}@{PERIODS[2]}" in page
    content, _ = read_page(page)
    said = [text for flags in content["sections"]["items"]["flags"].values() for text in flags]
    assert f"excluded in {PERIODS[1]}: leaked <i>" in said
    assert f"split from {often[1]}: reworded" in said
    assert ": reworded." in page


def test_an_excluded_period_is_not_on_the_items_page(decided):
    _, often, view = decided
    seen = {own.period: [own.factors.item_ids[j] for j in own.rows] for own in seen_items(view, "essay")}
    assert often[0] not in seen[PERIODS[1]]
    assert often[0] in seen[PERIODS[0]]
    assert f"{often[1]}@{PERIODS[2]}" in seen[PERIODS[2]]


def test_what_decisions_did_to_others_is_shown(decided):
    from concal.report.sections.drift import effects

    bank, often, view = decided
    found = list(effects(view))
    assert [row["decision"].split()[0] for row in found] == ["exclude", "split"]
    before, after = (bank.at(found[0]["version"] - k) for k in (1, 0))
    moved = after.links().join(before.links(), on=["period", "dimension"], suffix="_before")
    largest = moved.select((pl.col("B") - pl.col("B_before")).abs().max()).item()
    assert abs(found[0]["B by"]) == pytest.approx(largest, abs=1e-12)
    assert found[0]["of"] not in (often[0], None)
    assert "What each decision did" in build_page(view)


def test_movers_are_marked(decided):
    content, _ = read_page(build_page(decided[2]))
    moved = decided[2].drift.items.filter("drifted")
    assert sum(len(periods) for periods in content["sections"]["items"]["movers"].values()) == moved.height


def test_alarms_are_problems_and_resting_acts_doubts(decided):
    bank, often, view = decided
    bank.retract(PERIODS[2])
    notices = attention(
        {}, {}, view.consensus, None, view.drift.items, None, version=bank.version, acts=bank.acts(),
        fit=bank.fit(), pairs=bank.fit_pairs(), dif=bank.dif(),
        alarms=[Alarm("outside", "consensus", "3 items lie outside")],
    )  # fmt: skip
    assert (notices[0].level, notices[0].text) == ("problem", "3 items lie outside")
    rests = [n.text for n in notices if "rests" in n.text]
    assert len(rests) == 1
    assert often[1] in rests[0]
    assert "concal split --undo" in rests[0]
