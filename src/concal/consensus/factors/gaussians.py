r"""The Gaussian factor of an item, :math:`\exp(-\phi'Q\phi/2 + h'\phi)`, from the engine's averages.

*Gradients.* With l the gradient of the log-likelihood in phi, averaged over draws (`concal.calibration.moments`),

.. math:: Q = -Cov(l, \phi)\, Var(\phi)^{-1}, \qquad h = E\,l + Q\,E\,\phi .

The wobble moves items and abilities together and leaves the likelihood where it is, so it weakens the regression:
Var(phi) is taken without it.

*Draws alone.* `concal.consensus.factors.by_parts`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.moments import take_apart
from concal.calibration.result import GroupDraws
from concal.consensus.factors.wobble import without_wobble
from concal.consensus.gaussian import raise_eigenvalues, symmetric, times

Array = npt.NDArray[np.float64]
FLOOR = 0.01
"""Least precision of a factor in units of the prior's, in every direction. A likelihood is bounded and an estimated
quadratic need not be; in periods of 600 examinees the floor raised none of the gpcm and ordered_beta factors and none
to 6 % of the 2pl ones, whose spread of slopes the period could not tell from zero."""


def prior_precision(mean: Array, sigma: Array) -> Array:
    """Sigma^-1 carried to phi at items phi = `mean` (items, p): K' Sigma^-1 K with K = d xi / d phi."""
    K = metric.slopes_of_xi(mean)
    return symmetric(np.swapaxes(K, 1, 2) @ np.linalg.inv(sigma) @ K)


def prior_in_phi(at: Array, mean: Array, sigma: Array) -> tuple[Array, Array]:
    """N(mean, Sigma) of xi as a Gaussian of phi, linearised at items xi = `at`: its mean and precision."""
    phi = metric.phi_of(at)
    K = metric.slopes_of_xi(phi)
    centre = phi + np.linalg.solve(K, (mean - at)[:, :, None])[:, :, 0]
    return centre, prior_precision(phi, sigma)


def from_gradients(group: GroupDraws, wobble: Array) -> tuple[Array, Array, Array, Array]:
    """Q, the mean gradient E l, and mean and covariance of phi (wobble taken out), from the engine's averages."""
    assert group.moments is not None
    found = take_apart(group.moments, len(group.model.parameters))
    covariance = without_wobble(found.mean[:, 1], found.covariance, wobble)
    Q = symmetric(np.asarray(-np.linalg.solve(covariance, found.cross), dtype=np.float64))
    return Q, found.gradient, found.mean, covariance


def finish(Q: Array, gradient: Array, mean: Array, sigma: Array, seen: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """Q raised to the floor and h = E l + Q E phi; zeros for items without a response."""
    Q = raise_eigenvalues(Q, prior_precision(mean, sigma), FLOOR)
    h = gradient + times(Q, mean)
    return np.where(seen[:, None, None], Q, 0.0), np.where(seen[:, None], h, 0.0)
