"""The commands that act on single items."""

from __future__ import annotations

from pathlib import Path

import pytest

from concal.bank.bank import Bank

from .places import Place, copy_bank
from .test_acts import with_periods
from .test_cli_bank import data, run


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_periods(tmp_path_factory.mktemp("acts") / "bank").path


@pytest.fixture
def bank(built: Path, any_place: Place) -> Path:
    return copy_bank(built, any_place / "bank")


def test_exclude_and_undo(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = data(capsys, "exclude", bank, "v05", "Q2", "--reason", "leaked")
    assert (done["version"], done["action"], done["relinked"]) == (4, "exclude v05 in Q2", ["Q2"])
    assert data(capsys, "acts", bank)[0]["reason"] == "leaked"
    assert run("show", bank) == 0
    assert "exclude v05 in Q2" in capsys.readouterr().out
    assert run("exclude", bank, "v05", "Q2") == 1
    assert "already" in capsys.readouterr().err
    assert run("exclude", bank, "v05", "Q2", "--undo") == 0
    assert "version 5: include v05 in Q2" in capsys.readouterr().out
    assert Bank(bank).items().equals(Bank(bank).at(3).items())


def test_split_and_undo(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, "split", bank, "v05", "Q2", "Q3")["action"] == "split v05 in Q2, Q3 as v05@Q2"
    assert data(capsys, "split", bank, "v05@Q2", "--undo")["action"] == "join v05@Q2 to v05"
    assert data(capsys, "split", bank, "v05", "Q3")["action"] == "split v05 from Q3 on as v05@Q3"
    assert data(capsys, "split", bank, "v05", "--undo")["action"] == "join v05@Q3 to v05"
    done = data(capsys, "split", bank, "v06", "--from", "Q2", "--new-id", "v06b")
    assert done["action"] == "split v06 from Q2 on as v06b"
    assert data(capsys, "items", bank, "v06b")[0]["n_periods"] == 2
    assert run("split", bank, "v05") == 2
    assert run("split", bank, "v05", "Q2", "--from", "Q2") == 2
    capsys.readouterr()
    assert run("split", bank, "v05", "Q1") == 1
    assert "no period would be left that says anything about 'v05'" in capsys.readouterr().err


def test_which_split_is_undone(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for period in ("Q2", "Q3"):
        Bank(bank).split("v05", period, onwards=False)
    assert run("split", bank, "v05", "--undo") == 1
    assert "split more than once, into 'v05@Q2', 'v05@Q3'" in capsys.readouterr().err
    assert data(capsys, "split", bank, "v05", "Q3", "--undo")["action"] == "join v05@Q3 to v05"


def test_a_resting_act_is_shown(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("exclude", bank, "v05", "Q3") == 0
    assert run("retract", bank, "Q3") == 0
    assert data(capsys, "acts", bank)[0]["idle"] is True
    assert run("exclude", bank, "v05", "Q3", "--undo") == 0
    assert data(capsys, "acts", bank) == []
