"""The scripts in examples/ run from an empty folder."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
WRITES = {"quarterly_update.py": "report.html", "adaptive.py": "adaptive.csv"}
SERVES = {"score_server.py"}  # tests/score/test_scorer.py asks it


def test_every_example_is_run():
    assert {path.name for path in FOLDER.glob("*.py")} == set(WRITES) | SERVES


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITES)
def test_example_runs(name, tmp_path):
    path = FOLDER / name
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / WRITES[name]).is_file()
