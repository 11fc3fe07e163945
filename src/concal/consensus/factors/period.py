r"""What the responses of one period said: a likelihood factor for every item, on the period's own metric.

In slope and intercept :math:`\phi = (c, a, e)` (see `concal.metric`) an item's log likelihood is nearly quadratic,

.. math:: \log f(\phi) = -\tfrac12\phi'Q\phi + h'\phi ,

which is what sums over periods are made of. Where the responses were at hand there is more: a response table by
ability, whose likelihood :math:`l_T` has the right shape, and a quadratic remainder for what it lacks,

.. math:: \log f(\phi) = l_T(\phi) - \tfrac12\phi'\,dQ\,\phi + dh'\phi .

The metric wobble (what all items of a period share because finitely many examinees fix origin and unit) is taken out
of both and kept apart. Factors are a function of the calibration alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from concal.response import ResponseModel

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupFactors:
    r"""One group's items and population in one period, on the period's own metric.

    Attributes
    ----------
    name, dimension : str
    model : ResponseModel
    item_ids, features : tuple of str
    coding : str
        Fingerprint of how the features are coded; equal names coded differently are different features.
    X : (items, features)
    n_responses : (items,) int64
    Q, h : (items, p, p), (items, p)
        The Gaussian factor in phi; zero for items without a response.
    bin_mean, bin_sd : (items, bins) or None
        Ability of the examinees in each bin of the response table. None: draws of another engine, no table.
    cell_score, cell_count : (items, bins, cells) or None
        Scores as the response model's kernels read them, and how many responses gave them.
    dQ, dh : (items, p, p), (items, p) or None
        The table's quadratic remainder.
    mean, covariance : (items, p), (items, p, p)
        Posterior of xi in this period alone, wobble included: what a reader of one period is shown.
    worst_rhat : (items,)
    b, V : (features, p), (features * p, same)
        Mean and covariance of beta, vectorised feature-major.
    beta_precision : (features * p, same)
        V^-1, corrected for the finite number of draws.
    sigma : (p, p), sigma_coordinates : (p (p + 1) / 2,)
        Mean of Sigma, and of its log-Cholesky coordinates.
    hyperprior : (features, features)
        Precision of the hyperprior of each column of beta, on the scale of its items' typical spread.
    obtained : "gradients" or "draws"
        Where the Gaussians come from: the engine's averages of gradients, or draws alone.
    guided : bool
        The items had priors from the bank instead of the population model, so the period says nothing about it.
    lacking : tuple of str
        Columns of the formula that no item had in this period; what they feed is not among the features.
    """

    name: str
    dimension: str
    model: ResponseModel
    item_ids: tuple[str, ...]
    features: tuple[str, ...]
    coding: str
    X: Array
    n_responses: npt.NDArray[np.int64]
    Q: Array
    h: Array
    mean: Array
    covariance: Array
    worst_rhat: Array
    b: Array
    V: Array
    beta_precision: Array
    sigma: Array
    sigma_coordinates: Array
    hyperprior: Array
    bin_mean: Array | None = None
    bin_sd: Array | None = None
    cell_score: Array | None = None
    cell_count: Array | None = None
    dQ: Array | None = None
    dh: Array | None = None
    obtained: str = "draws"
    guided: bool = False
    lacking: tuple[str, ...] = ()

    PER_ITEM: ClassVar[tuple[str, ...]] = (
        *("X", "n_responses", "Q", "h", "mean", "covariance", "worst_rhat"),
        *("bin_mean", "bin_sd", "cell_score", "cell_count", "dQ", "dh"),
    )

    @property
    def form_key(self) -> tuple[object, ...]:
        """What periods of one form have in common; see `concal.consensus.analytic.totals.FormTotals`."""
        return self.name, self.dimension, self.model, self.features, self.coding

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.item_ids)

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Which items had a response in this period."""
        return np.asarray(self.n_responses > 0)


@dataclass(frozen=True)
class PeriodFactors:
    """What one period contributes to the bank, whatever it is linked to.

    Attributes
    ----------
    period : str
    dimensions : tuple of str
    groups : dict of group name -> GroupFactors
    wobble : (dimensions, 2, 2)
        Covariance of the period's own metric in (log A, B), from the finite sample of examinees.
    warnings : tuple of str
    """

    period: str
    dimensions: tuple[str, ...]
    groups: Mapping[str, GroupFactors]
    wobble: Array
    warnings: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Placed:
    """A period's factors with its link to the reference.

    Attributes
    ----------
    factors : PeriodFactors
    reference : str
    link_mean, link_covariance : (dimensions, 2), (dimensions, 2, 2)
        Moments of (log A, B) over the linked draws; zeros for the reference itself.
    linked : bool
        False: the period came without a link, and only the joint method can place it.
    held : bool
        True: the link is given, and the joint method does not estimate it.
    """

    factors: PeriodFactors
    reference: str
    link_mean: Array
    link_covariance: Array
    linked: bool = True
    held: bool = False

    @property
    def period(self) -> str:
        """Its name."""
        return self.factors.period
