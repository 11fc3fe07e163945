"""What compiling cost, said truly."""

import subprocess
import sys

CODE = """
import time
from concal.compiler import compile_seconds, kernel
before = compile_seconds()
start = time.perf_counter()
@kernel
def added(x):
    return x + 1.0
added(1.0)
first = time.perf_counter() - start
spent = compile_seconds() - before
added(2.0)
assert 0.0 < spent <= first
assert compile_seconds() - before == spent
added(1)  # another type
assert compile_seconds() - before > spent
"""


def test_seconds_of_compilation_are_added_up(tmp_path):
    source = tmp_path / "compiled_here.py"
    source.write_text(CODE)
    subprocess.run([sys.executable, str(source)], check=True)
