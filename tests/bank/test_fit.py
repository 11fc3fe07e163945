"""The fit of items in the bank: stored bit for bit, shown over periods, following what was decided about items."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.calibration.fit.period_fit import fit_period
from concal.calibration.layout import lay_out
from concal.calibration.others import item_points, told_by_others
from concal.errors import SpecError

from .programme import SPEC, fake_calibrator, items_table, responses_table, same
from .test_cli_bank import data, run


def with_fit(period_data, spec, **options):
    """The fake engine's draws with the fit of its items, as concal's engine gives it."""
    made = fake_calibrator(period_data, spec, **options)
    centres = {name: g.flat("xi").mean(axis=0) for name, g in made.groups.items()}
    layout, points = lay_out(period_data), {name: item_points(g.xi) for name, g in made.groups.items()}
    told = told_by_others(layout, points, made.abilities.mean, made.abilities.sd)
    fit = fit_period(period_data, layout, centres, told, made.abilities.sd)
    return replace(made, fit=fit)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    bank = Bank.create(tmp_path_factory.mktemp("fit") / "bank", SPEC)
    for k, period in enumerate(("Q1", "Q2")):
        bank.add(period, responses_table(period, first=2 * k, persons=80), items_table(), calibrator=with_fit)
    bank.add("Q3", responses_table("Q3"), items_table(), calibrator=fake_calibrator)  # as draws of another engine
    return bank


def test_fit_is_kept_bit_for_bit(bank: Bank) -> None:
    made = with_fit(bank.period_data("Q1"), bank.spec, period="Q1", seed=bank.spec.calibration.seed)
    same(bank.calibration("Q1").fit, made.fit)
    same(bank.period_fits()["Q1"], made.fit)
    assert bank.calibration("Q3").fit is None
    assert list(bank.period_fits()) == ["Q1", "Q2"]


def test_items_over_periods_with_false_discovery_control(bank: Bank) -> None:
    table = bank.fit()
    assert table.height == 48
    assert set(table["period"]) == {"Q1", "Q2"}
    p = np.sort(table["p_value"].drop_nulls().to_numpy())
    q = np.minimum.accumulate((p * p.size / np.arange(1, p.size + 1))[::-1])[::-1]
    np.testing.assert_allclose(np.sort(table["q_value"].drop_nulls().to_numpy()), np.minimum(q, 1.0))
    for fdr in (0.2, 0.9):
        flagged = bank.fit(fdr)
        assert (flagged["flagged"] == (flagged["q_value"] <= fdr).fill_null(False)).all()
        assert flagged["flagged"].to_list() == sorted(flagged["flagged"].to_list(), reverse=True)


@pytest.mark.parametrize("rate", ["2", "-1", "0", "1", "nan"])
def test_a_rate_outside_0_and_1_is_bad_usage(rate: str, bank: Bank, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("fit", "drift", "dif"):
        assert run(command, bank.path, "--fdr", rate) == 2
        assert "a false discovery rate must be" in capsys.readouterr().err
        with pytest.raises(SpecError, match="must be above 0 and below 1"):
            getattr(bank, command)(float(rate))


def test_bins_are_on_the_reference_metric(bank: Bank) -> None:
    table = bank.fit_bins()
    own = bank.period_fits()["Q2"].bins
    links = bank.consensus().links.filter(period="Q2", dimension="reading").row(0, named=True)
    here = table.filter(pl.col("period") == "Q2", pl.col("item_id") == "v05")
    expected = links["A_mean"] * own.filter(item_id="v05")["theta"].to_numpy() + links["B_mean"]
    np.testing.assert_allclose(here["theta"].to_numpy(), expected)
    assert here["n_responses"].sum() == 80


def test_decisions_about_items_are_followed(bank: Bank, tmp_path: Path) -> None:
    import shutil

    copy = Bank(shutil.copytree(bank.path, tmp_path / "bank"))
    copy.exclude("v05", "Q2")
    copy.split("v06", "Q2")
    table = copy.fit()
    assert table.filter(pl.col("item_id") == "v05")["period"].to_list() == ["Q1"]
    assert table.filter(pl.col("item_id") == "v06@Q2")["period"].to_list() == ["Q2"]
    pairs = copy.fit_pairs().filter(pl.col("period") == "Q2")
    assert not {"v05", "v06"} & {*pairs["item_id"], *pairs["other_id"]}
    same(copy.calibration("Q2").fit, copy.period_fits()["Q2"])


def test_command(bank: Bank, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert data(capsys, "fit", bank.path, "--all", "--fdr", "0.9") == bank.fit(0.9).to_dicts()
    assert len(data(capsys, "fit", bank.path, "v05")) == 2
    assert len(data(capsys, "fit", bank.path, "v05", "--bins")) == 10
    pairs = data(capsys, "fit", bank.path, "v05", "--pairs")
    assert all("v05" in (row["item_id"], row["other_id"]) for row in pairs)
    assert run("fit", bank.path, "--bins", "--pairs") == 2
    assert run("fit", bank.path, "nobody") == 1
    assert "not in the bank" in capsys.readouterr().err
    empty = Bank.create(tmp_path / "empty", SPEC)
    for flags in ((), ("--bins",), ("--pairs",)):
        assert data(capsys, "fit", empty.path, *flags) == []
