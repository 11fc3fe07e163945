"""The map from equations to code names what is there."""

import importlib
import re
from pathlib import Path

import pytest

METHOD = Path(__file__).resolve().parents[2] / "docs" / "method"
NAMES = sorted({name for page in METHOD.glob("*.md") for name in re.findall(r"`(concal(?:\.\w+)+)`", page.read_text())})


@pytest.mark.parametrize("name", NAMES)
def test_name_exists(name):
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[split:]:
            found = getattr(found, attribute)
        return
    raise AssertionError(name)


def test_every_labelled_equation_is_there():
    text = (METHOD / "equations.md").read_text()
    for label in ("eq:scale", "eq:curvemap", "eq:haebara", "eq:product", "eq:Lc", "eq:betastar"):
        assert f"`{label}`" in text
