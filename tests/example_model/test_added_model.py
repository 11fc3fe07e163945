"""A model from another package: found by its entry point, held to the same contract, usable in a programme."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture
def installed(tmp_path):
    """Environment of a machine where the example package is installed: its code and metadata are on the path."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    info = tmp_path / "concal_upper-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["concal.response"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[concal.response]", *lines, ""]))
    path = os.pathsep.join([str(tmp_path), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def run(arguments, environment):
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_contract_picks_it_up(installed):
    done = run(["-m", "pytest", "tests/response/test_contract.py", "-q", "-k", "2pl_upper"], installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 passed" in done.stdout


def test_its_kernels_compile(installed):
    done = run(
        ["-m", "pytest", "tests/compiler/test_lanes.py", "-q", "-k", "kernels_equal_numpy and 2pl_upper"], installed
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_absent_without_the_package():
    from concal.response import model_names

    assert "2pl_upper" not in model_names()


def test_a_programme_can_use_it(installed):
    code = """
import concal
spec = {"bank": {"dimensions": ["skill"]}, "groups": {"slips": {"model": "2pl_upper", "dimension": "skill"}}}
programme = concal.simulate_programme(spec=concal.Spec.parse(spec), periods=2, items=40, examinees=100, seed=1)
truth = programme.truth.items
assert set(truth["parameter"]) == {"d", "log_a", "logit_u"}, truth
print("simulated", sum(frame.height for frame in programme.responses.values()))
"""
    done = run(["-c", code], installed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("simulated")
