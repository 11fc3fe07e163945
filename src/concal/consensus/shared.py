r"""Groups with equal slopes or steps in a consensus: they are the population's, and every item has them.

Per item such a coordinate has no prior spread of its own, so an item's posterior is that of its other coordinates at
the group's. What is not known about it comes on top of all items alike: with the intercepts as they are, d = -c / a
moves by -d when log a moves by one, and not with a step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.state import PINNED, pinned
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]


def with_group_values(
    model: ResponseModel, mean: Array, covariance: Array, values: Array, variances: Array
) -> tuple[Array, Array]:
    """Items' means (n, p) and covariances (n, p, p) with the group's coordinates, `values` and `variances` (p,)."""
    mean, covariance, p = mean.copy(), covariance.copy(), mean.shape[1]
    for c in model.shared:
        mean[:, c] = values[c]
        covariance[:, c, :] = covariance[:, :, c] = 0.0
    for c in model.shared:
        pattern = metric.slope_pattern(mean[:, 0], p) if c == 1 else np.eye(p)[[c]]
        covariance += variances[c] * pattern[:, :, None] * pattern[:, None, :]
        covariance[:, c, c] += PINNED  # never singular
    return mean, covariance


def with_own_spread(model: ResponseModel, sigma: Array) -> Array:
    """Sigma (..., p, p) as if everything were the items' own: what a likelihood's information is measured against."""
    out = pinned(sigma, model)
    for c in model.shared:
        out[..., c, c] = model.prior.sd[c] ** 2
    return out
