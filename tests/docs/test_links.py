"""The check of the built documentation's links finds what leads nowhere."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "check_links.py"


def test_dead_links_are_found(tmp_path):
    spec = importlib.util.spec_from_file_location("check_links", SCRIPT)
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="sub/page.html#here">x</a><a href="sub/page.html#gone">x</a><a href="none.html">x</a>'
        '<img src="none.png"><a href="https://example.org/none">x</a><a href="#top">x</a><p id="top">'
    )
    (tmp_path / "sub" / "page.html").write_text(
        '<h1 id="here"></h1><a href="../index.html#top">x</a><a href="..">x</a>'
    )
    assert check.dead_links(tmp_path) == [
        "index.html: sub/page.html#gone",
        "index.html: none.html",
        "index.html: none.png",
    ]
