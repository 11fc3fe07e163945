"""What ``concal doctor`` finds, and what makes it fail."""

import json

import pytest

from concal import doctor
from concal.cli import main
from concal.doctor import Finding, examine


def test_this_machine_is_fit(tmp_path):
    found = {finding.name: finding for finding in examine(tmp_path / "not" / "there" / "yet")}
    assert {"python", "numba", "polars", "threads", "kernel cache", "disk", "self test"} <= set(found)
    assert found["self test"].ok, found["self test"].seen
    assert str(tmp_path) in found["disk"].seen


def test_a_package_outside_its_bounds_is_named(monkeypatch):
    monkeypatch.setattr(doctor, "requires", lambda name: ["numpy<1", "none-such>=2", "sphinx; extra == 'dev'"])
    found = doctor._packages()
    assert [(f.name, f.ok) for f in found] == [("numpy", False), ("none-such", False)]
    assert "tested with <1" in found[0].seen
    assert "not installed" in found[1].seen


def test_no_cache_and_no_room_fail(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "cache_folder", lambda: None)
    monkeypatch.setattr(doctor, "NEEDED_GB", 1e9)
    assert not doctor._cache().ok
    assert not doctor._disk(tmp_path).ok


@pytest.mark.parametrize("ok", [True, False])
def test_exit_code(ok, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda folder: [Finding("disk", ok, "seen")])
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--json"])
    assert (left.value.code or 0) == (0 if ok else 1)
    assert json.loads(capsys.readouterr().out) == [{"check": "disk", "ok": ok, "seen": "seen"}]
