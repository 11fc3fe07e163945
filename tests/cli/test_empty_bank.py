"""Every look at a bank that has no period yet: after `concal init`, or after a first period that was refused."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.cli import main
from concal.errors import BankError
from concal.spec import Spec

NONE_YET = "the bank has no period yet; `concal add` brings one"
LOOKS = {
    "items BANK": "the bank has no items yet; `concal add` brings them",
    "items BANK --full": "the bank has no items yet; `concal add` brings them",
    "items BANK --long": "the bank has no items yet; `concal add` brings them",
    "periods BANK": NONE_YET,
    "periods BANK --full": NONE_YET,
    "links BANK": NONE_YET,
    "drift BANK": NONE_YET,
    "drift BANK --all": NONE_YET,
    "fit BANK": NONE_YET,
    "fit BANK --bins": NONE_YET,
    "fit BANK --pairs": NONE_YET,
    "dif BANK": NONE_YET,
    "dif BANK --all": NONE_YET,
    "acts BANK": "nothing was excluded or split",
}
NEEDS_A_PERIOD = (
    "information BANK",
    "information BANK i1",
    "export BANK --to FOLDER/x.csv",
    "export BANK --to FOLDER/x.json --format catsim",
    "score BANK FOLDER/r.csv",
    "predict BANK FOLDER/items.csv",
    "predict BANK FOLDER/items.csv --long",
)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    spec = Spec.parse({"bank": {"name": "t", "dimensions": ["r"]}, "groups": {"a": {"model": "2pl", "dimension": "r"}}})
    Bank.create(folder / "bank", spec)
    pl.DataFrame({"item_id": ["i1", "i2"], "group": ["a", "a"]}).write_csv(folder / "items.csv")
    pl.DataFrame({"person_id": ["p1", "p1"], "item_id": ["i1", "i2"], "score": [1, 0]}).write_csv(folder / "r.csv")
    return folder


def run(words: str, folder: Path) -> int:
    asked = words.replace("BANK", str(folder / "bank")).replace("FOLDER", str(folder))
    with pytest.raises(SystemExit) as left:
        main(asked.split())
    return int(left.value.code or 0)


@pytest.mark.parametrize("words", LOOKS)
def test_a_look_says_that_nothing_is_there(words: str, empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words, empty) == 0
    assert capsys.readouterr().out == f"{LOOKS[words]}\n"
    assert run(f"{words} --json", empty) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(f"{words} --to FOLDER/looked.csv", empty) == 0


@pytest.mark.parametrize("words", NEEDS_A_PERIOD)
def test_what_needs_items_says_what_to_do(words: str, empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words, empty) == 1
    assert "has no period yet; add one with `concal add`" in capsys.readouterr().err


def test_show_and_history(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show BANK", empty) == run("history BANK", empty) == 0
    assert capsys.readouterr().err == ""


def test_an_empty_version_is_not_released(empty: Path) -> None:
    with pytest.raises(BankError, match=r"bank' has no period yet.*nothing to release; add one with `concal add`"):
        Bank(empty / "bank").release("spring")
    assert Bank(empty / "bank").releases() == {}
