r"""The Monte Carlo error of what leaves the engine: of the Gaussian factors that stand for a period's responses.

A factor comes from averages over every sweep and chain (`concal.calibration.moments`): the mean gradient g of an item's
log-likelihood, its slope -Q in phi, and where both were taken. With V the posterior covariance of phi, an error in them
moves the posterior's mean and the logarithm of its SDs by

.. math:: \delta m = V (\delta g + Q\,\delta\bar\phi), \qquad
          \delta \log s_i = -\tfrac12 (V\,\delta Q\,V)_{ii} / V_{ii} ,

whatever the prior. Chains are independent, so their spread, by the jackknife, is the error: no autocorrelation has to
be estimated. It is a fraction of that of as many draws, because gradients know the likelihood at every one of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, ndtri, polygamma

from concal.calibration.moments import ItemMoments, MomentSums, take_apart

Array = npt.NDArray[np.float64]
SHARE = 0.99
"""Of the items' coordinates within the error that is told."""


class DeliveredError(NamedTuple):
    """Standard errors of posterior means, in posterior SDs, and of SDs, relative, that 99 % of the items are within."""

    mean: float
    sd: float


UNKNOWN = DeliveredError(np.inf, np.inf)


def delivered_error(averages: MomentSums) -> DeliveredError:
    """Of all groups' answered items together; unknown (infinite) while there are next to no sweeps.

    Nothing is delivered about items without a response: their gradients are zero, and so would their errors be.
    """
    if averages.count < 10 * averages.chains:
        return UNKNOWN
    each = averages.count // averages.chains
    answered = [np.diff(g.item_start) > 0 for g in averages.layout.groups]
    found = [
        item_errors(sums[seen], each, g.p)
        for g, sums, seen in zip(averages.layout.groups, averages.sums, answered, strict=True)
        if seen.any()
    ]
    if not found:
        return DeliveredError(0.0, 0.0)
    means, sds = (np.concatenate([errors[k].ravel() for errors in found]) for k in range(2))
    return DeliveredError(*(most(values, averages.chains - 1) for values in (means, sds)))


def item_errors(sums: Array, count: int, p: int) -> tuple[Array, Array]:
    """Errors of means and of log SDs, (items, p) each, from sums (items, width, chains) over `count` sweeps a chain."""
    chains = sums.shape[2]
    total = sums.sum(axis=2)
    whole = take_apart(total / (chains * count), p)
    V, Q = whole.covariance, _slope(whole)
    variance = np.diagonal(V, axis1=1, axis2=2)
    places, spreads = [], []
    for c in range(chains):
        rest = take_apart((total - sums[:, :, c]) / ((chains - 1) * count), p)
        pull = rest.gradient + np.einsum("nij,nj->ni", Q, rest.mean)
        places.append(np.einsum("nij,nj->ni", V, pull) / np.sqrt(variance))
        spreads.append(np.einsum("nij,njk,nki->ni", V, _slope(rest), V, optimize=True) / (2.0 * variance))
    return _jackknife(places), _jackknife(spreads)


def _slope(moments: ItemMoments) -> Array:
    """Q = -Cov(l, phi) Var(phi)^-1, made symmetric."""
    Q = -np.linalg.solve(moments.covariance, moments.cross)
    return np.asarray(0.5 * (Q + np.swapaxes(Q, 1, 2)))


def _jackknife(without: list[Array]) -> Array:
    """Standard error from what is found when each chain is left out in turn."""
    values = np.stack(without)
    return np.asarray(np.sqrt((len(without) - 1) * values.var(axis=0)))


def most(errors: Array, df: int) -> float:
    r"""What `SHARE` of the true standard errors are below, from estimates with `df` degrees of freedom each.

    With few chains estimates scatter more than what they estimate, and their own quantile would be too large. On the
    log scale the noise of an estimated variance has mean :math:`\psi(k) - \log k` and variance :math:`\psi'(k)`, k half
    the degrees of freedom; without it, the errors of items are taken as log-normal. Of a handful of items that may lie
    beyond them all: then it is the largest estimate.
    """
    if not np.isfinite(errors).all():
        return np.inf
    k = 0.5 * df
    logs = np.log(np.maximum(errors, 1e-12) ** 2)
    centre = logs.mean() - (digamma(k) - np.log(k))
    spread = np.sqrt(max(logs.var() - polygamma(1, k), 0.0))
    return float(min(np.exp(0.5 * (centre + ndtri(SHARE) * spread)), errors.max()))
