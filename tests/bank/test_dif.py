"""Groups of examinees through the bank: their abilities, what they say about items, and items that differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.errors import DataError
from concal.evaluate.pooled import by_period
from concal.report.page import build_page
from concal.report.view import View
from concal.spec import Spec

from .programme import same
from .test_cli_bank import data, run

SPEC = Spec.parse(
    {
        "bank": {"name": "test", "dimensions": ["x"]},
        "groups": {"g": {"model": "2pl", "dimension": "x"}},
        "calibration": {"max_sweeps": 1500, "draws": 400, "min_ess": 80.0, "max_rhat": 1.1},
        "consensus": {"method": "analytic"},
        "data": {"reference_group": "a"},
    }
)
ITEMS = pl.DataFrame({"item_id": [f"i{j:02d}" for j in range(24)], "group": "g"})
MOVED = ("i03", "i11")
FLATTER, FLATTER_BY = "i07", -0.92


def responses(period: str, seed: int, slopes: float = 0.0) -> pl.DataFrame:
    """Group b is weaker by 1; two items are harder for it by 1.2, one has .4 times the slope.

    All other slopes are alike, or have an SD of `slopes` in log a.
    """
    rng, n = np.random.default_rng(seed), 700
    d, z = np.random.default_rng(0).normal(0, 0.8, 24), np.random.default_rng(1).standard_normal(24)
    person, item = (v.ravel() for v in np.indices((n, 24)))
    b = person % 2 == 1
    theta = rng.standard_normal(n) - np.arange(n) % 2
    harder = 1.2 * (b & np.isin(ITEMS["item_id"].to_numpy()[item], MOVED))
    flatter = b & (ITEMS["item_id"].to_numpy()[item] == FLATTER)
    a = 1.4 * np.exp(slopes * z[item] + FLATTER_BY * flatter)
    p = 1 / (1 + np.exp(-a * (theta[person] - d[item] - harder)))
    return pl.DataFrame(
        {
            "person_id": [f"{period}-{i:03d}" for i in person],
            "item_id": ITEMS["item_id"].gather(item),
            "score": (rng.random(item.size) < p).astype(float),
            "person_group": np.where(b, "b", "a"),
        }
    )


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    bank = Bank.create(tmp_path_factory.mktemp("dif") / "bank", SPEC)
    for k, period in enumerate(("Q1", "Q2")):
        bank.add(period, responses(period, k + 1), ITEMS)
    return bank


def test_abilities_have_a_mean_and_sd_per_group(bank: Bank) -> None:
    abilities = bank.calibration("Q1").abilities
    assert abilities is not None
    assert abilities.populations == ("a", "b")
    assert abilities.population_mean is not None
    assert abilities.population_sd is not None
    mean, sd = abilities.population_mean.mean(axis=(0, 1)), abilities.population_sd.mean(axis=(0, 1))
    assert abs(mean[0, 0]) < 0.1
    assert abs(mean[1, 0] + 1.0) < 0.2
    assert np.all(np.abs(sd - 1.0) < 0.15)
    own = abilities.draw_mean.mean()
    assert abs(own - mean.mean()) < 1e-6  # equal sizes
    assert abilities.draw_sd.mean() > sd.mean()  # apart by one: the whole is wider than its groups


def test_responses_come_back_with_their_groups(bank: Bank) -> None:
    found = bank.period_data("Q1")
    assert found.populations == ("a", "b")
    number = found.person_ids.str.slice(-3).cast(pl.Int32).to_numpy()
    np.testing.assert_array_equal(found.population, number % 2)


def test_items_that_differ_are_found_with_their_size(bank: Bank) -> None:
    table = bank.dif()
    flagged = table.filter(pl.col("flagged"))
    assert set(flagged["item_id"]) >= set(MOVED)
    assert flagged["item_id"].n_unique() <= 3
    own = flagged.filter(pl.col("item_id").is_in(MOVED))
    assert set(own["person_group"]) == {"b"}
    assert set(own["direction"]) == {"harder"}
    assert own["d_shift"].is_between(0.7, 1.7).all()
    assert own["score_shift"].is_between(-0.35, -0.1).all()
    assert table.filter(item_id="i03")["n_responses"].to_list() == [700, 700]
    rest = table.filter(~pl.col("item_id").is_in((*MOVED, FLATTER))).unique("item_id")
    assert (rest["item_p_value"] <= 0.05).mean() < 0.25


def test_a_slope_that_differs_is_measured_where_all_slopes_of_the_bank_are_alike(bank: Bank) -> None:
    """The spread of the bank's slopes is near zero; it must not hide a slope that differs."""
    row = bank.dif().filter(item_id=FLATTER, person_group="b").row(0, named=True)
    assert row["flagged"]
    assert abs(row["log_a_shift"] - FLATTER_BY) < 2 * row["log_a_shift_sd"]
    assert row["log_a_shift_sd"] < 0.4
    d = np.random.default_rng(0).normal(0, 0.8, 24)[int(FLATTER[1:])]
    theta = np.random.default_rng(5).standard_normal(100_000) - 1.0
    change = 1 / (1 + np.exp(-1.4 * np.exp(FLATTER_BY) * (theta - d))) - 1 / (1 + np.exp(-1.4 * (theta - d)))
    assert row["score_size"] == pytest.approx(np.sqrt((change**2).mean()), abs=0.05)
    assert row["score_shift"] == pytest.approx(change.mean(), abs=0.05)


def test_where_all_other_groups_differ_nothing_is_left_to_differ_from(bank: Bank) -> None:
    row = bank.dif().filter(item_id=FLATTER, person_group="a").row(0, named=True)
    assert not row["flagged"]
    columns = ("direction", "score_shift", "score_size", "d_shift", "d_shift_sd", "log_a_shift", "log_a_shift_sd")
    assert {row[name] for name in columns} == {None}


def test_tables_say_who_took_part(bank: Bank) -> None:
    assert bank.periods()["person_groups"].to_list() == ["a, b", "a, b"]
    table = bank.person_groups()
    own = table.filter(period="Q1")
    assert own["person_group"].to_list() == ["all", "a", "b"]
    assert own["n_persons"].to_list() == [700, 350, 350]
    mean = own["mean"].to_list()
    assert abs(mean[0] - (mean[1] + mean[2]) / 2) < 1e-6
    assert mean[1] > mean[2]
    for period in bank.period_names:
        a, b = (table.filter(period=period, person_group=name).row(0, named=True) for name in "ab")
        assert abs(b["mean"] - a["mean"] + 1.0) < 3 * np.hypot(a["mean_sd"], b["mean_sd"])
        assert 0.01 < b["mean_sd"] < 0.2
        assert abs(b["sd"] - 1.0) < 3 * b["sd_sd"]


def test_groups_are_placed_where_the_consensus_has_their_period(bank: Bank) -> None:
    """Not where the period's own link from its anchors alone has them."""
    from concal.consensus.links import in_force

    own = bank.calibration("Q2").abilities
    assert own is not None
    assert own.population_mean is not None
    A, B = in_force(bank.consensus(joint=False).links)["Q2", "x"]
    there = bank.person_groups().filter(period="Q2").filter(pl.col("person_group") != "all")["mean"].to_numpy()
    np.testing.assert_allclose(there, A * own.population_mean.mean(axis=(0, 1))[:, 0] + B, atol=0.02)


def test_priors_of_scores_are_those_of_the_groups(bank: Bank) -> None:
    """Somebody without a response has the prior: a group's own, or that of all groups of the period."""
    dimension, groups = bank.spec.bank.dimensions[0], {"all": "Q1", "a": "a", "b": "b"}
    nobody = pl.DataFrame({"person_id": ["x"], "item_id": ["i01"], "score": [None]}, schema_overrides={"score": float})
    found = {name: bank.score(nobody, prior=prior).row(0, named=True) for name, prior in groups.items()}
    theta = {name: row[f"theta_{dimension}"] for name, row in found.items()}
    sd = {name: row[f"se_{dimension}"] for name, row in found.items()}
    assert abs(theta["a"]) < 0.1
    assert abs(theta["b"] + 1.0) < 0.25
    own = bank.person_groups().filter(period="Q1", person_group="all").row(0, named=True)
    assert theta["all"] == pytest.approx(own["mean"], abs=0.02)
    assert sd["all"] == pytest.approx(own["sd"], abs=0.02)
    assert sd["all"] > max(sd["a"], sd["b"])
    both = pl.concat([nobody.with_columns(person_group=pl.lit(g), person_id=pl.lit(g)) for g in ("a", "b")])
    named = bank.score(both, prior_column="person_group")
    assert named["prior"].to_list() == ["a", "b"]
    np.testing.assert_allclose(named[f"theta_{dimension}"], [theta["a"], theta["b"]], atol=1e-9)
    drawn = bank.score(both, prior_column="person_group", items="draws", draws=20)
    np.testing.assert_allclose(drawn[f"theta_{dimension}"], [theta["a"], theta["b"]], atol=0.1)
    with pytest.raises(DataError, match="no period and no group of examinees 'c'"):
        bank.score(nobody, prior="c")


def test_report_shows_fairness(bank: Bank) -> None:
    page = build_page(View(bank))
    assert "Fit and fairness" in page
    assert "not answered alike by groups of examinees" in page


def test_decisions_are_followed(bank: Bank, tmp_path: Path) -> None:
    import shutil

    copy = Bank(shutil.copytree(bank.path, tmp_path / "bank"))
    copy.exclude("i03", "Q2")
    assert copy.dif().filter(item_id="i03")["n_responses"].to_list() == [350, 350]
    copy.exclude("i03", "Q1", person_group="b")
    assert not copy.dif().filter(item_id="i03").height, "one group is left, with nobody to compare it with"


def test_command(bank: Bank, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    listed = data(capsys, "dif", bank.path)
    assert {row["item_id"] for row in listed} >= set(MOVED)
    assert len(data(capsys, "dif", bank.path, "--all")) == 48
    assert {"log_a_shift", "log_a_shift_sd"} <= listed[0].keys()
    assert run("dif", bank.path) == 0
    assert "log a" in capsys.readouterr().out.splitlines()[1], "a header may have several lines"
    empty = Bank.create(tmp_path / "empty", SPEC)
    assert data(capsys, "dif", empty.path) == []
    assert run("dif", empty.path) == 0
    assert "no period yet" in capsys.readouterr().out


def test_no_common_item_is_not_no_groups(
    bank: Bank, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = bank.dif().clear()
    monkeypatch.setattr("concal.bank.reading.diagnosis.Diagnosis.dif", lambda *_: nothing)
    assert run("dif", bank.path) == 0
    assert "there are groups of examinees, but no item that two of them answered" in capsys.readouterr().out


def test_groups_are_a_table_of_their_own(bank: Bank, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = data(capsys, "periods", bank.path, "--groups")
    assert [(row["period"], row["person_group"]) for row in rows] == [
        (q, g) for q in ("Q1", "Q2") for g in ("all", "a", "b")
    ]
    assert run("periods", bank.path, "--groups", "--to", tmp_path / "groups.csv") == 0
    assert pl.read_csv(tmp_path / "groups.csv").columns == list(rows[0])
    capsys.readouterr()
    assert run("periods", bank.path, "--groups") == 0
    assert "examinee group" in capsys.readouterr().out
    empty = Bank.create(tmp_path / "empty", SPEC)
    assert data(capsys, "periods", empty.path, "--groups") == []


def test_periods_of_a_pooled_fit_are_put_together(bank: Bank) -> None:
    made = bank.calibration("Q1")
    assert made.abilities is not None
    from dataclasses import replace

    pooled = replace(made, abilities=replace(made.abilities, populations=("Q1/a", "Q1/b")))
    whole = by_period(pooled, ["Q1"]).abilities
    assert whole is not None
    np.testing.assert_allclose(whole.population_mean[:, :, 0], made.abilities.draw_mean)
    np.testing.assert_allclose(whole.population_sd[:, :, 0], made.abilities.draw_sd)
    same(by_period(made, ["Q1", "Q2"]), made)
