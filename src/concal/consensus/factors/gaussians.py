r"""The Gaussian factor of an item, :math:`\exp(-\phi'Q\phi/2 + h'\phi)`, from the engine's averages or from draws.

*Gradients.* With l the gradient of the log-likelihood in phi, averaged over draws (`concal.calibration.moments`),

.. math:: Q = -Cov(l, \phi)\, Var(\phi)^{-1}, \qquad h = E\,l + Q\,E\,\phi .

The wobble moves items and abilities together and leaves the likelihood where it is, so it weakens the regression:
Var(phi) is taken without it.

*Draws alone.* Integration by parts gives :math:`E\,\nabla\log p = 0` and :math:`Cov(\nabla\log p, \phi) = -I` for the
posterior p, so with g the gradient of the log prior at each draw (its own beta and Sigma, and the change of variables),

.. math:: E\,l = -E\,g, \qquad Cov(l, \phi) = -I - Cov(g, \phi) .

That is 12 to 15 times noisier, so the precision it contains is corrected for the finite number of draws.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.moments import take_apart
from concal.calibration.result import GroupDraws
from concal.consensus.factors.moments import PhiMoments, phi_blocks
from concal.consensus.factors.wobble import without_wobble
from concal.consensus.gaussian import (
    effective_covariance_draws,
    inverse,
    precision_shrinkage,
    raise_eigenvalues,
    symmetric,
    times,
)
from concal.consensus.shared import with_own_spread

Array = npt.NDArray[np.float64]
FLOOR = 0.01
"""Least precision of a factor in units of the prior's, in every direction. A likelihood is bounded and an estimated
quadratic need not be; in periods of 600 examinees the floor raised none of the gpcm and ordered_beta factors and none
to 6 % of the 2pl ones, whose spread of slopes the period could not tell from zero."""


def prior_precision(mean: Array, sigma: Array) -> Array:
    """Sigma^-1 carried to phi at items phi = `mean` (items, p): K' Sigma^-1 K with K = d xi / d phi."""
    K = _slopes_of_xi(mean)
    return symmetric(np.swapaxes(K, 1, 2) @ np.linalg.inv(sigma) @ K)


def prior_in_phi(at: Array, mean: Array, sigma: Array) -> tuple[Array, Array]:
    """N(mean, Sigma) of xi as a Gaussian of phi, linearised at items xi = `at`: its mean and precision."""
    phi = metric.phi_of(at)
    K = _slopes_of_xi(phi)
    centre = phi + np.linalg.solve(K, (mean - at)[:, :, None])[:, :, 0]
    return centre, symmetric(np.swapaxes(K, 1, 2) @ np.linalg.inv(sigma) @ K)


def _slopes_of_xi(phi: Array) -> Array:
    """K = d xi / d phi, (items, p, p)."""
    n, p = phi.shape
    K = np.broadcast_to(np.eye(p), (n, p, p)).copy()
    c, a = phi[:, 0], phi[:, 1]
    K[:, 0, 0], K[:, 0, 1], K[:, 1, 1] = -1.0 / a, c / a**2, 1.0 / a
    return K


def from_gradients(group: GroupDraws, wobble: Array) -> tuple[Array, Array, Array, Array]:
    """Q, the mean gradient E l, and mean and covariance of phi (wobble taken out), from the engine's averages."""
    assert group.moments is not None
    found = take_apart(group.moments, len(group.model.parameters))
    covariance = without_wobble(found.mean[:, 1], found.covariance, wobble)
    Q = symmetric(np.asarray(-np.linalg.solve(covariance, found.cross), dtype=np.float64))
    return Q, found.gradient, found.mean, covariance


def from_draws(group: GroupDraws, own: PhiMoments, ess: Array, wobble: Array) -> tuple[Array, Array, Array, Array]:
    """The same from the draws alone; `ess` (items,) is their effective number."""
    n, p = own.mean.shape
    gradient, cross = np.empty((n, p)), np.empty((n, p, p))
    omega, beta = inverse(with_own_spread(group.model, group.flat("sigma"))), group.flat("beta")
    for block, phi in phi_blocks(group):
        g = _prior_gradient(group, block, phi, omega, beta)
        gradient[block] = -g.mean(axis=2)
        centred = phi - own.mean[block][:, :, None]
        cross[block] = centred @ (g - g.mean(axis=2)[:, :, None]).transpose(0, 2, 1) / (phi.shape[2] - 1)
    covariance = without_wobble(own.mean[:, 1], own.covariance, wobble)
    shrink = precision_shrinkage(effective_covariance_draws(group.n_draws, ess), p)[:, None, None]
    # the prior's share of the precision, -Cov(g, phi) Var(phi)^-1, is nearly free of the draws' noise: only the rest
    # is estimated as the inverse of a sample covariance
    total = shrink * inverse(covariance)
    return symmetric(total + np.linalg.solve(covariance, cross)), gradient, own.mean, covariance


def _prior_gradient(group: GroupDraws, block: slice, phi: Array, omega: Array, beta: Array) -> Array:
    r"""Gradient in phi of each draw's log prior, (items, p, draws): of N(X beta, Sigma) or of the guide, in xi.

    The density of phi is that of xi times a^-2, so -2/a is added in the direction of a.
    """
    xi = metric.xi_of(np.moveaxis(phi, 1, -1))  # (items, draws, p)
    if group.guide_mean is None:
        mean = np.einsum("jf,sfp->jsp", group.X[block], beta, optimize=True)
        g = -np.einsum("spq,jsq->jsp", omega, xi - mean, optimize=True)
    else:
        assert group.guide_covariance is not None
        log_A, B = group.flat("guide_link").T
        A = np.exp(log_A)
        residual = metric.move_items(xi, A, B) - group.guide_mean[block][:, None]
        g = -np.einsum("jpq,jsq->jsp", np.linalg.inv(group.guide_covariance[block]), residual, optimize=True)
        g[..., 0] *= A
    out = np.moveaxis(metric.gradient_in_phi(g, xi), -1, 1)
    out[:, 1] -= 2.0 / phi[:, 1]
    return out


def finish(Q: Array, gradient: Array, mean: Array, sigma: Array, seen: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """Q raised to the floor and h = E l + Q E phi; zeros for items without a response."""
    Q = raise_eigenvalues(Q, prior_precision(mean, sigma), FLOOR)
    h = gradient + times(Q, mean)
    return np.where(seen[:, None, None], Q, 0.0), np.where(seen[:, None], h, 0.0)
