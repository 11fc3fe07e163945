r"""The metric wobble of a period: what all its items share because finitely many examinees fix origin and unit.

A small change of metric by (u, v) = (change of log A, change of B) moves every item along the same two patterns,

.. math:: \delta\xi_j = P_j (u, v)', \qquad P_j = \begin{pmatrix} d_j & 1 \\ -1 & 0 \\ 0 & 0 \end{pmatrix}.

The part of the draws' variation that follows these patterns is estimated by precision-weighted regression of each
draw's deviations on them; it belongs to the period's link, not to its items.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from concal.calibrate.result import Calibration
from concal.combine.moments import Moments

Array = npt.NDArray[np.float64]


def patterns(location: Array, p: int) -> Array:
    """P_j for items at locations d (items,): (items, p, 2), columns (log A, B)."""
    out = np.zeros((location.shape[0], p, 2))
    out[:, 0, 0] = location
    out[:, 1, 0] = -1.0
    out[:, 0, 1] = 1.0
    return out


def metric_wobble(calibration: Calibration, own: Mapping[str, Moments], seen: Mapping[str, Array]) -> Array:
    r"""Covariance of the period's metric in (log A, B), one 2 x 2 matrix per dimension.

    With W_j the item's precision and H = sum P'WP, the regression of draw s gives w_s; its variance over draws is
    C + H^-1 - H^-1 (sum H_j C H_j) H^-1, which is solved for C by iteration and kept positive semi-definite.
    """
    out = np.zeros((len(calibration.dimensions), 2, 2))
    for k, dimension in enumerate(calibration.dimensions):
        H, parts, scores = np.zeros((2, 2)), [], None
        for name, group in calibration.groups.items():
            if group.dimension != dimension:
                continue
            weight = np.linalg.inv(own[name].covariance) * seen[name][:, None, None]
            P = patterns(own[name].mean[:, 0], own[name].mean.shape[1])
            WP = weight @ P
            Hj = P.transpose(0, 2, 1) @ WP
            H = H + Hj.sum(axis=0)
            parts.append(Hj)
            share = _scores(group.xi, WP)
            scores = share if scores is None else scores + share
        if scores is not None and len(parts) and np.linalg.cond(H) < 1e14:
            out[k] = _solve(H, np.concatenate(parts), scores)
    return out


def _scores(xi: npt.NDArray[np.float32], WP: Array) -> Array:
    """Sum over items of P'W xi for every draw, (draws, 2); a few draws at a time, in double precision."""
    draws = xi.reshape(-1, WP.shape[0] * WP.shape[1])
    weights = WP.reshape(-1, 2)
    step = max(1, 2**22 // max(1, weights.shape[0]))
    pieces = [draws[s : s + step].astype(np.float64) @ weights for s in range(0, draws.shape[0], step)]
    return np.concatenate(pieces)


def _solve(H: Array, Hj: Array, scores: Array) -> Array:
    inverse = np.linalg.inv(H)
    w = scores @ inverse
    observed = np.cov(w, rowvar=False)
    C = np.zeros((2, 2))
    for _ in range(50):
        shared = (Hj @ C @ Hj).sum(axis=0)
        C = observed - inverse + inverse @ shared @ inverse
        values, vectors = np.linalg.eigh(0.5 * (C + C.T))
        C = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return C


def removable_share(mean: Array, covariance: Array, C: Array, most: float = 0.9) -> Array:
    """How much of the shared part P C P' can be taken out of each item's covariance, (items,).

    All of it, unless that were more than the share `most` of the variance in some direction.
    """
    P = patterns(mean[:, 0], mean.shape[1])
    relative = np.swapaxes(P, 1, 2) @ np.linalg.solve(covariance, P @ C)  # has the eigenvalues of cov^-1 P C P'
    half = 0.5 * np.trace(relative, axis1=1, axis2=2)
    largest = half + np.sqrt(np.maximum(half**2 - np.linalg.det(relative), 0.0))
    return np.asarray(np.minimum(1.0, most / np.maximum(largest, 1e-300)))


def add_wobble(mean: Array, covariance: Array, C: Array, share: Array) -> Array:
    """Item covariances with `share` (items,) times P C P' added; negative shares take it out."""
    P = patterns(mean[:, 0], mean.shape[1])
    return np.asarray(covariance + share[:, None, None] * (P @ C @ np.swapaxes(P, 1, 2)))


def without_wobble(mean: Array, covariance: Array, C: Array) -> Array:
    """Take the shared part P C P' out of item covariances, as far as it goes."""
    return add_wobble(mean, covariance, C, -removable_share(mean, covariance, C))
