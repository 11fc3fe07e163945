"""The examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import concal

MODULES = sorted(m.name for m in pkgutil.walk_packages(concal.__path__, "concal.") if not m.name.endswith("__main__"))


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"concal": concal})
    assert result.failed == 0


def test_there_are_doctests():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [t for name in MODULES for t in finder.find(importlib.import_module(name)) if t.examples]
    assert len(found) > 10
