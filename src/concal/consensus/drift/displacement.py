r"""What is known of an item without one of its periods, and how far that period's factor lies from it.

Everything is in slope and intercept, where factors are nearly Gaussian. In units where the prior's precision is the
identity the factor's precision is diagonalised. Along the directions it knows something about (more than `INFORMATIVE`)
the period's own estimate minus the mean of the others has variance 1/q + their variance; the squared length in these
units is chi-square with that many degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.consensus.factors.gaussians import prior_in_phi
from concal.consensus.gaussian import (
    Units,
    all_positive,
    inverse_positive,
    square_and_log_det,
    sum_by,
    times,
    units_of,
)

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


def usable(precision: Array, units: Units) -> npt.NDArray[np.bool_]:
    """Which precisions (n, p, p) are those of a Gaussian, judged in units of the prior's."""
    return all_positive(units.precision(precision) - INFORMATIVE * np.eye(precision.shape[-1]))


class Others(NamedTuple):
    """For every factor: mean and covariance of phi without it, the prior's units, and whether they are usable."""

    mean: Array
    covariance: Array
    units: Units
    usable: npt.NDArray[np.bool_]


def without_each(
    Q: Array,
    h: Array,
    item: npt.NDArray[np.integer],
    at: Array,
    prior_mean: Array,
    sigma: Array,
    moved: npt.NDArray[np.bool_] | None = None,
) -> Others:
    """Leave each factor out of its item's posterior in turn.

    Parameters
    ----------
    Q, h : (factors, p, p), (factors, p)
        On one metric, in phi.
    item : (factors,)
        Row of each factor's item in the arrays below.
    at : (items, p)
        Posterior mean of xi: where the prior N(prior_mean, sigma) of xi is carried to phi.
    prior_mean : (items, p)
    sigma : (p, p)
    moved : (factors,)
        Factors that tell nothing about their item: they are compared with the others, never the others with them.
    """
    mean, unit = prior_in_phi(at, prior_mean, sigma)
    if moved is not None:
        Q, h = np.where(moved[:, None, None], 0.0, Q), np.where(moved[:, None], 0.0, h)
    n, units = unit.shape[0], units_of(unit).rows(item)
    total, shift = unit + sum_by(item, Q, n), times(unit, mean) + sum_by(item, h, n)
    rest = total[item] - Q
    fine = usable(rest, units)
    covariance = inverse_positive(np.where(fine[:, None, None], rest, unit[item]))
    return Others(times(covariance, shift[item] - h), covariance, units, fine)


class Directions(NamedTuple):
    """Eigenvalues (n, p) and eigenvectors (n, p, p) of factors' precisions in units of the priors'."""

    q: Array
    U: Array
    units: Units


def directions(Q: Array, units: Units) -> Directions:
    """Those of factors (n, p, p), each with its prior's units."""
    return Directions(*np.linalg.eigh(units.precision(Q)), units)


def displacement(Q: Array, h: Array, mean: Array, covariance: Array, seen: Directions) -> Displacement:
    """Distances of factors (Q, h) with the directions `seen` from Gaussians (mean, covariance).

    All are stacks over factors on one metric.
    """
    q, U, units = seen
    known = q > INFORMATIVE
    safe = np.where(known, q, 1.0)
    turn = np.swapaxes(U, 1, 2)
    score = times(turn, times(np.swapaxes(units.root, -1, -2), h - times(Q, mean)))
    delta = np.where(known, score / safe, 0.0)
    turn_back = turn @ units.unroot
    turned = turn_back @ covariance @ np.swapaxes(turn_back, -1, -2)
    both = known[:, :, None] & known[:, None, :]
    eye = np.eye(Q.shape[-1])
    V = np.where(both, turned, 0.0) + eye * np.where(known, 1.0 / safe, 1.0)[:, None, :]
    wide = V + DRIFT_SPREAD * eye * known[:, None, :]
    squared, log_det = square_and_log_det(V, delta)
    moved, wide_log_det = square_and_log_det(wide, delta)
    log_same = 0.5 * (moved - squared + wide_log_det - log_det)
    return Displacement(squared, known.sum(axis=1).astype(np.int64), np.asarray(log_same))
