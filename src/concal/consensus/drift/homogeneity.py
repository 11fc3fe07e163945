r"""Do some periods say the same about an item? The chi-square of their factors around their common value.

In units where the prior's precision is the identity a factor's precision is diagonalised and kept along the directions
the period knows something about (`INFORMATIVE`): there its estimate is exactly as uncertain as its precision says,
whatever the other directions do. With :math:`Q_m, h_m` these parts and :math:`r_m` their ranks,

.. math:: X^2 = \sum_m h_m'Q_m^-h_m - \Big(\sum h_m\Big)'\Big(\sum Q_m\Big)^-\Big(\sum h_m\Big),
          \qquad df = \sum_m r_m - \mathrm{rank}\sum_m Q_m .

The population model gives the units and nothing else: an unusual item is not a drifting one.

With many periods this looks everywhere at once and sees one that moved only dimly. So each period is also compared with
all others of its item: :math:`X^2 - X^2_{-m}`, chi-square on :math:`df - df_{-m}`. An item's p-value combines both,
half the weight on the whole and half spread over its periods, by the Cauchy rule, which needs no independence:

.. math:: p = \tfrac12 - \tfrac1\pi\arctan\sum_i w_i\tan\big((\tfrac12 - p_i)\pi\big) .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from concal.calibration.fit.pvalues import cauchy_score, from_cauchy
from concal.consensus.drift.displacement import INFORMATIVE, Directions
from concal.consensus.gaussian import sum_by, symmetric, times

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
RANK_TOLERANCE = 1e-9
"""Of the largest eigenvalue: rounding below, information above (every part kept has at least `INFORMATIVE`)."""


@dataclass(frozen=True)
class KnownParts:
    """Factors along the directions they know about, in units of the prior; arrays over factors.

    Attributes
    ----------
    Q, h : (..., p, p), (..., p)
    own : (...)
        h'Q^-h, the factor's largest log value times two.
    rank : (...) int64
    """

    Q: Array
    h: Array
    own: Array
    rank: Ints

    def rows(self, which: npt.NDArray[np.intp]) -> KnownParts:
        """Some of them, in the shape of `which`."""
        return KnownParts(self.Q[which], self.h[which], self.own[which], self.rank[which])


def known_parts(Q: Array, h: Array, centre: Array, seen: Directions) -> KnownParts:
    """Factors (Q, h) seen from `centre`, a value common to all factors of an item, in its prior's units.

    Where the centre lies does not matter for a chi-square; near the item's value it keeps rounding small.
    """
    q, U, units = seen
    known = q > INFORMATIVE
    turned = times(np.swapaxes(U, -1, -2), times(np.swapaxes(units.root, -1, -2), h - times(Q, centre)))
    turned = np.where(known, turned, 0.0)
    kept = (U * np.where(known, q, 0.0)[:, None, :]) @ np.swapaxes(U, -1, -2)
    own = (turned**2 / np.where(known, q, 1.0)).sum(axis=-1)
    return KnownParts(symmetric(kept), times(U, turned), own, known.sum(axis=-1).astype(np.int64))


def conflict(Q: Array, h: Array, own: Array, rank: Ints) -> tuple[Array, Ints]:
    """X^2 and degrees of freedom from sums over the factors of each set: (..., p, p), (..., p), (...), (...)."""
    t, U = np.linalg.eigh(Q)
    used = t > RANK_TOLERANCE * np.maximum(t[..., -1:], INFORMATIVE)
    along = times(np.swapaxes(U, -1, -2), h)
    common = np.where(used, along**2 / np.where(used, t, 1.0), 0.0).sum(axis=-1)
    return np.maximum(own - common, 0.0), np.asarray(rank - used.sum(axis=-1))


def item_agreement(parts: KnownParts, item: npt.NDArray[np.intp], n_items: int) -> tuple[Array, Ints, Array]:
    """X^2, degrees of freedom and combined p-value of every item, over all its factors."""
    Q, h = sum_by(item, parts.Q, n_items), sum_by(item, parts.h, n_items)
    own = np.bincount(item, parts.own, n_items).astype(np.float64)
    rank = np.bincount(item, parts.rank, n_items).astype(np.int64)
    squared, degrees = conflict(Q, h, own, rank)
    rest, fewer = conflict(Q[item] - parts.Q, h[item] - parts.h, own[item] - parts.own, rank[item] - parts.rank)
    single = cauchy_score(p_value(np.maximum(squared[item] - rest, 0.0), degrees[item] - fewer))
    compared = (degrees[item] > fewer).astype(np.float64)
    mean = np.bincount(item, compared * single, n_items) / np.maximum(np.bincount(item, compared, n_items), 1.0)
    combined = from_cauchy(0.5 * cauchy_score(p_value(squared, degrees)) + 0.5 * mean)
    return squared, degrees, np.where(degrees > 0, combined, 1.0)


def p_value(squared: Array, degrees: Ints) -> Array:
    """Of a chi-square; one where there is nothing to compare."""
    return np.where(degrees > 0, chi2.sf(squared, np.maximum(degrees, 1)), 1.0)
