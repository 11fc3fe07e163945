"""Public names are typed for users: mypy --strict accepts the example and refuses every wrong line."""

import re
import subprocess
import sys
from pathlib import Path

import concal

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_type_checkers_see_every_public_name():
    source = Path(concal.__file__).read_text(encoding="utf-8")
    typed = set(re.findall(r"^    from \S+ import (\w+) as \1$", source, re.M))
    assert typed == set(concal.__all__) - {"__version__"}


def test_every_public_name_is_there():
    for name in concal.__all__:
        assert getattr(concal, name) is not None
    assert set(concal.__all__) == set(dir(concal))


def test_mypy_accepts_the_example_and_refuses_what_is_wrong():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--no-error-summary"),
            *("--cache-dir", str(ROOT / ".mypy_cache"), "example.py", "wrong.py"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE,
    )
    found = re.findall(r"^(?:.*/)?(\w+\.py):(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.M)
    wanted = [
        ("wrong.py", str(k), kind)
        for k, line in enumerate((HERE / "wrong.py").read_text().splitlines(), 1)
        for kind in re.findall(r"# error: (\S+)$", line)
    ]
    assert sorted(found) == sorted(wanted), done.stdout + done.stderr
