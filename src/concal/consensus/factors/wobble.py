r"""The metric wobble of a period: what all its items share because finitely many examinees fix origin and unit.

A small change of metric by (u, v) = (change of log A, change of B) moves every item's phi along the same two patterns
P_j (`concal.metric.patterns`). The part of the draws' variation that follows them is estimated by precision-weighted
regression of each draw's deviations on the patterns; it belongs to the period's link, not to its items.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.result import Calibration
from concal.consensus.factors.moments import PhiMoments, phi_blocks
from concal.consensus.gaussian import positive_part

Array = npt.NDArray[np.float64]
MOST = 0.9
"""Largest share of an item's variance, in any direction, that is taken out as wobble: an item answered by everybody
carries a good part of the metric itself, and a covariance must stay one. So no precision grows to more than tenfold."""


def metric_wobble(calibration: Calibration, own: Mapping[str, PhiMoments]) -> Array:
    r"""Covariance of the period's metric in (log A, B), one 2 x 2 matrix per dimension.

    With W_j the item's precision and H = sum P'WP, the regression of draw s gives w_s; its variance over draws is
    C + H^-1 - H^-1 (sum H_j C H_j) H^-1, which is solved for C by iteration and kept positive semi-definite.
    """
    out = np.zeros((len(calibration.dimensions), 2, 2))
    for k, dimension in enumerate(calibration.dimensions):
        H, parts, scores = np.zeros((2, 2)), [], np.zeros((calibration.n_draws, 2))
        for name, group in calibration.groups.items():
            seen = group.n_responses > 0
            if group.dimension != dimension or not seen.any():
                continue
            weight = np.linalg.inv(own[name].covariance) * seen[:, None, None]
            P = metric.patterns(own[name].mean[:, 1], own[name].mean.shape[1])
            WP = weight @ P
            Hj = P.transpose(0, 2, 1) @ WP
            H = H + Hj.sum(axis=0)
            parts.append(Hj)
            for block, phi in phi_blocks(group):
                scores += np.einsum("jps,jpk->sk", phi, WP[block], optimize=True)
        if parts and np.linalg.cond(H) < 1e14:
            out[k] = _solve(H, np.concatenate(parts), scores)
    return out


def _solve(H: Array, Hj: Array, scores: Array) -> Array:
    inverse = np.linalg.inv(H)
    observed = np.cov(scores @ inverse, rowvar=False)
    C = np.zeros((2, 2))
    for _ in range(50):
        shared = (Hj @ C @ Hj).sum(axis=0)
        C = positive_part(observed - inverse + inverse @ shared @ inverse)
    return C


def without_wobble(slope: Array, covariance: Array, C: Array) -> Array:
    """Covariances of phi without the shared part P C P', as far as it goes (see `MOST`)."""
    P = metric.patterns(slope, covariance.shape[-1])
    relative = np.swapaxes(P, 1, 2) @ np.linalg.solve(covariance, P @ C)  # has the eigenvalues of cov^-1 P C P'
    half = 0.5 * np.trace(relative, axis1=1, axis2=2)
    largest = half + np.sqrt(np.maximum(half**2 - np.linalg.det(relative), 0.0))
    share = np.minimum(1.0, MOST / np.maximum(largest, 1e-300))
    return np.asarray(covariance - share[:, None, None] * (P @ C @ np.swapaxes(P, 1, 2)))
