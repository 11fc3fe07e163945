"""The page's JavaScript is readable: it parses, lines fit, and every section and panel has its file."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import concal.report
from concal.report.panels import PANELS
from concal.report.sections import SECTIONS

TEMPLATES = Path(concal.report.__file__).parent / "templates"
SCRIPTS = sorted(TEMPLATES.rglob("*.js"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.relative_to(TEMPLATES).as_posix())
def test_style(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("//"), "says what it is for in its first line"
    assert text.endswith("\n")
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path.name}:{number}"
        assert len(line) <= 120, f"{where} is too long"
        assert line == line.rstrip(), f"{where} ends in spaces"
        assert "\t" not in line, f"{where} has a tab"
        plain = re.sub(r"//.*|\"[^\"]*\"|`[^`]*`", "", line)
        assert "for (" in plain or not re.search(r";\s*\S", plain), f"{where} has two statements"
        assert not re.search(r"\bvar\b|[^=!]==[^=]|\beval\(|innerHTML", line), (
            f"{where}: let or const, ===, no HTML text"
        )


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.relative_to(TEMPLATES).as_posix())
def test_parses(path):
    done = subprocess.run(["node", "--check", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_sections_and_panels_have_their_files():
    names = {module.__name__.rsplit(".", 1)[1] for module in SECTIONS}
    assert {p.stem for p in (TEMPLATES / "sections").glob("*.html")} == names
    assert {p.stem for p in (TEMPLATES / "sections").glob("*.js")} <= names
    assert {p.stem for p in (TEMPLATES / "panels").glob("*.js")} == {panel.KEY for panel in PANELS}
