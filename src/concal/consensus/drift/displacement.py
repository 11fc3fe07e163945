r"""How far a period's factor for an item lies from what is known without it, in standard errors.

Everything is in slope and intercept, where factors are nearly Gaussian. In units where the prior's precision is the
identity the factor's precision is diagonalised. Along the directions it knows something about (more than `INFORMATIVE`)
the period's own estimate minus the mean of the others has variance 1/q + their variance; the squared length in these
units is chi-square with that many degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.consensus.gaussian import inverse, symmetric, times

Array = npt.NDArray[np.float64]
INFORMATIVE = 0.05
"""Least precision, in units of the prior's, for a direction to be looked at, and for what the others say to be a
Gaussian at all: the one threshold of "is this Gaussian usable"."""
DRIFT_SPREAD = 0.25
"""Variance of a move, in units of the prior's: half a population SD, the size that drift studies take for large."""


@dataclass(frozen=True)
class Displacement:
    """Squared distance, its degrees of freedom, and the log Bayes factor "did not move" over "moved"."""

    squared: Array
    degrees: npt.NDArray[np.int64]
    log_same: Array


def usable(precision: Array, unit: Array) -> npt.NDArray[np.bool_]:
    """Which precisions (n, p, p) are those of a Gaussian, judged in units of `unit` (n, p, p)."""
    if not precision.shape[0]:
        return np.zeros(0, dtype=bool)
    unroot = np.linalg.inv(np.linalg.cholesky(unit))
    values = np.linalg.eigvalsh(symmetric(unroot @ precision @ np.swapaxes(unroot, -1, -2)))
    return np.asarray(values[:, 0] > INFORMATIVE)


def displacement(Q: Array, h: Array, mean: Array, covariance: Array, unit: Array) -> Displacement:
    """Distances of factors (Q, h) from Gaussians (mean, covariance), in units of the prior precisions `unit`.

    All are stacks over factors on one metric.
    """
    root = np.swapaxes(np.linalg.inv(np.linalg.cholesky(unit)), -1, -2)  # unit^-1 = root root'
    unroot = np.linalg.inv(root)
    q, U = np.linalg.eigh(symmetric(np.swapaxes(root, -1, -2) @ Q @ root))
    known = q > INFORMATIVE
    safe = np.where(known, q, 1.0)
    turn = np.swapaxes(U, 1, 2)
    score = times(turn, times(np.swapaxes(root, -1, -2), h - times(Q, mean)))
    delta = np.where(known, score / safe, 0.0)
    turned = turn @ unroot @ covariance @ np.swapaxes(unroot, -1, -2) @ U
    both = known[:, :, None] & known[:, None, :]
    eye = np.eye(Q.shape[-1])
    V = np.where(both, turned, 0.0) + eye * np.where(known, 1.0 / safe, 1.0)[:, None, :]
    wide = V + DRIFT_SPREAD * eye * known[:, None, :]
    squared = (delta * times(inverse(V), delta)).sum(axis=1)
    moved = (delta * times(inverse(wide), delta)).sum(axis=1)
    log_same = 0.5 * (moved - squared) + 0.5 * (np.linalg.slogdet(wide)[1] - np.linalg.slogdet(V)[1])
    return Displacement(squared, known.sum(axis=1).astype(np.int64), np.asarray(log_same))
