"""Every command of the tutorial and the README's example run, in order, in an empty folder."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
FAST = {"draws": 200, "min_ess": 20.0, "max_rhat": 1.2, "item_share": 0.5, "max_sweeps": 1500}


def commands(page: str) -> list[list[str]]:
    """Lines that begin with ``$ concal`` in the console blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.S)
    return [shlex.split(line[2:]) for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def relax(path: Path) -> None:
    """Looser targets: the test is about the commands, not about the precision of their answers."""
    from concal.spec import Spec

    spec = Spec.read(path)
    Spec.parse({**spec.model_dump(exclude_none=True), "calibration": FAST}).write(path)


def test_pages_have_commands():
    named = {words[1] for words in commands("docs/tutorial.md")}
    assert {"simulate", "init", "check", "add", "evaluate", "report", "release", "export", "retract"} <= named


def test_tutorial_runs(tmp_path, monkeypatch):
    from concal.cli import app

    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    for words in commands("docs/tutorial.md"):
        assert words[0] == "concal"
        result = runner.invoke(app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{' '.join(words)}\n{result.output}"
        if words[1] == "simulate":
            relax(tmp_path / "programme" / "bank.toml")
    assert "| Post. mean | r" in (tmp_path / "agreement.md").read_text()
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert (tmp_path / "spring.csv").read_text().count("\n") > 10


def test_readme_example_runs(tmp_path, monkeypatch, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    source = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    lines = [line for line in source.splitlines() if line.strip()]
    assert len(lines) <= 20
    monkeypatch.chdir(tmp_path)
    relaxed = source.replace(
        "spec = programme.spec ",
        f"spec = concal.Spec.parse({{**programme.spec.model_dump(exclude_none=True), 'calibration': {FAST}}}) ",
    )
    assert relaxed != source
    exec(compile(relaxed, "README.md", "exec"), {})
    assert "item_id" in capsys.readouterr().out
    assert (tmp_path / "items.csv").is_file()


@pytest.mark.parametrize("page", [*sorted(p.name for p in (ROOT / "docs").glob("*.md")), "../README.md"])
def test_commands_in_text_exist(page):
    """A command named in backticks is one the program has."""
    from concal.cli import app

    known = {command.name for command in app.registered_commands}
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`concal ([a-z]+)", text))
    assert named <= known, named - known
