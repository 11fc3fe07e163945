"""Independence steps: to the mode, and a proposal around it that has tails.

They are exact only if the mode does not depend on where a chain comes from. And they bring a chain back from far away
only if the proposal could have been there: with Gaussians, chains whose unit began a few tens of percent too small
stayed for more than a hundred sweeps (401 examinees, 87,000 responses), where a t distribution brings them back in one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from concal.calibration.kernels import LANES

Array = npt.NDArray[np.float64]
TAIL_DF = 6.0
"""Degrees of freedom of proposals."""
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


def draw_around(k: int, rng: np.random.Generator) -> Array:
    """Standard t distributed noise in k coordinates, (k, LANES)."""
    return rng.standard_normal((k, LANES)) / np.sqrt(rng.standard_gamma(TAIL_DF / 2.0, LANES) / (TAIL_DF / 2.0))


def log_around(noise: Array) -> Array:
    """Its log density up to a constant, (k, LANES) -> (LANES,)."""
    return np.asarray(-0.5 * (TAIL_DF + len(noise)) * np.log1p((noise**2).sum(axis=0) / TAIL_DF))
