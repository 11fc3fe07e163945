"""The compiler layer leans on numba's internals: it must be a release the kernels were tested with.

Both ends of the range in pyproject.toml were: 0.61.2 (NumPy 2.2) and 0.68.1 (NumPy 2.4).
"""

from importlib.metadata import requires

import numba
from packaging.requirements import Requirement


def test_numba_is_a_tested_release():
    """Vector type, intrinsics and overloads are defined through parts of numba that may change with any release."""
    wanted = next(r for r in map(Requirement, requires("concal")) if r.name == "numba")
    assert any(s.operator.startswith("<") for s in wanted.specifier), "numba must be capped: see above"
    assert wanted.specifier.contains(numba.__version__, prereleases=True), (
        f"numba {numba.__version__} is untested (tested: {wanted.specifier}). The lanes are a vector type of our own, "
        "defined through numba's internals: a new release may miscompile them silently. Run `make newest`; when "
        "everything passes, raise the cap in pyproject.toml."
    )
