r"""The Gaussian factor of an item, :math:`\exp(-\phi'Q\phi/2 + h'\phi)`, from draws alone: integration by parts.

Given beta and Sigma the item's posterior is its prior times its likelihood, with gradients g and l = h - Q phi in phi.
Integration by parts holds draw by draw of the population, so with any weight W made of beta and Sigma

.. math:: E\,W(l + g) = 0, \qquad E\,W\{(l + g)(\phi - \bar\phi)' + I\} = 0,

linear equations in h and Q. Without weights they are :math:`E\,l = -E\,g` and :math:`Cov(l, \phi) = -I - Cov(g, \phi)`.
But l + g has the variance :math:`Q + \Sigma^{-1}`, and where the items' spread cannot be told from zero some draws of
:math:`\Sigma^{-1}` are beyond all measure: they alone would decide. W is the inverse of that variance, in xi, with the
precision of the group's average item for Q. Draws in which the prior leaves an item no freedom then say nothing about
its likelihood, as they should. (A step with an SD between .003 and .5: from 190 to .6 posterior SDs off without and
with weights; elsewhere both are the same.)

That is 12 to 15 times noisier than gradients, so the precision it contains is corrected for the number of draws: of
those that count, coordinate by coordinate (Kish's :math:`(\sum W)^2 / \sum W^2`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.result import GroupDraws
from concal.consensus.factors.moments import BLOCK_BYTES, PhiMoments, phi_blocks
from concal.consensus.factors.wobble import without_wobble
from concal.consensus.gaussian import effective_covariance_draws, inverse, precision_shrinkage, symmetric
from concal.consensus.shared import with_own_spread

Array = npt.NDArray[np.float64]
FEW = 100
"""Draws that count: with 54 of them factors were .2 posterior SDs off (RMS, Gaussian world), with 30 .9."""
MOST_LOST = (
    0.2  # share of the draws that may count for little because spreads vary over draws: no sign of one near zero
)


def from_draws(
    group: GroupDraws, own: PhiMoments, average: Array, ess: Array, wobble: Array, warnings: list[str]
) -> tuple[Array, Array]:
    """Q (items, p, p) and the gradient E l = h - Q E phi (items, p).

    Parameters
    ----------
    group : GroupDraws
        Draws of items, beta and Sigma; of the link for a guided group.
    own : PhiMoments
        Moments of phi over the draws.
    average : (p, p)
        Covariance of xi of the group's average item.
    ess : (items,)
        Effective number of draws.
    wobble : (2, 2)
        Of the period's metric, which moves items and leaves the likelihood where it is.
    warnings : list of str
        Takes doubts.
    """
    n, p = own.mean.shape
    Q, gradient = np.empty((n, p, p)), np.empty((n, p))
    omega, beta = inverse(with_own_spread(group.model, group.flat("sigma"))), group.flat("beta")
    # the prior of a guided item is the same in all draws: nothing to weigh
    free = inverse(average) + omega if group.guide_mean is None else np.eye(p)[None].repeat(group.n_draws, axis=0)
    weights = inverse(free)
    counting = counting_draws(weights)
    warnings += doubts_of_draws(group, counting)
    covariance = without_wobble(own.mean[:, 1], own.covariance, wobble)
    for block, phi in phi_blocks(group, BLOCK_BYTES // (1 + p)):  # products of two coordinates are kept
        g = prior_gradient(group, block, phi, omega, beta)
        moved = own.covariance[block] - covariance[block]
        gradient[block], Q[block] = solve_by_parts(phi, g, own.mean[block], moved, weights)
    # the prior's share of the precision is nearly free of the draws' noise: only the whole is the inverse of a sample
    # covariance
    known = effective_covariance_draws(group.n_draws, ess)[:, None] * (in_phi(counting) / group.n_draws)
    excess = np.sqrt(1.0 - precision_shrinkage(known, p))
    return symmetric(Q - excess[:, :, None] * inverse(covariance) * excess[:, None, :]), gradient


def doubts_of_draws(group: GroupDraws, counting: Array) -> list[str]:
    """What to tell where few draws count: the population leaves no freedom in the others, or there are few at all."""
    lost = (counting < FEW) & (counting < (1.0 - MOST_LOST) * group.n_draws)
    if lost.any():
        names = [name for name, low in zip(group.model.parameters, lost, strict=True) if low]
        return [
            f"group {group.name!r}: in all but about {counting.min():.0f} of the {group.n_draws} draws the population "
            f"leaves the items' {', '.join(names)} no freedom, so little is known of what the responses say there; "
            "import more draws, or let concal calibrate the period"
        ]
    if group.n_draws < FEW:
        return [
            f"group {group.name!r}: {group.n_draws} draws are few for what the responses said to be told from them; "
            f"import at least {FEW}, better some hundreds"
        ]
    return []


def counting_draws(weights: Array) -> Array:
    """How many of the draws (draws, p, p) count, for every coordinate of xi."""
    w = np.diagonal(weights, axis1=1, axis2=2)
    return np.asarray(w.sum(axis=0) ** 2 / (w**2).sum(axis=0))


def in_phi(counting: Array) -> Array:
    """The same for phi: slope and intercept need both location and slope."""
    return np.concatenate([np.full(2, counting[:2].min()), counting[2:]])


def solve_by_parts(phi: Array, g: Array, mean: Array, moved: Array, weights: Array) -> tuple[Array, Array]:
    r"""E l and Q of a block of items from the weighted equations.

    With K = d xi / d phi, :math:`K^{-T}` takes gradients to xi, where the weights live. `phi` and `g` (items, p,
    draws), `mean` (items, p), `moved` (items, p, p) the wobble's share of Var(phi), `weights` (draws, p, p).
    """
    n, p, draws = phi.shape
    to_xi = np.swapaxes(np.linalg.inv(metric.slopes_of_xi(mean)), 1, 2)
    W = weights.reshape(draws, p * p) / draws
    c = phi - mean[:, :, None]
    with_one = np.concatenate([np.ones((n, 1, draws)), c], axis=1)  # one equation each: (items, 1 + p, draws)
    with_one[:, 1:] *= draws / (draws - 1.0)  # products with c, whose mean is the draws' own, are sample covariances
    flat = with_one.reshape(-1, draws)
    of_gradient = (flat @ W).reshape(n, 1 + p, p, p) @ to_xi[:, None]
    products = with_one[:, :, None] * c[:, None]  # (items, 1 + p, p, draws)
    of_Q = (products.reshape(-1, draws) @ W).reshape(n, 1 + p, p, p, p)
    average = weights.mean(axis=0)
    of_Q[:, 1:] -= moved[:, :, :, None, None] * average
    of_Q = of_Q @ to_xi[:, None, None]
    # rows: equation and coordinate; columns: E l, then Q row by row
    left = np.concatenate([of_gradient, -of_Q.transpose(0, 1, 3, 4, 2).reshape(n, 1 + p, p, p * p)], axis=3)
    weighted = np.einsum("sab,ibs->ias", weights, to_xi @ g, optimize=True) / draws
    right = -np.einsum("iks,ias->ika", with_one, weighted, optimize=True)
    right[:, 1:] -= np.swapaxes(average @ to_xi, 1, 2)
    found = np.linalg.solve(left.reshape(n, (1 + p) * p, -1), right.reshape(n, -1, 1))[:, :, 0]
    return found[:, :p], found[:, p:].reshape(n, p, p)


def prior_gradient(group: GroupDraws, block: slice, phi: Array, omega: Array, beta: Array) -> Array:
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
