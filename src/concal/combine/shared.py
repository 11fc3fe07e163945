r"""Groups with equal slopes in a consensus: the slope is the population's, and every item has it.

Per item the slope has no prior spread of its own, so an item's posterior is that of its other coordinates at the
group's slope. What is not known about the slope comes on top of all items alike: with the intercepts as they are,
d = -c / a moves by -d when log a moves by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.calibrate.state import PINNED
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]


def with_group_slope(
    model: ResponseModel, mean: Array, covariance: Array, slope: float, variance: float
) -> tuple[Array, Array]:
    """Items' means (n, p) and covariances (n, p, p) with the group's log slope and its variance."""
    mean, covariance = mean.copy(), covariance.copy()
    for c in model.shared:
        mean[:, c] = slope
        covariance[:, c, :] = covariance[:, :, c] = 0.0
        pattern = np.zeros_like(mean)
        pattern[:, 0], pattern[:, c] = -mean[:, 0], 1.0
        covariance += variance * pattern[:, :, None] * pattern[:, None, :]
        covariance[:, c, c] += PINNED  # never singular
    return mean, covariance


def with_own_spread(model: ResponseModel, sigma: Array) -> Array:
    """Sigma (..., p, p) as if the slopes were the items' own: what a likelihood's information is measured against."""
    out = np.array(sigma)
    for c in model.shared:
        out[..., c, :] = out[..., :, c] = 0.0
        out[..., c, c] = model.prior.sd[c] ** 2
    return out
