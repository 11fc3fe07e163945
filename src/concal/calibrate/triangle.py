"""Places in a lower triangle, row by row: looked up many times a sweep, so kept."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt


@cache
def lower(n: int, k: int = 0) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns up to the k-th diagonal."""
    rows, columns = np.tril_indices(n, k)
    return rows, columns
