"""Every example of every page and of the README runs, page by page, from top to bottom.

What the blocks of a page are, how outputs are compared and what is not run is in page.py. Pages of docs/start begin in
an empty folder, the README beside a `responses.csv`, all others beside a simulated `programme` of three periods and a
`bank` that holds the first two.
"""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from page import NOT_RUN, blocks, commands, run_command, run_page

from concal.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(p.relative_to(ROOT).as_posix() for p in DOCS.rglob("*.md") if "_build" not in p.parts), "README.md"]
FAST = {"draws": 200, "min_ess": 20.0, "max_rhat": 1.2, "item_share": 0.5, "max_sweeps": 1500}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def commands_of(page: str) -> list:
    return [shown for block in blocks(text_of(page)) if block.kind in ("console", "sh") for shown in commands(block)]


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


@pytest.fixture(scope="module")
def workshop(quick_targets, tmp_path_factory):
    """The folder that most pages begin in."""
    folder = tmp_path_factory.mktemp("workshop")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_command("concal simulate programme --periods 3 --items 60 --examinees 400 --responses-per-examinee 20")
        run_command("concal init bank --spec programme/bank.toml")
        for period in ("2026Q1", "2026Q2"):
            run_command(f"concal add bank {period} programme/responses-{period}.csv --items programme/items.csv")
    return folder


@pytest.fixture
def beside(tmp_path, monkeypatch, workshop):
    """A function that goes to a new folder with what a page finds there."""

    def go(page: str) -> Path:
        folder = tmp_path / "here"
        if page.startswith("docs/start/"):
            folder.mkdir()
        elif page == "README.md":
            folder.mkdir()
            shutil.copy(workshop / "programme" / "responses-2026Q1.csv", folder / "responses.csv")
        else:
            shutil.copytree(workshop, folder)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "100")
        return folder

    return go


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(text_of(page))])
def test_examples_run(page, beside, workshop):
    beside(page)
    run_page(text_of(page), page, tomllib.loads((workshop / "programme" / "bank.toml").read_text(encoding="utf-8")))


def test_every_command_is_run_on_some_page():
    """What is not run, and why, is in NOT_RUN; no entry of it is idle."""
    every = [shown for page in PAGES for shown in commands_of(page)]
    run = {shlex.split(shown.command)[1] for shown in every if not shown.not_run()}
    assert {command.name for command in app.registered_commands} - run == {"demo"}
    assert {shown.not_run() for shown in every} - {""} == set(NOT_RUN.values())


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_text_exist(page):
    """A command named in backticks is one the program has."""
    known = {command.name for command in app.registered_commands}
    named = set(re.findall(r"`concal ([a-z]+)", text_of(page)))
    assert named <= known, named - known


def understood(command: str) -> None:
    """Arguments and options of a command exist."""
    from typer.main import get_command

    _, name, *words = shlex.split(command, comments=True)
    get_command(app).commands[name].make_context(name, words)


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_not_run_are_understood(page):
    for shown in commands_of(page):
        if shown.not_run() and shown.command.startswith("concal "):
            understood(shown.command)


@pytest.mark.parametrize("command", app.registered_commands, ids=lambda command: command.name)
def test_examples_of_help_are_understood(command):
    """Each command's help, which the reference shows, has an example with arguments and options that exist."""
    found = re.search(r"^ *Example: (.*)$", command.callback.__doc__, re.M)
    for example in re.split(r"; | > \S+", found[1]):
        if example:
            understood(example)
