r"""Factors that bound: what an item's factors may not say.

A true likelihood is bounded, so the sum of an item's Gaussian factors must not have negative precision in any
direction. Estimated from draws it can, for items that data barely inform: harmless as long as the prior outweighs it,
but in the joint posterior Sigma is free, and where it grows until prior and factor cancel, the integral over the item
diverges: the search for a mode runs away. The same happens where a factor pulls hard with hardly any precision, as
if the item lay far away. In a likelihood the two go together: the mean square of the pull is the precision. Such an
item gets the least precision that mends it. In units where the prior is standard (:math:`L L' = \Sigma`), with
:math:`\lambda_v` the eigenvalues of :math:`L' T L`, T the summed factors on the reference metric, and
:math:`\delta_v` how far they move the item from its prior mean,

.. math:: \Delta = L^{-T} \Big(\sum_v (\epsilon_v - \lambda_v)^+\, v v'\Big) L^{-1}, \qquad
          \epsilon_v = \max(.02, \min(\delta_v^2, c)),

shared evenly by its factors and centred where the item's posterior lies at present, so that its mean does not move.
The ceiling c is zero unless the search for a mode fails without it: where it is not needed it makes posteriors a little
too narrow. (To cut negative directions off factor by factor would keep the positive half of the noise only, and upset
the balance between the pulls on d and on log a: it moves log a of hardly answered items by a third of a prior SD.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from concal.combine.factors import GroupFactors
from concal.combine.gaussian import positive_definite, symmetric, times

Array = npt.NDArray[np.float64]
FLOOR = 0.02
"""Least precision of an item's summed factors in any direction, in units of the prior's."""

CEILINGS = (0.0, 0.1, 0.3)
"""The most precision that is asked for because of a pull, one after the other until a mode is found."""


def bounded_factors(
    group: GroupFactors, total: Array, shift: Array, L: Array, mean: Array, u: Array, B: Array, ceiling: float = 0.0
) -> GroupFactors:
    """Give items whose factors do not bound the precision they lack.

    Parameters
    ----------
    group : GroupFactors
    total, shift : (items, p, p), (items, p)
        Summed factors on the reference metric, without a prior: precision, and precision times mean.
    L : (p, p)
        Cholesky factor of Sigma.
    mean : (items, p)
        Prior means on the reference metric.
    u, B : (periods,)
        Links log A and B, which take the reference metric to each period's own.
    ceiling : float
        c above.
    """
    counts = np.diff(group.start)
    seen = np.flatnonzero(counts > 0)
    unroot = np.linalg.inv(L)
    values, vectors = np.linalg.eigh(symmetric(L.T @ total[seen] @ L))
    centre = _posterior_mean(total[seen], shift[seen], mean[seen], L)
    moved = times(np.swapaxes(vectors, 1, 2), (centre - mean[seen]) @ unroot.T)
    lacking = np.maximum(np.clip(moved**2, FLOOR, max(FLOOR, ceiling)) - values, 0.0)
    some = lacking.max(axis=1) > 0.0
    if not some.any():
        return group
    loose, vectors, lacking, centre = seen[some], vectors[some], lacking[some], centre[some]
    share = unroot.T @ ((vectors * lacking[:, None, :]) @ np.swapaxes(vectors, 1, 2)) @ unroot
    share = symmetric(share) / counts[loose, None, None]
    place = np.full(group.n_items, -1)
    place[loose] = np.arange(loose.size)
    pairs = np.flatnonzero(place[group.item] >= 0)
    at, period = place[group.item[pairs]], group.period[pairs]
    A = np.ones((pairs.size, group.p))
    A[:, 0] = np.exp(u[period])
    added = A[:, :, None] * share[at] * A[:, None, :]
    own = centre[at]
    own[:, 0] = (own[:, 0] - B[period]) / A[:, 0]
    own[:, 1] += u[period]
    Q, h = group.Q.copy(), group.h.copy()
    Q[pairs] += added
    h[pairs] += times(added, own)
    return replace(group, Q=Q, h=h)


def _posterior_mean(total: Array, shift: Array, mean: Array, L: Array) -> Array:
    """Where prior and factors put each item; its prior mean where they are not a proper Gaussian together."""
    unroot = np.linalg.inv(L)
    Omega = unroot.T @ unroot
    proper = positive_definite(total + Omega, L @ L.T, 0.1)
    precision = np.where(proper[:, None, None], total + Omega, Omega)
    pull = np.where(proper[:, None], shift - times(total, mean), 0.0)
    return np.asarray(mean + np.linalg.solve(precision, pull[:, :, None])[:, :, 0])
