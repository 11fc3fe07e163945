"""Kills, competing writers, full disks, read-only folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from concal.bank.bank import Bank
from concal.bank.store.upkeep import check_file, verify
from concal.errors import BankError

from .places import Place, overwrite, put_byte
from .programme import SPEC, fake_calibrator, items_table, responses_table

DRILL = Path(__file__).with_name("drill.py")


def drill(*arguments: object) -> dict[str, Any]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(DRILL), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_killed_updates_leave_the_old_or_the_new_state(drilled: Place, tmp_path: Path) -> None:
    n = 15 if drilled.is_folder else 3
    result = drill("kills", tmp_path, drilled.root, n, 1)
    assert result["killed"] == n
    assert result["mixed"] == 0


@pytest.mark.slow
def test_hundreds_of_killed_updates(drilled: Place, tmp_path: Path) -> None:
    n = 300 if drilled.is_folder else 100
    result = drill("kills", tmp_path, drilled.root, n, 2)
    assert result["killed"] == n
    assert result["mixed"] == 0
    assert result["old"] > n / 3
    print(result)


def test_crash_at_some_steps_of_an_update(any_place: Place, tmp_path: Path) -> None:
    result = drill("every_step", tmp_path, any_place.root, 37 if any_place.is_folder else 71)
    assert result["old"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 7))
def test_crash_at_every_step_of_an_update(drilled: Place, tmp_path: Path, first: int) -> None:
    result = drill("every_step", tmp_path, drilled.root, 6, first)
    assert result["old"] > 8
    assert result["new"] >= 1
    print(result)


def test_competing_writers(drilled: Place, tmp_path: Path) -> None:
    result = drill("writers", tmp_path, drilled.root, 3, 3)
    assert result["commits"] == 9
    assert result["periods"] == 10
    assert result["worst"] < 1e-9
    assert not result["problems"]
    assert not result["unknown"]
    assert result["looks"] > 0


@pytest.mark.slow
def test_four_writers_with_fifteen_commits_each(drilled: Place, tmp_path: Path) -> None:
    result = drill("writers", tmp_path, drilled.root, 4, 15)
    assert result["periods"] == 61
    assert result["worst"] < 1e-9
    assert not result["problems"]
    assert not result["unknown"]
    print(result)


def small_bank(path: Any) -> Bank:
    bank = Bank.create(path, SPEC)
    bank.add("Q1", responses_table("Q1"), items_table(), calibrator=fake_calibrator)
    return bank


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=False)
    if done.returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk_leaves_the_old_state(small_disk: Path) -> None:
    bank = small_bank(small_disk / "bank")
    before = bank.items()
    filler = small_disk / "filler"
    free = shutil.disk_usage(small_disk).free
    for spare in range(0, 600_000, 48_000):
        filler.write_bytes(b"x" * max(0, free - spare))
        try:
            bank.add("Q2", responses_table("Q2", 2), items_table(), calibrator=fake_calibrator)
        except BankError as error:
            assert "disk is full" in str(error)  # noqa: PT017
            reader = Bank(bank.path)
            assert reader.version == 1
            assert reader.items().equals(before)
            assert reader.verify().ok
            filler.unlink()
            shutil.rmtree(bank.path / "work")
            (bank.path / "work").mkdir()
            continue
        break
    else:
        pytest.fail("the disk was never large enough")
    assert spare > 0, "the disk was never full"
    assert bank.version == 2
    assert bank.verify().ok


def test_read_only_folder_is_readable_and_says_so(tmp_path: Path) -> None:
    bank = small_bank(tmp_path / "bank")
    place = tmp_path / "locked"
    place.mkdir()
    if subprocess.run(["mount", "--bind", str(bank.path), str(place)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        locked = Bank(place)
        assert locked.items().equals(bank.items())
        assert locked.verify().ok
        for attempt in (
            lambda: locked.add("Q2", responses_table("Q2", 2), items_table(), calibrator=fake_calibrator),
            lambda: locked.retract("Q1"),
            lambda: locked.release("fall"),
        ):
            with pytest.raises(BankError, match="cannot be written to"):
                attempt()
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert Bank(bank.path).version == 1


def test_damage_is_named_by_every_way_of_reading(any_place: Place) -> None:
    bank = small_bank(any_place / "bank")
    entries = bank.snapshot.entries()
    store = bank._store
    assert any(name.endswith("bank.toml") for name in entries)
    for name, entry in entries.items():
        good = store.objects.read(name)
        for place in {0, len(good) // 2, len(good) - 1}:
            bad = bytearray(good)
            bad[place] ^= 0x10
            overwrite(store, name, bytes(bad))
            found = verify(bank._store)
            assert len(found.problems) == 1, name
            assert name in found.problems[0]
        overwrite(store, name, good[:-1])
        assert name in verify(bank._store).problems[0]
        overwrite(store, name, good)
        assert entry.bytes == len(good)
    assert bank.verify().ok


@pytest.mark.slow
def test_every_flipped_byte_is_found(drilled: Place) -> None:
    """Of every file in a folder; on object storage of some hundred, each a request or two."""
    bank = small_bank(drilled / "bank")
    store, entries = bank._store, bank.snapshot.entries()
    stride, tried = 1 if drilled.is_folder else sum(e.bytes for e in entries.values()) // 400, 0
    for name, entry in entries.items():
        good = store.objects.read(name)
        for at in range(tried % 7, len(good), stride):
            put_byte(store, name, good, at, good[at] ^ 1 << (at % 8))
            with pytest.raises(BankError, match="hash does not match"):
                check_file(store, entry)
            put_byte(store, name, good, at, good[at])
            tried += 1
    assert tried >= 300
    assert bank.verify().ok


@pytest.mark.slow
def test_killed_calibration_resumes_bit_identically(tmp_path: Path) -> None:
    """The real engine, killed while it samples; the second run goes on from its checkpoint."""
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from programme import SPEC, items_table, responses_table
import concal.calibration.sampler
from concal.bank.bank import Bank
from concal.spec import Spec
import os
path = sys.argv[1]
data = SPEC.model_dump()
data["calibration"] |= dict(chains=4, draws=400, max_sweeps=3000, min_ess=1e9)
concal.calibration.sampler.CHECKPOINT_SECONDS = 0.1
bank = Bank(path) if os.path.exists(path) else Bank.create(path, Spec.parse(data))
print("ready", flush=True)
bank.add("Q1", responses_table("Q1", persons=200), items_table(), accept_unconverged=True)
"""
    whole = subprocess.run([sys.executable, "-c", program, str(tmp_path / "whole")], check=True, capture_output=True)
    assert whole.returncode == 0
    path = tmp_path / "killed"
    for _ in range(20):
        child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        for _ in range(1200):
            saved = list(path.glob("work/calibration-*/checkpoint.npz"))
            if saved or child.poll() is not None:
                break
            time.sleep(0.05)
        child.kill()
        child.wait()
        if child.returncode != 0 and saved:
            break
    else:
        pytest.skip("the run is too short here to be killed after a checkpoint")
    assert Bank(path).version == 0
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True)
    mine, theirs = Bank(path).calibration("Q1"), Bank(tmp_path / "whole").calibration("Q1")
    for name, group in mine.groups.items():
        np.testing.assert_array_equal(group.xi, theirs.groups[name].xi)
        np.testing.assert_array_equal(group.beta, theirs.groups[name].beta)
