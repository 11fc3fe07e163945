"""Charts are valid and show the numbers they say they show."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from concal import plot
from concal.errors import BankError, DataError
from concal.plot.tables import THETA, curve_table

REPORTED = Path(__file__).parents[1] / "report" / "reported_bank.py"


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    from concal.evaluate.pooled import evaluate_bank

    spec = importlib.util.spec_from_file_location("plotted_bank", REPORTED)
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    found = made.make_bank(tmp_path_factory.mktemp("plot") / "bank", n=24)
    evaluate_bank(found, methods=("analytic",), calibrator=made.made_up)
    return found


def rows(chart) -> int:
    return sum(len(part) for part in chart.to_dict()["datasets"].values())


def test_every_chart_is_valid(bank):
    ids = bank.items()["item_id"].unique(maintain_order=True).to_list()
    assert rows(plot.curves(bank, [ids[0], ids[30]])) > 2 * THETA.size
    assert rows(plot.curves(bank, ids[0], periods=False)) == THETA.size
    assert rows(plot.information(bank)) == bank.information().curves.height
    assert rows(plot.information(bank, ids[:3])) == bank.information(ids[:3]).curves.height
    assert rows(plot.links(bank)) == 2 * bank.links().height
    assert rows(plot.drift(bank, everything=True)) == bank.drift().height
    assert rows(plot.drift(bank)) == bank.drift()["drifted"].sum()
    assert rows(plot.agreement(bank.evaluation())) == bank.evaluation().pairs["kept"].sum()
    assert rows(plot.abilities(bank)) > 0


def test_curves_are_the_consensus_and_the_linked_periods(bank):
    item, a, d = bank.parameters().filter(pl.col("model") == "2pl").select("item_id", "a", "d").row(0)
    table = curve_table(bank, [item])
    consensus = table.filter(pl.col("period") == "consensus")
    np.testing.assert_allclose(consensus["expected"], 1 / (1 + np.exp(-a * (THETA - d))), rtol=1e-6)
    assert (consensus["low"] <= consensus["high"]).all()
    period = bank.period_names[1]
    own = bank.period_draws(period, [item])[item].mean(axis=(0, 1))
    link = bank.links().filter((pl.col("period") == period) & (pl.col("dimension") == "reading")).row(0, named=True)
    moved_d, moved_a = link["A"] * own[0] + link["B"], np.exp(own[1]) / link["A"]
    shown = table.filter(pl.col("period") == period)["expected"]
    np.testing.assert_allclose(shown, 1 / (1 + np.exp(-moved_a * (THETA - moved_d))), rtol=1e-6)


def test_abilities_are_moved_by_the_links(bank):
    table = bank.abilities()
    assert set(table["period"]) == set(bank.period_names)
    period, dimension = bank.period_names[2], "writing"
    link = bank.links().filter((pl.col("period") == period) & (pl.col("dimension") == dimension)).row(0, named=True)
    own = bank.calibration(period).abilities
    shown = bank.abilities(period).filter(pl.col("dimension") == dimension)
    np.testing.assert_allclose(shown["theta"], link["A"] * own.mean[:, 1] + link["B"])
    in_force = bank.consensus(joint=False).links.filter(period=period, dimension=dimension).row(0, named=True)
    np.testing.assert_allclose(shown["sd_measurement"], np.hypot(in_force["A_mean"], in_force["A_sd"]) * own.sd[:, 1])
    np.testing.assert_allclose(shown["sd"] ** 2, shown["sd_measurement"] ** 2 + shown["sd_link"] ** 2)
    assert (shown["sd_link"] > 0).all()
    first = bank.abilities(bank.period_names[0])
    np.testing.assert_allclose(first["sd_link"], 0, atol=1e-12)


def test_unknown_items_and_a_missing_package(bank, monkeypatch):
    with pytest.raises(BankError, match="1 item not in the bank: 'nope'"):
        plot.curves(bank, "nope")
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(DataError, match=r"pip install 'concal\[plot\]'"):
        plot.links(bank)


def test_many_points_are_thinned(bank, monkeypatch):
    monkeypatch.setattr("concal.plot.charts.MOST_POINTS", 10)
    chart = plot.drift(bank, everything=True)
    assert rows(chart) == 10
    assert "10 of" in chart.to_dict()["title"]


def test_results_show_themselves(bank):
    link, calibration = bank.link("2026Q2"), bank.calibration("2026Q1")
    for result in (bank, bank.evaluation(), bank.consensus(), link, calibration, bank.drift_result()):
        text, html = repr(result), result._repr_html_()
        assert text.startswith(type(result).__name__)
        assert len(text) < 1500
        assert len(text.splitlines()) < 15
        assert html.startswith("<table>")
        assert "array(" not in text
    assert "<b>" not in bank._repr_html_()
