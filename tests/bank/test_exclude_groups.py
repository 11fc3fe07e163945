"""One group of examinees left out of an item: what the others say counts, near to a calibration without the group."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from concal.bank.bank import Bank
from concal.bank.building.periods import Periods
from concal.consensus.item_posterior import item_posterior
from concal.errors import BankError
from concal.evaluate.attention import attention
from concal.report.sections.items import flags
from concal.report.view import View

from .test_acts import same_numbers
from .test_cli_bank import data, run
from .test_dif import FLATTER, ITEMS, MOVED, SPEC
from .test_dif import responses as simulated

OUT = (*MOVED, FLATTER)
PLAIN = "i05"


def responses(period: str, seed: int) -> pl.DataFrame:
    """Two groups and slopes that a period can tell apart."""
    return simulated(period, seed, slopes=0.3)


def without_b(table: pl.DataFrame) -> pl.DataFrame:
    """Rows of the items that differ for b left out of the file."""
    return table.filter(~(pl.col("item_id").is_in(OUT) & (pl.col("person_group") == "b")))


def in_three(table: pl.DataFrame) -> pl.DataFrame:
    """Half of group a is group c."""
    number = pl.col("person_id").str.slice(-3).cast(pl.Int32)
    return table.with_columns(person_group=pl.when(number % 4 == 0).then(pl.lit("c")).otherwise("person_group"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Q1: groups a and b; Q2: a, b and c; Q3: no groups."""
    bank = Bank.create(tmp_path_factory.mktemp("groups") / "bank", SPEC)
    bank.add("Q1", responses("Q1", 1), ITEMS)
    bank.add("Q2", in_three(responses("Q2", 2)), ITEMS)
    bank.add("Q3", responses("Q3", 3).drop("person_group").filter(pl.col("item_id") != "i20"), ITEMS)
    return bank.path


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """Periods whose files lack b's rows of the items that differ."""
    bank = Bank.create(tmp_path_factory.mktemp("groups") / "truth", SPEC)
    bank.add("Q1", without_b(responses("Q1", 1)), ITEMS)
    bank.add("Q2", without_b(in_three(responses("Q2", 2))), ITEMS)
    bank.add("Q3", responses("Q3", 3).drop("person_group").filter(pl.col("item_id") != "i20"), ITEMS)
    return bank


@pytest.fixture(scope="module")
def excluded(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Bank:
    bank = Bank(shutil.copytree(built, tmp_path_factory.mktemp("groups") / "excluded"))
    for item in OUT:
        for period in ("Q1", "Q2"):
            bank.exclude(item, period, person_group="b")
    return bank


@pytest.fixture
def bank(built: Path, tmp_path: Path) -> Bank:
    return Bank(shutil.copytree(built, tmp_path / "bank"))


def row(bank: Bank, item: str) -> dict[str, Any]:
    return bank.items([item]).row(0, named=True)


def places(bank: Bank, period: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Posteriors that a period's factors give the items left out, under one prior for all banks."""
    group = bank.factors(period).groups["g"]
    rows = [group.item_ids.index(item) for item in OUT]
    prior = np.tile([0.0, 0.3], (len(OUT), 1)), np.tile(np.diag([1.0, 0.1]), (len(OUT), 1, 1))
    mean, covariance = item_posterior(group.Q[rows], group.h[rows], *prior)
    return mean, np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))


def rms(values: np.ndarray[Any, Any]) -> float:
    return float(np.sqrt((values**2).mean()))


# how near


@pytest.mark.parametrize("period", ["Q1", "Q2"])
def test_factors_are_those_of_a_calibration_without_the_group(
    built: Path, excluded: Bank, truth: Bank, period: str
) -> None:
    (mean, sd), (own, own_sd), (before, _) = (
        places(truth, period),
        places(excluded, period),
        places(Bank(built), period),
    )
    assert rms((before - mean) / sd) > 1.0
    assert rms((own - mean) / sd) < 0.15
    np.testing.assert_allclose(own_sd / sd, 1.0, atol=0.08)


@pytest.mark.parametrize("method", ["analytic", "joint", "paper"])
def test_the_consensus_too(built: Path, excluded: Bank, truth: Bank, method: str, tmp_path: Path) -> None:
    def found(path: Path, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        copy = Bank(shutil.copytree(path, tmp_path / name))
        copy.combine(method=method)
        group = copy.consensus().groups["g"]
        rows = [group.item_ids.index(item) for item in OUT]
        return group.mean[rows], np.sqrt(np.diagonal(group.covariance, axis1=1, axis2=2))[rows]

    (mean, sd), (own, _), (before, _) = found(truth.path, "truth"), found(excluded.path, "own"), found(built, "before")
    assert rms((before - mean) / sd) > 1.0
    assert rms((own - mean) / sd) < 0.25  # links rest on draws of two calibrations


def test_draws_lie_where_the_factors_have_the_items(excluded: Bank, truth: Bank) -> None:
    group, same = excluded.factors("Q1").groups["g"], truth.calibration("Q1").groups["g"]
    rows = [group.item_ids.index(item) for item in OUT]
    xi = excluded.calibration("Q1").groups["g"].flat("xi")[:, rows]
    np.testing.assert_allclose(xi.mean(axis=0), group.mean[rows], atol=1e-5)
    np.testing.assert_allclose(np.var(xi, axis=0, ddof=1), np.diagonal(group.covariance[rows], 0, 1, 2), rtol=1e-4)
    other = same.flat("xi")[:, rows]
    assert rms((xi.mean(axis=0) - other.mean(axis=0)) / other.std(axis=0)) < 0.35
    single = excluded.period_draws("Q1", [OUT[0]])[OUT[0]]
    np.testing.assert_allclose(single.reshape(-1, 2), xi[:, 0], atol=1e-6)
    source = Periods.of(excluded._store, excluded.snapshot)["Q1"].source().groups[0]
    np.testing.assert_allclose(source.draws()[:, rows], xi, atol=1e-6)


# what it changes


def test_the_rest_counts_and_stays_an_anchor(bank: Bank) -> None:
    before, start = row(bank, "i03"), bank.at(bank.version)
    done = bank.exclude("i03", "Q2", person_group="b", reason="translation")
    assert (done.action, done.relinked) == ("exclude i03 in Q2 for b", ("Q2",))
    after = row(bank, "i03")
    assert (after["n_periods"], after["n_responses"]) == (3, before["n_responses"] - 350)
    assert after["mean"] < before["mean"], "it was harder for b"
    assert bank.anchors("Q2").filter(item_id="i03")["kept"].to_list() == [True]
    answered = bank.period_data("Q2")
    group = answered.groups["g"]
    who = answered.population[group.person[group.item == group.item_ids.index("i03")]]
    assert {answered.populations[k] for k in who} == {"a", "c"}
    assert group.score.size == start.period_data("Q2").groups["g"].score.size - 350
    assert bank.acts().row(0) == ("exclude", "i03", "Q2", "b", None, "translation", False)
    assert bank.show()["acts"] == ["exclude i03 in Q2 for b"]
    untouched = bank.factors("Q2").groups["g"], start.factors("Q2").groups["g"]
    kept = [j for j, item in enumerate(untouched[0].item_ids) if item != "i03"]
    for name in ("Q", "h", "mean", "cell_count", "n_responses"):
        np.testing.assert_array_equal(*(getattr(g, name)[kept] for g in untouched))


def test_dif_and_fit_speak_of_the_rest(built: Path, excluded: Bank) -> None:
    before = Bank(built).dif().filter(flagged=True)
    assert set(MOVED) <= set(before["item_id"])
    after = excluded.dif()
    assert not set(MOVED) & set(after.filter(flagged=True)["item_id"])
    own = after.filter(item_id="i03")
    assert dict(own.select("person_group", "n_responses").iter_rows()) == {"a": 350 + 175, "c": 175}
    assert excluded.fit().filter(item_id="i03")["period"].to_list() == ["Q3"]
    assert excluded.fit_bins().filter(item_id="i03")["period"].unique().to_list() == ["Q3"]
    assert excluded.drift().filter(item_id="i03")["n_responses"].sum() == row(excluded, "i03")["n_responses"]


def test_undone_everything_is_as_it_was(bank: Bank) -> None:
    start = bank.at(bank.version)
    bank.exclude("i03", "Q1", person_group="b")
    bank.exclude("i03", "Q2", person_group="b")
    bank.exclude("i03", "Q2", person_group="c")
    assert row(bank, "i03")["n_responses"] == row(start, "i03")["n_responses"] - 350 - 350 - 175
    for period, group in (("Q2", "b"), ("Q1", "b"), ("Q2", "c")):
        done = bank.include("i03", period, person_group=group)
        assert done.action == f"include i03 in {period} for {group}"
    same_numbers(bank, start)
    assert bank.acts().height == 0


def test_beside_an_exclusion_for_everybody(bank: Bank) -> None:
    bank.exclude("i03", "Q2", person_group="b")
    bank.exclude("i03", "Q2")
    assert row(bank, "i03")["n_periods"] == 2
    with pytest.raises(BankError, match="excluded in period 'Q2' already"):
        bank.exclude("i03", "Q2", person_group="c")
    bank.include("i03", "Q2")
    assert bank.show()["acts"] == ["exclude i03 in Q2 for b"]


def test_ids_are_those_of_the_period_whatever_is_split(bank: Bank) -> None:
    bank.split("i03", "Q2", onwards=False)
    bank.exclude("i03@Q2", "Q2", person_group="b")
    assert bank.snapshot.acts[-1].item == "i03"
    assert row(bank, "i03@Q2")["n_responses"] == 350
    assert set(bank.period_draws("Q2", ["i03@Q2"])) == {"i03@Q2"}
    bank.join("i03@Q2")
    assert row(bank, "i03")["n_responses"] == 3 * 700 - 350
    bank.include("i03", "Q2", person_group="b")
    assert bank.acts().height == 0


@pytest.mark.parametrize(
    ("item", "period", "group", "said"),
    [
        ("i03", "Q9", "b", "there is no period 'Q9'"),
        ("nobody", "Q1", "b", "there is no item 'nobody' in any period"),
        ("i20", "Q3", "b", "was not answered in period 'Q3'"),
        ("i03", "Q3", "b", "period 'Q3' has no groups of examinees .*; exclude the item for everybody, or add"),
        ("i03", "Q1", "c", "group 'c' gave no response to item 'i03' in period 'Q1'; those who did: 'a', 'b'"),
    ],
)
def test_refused_with_the_reason(built: Path, item: str, period: str, group: str, said: str) -> None:
    bank = Bank(built)
    with pytest.raises(BankError, match=said):
        bank.exclude(item, period, person_group=group)
    assert bank.refresh().version == 3


def test_twice_and_the_last_group_are_refused(bank: Bank) -> None:
    bank.exclude("i03", "Q1", person_group="b")
    with pytest.raises(BankError, match="excluded in period 'Q1' for 'b' already"):
        bank.exclude("i03", "Q1", person_group="b")
    with pytest.raises(BankError, match="only 'a' is left of those who answered item 'i03' in period 'Q1'"):
        bank.exclude("i03", "Q1", person_group="a")
    with pytest.raises(BankError, match="not excluded in period 'Q1' for a; excluded are: 'i03 in Q1 for b'"):
        bank.include("i03", "Q1", person_group="a")
    with pytest.raises(BankError, match="not excluded in period 'Q1'; excluded are: 'i03 in Q1 for b'"):
        bank.include("i03", "Q1")


def test_it_rests_and_follows_what_comes_in_the_periods_place(bank: Bank) -> None:
    bank.exclude("i03", "Q1", person_group="b")
    bank.retract("Q1")
    assert bank.acts()["idle"].to_list() == [True]
    only_b = responses("Q1", 1).filter((pl.col("item_id") != "i03") | (pl.col("person_group") == "b"))
    bank.add("Q1", only_b, ITEMS)
    assert row(bank, "i03")["n_periods"] == 2, "nobody else answered it"
    update = bank.add("Q1", responses("Q1", 1).drop("person_group"), ITEMS, replace=True)
    assert row(bank, "i03")["n_responses"] == 3 * 700, "it has no group b now"
    assert any("1 exclusion of groups of examinees in 'Q1' without effect: 'i03 for b'" in w for w in update.warnings)


def test_the_command(bank: Bank, capsys: pytest.CaptureFixture[str]) -> None:
    done = data(capsys, "exclude", bank.path, "i03", "Q2", "--person-group", "b", "--reason", "translation")
    assert (done["action"], done["relinked"]) == ("exclude i03 in Q2 for b", ["Q2"])
    assert data(capsys, "acts", bank.path)[0]["person_group"] == "b"
    assert run("acts", bank.path) == 0
    assert "examinee" in capsys.readouterr().out
    assert run("exclude", bank.path, "i03", "Q2", "--person-group", "z") == 1
    assert "group 'z' gave no response" in capsys.readouterr().err
    assert run("exclude", bank.path, "i03", "Q2", "--person-group", "b", "--undo") == 0
    assert "include i03 in Q2 for b" in capsys.readouterr().out
    assert_frame_equal(Bank(bank.path).items(), bank.at(3).items())


def test_the_report_says_for_whom(bank: Bank) -> None:
    bank.exclude("i03", "Q2", person_group="b", reason="translation")
    view = View(bank)
    assert "excluded in Q2 for b: translation" in flags(view)["i03"]
    bank.retract("Q2")
    notices = attention(
        {}, {}, bank.consensus(), None, bank.drift(), None, version=bank.version, alarms=(), acts=bank.acts(),
        fit=bank.fit(), pairs=bank.fit_pairs(), dif=bank.dif(),
    )  # fmt: skip
    assert any("exclude of 'i03' in Q2 for b rests" in notice.text for notice in notices)
