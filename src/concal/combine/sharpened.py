r"""Item moments and likelihood factors from the gradients the engine averaged, instead of from draws alone.

With g the gradient of an item's log posterior, l the likelihood's part of it and S the covariance of the draws, the
regressions of both on x,

.. math:: \Lambda = -S^{-1} E[(x - \bar x) g'], \qquad Q = -S^{-1} E[(x - \bar x) l'],

estimate the posterior's precision and the precision of the likelihood factor; :math:`\bar x + \Lambda^{-1} \bar g` is
the posterior mean (see `concal.calibrate.gradients`). For Gaussian posteriors they are exact, so what is left of the
Monte Carlo error is what makes a posterior not Gaussian. This matters most for items with few responses: they follow
their prior, and a likelihood factor found by subtracting that prior from the draws' precision is mostly noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.calibrate.gradients import take_apart
from concal.calibrate.result import GroupDraws
from concal.combine.gaussian import inverse, relative_eigenvalues, symmetric, times
from concal.combine.moments import Moments

Array = npt.NDArray[np.float64]
LARGEST_RATIO, NOISE = 0.4, 5.0
"""Logarithm of the ratio of a variance by regression to the draws' own, in any direction: when it is larger than the
first plus this many standard errors of the draws' variance, the draws are believed."""

SMALLEST_LEFT = 0.2
"""Least share of a linked variance that sharpening may leave in any direction."""


@dataclass(frozen=True)
class Sharpened:
    """Moments of a group's items on the period's own metric, and its likelihood factors there.

    Attributes
    ----------
    mean, covariance : (items, p), (items, p, p)
    Q : (items, p, p)
        Slope of the likelihood's gradient, negative.
    gradient : (items, p)
        The likelihood's gradient at the mean.
    fine : (items,) bool
        Where the regression agrees with the draws; the other items' rows hold the draws' moments, and their Q is not to
        be used.
    """

    mean: Array
    covariance: Array
    Q: Array
    gradient: Array
    fine: npt.NDArray[np.bool_]


def sharpen(group: GroupDraws, own: Moments, ess: Array) -> Sharpened | None:
    """Regress gradients on items; None for draws that came without gradients. `ess` (items,) belongs to the draws."""
    if group.gradients is None or not group.n_items:
        return None
    found = take_apart(group.gradients, len(group.model.parameters))
    S_inverse = inverse(found.covariance)
    precision = symmetric(-S_inverse @ (found.likelihood_product + found.prior_product))
    Q = symmetric(-S_inverse @ found.likelihood_product)
    fine = _agree(precision, own.covariance, ess) & (group.n_responses > 0)
    covariance = own.covariance.copy()
    covariance[fine] = inverse(precision[fine])
    step = np.where(fine[:, None], times(covariance, found.likelihood + found.prior), 0.0)
    mean = np.where(fine[:, None], found.mean + step, own.mean)
    return Sharpened(mean, covariance, Q, found.likelihood - times(Q, step), fine)


def _agree(precision: Array, covariance: Array, ess: Array) -> npt.NDArray[np.bool_]:
    """Which precisions are positive definite and like the draws' in every direction."""
    ratio = relative_eigenvalues(precision, inverse(covariance))
    bound = np.exp(LARGEST_RATIO + NOISE * np.sqrt(2.0 / ess))
    return np.asarray((ratio[:, 0] * bound > 1.0) & (ratio[:, -1] < bound))


def sharpen_linked(
    sharp: Sharpened, own: Moments, linked: Moments, A: Array | None
) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    r"""Mean and covariance on the reference metric: the linked draws', moved by what sharpening changed; and where.

    With :math:`\bar D = diag(E A, 1, \ldots)`, the change of the mean goes along as :math:`\bar D \delta` and that of
    the covariance as :math:`\bar D \Delta \bar D`: the draws that were linked have the same Monte Carlo error.
    """
    D = np.ones(own.mean.shape[1])
    D[0] = 1.0 if A is None else float(A.mean())
    mean = linked.mean + D * (sharp.mean - own.mean)
    covariance = linked.covariance + D[:, None] * (sharp.covariance - own.covariance) * D
    # where few linked draws let the difference take too much away, the draws' own moments stay
    fine = sharp.fine & (relative_eigenvalues(covariance, linked.covariance)[:, 0] > SMALLEST_LEFT)
    mean = np.where(fine[:, None], mean, linked.mean)
    return mean, np.where(fine[:, None, None], covariance, linked.covariance), fine


def likelihood_factors(sharp: Sharpened, covariance: Array) -> tuple[Array, Array]:
    r"""Factors (Q, h) with the metric wobble taken out, whose share is missing in `covariance`.

    The wobble moves items and abilities together and leaves the likelihood where it is, so it weakens the regression
    on x: :math:`Q' = Q\, \mathrm{Cov}(x)\, \mathrm{Cov}(x\ \text{without wobble})^{-1}`.
    """
    Q = symmetric(sharp.Q @ sharp.covariance @ inverse(covariance))
    return Q, sharp.gradient + times(Q, sharp.mean)
