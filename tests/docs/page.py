"""A page of the documentation as something that can be run: its blocks, their commands, and what it shows of them.

===========  =================================================================================================
console      lines that begin with ``$ `` are commands; what follows one is what it prints, see `missing_lines`
sh           every line is a command
python       run; all of a page's blocks share their names
r            run by Rscript where there is one
toml         read as bank.toml; sections that are left out are those of the programme beside the page
text         not an example: a tree of files
===========  =================================================================================================

A block with a caption (``{code-block}`` with ``:caption: NAME``) is a file of that name, which the page makes.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

KINDS = ("console", "sh", "python", "r", "toml", "text")
NOT_RUN = {
    r"make (demo|test)": "the gate runs them itself",
    r"pip install ": "changes the environment; the wheel is installed by .ci/wheel",
    r"concal .*s3://": "needs a bucket; tests/bank/test_cloud.py has servers of its own",
    r"dask |concal .*--scheduler": "needs a cluster; tests/bank/test_cluster.py starts one",
    r"concal .*--shards": "needs thousands of examinees; tests/bank/test_shards.py has them",
    r"python examples/adaptive.py": "takes minutes; run by tests/docs/test_examples.py, marked slow",
}
"""Commands that are shown and not run here, with the reason."""

_FENCE = re.compile(r"^```(.*)\n((?:(?!```).*\n)*)```$", re.M)
_NUMBER = re.compile(r"(?:< )?[-+]?\.?[0-9]+(?:[.,:][0-9]+)*")
_RULE = re.compile(r"[─-]{3,}")
_CAPTION = re.compile(r":caption: *(\S+)\n")
_FILE = "{code-block}"


@dataclass(frozen=True)
class Block:
    """A block of a page: its kind, its text, and the name of the file it is, if it is one."""

    kind: str
    text: str
    file: str = ""


@dataclass(frozen=True)
class Shown:
    """A command of a page and the lines the page shows of its output."""

    command: str
    prints: tuple[str, ...] = ()

    def not_run(self) -> str:
        """Why it is not run; empty if it is."""
        return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, self.command)), "")


def blocks(text: str) -> list[Block]:
    """The blocks of a page's text, directives of Sphinx left out."""
    found = []
    for head, content in _FENCE.findall(text):
        kind, caption = head.removeprefix(_FILE).strip(), _CAPTION.match(content)
        if head.startswith(_FILE) and caption:
            found.append(Block(kind, content[caption.end() :], caption[1]))
        elif not head.startswith("{"):
            found.append(Block(kind, content))
    return found


def commands(block: Block) -> list[Shown]:
    """The commands of a console or sh block; a backslash at the end of a line goes on."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.kind == "sh" or line.startswith("$ "):
            if words := shlex.split(line.removeprefix("$ "), comments=True):
                found.append((shlex.join(words), []))
        elif found:
            found[-1][1].append(line)
    return [Shown(command, tuple(lines)) for command, lines in found]


def run_command(command: str) -> str:
    """What a command prints in this folder; other programs than concal are refused."""
    from concal.cli import app

    program, *words = shlex.split(command)
    assert program == "concal", f"only concal is run, not {program}; name it in NOT_RUN with the reason"
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, f"{command}\n{result.output}"
    return result.output


def stable(line: str) -> str:
    """A line without what differs from run to run: numbers, widths of columns, rules.

    >>> stable("word-07   1.020  0.088  -0.305"), stable("item         a   SD a")
    ('word# # # #', 'item a SD a')
    """
    return " ".join(_NUMBER.sub("#", _RULE.sub(" ", line)).split())


def missing_lines(shown: tuple[str, ...], printed: str) -> list[str]:
    """Lines a page shows that the command does not print in this place, compared by their stable parts.

    Shown lines must follow each other as printed; ``...`` stands for any number of lines.
    """
    there = [stable(line) for line in printed.splitlines() if stable(line)]
    at, gap = 0, True
    for line in shown:
        wanted = stable(line)
        if line.strip() == "...":
            gap = True
        elif wanted:
            found = there.index(wanted, at) if wanted in there[at:] else -1
            if found < 0 or (not gap and found != at):
                return [line]
            at, gap = found + 1, False
    return []


def run_r(text: str) -> None:
    """Run a block by R, in this folder; where there is no R the block is passed over."""
    if shutil.which("Rscript"):
        Path("block.R").write_text(text, encoding="utf-8")
        done = subprocess.run(["Rscript", "--vanilla", "block.R"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stderr}"


def read_toml(text: str, programme: dict[str, Any]) -> None:
    """Read a piece of a bank.toml; what it leaves out is the programme's."""
    from concal.spec import Spec

    given = tomllib.loads(text)
    whole = given if "groups" in given else {**programme, **given}
    dimensions = sorted({group["dimension"] for group in whole["groups"].values()})
    Spec.parse({**whole, "bank": {"dimensions": dimensions, **whole.get("bank", {})}})


def run_page(text: str, where: str, programme: dict[str, Any]) -> list[str]:
    """Run all blocks of a page in this folder, from top to bottom.

    Returns
    -------
    The commands that were run.
    """
    names: dict[str, object] = {}
    done = []
    for block in blocks(text):
        assert block.kind in KINDS, f"{where}: a block of kind {block.kind!r}; there are {', '.join(KINDS)}"
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.kind == "python":
            exec(compile(block.text, where, "exec"), names)
        elif block.kind == "r":
            run_r(block.text)
        elif block.kind == "toml":
            read_toml(block.text, programme)
        elif block.kind in ("console", "sh"):
            for shown in commands(block):
                if not shown.not_run():
                    lost = missing_lines(shown.prints, printed := run_command(shown.command))
                    assert not lost, f"{where}: `{shown.command}` does not print\n{lost[0]}\nbut\n{printed}"
                    done.append(shown.command)
    return done
