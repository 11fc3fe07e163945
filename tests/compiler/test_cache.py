"""The cache of compiled kernels: never stale, never growing for ever."""

import os
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from concal.compiler import cache as compiled


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled.cache_folder.cache_clear()
    yield tmp_path / "cache" / "concal"
    compiled.cache_folder.cache_clear()


def folder_now() -> Path:
    compiled.cache_folder.cache_clear()
    folder = compiled.cache_folder()
    assert folder is not None
    return folder


@pytest.mark.parametrize("layout", ["package", "module"])
def test_an_edited_model_of_another_package_has_a_cache_of_its_own(cache, tmp_path, monkeypatch, layout):
    source = tmp_path / "site" / ("added_model/formulas.py" if layout == "package" else "added_model.py")
    source.parent.mkdir(parents=True)
    (source.parent / "__init__.py").touch()
    source.write_text("SLOPE = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    entry = EntryPoint("added", "added_model:Model", "concal.response")
    monkeypatch.setattr(compiled, "entry_points", lambda group: [entry])
    before = folder_now()
    assert folder_now() == before
    source.write_text("SLOPE = 2.0\n")  # an editable install: the version stays
    assert folder_now() != before
    assert "added_model" not in sys.modules, "looked at, not imported"


def test_folders_nobody_uses_go(cache):
    old, recent = cache / "kernels-old", cache / "kernels-recent"
    for folder, days in ((old, compiled.UNUSED_DAYS + 1), (recent, compiled.UNUSED_DAYS - 1)):
        folder.mkdir(parents=True)
        (folder / "index.nbi").touch()
        then = time.time() - days * 86_400
        os.utime(folder, (then, then))
    now = folder_now()
    assert sorted(cache.iterdir()) == sorted([now, recent])


def test_a_folder_in_use_stays_young(cache):
    folder = folder_now()
    then = time.time() - 10 * compiled.UNUSED_DAYS * 86_400
    os.utime(folder, (then, then))
    assert folder_now() == folder
    assert folder.is_dir()


def test_every_kernel_keeps_its_machine_code_in_the_folder():
    code = """
import numba, concal.calibration.diagnostics, concal.linking.kernels, concal.score.kernels
import concal.consensus.joint.likelihood, concal.compiler, sys
folder = str(concal.compiler.cache_folder())
kept = [v for n, m in list(sys.modules.items()) if n.startswith("concal") for v in vars(m).values()
        if isinstance(v, numba.core.registry.CPUDispatcher) and v.stats.cache_path]
assert len(kept) > 10
print(sorted({v.py_func.__qualname__ for v in kept if not v.stats.cache_path.startswith(folder)}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
