"""What was decided about items, and what contradicts itself, is on the page."""

from __future__ import annotations

import shutil

import polars as pl
import pytest
from reported_bank import PERIODS
from unpacked import read_page

from concal.bank.bank import Bank
from concal.combine.drift.alarms import Alarm
from concal.evaluate.attention import attention
from concal.report.data import gather
from concal.report.page import build_page


@pytest.fixture(scope="module")
def decided(reported, tmp_path_factory):
    bank = Bank(shutil.copytree(reported[0].path, tmp_path_factory.mktemp("decided") / "bank"))
    often = bank.items().filter(pl.col("n_periods") == 3)["item_id"].unique(maintain_order=True).to_list()
    often = [item for item in often if item.startswith("essay")]
    bank.exclude(often[0], PERIODS[1], reason="leaked <i>")
    bank.split(often[1], PERIODS[2], reason="reworded")
    return bank, often, gather(bank)


def test_decisions_are_shown_with_their_reasons(decided):
    _, often, data = decided
    page = build_page(data)
    assert "What was decided" in page
    assert "leaked &lt;i&gt;" in page
    assert f"{often[1]}@{PERIODS[2]}" in page
    content, _ = read_page(page)
    said = [text for flags in content["flags"].values() for text in flags]
    assert f"excluded in {PERIODS[1]}: leaked <i>" in said
    assert f"split from {often[1]}: reworded" in said
    assert data.changed.endswith(": reworded")


def test_an_excluded_period_is_not_on_the_items_page(decided):
    _, often, data = decided
    assert often[0] not in data.by_period[PERIODS[1]]["essay"].item_ids
    assert often[0] in data.by_period[PERIODS[0]]["essay"].item_ids
    assert f"{often[1]}@{PERIODS[2]}" in data.by_period[PERIODS[2]]["essay"].item_ids


def test_movers_are_marked(decided):
    content, _ = read_page(build_page(decided[2]))
    moved = decided[2].drift.filter("drifted")
    assert sum(len(periods) for periods in content["movers"].values()) == moved.height


def test_alarms_are_problems_and_resting_acts_doubts(decided):
    bank, often, data = decided
    bank.retract(PERIODS[2])
    notices = attention(
        {}, {}, data.consensus, None, data.drift, None, version=bank.version, acts=bank.acts(),
        alarms=[Alarm("outside", "consensus", "3 items lie outside")],
    )  # fmt: skip
    assert (notices[0].level, notices[0].text) == ("problem", "3 items lie outside")
    rests = [n.text for n in notices if "rests" in n.text]
    assert len(rests) == 1
    assert often[1] in rests[0]
    assert "concal split --undo" in rests[0]
