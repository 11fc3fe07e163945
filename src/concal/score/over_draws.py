r"""From estimates at every draw of items and links to one estimate and the parts of its variance.

With S draws, :math:`m_s` the estimate and :math:`C_s` its covariance at draw s, the law of total variance gives

.. math:: Var(\theta) = \bar C + \frac{1}{S - 1} \sum_s (m_s - \bar m)(m_s - \bar m)' ,

measurement and the rest, which is split into items and link by what the draw's metric explains (`concal.score.metric`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.calibration.workers import Workers
from concal.score.kernels.sets import add_set
from concal.score.metric import link_share
from concal.score.modes import Estimates
from concal.score.posterior import PERSONS

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Variances:
    """Estimates with the parts of their variance.

    Attributes
    ----------
    theta : (persons, D)
    covariance : (persons, D, D)
        Total.
    measurement, items, link : (persons, D) or None
        Parts of the variance, None where the level does not tell.
    """

    theta: Array
    covariance: Array
    measurement: Array | None = None
    items: Array | None = None
    link: Array | None = None


def over_draws(
    sets: Iterator[Estimates], group: npt.NDArray[np.int32], metrics: Sequence[Array] | None, S: int, workers: Workers
) -> Variances:
    """Mean over the draws; variances within and between them, the latter split by the draws' metric.

    Parameters
    ----------
    sets
        Estimates at S draws, one after the other.
    group : (persons,)
        Which prior each examinee has.
    metrics
        Orthonormal regressors (draws, q) of the draws' metric, by prior; None where draws are independent.
    """
    Z = _regressors(metrics, S)
    first = next(sets)
    n, D = first.theta.shape
    centre = np.where(np.isfinite(first.theta), first.theta, 0.0)
    endless, within = np.zeros((n, D)), np.zeros((n, D, D))
    total, square, projected = np.zeros((n, D)), np.zeros((n, D, D)), np.zeros((n, D, Z.shape[2]))

    def add(s: int, found: Estimates) -> None:
        def work(lo: int) -> None:
            add_set(
                found.theta, found.covariance, group, Z[s], centre, endless, within, total, square, projected, lo,
                min(lo + PERSONS, n),
            )  # fmt: skip

        workers.map(work, range(0, n, PERSONS))

    add(0, first)
    for s, found in enumerate(sets, 1):
        add(s, found)
    shift = total / S
    between = (square - S * shift[:, :, None] * shift[:, None, :]) / (S - 1)
    spread, link = variance(between), None
    if metrics is not None:
        columns = np.array([m.shape[1] for m in metrics])[group][:, None]
        link = link_share(spread * (S - 1), projected, columns, S)
    items = spread - (0.0 if link is None else link)
    theta = np.where(endless == 0.0, centre + shift, endless)  # one endless estimate makes the mean endless
    return Variances(theta, within / S + between, variance(within / S), items, link)


def variance(covariance: Array) -> Array:
    """Diagonals (persons, D) of covariances (persons, D, D)."""
    return np.asarray(np.diagonal(covariance, axis1=1, axis2=2)).copy()


def _regressors(metrics: Sequence[Array] | None, S: int) -> Array:
    """The priors' regressors side by side, (draws, priors, q), filled up with zeros."""
    if metrics is None:
        return np.zeros((S, 1, 0))
    Z = np.zeros((S, len(metrics), max(m.shape[1] for m in metrics)))
    for g, m in enumerate(metrics):
        Z[:, g, : m.shape[1]] = m
    return Z
