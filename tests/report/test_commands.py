"""``concal report`` and ``concal evaluate`` on a bank that exists."""

import json

import pytest
import typer
from typer.testing import CliRunner

from concal.cli import demo, evaluate, report
from concal.cli.evaluate import read_truth
from concal.errors import DataError


@pytest.fixture(scope="module")
def app():
    made = typer.Typer()
    for module in (evaluate, report, demo):
        module.register(made)
    return made


def run(app, *words):
    result = CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_report(app, reported, tmp_path):
    result = run(app, "report", reported[0].path, "--to", tmp_path / "r.html", "--json")
    said = json.loads(result.stdout)
    assert said["bytes"] == (tmp_path / "r.html").stat().st_size
    old = run(app, "report", reported[0].path, "--at", 2, "--to", tmp_path / "old.html")
    assert "report written to" in old.stdout
    assert "has not been compared" in (tmp_path / "old.html").read_text(encoding="utf-8")


def test_show_evaluation(app, reported, tmp_path):
    for name, sign in (
        ("t.md", "| Post. mean"),
        ("t.tex", r"\toprule"),
        ("t.csv", "mean_r"),
        ("t.json", '"agreement"'),
    ):
        result = run(app, "evaluate", reported[0].path, "--show", "--to", tmp_path / name)
        assert sign in (tmp_path / name).read_text(encoding="utf-8")
        assert "R-hat screen at 1.1 removed" in result.stdout
    shown = json.loads(run(app, "evaluate", reported[0].path, "--show", "--json").stdout)
    assert {"agreement", "abilities", "fallback", "cost", "recovery"} <= set(shown)


def test_truth_of_a_simulation(tmp_path):
    (tmp_path / "items.csv").write_text("period,item_id,parameter,value\nQ1,007,d,0.5\n")
    table = read_truth(tmp_path)
    assert table["item_id"].to_list() == ["007"]
    assert table["value"].to_list() == [0.5]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no items\.csv"):
        read_truth(tmp_path / "empty")


def test_demo_refuses_a_folder_with_something_in_it(tmp_path):
    from concal.demo import run_demo

    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match="not empty"):
        run_demo(tmp_path)


@pytest.mark.parametrize(("quick", "items", "examinees", "formats"), [(False, 1500, 40_000, 3), (True, 150, 4800, 2)])
def test_demo_programme(quick, items, examinees, formats):
    from concal.demo import demo_programme

    made = demo_programme(quick, 1)
    assert made.items.height == items
    assert sum(frame["person_id"].n_unique() for frame in made.responses.values()) == examinees
    assert len(made.responses) == 4
    assert len(made.spec.bank.dimensions) == 2
    assert len({group.model for group in made.spec.groups.values()}) == formats
    assert made.truth.drift.height > 0
