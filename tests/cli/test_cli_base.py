"""The command line: exit codes, readable errors, tables for people, programs and files."""

import errno
import json
import subprocess
import sys
from typing import ClassVar

import polars as pl
import pytest

from concal.bank.bank import Bank
from concal.bank.building.progress import Update
from concal.cli import COMMAND_MODULES, app, main
from concal.cli.cells import cell_text, number_text
from concal.cli.show import write_table
from concal.cli.terminal import print_table
from concal.errors import ConcalError, DataError


def run(*words: str) -> int:
    """Exit code of a command run in this process."""
    with pytest.raises(SystemExit) as left:
        main(list(words))
    return int(left.value.code or 0)


@pytest.fixture
def programme(tmp_path, two_group_spec, two_group_items, two_group_responses):
    two_group_spec.write(tmp_path / "bank.toml")
    two_group_items.write_csv(tmp_path / "items.csv")
    two_group_responses.write_csv(tmp_path / "responses.csv")
    return tmp_path


def commands() -> list[str]:
    return [command.name or command.callback.__name__ for command in app.registered_commands]


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help_with_an_example(command, capsys):
    assert run(command, "--help") == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert f"concal {command}" in text


def test_command_names_differ():
    assert len(set(commands())) == len(commands())
    assert len(set(COMMAND_MODULES)) == len(COMMAND_MODULES)


def test_version(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("concal ")


@pytest.mark.parametrize(
    "words", [["nope"], ["check"], ["check", "a", "b", "c"], ["check", "--items", "i.csv", "only-one"], ["schema", "x"]]
)
def test_bad_usage_is_2(words, capsys):
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage" in captured.err


def test_check_prints_tables(programme, capsys):
    words = ("2026Q1", str(programme / "responses.csv"), "--items", str(programme / "items.csv"))
    assert run("check", str(programme / "bank.toml"), *words) == 0
    shown = capsys.readouterr().out
    assert "32 responses of 4 examinees" in shown
    assert "vocabulary" in shown


def test_check_for_programs(programme, capsys):
    to = programme / "out.csv"
    words = ["check", str(programme / "bank.toml"), "2026Q1", str(programme / "responses.csv")]
    assert run(*words, "--items", str(programme / "items.csv"), "--json", "--to", str(to)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["responses"] == 32
    assert result["persons"] == 4
    assert [text.split(":")[0] for text in result["warnings"]] == ["4 examinees in the whole period"]
    assert [g["group"] for g in result["groups"]] == ["vocabulary", "summary"]
    assert pl.read_csv(to).height == 8


def test_check_against_a_bank(programme, two_group_spec, capsys):
    Bank.create(programme / "bank", two_group_spec)
    words = ["2026Q1", str(programme / "responses.csv"), "--items", str(programme / "items.csv")]
    assert run("check", str(programme / "bank"), *words) == 0
    assert "32 responses of 4 examinees" in capsys.readouterr().out


class BankThatCombines:
    """What `concal combine` asks of a bank."""

    asked: ClassVar[list[dict]] = []

    def __init__(self, path):
        pass

    def combine(self, *, progress, **options):
        self.asked.append(options)
        return Update(3, "combine", None, (), None)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], {"method": None}),
        (["--method", "paper"], {"method": "paper"}),
        (["--method", "joint", "--robust-links"], {"method": "joint", "robust_links": True}),
        (["--no-robust-links", "--half-life", "4"], {"method": None, "robust_links": False, "half_life": 4.0}),
        (["--half-life", "0", "--reason", "why"], {"method": None, "half_life": None, "reason": "why"}),
    ],
)
def test_combine_hands_on_what_was_asked_for_and_nothing_else(monkeypatch, capsys, words, options):
    monkeypatch.setattr("concal.bank.bank.Bank", BankThatCombines)
    BankThatCombines.asked.clear()
    assert run("combine", "bank", "--json", *words) == 0
    assert BankThatCombines.asked == [{"reason": "", **options}]
    assert json.loads(capsys.readouterr().out)["action"] == "combine"


@pytest.mark.parametrize("words", [["--method", "literal"], ["--tilt", "2"], ["--half-life", "soon"]])
def test_combine_refuses_what_there_is_not(words, capsys):
    assert run("combine", "bank", *words) == 2
    assert "Usage" in capsys.readouterr().err


def test_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    def full(path, data):
        path.write_bytes(data[:3])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("concal.report.write.write_durably", full)
    for name in ("t.csv", "t.parquet", "t.json"):
        with pytest.raises(ConcalError, match="the disk is full"):
            write_table(TABLE, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_check_reports_bad_data_without_a_traceback(programme, capsys):
    (programme / "responses.csv").write_text("person_id,item_id,score\np1,v1,7\np1,zz,1\n")
    words = ["check", str(programme / "bank.toml"), "2026Q1", str(programme / "responses.csv")]
    assert run(*words, "--items", str(programme / "items.csv")) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: period '2026Q1': 2 problems")
    assert "Traceback" not in captured.err


def test_debug_shows_the_traceback(programme):
    with pytest.raises(DataError):
        main(
            ["check", str(programme / "bank.toml"), "Q1", "no.csv", "--items", str(programme / "items.csv"), "--debug"]
        )


def test_missing_spec_is_1(tmp_path, capsys):
    assert run("check", str(tmp_path / "bank.toml"), "Q1", "r.csv", "--items", "i.csv") == 1
    assert "there is no file" in capsys.readouterr().err


def test_a_fault_is_1_and_says_so(monkeypatch, capsys):
    def broken():
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("concal.spec.Spec.json_schema", broken)
    assert run("schema") == 1
    assert "unexpected ZeroDivisionError: boom" in capsys.readouterr().err


def test_schema(capsys):
    assert run("schema") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Spec"


def test_as_a_program(programme):
    done = subprocess.run([sys.executable, "-m", "concal.cli", "schema"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    json.loads(done.stdout)


TABLE = pl.DataFrame(
    {
        "item_id": ["=1+1", "@x", "007", "-5", "[bold]b[/bold]", "\x1b[31mred"],
        "d": [-1.5, float("nan"), 2.0, None, float("inf"), 1e-9],
        "n": [1, 20_000, 3, 4, 5, 6],
    }
)


def test_csv_cells_are_not_formulas(tmp_path):
    write_table(TABLE, tmp_path / "t.csv")
    back = pl.read_csv(tmp_path / "t.csv", schema_overrides={"item_id": pl.String})
    assert back["item_id"].to_list()[:4] == ["'=1+1", "'@x", "007", "'-5"]
    assert back["d"][0] == -1.5


def test_parquet_and_json_keep_ids(tmp_path):
    write_table(TABLE, tmp_path / "t.parquet")
    assert pl.read_parquet(tmp_path / "t.parquet").equals(TABLE)
    write_table(TABLE, tmp_path / "t.json")
    rows = json.loads((tmp_path / "t.json").read_text())
    assert [r["item_id"] for r in rows] == TABLE["item_id"].to_list()
    assert [r["d"] for r in rows] == [-1.5, None, 2.0, None, None, 1e-9]


def test_lists_fit_into_csv(tmp_path):
    write_table(pl.DataFrame({"item_id": ["a"], "path": [["Q2", "Q1"]]}), tmp_path / "t.csv")
    assert pl.read_csv(tmp_path / "t.csv")["path"].to_list() == ['["Q2", "Q1"]']


@pytest.mark.parametrize("name", ["t.xlsx", "t", "nowhere/t.csv"])
def test_unwritable(tmp_path, name):
    with pytest.raises(DataError, match="cannot write"):
        write_table(TABLE, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_terminal_shows_text_as_it_is(capsys):
    print_table(TABLE, "[red]title[/red]", max_rows=None)
    text = capsys.readouterr().out
    assert "[bold]b[/bold]" in text
    assert "[red]title[/red]" in text
    assert "\x1b[31mred" not in text
    assert "\\x1b[31mred" in text
    assert "20,000" in text


def test_a_terminal_gets_some_rows_and_a_pipe_all(capsys, monkeypatch):
    table = pl.DataFrame({"n": range(60)})
    print_table(table, max_rows=50)
    assert len(capsys.readouterr().out.splitlines()) == 62
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(table, max_rows=50)
    assert "10 more rows" in capsys.readouterr().out


@pytest.mark.parametrize(("value", "text"), [(None, ""), (True, "yes"), (1234, "1,234"), ("a\nb", "a\\nb")])
def test_cells(value, text):
    assert cell_text(value) == text


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(None, 3, ""), (float("nan"), 3, ""), (0.12345, 3, "0.123"), (-0.0001, 3, "0.000"), (1234.5, 1, "1,234.5")],
)
def test_numbers(value, decimals, text):
    assert number_text(value, decimals) == text


def test_starting_up_loads_nothing_heavy():
    """What keeps ``import concal`` and ``concal --help`` quick (benchmarks/import_time.py has the seconds)."""
    code = "import concal, concal.cli, sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "numba", "polars", "pandas", "pyarrow", "scipy", "pydantic", "xarray", "arviz_stats", "jinja2"}
    assert not heavy & set(loaded)
