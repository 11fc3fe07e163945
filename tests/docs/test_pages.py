"""Every example of every page and of the README runs, page by page, from top to bottom.

In a ``console`` block the lines that begin with ``$ `` are commands; ``python`` blocks of a page share their names;
``r`` blocks are run by Rscript where there is one. Blocks of other kinds (``text``, ``sh``, ``toml``) are not run.
Pages of docs/start and the README begin in an empty folder, all others beside a simulated `programme` of three periods
and a `bank` that holds the first two.
"""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from concal.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(p.relative_to(ROOT).as_posix() for p in DOCS.rglob("*.md") if "_build" not in p.parts), "README.md"]
BLOCK = re.compile(r"^```(console|python|r)\n(.*?)^```", re.S | re.M)
FAST = {"draws": 200, "min_ess": 20.0, "max_rhat": 1.2, "item_share": 0.5, "max_sweeps": 1500}
EMPTY = ("docs/start/", "README.md")


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def commands(block: str) -> list[list[str]]:
    """The commands of a console block; a backslash at the end of a line goes on."""
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


@pytest.fixture(scope="module", autouse=True)
def quick_targets():
    """Looser defaults of the calibration: the test is about the examples, not about the precision of their answers."""
    from concal.consensus.joint import sampler
    from concal.spec import CalibrationSpec, Spec

    usual = {name: CalibrationSpec.model_fields[name].default for name in FAST}

    def take(defaults: dict[str, float]) -> None:
        for name, value in defaults.items():
            CalibrationSpec.model_fields[name].default = value
        CalibrationSpec.model_rebuild(force=True)
        Spec.model_rebuild(force=True)

    take(FAST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "TARGET_ESS", 20.0)
        patch.setattr(sampler, "TARGET_RHAT", 2.0)
        yield
    take(usual)


def call(words: list[str]) -> str:
    """Run a command as a shell would, in this folder."""
    assert words[0] == "concal", f"only concal is run, not {words[0]}"
    result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
    assert result.exit_code == 0, f"{' '.join(words)}\n{result.output}"
    return result.output


def run_r(text: str) -> None:
    """Run a block by R, in this folder; where there is no R the block is passed over."""
    if shutil.which("Rscript"):
        Path("block.R").write_text(text, encoding="utf-8")
        done = subprocess.run(["Rscript", "--vanilla", "block.R"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stderr}"


@pytest.fixture(scope="module")
def workshop(quick_targets, tmp_path_factory):
    """The folder that pages outside docs/start begin in."""
    folder = tmp_path_factory.mktemp("workshop")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        call(
            shlex.split("concal simulate programme --periods 3 --items 60 --examinees 400 --responses-per-examinee 20")
        )
        call(shlex.split("concal init bank --spec programme/bank.toml"))
        for period in ("2026Q1", "2026Q2"):
            call(
                ["concal", "add", "bank", period, f"programme/responses-{period}.csv", "--items", "programme/items.csv"]
            )
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_examples_run(page, tmp_path, monkeypatch, request):
    folder = tmp_path / "here"
    if page.startswith(EMPTY):
        folder.mkdir()
    else:
        shutil.copytree(request.getfixturevalue("workshop"), folder)
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for kind, text in blocks(page):
        if kind == "console":
            for words in commands(text):
                call(words)
        elif kind == "r":
            run_r(text)
        else:
            exec(compile(text, page, "exec"), names)


def test_the_tour_shows_every_step():
    named = {words[1] for kind, text in blocks("docs/start/tour.md") if kind == "console" for words in commands(text)}
    assert {"simulate", "init", "check", "add", "evaluate", "report", "release", "export", "retract"} <= named


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_text_exist(page):
    """A command named in backticks is one the program has."""
    known = {command.name for command in app.registered_commands}
    named = set(re.findall(r"`concal ([a-z]+)", (ROOT / page).read_text(encoding="utf-8")))
    assert named <= known, named - known


SHOWN = re.compile(r"^```(?:sh|text)\n(.*?)^```", re.S | re.M)


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_only_shown_are_understood(page):
    """Commands in blocks that are not run (they need files of the reader's) have arguments and options that exist."""
    from typer.main import get_command

    commands = get_command(app).commands
    for block in SHOWN.findall((ROOT / page).read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("concal ") and "..." not in line:
                _, name, *words = shlex.split(line, comments=True)
                commands[name].make_context(name, words)
