r"""Factors that bound: what an item's factors may not say.

A true likelihood is bounded, so the sum of an item's Gaussian factors must not have negative precision in any
direction. Estimated from draws it can, for items that data barely inform: harmless as long as the prior outweighs it,
but in the joint posterior Sigma is free, and where it grows until prior and factor cancel, the integral over the item
diverges: the search for a mode runs away. For such items (and only for them) every factor is cut to what it can stand
behind: with :math:`L L' = \Sigma` and the prior mean m, the directions v of :math:`L' Q L` with negative eigenvalue
are made flat,

.. math:: Q \to L^{-T} \Big(\sum_{\lambda_v > 0} \lambda_v v v'\Big) L^{-1}, \qquad
          h - Q m \to L^{-T} \sum_{\lambda_v > 0} v v' L' (h - Q m) .
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from concal.combine.factors import GroupFactors
from concal.combine.gaussian import positive_definite, symmetric, times

Array = npt.NDArray[np.float64]
MARGIN = 0.05
"""Smallest eigenvalue, in units of the prior's precision, at which an item's summed factors are left as they are."""


def bounded_factors(group: GroupFactors, total: Array, L: Array, mean: Array, u: Array, B: Array) -> GroupFactors:
    """Cut the factors of items whose sum does not bound.

    Parameters
    ----------
    group : GroupFactors
    total : (items, p, p)
        Summed factors on the reference metric, without a prior.
    L : (p, p)
        Cholesky factor of Sigma.
    mean : (items, p)
        Prior means on the reference metric.
    u, B : (periods,)
        Links log A and B, which take the prior means to each period's own metric.
    """
    loose = ~positive_definite(total, L @ L.T, MARGIN) & (np.diff(group.start) > 0)
    pairs = np.flatnonzero(loose[group.item])
    if not pairs.size:
        return group
    own = mean[group.item[pairs]].copy()
    period = group.period[pairs]
    own[:, 0] = (own[:, 0] - B[period]) * np.exp(-u[period])
    own[:, 1] += u[period]
    Q, h = group.Q[pairs], group.h[pairs]
    values, vectors = np.linalg.eigh(symmetric(L.T @ Q @ L))
    unroot = np.linalg.inv(L)
    kept = vectors * (values > 0)[:, None, :]
    new_Q = symmetric(unroot.T @ ((kept * values[:, None, :]) @ np.swapaxes(kept, 1, 2)) @ unroot)
    pull = times(kept @ np.swapaxes(kept, 1, 2), (h - times(Q, own)) @ L) @ unroot
    all_Q, all_h = group.Q.copy(), group.h.copy()
    all_Q[pairs], all_h[pairs] = new_Q, pull + times(new_Q, own)
    return replace(group, Q=all_Q, h=all_h)
