"""The runner of the documentation's examples notices what is wrong."""

import pytest
from page import Block, blocks, commands, missing_lines, run_page, stable

from concal.errors import ConcalError

PRINTED = """\
Items
item         a   SD a
───────  ─────  ─────
word-00  1.021  0.097
word-01  1.049  0.104
warning: 2 items are sparse
"""
PROGRAMME = {"groups": {"words": {"model": "2pl", "dimension": "ability"}}}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def page(kind: str, text: str, caption: str = "") -> str:
    head = f"{{code-block}} {kind}\n:caption: {caption}" if caption else kind
    return f"Text\n\n```{head}\n{text}\n```\n\nmore\n"


def run(text: str) -> list[str]:
    return run_page(text, "a page", PROGRAMME)


@pytest.mark.parametrize(
    "shown",
    [
        PRINTED,
        "item  a SD a\nword-07 9.9 0.5",
        "Items\n...\nword-01  1.0  0.1\n...",
        "...\nwarning: 17 items are sparse",
    ],
)
def test_numbers_and_widths_may_differ(shown):
    assert not missing_lines(tuple(shown.splitlines()), PRINTED)


@pytest.mark.parametrize(
    ("shown", "lost"),
    [
        ("item  a  SD", "item  a  SD"),  # a column is gone
        ("Items\nword-00  1.0  0.1", "word-00  1.0  0.1"),  # the heading is missing between them
        ("word-00 1.0 0.1\nword-01 1.0 0.1\nword-02 1.0 0.1", "word-02 1.0 0.1"),
        ("...\nwarning: 2 items are thin", "warning: 2 items are thin"),
        ("warning: 2 items are sparse\n...\nItems", "Items"),  # not in this order
    ],
)
def test_outdated_output_is_found(shown, lost):
    assert missing_lines(tuple(shown.splitlines()), PRINTED) == [lost]


def test_p_values_are_numbers():
    assert stable("x  < .001") == stable("x   0.020")


def test_commands_and_what_they_print():
    block = Block("console", '$ concal items bank \\\n    --full   # all\nItems\na b\n$ concal show "my bank"\n')
    assert [(s.command, s.prints) for s in commands(block)] == [
        ("concal items bank --full", ("Items", "a b")),
        ("concal show 'my bank'", ()),
    ]
    assert [s.command for s in commands(Block("sh", "concal doctor  # looks\n\nmake test\n"))] == [
        "concal doctor",
        "make test",
    ]


def test_what_is_not_run_has_a_reason():
    shown = commands(Block("sh", "pip install concal\nconcal add s3://bucket/x 2026Q1 r.csv\nconcal show bank\n"))
    assert [bool(s.not_run()) for s in shown] == [True, True, False]


def test_a_page_runs_in_its_folder():
    files = page("text", "item_id,group\nw1,words", "items.csv") + page(
        "python", "assert open('items.csv').read()[:7] == 'item_id'"
    )
    assert run(files + page("console", "$ concal --version\nconcal 0.0.0")) == ["concal --version"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (page("console", "$ concal nonsense"), AssertionError),
        (page("sh", "concal show no-such-bank"), ConcalError),
        (page("sh", "concal --version --and-more"), AssertionError),
        (page("sh", "rm -r bank"), AssertionError),
        (page("console", "$ concal --version\nversion of concal: 0.1"), AssertionError),
        (page("python", "1 / 0"), ZeroDivisionError),
        (page("toml", "[calibration]\nchians = 2"), ConcalError),
        (page("bash", "concal --version"), AssertionError),
        (page("", "concal --version"), AssertionError),
    ],
)
def test_a_wrong_example_fails(text, error):
    with pytest.raises(error):
        run(text)


def test_directives_of_sphinx_are_no_examples():
    assert blocks("```{toctree}\n:hidden:\n\nstart\n```\n") == []
