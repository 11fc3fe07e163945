"""What is known of an item without one of its periods."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.consensus.drift.displacement import usable
from concal.consensus.factors.gaussians import prior_in_phi
from concal.consensus.gaussian import Units, inverse_positive, sum_by, times, units_of

Array = npt.NDArray[np.float64]


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
