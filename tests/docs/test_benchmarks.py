"""Benchmarks are run by hand; here they only have to fit the package they measure."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


def test_there_are_benchmarks():
    assert len(BENCHMARKS) > 10


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda p: p.stem)
def test_every_name_taken_from_concal_is_there(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "concal":
            module = import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name) or import_module(f"{node.module}.{alias.name}"), alias.name
