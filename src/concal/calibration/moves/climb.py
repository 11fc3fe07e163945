"""To the mode, for independence steps: they are exact only if the mode does not depend on where a chain comes from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
WIDER = 1.05
"""Proposals are a little wider than the Gaussian at the mode, so that tails are reached."""
LONGEST = 0.5
FEWEST, MOST = 8, 200
SMALL = 1e-9


def climb(start: Array, newton: Callable[[Array], Array]) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Newton steps of at most half a log unit from `start` (..., LANES), and in which lanes they came to rest.

    A lane that does not come to rest has no proposal both ways could agree on, and must stay where it is.
    """
    x, step = start, np.full_like(start, np.inf)
    for k in range(MOST):
        if k >= FEWEST and np.all(np.abs(step) < SMALL):
            break
        step = np.clip(newton(x), -LONGEST, LONGEST)
        x = x + step
    return x, np.asarray((np.abs(step) < SMALL).reshape(-1, start.shape[-1]).all(axis=0))
