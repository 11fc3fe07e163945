"""Kills, competing writers, full disks, read-only folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRILL = Path(__file__).with_name("drill.py")


def drill(*arguments: object) -> dict[str, Any]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(DRILL), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_killed_updates_leave_the_old_or_the_new_state(tmp_path: Path) -> None:
    result = drill("kills", tmp_path, 15, 1)
    assert result["old"] + result["new"] == 15


@pytest.mark.slow
def test_300_killed_updates(tmp_path: Path) -> None:
    result = drill("kills", tmp_path, 300, 2)
    assert result["old"] + result["new"] == 300
    assert result["old"] > 100
    print(result)


def test_crash_at_some_steps_of_an_update(tmp_path: Path) -> None:
    result = drill("every_step", tmp_path, 19)
    assert result["old"] > 3


@pytest.mark.slow
def test_crash_at_every_step_of_an_update(tmp_path: Path) -> None:
    result = drill("every_step", tmp_path, 1)
    assert result["old"] > 50
    assert result["new"] >= 1
    print(result)


def test_competing_writers(tmp_path: Path) -> None:
    result = drill("writers", tmp_path, 3, 3)
    assert result["commits"] == 9
    assert result["periods"] == 10
    assert result["worst"] < 1e-9
    assert not result["problems"]
    assert not result["unknown"]
    assert result["looks"] > 0


@pytest.mark.slow
def test_four_writers_with_fifteen_commits_each(tmp_path: Path) -> None:
    result = drill("writers", tmp_path, 4, 15)
    assert result["periods"] == 61
    assert result["worst"] < 1e-9
    assert not result["problems"]
    assert not result["unknown"]
    print(result)
