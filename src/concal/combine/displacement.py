r"""How far a period's factor for an item lies from what the other periods say, in standard errors.

In coordinates where Sigma is the identity the factor's precision is diagonalised. Along directions it knows something
about (q > 0.05 of the population's precision) the period's own estimate minus the cavity mean has variance
1/q + cavity variance; the squared length in these units is chi-square with that many degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.combine.gaussian import inverse, symmetric, times

Array = npt.NDArray[np.float64]
INFORMATIVE = 0.05
DRIFT_SHARE = 0.02  # how often an item is expected to have moved, before the data are asked
DRIFT_SPREAD = 0.25  # variance of such a move, in units of Sigma


@dataclass(frozen=True)
class Displacement:
    """Squared distance, its degrees of freedom, and the log Bayes factor "did not move" over "moved"."""

    squared: Array
    degrees: npt.NDArray[np.int64]
    log_same: Array


def displacement(Q: Array, h: Array, mean: Array, covariance: Array, root: Array) -> Displacement:
    """Distances of factors (Q, h) from cavities (mean, covariance), all on one metric; root is chol(Sigma)."""
    unroot = np.linalg.inv(root)
    q, U = np.linalg.eigh(symmetric(root.T @ Q @ root))
    known = q > INFORMATIVE
    safe = np.where(known, q, 1.0)
    delta = np.where(known, times(np.swapaxes(U, 1, 2), (h - times(Q, mean)) @ root) / safe, 0.0)
    turned = np.swapaxes(U, 1, 2) @ unroot @ covariance @ unroot.T @ U
    both = known[:, :, None] & known[:, None, :]
    eye = np.eye(Q.shape[-1])
    V = np.where(both, turned, 0.0) + eye * np.where(known, 1.0 / safe, 1.0)[:, None, :]
    wide = V + DRIFT_SPREAD * eye * known[:, None, :]
    squared = (delta * times(inverse(V), delta)).sum(axis=1)
    moved = (delta * times(inverse(wide), delta)).sum(axis=1)
    log_same = 0.5 * (moved - squared) + 0.5 * (np.linalg.slogdet(wide)[1] - np.linalg.slogdet(V)[1])
    return Displacement(squared, known.sum(axis=1).astype(np.int64), np.asarray(log_same))


def probability_same(log_same: Array, share: Array) -> Array:
    """Posterior probability that an item did not move, given the share of movers."""
    odds = np.log1p(-share) - np.log(share) + log_same
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -700.0, 700.0))))
