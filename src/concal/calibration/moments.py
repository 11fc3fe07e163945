r"""What every sweep says about an item beyond where it is: the gradient of its log-likelihood there.

Given an item's :math:`\phi`, the mean over everything else (abilities above all) of the gradient l of its
log-likelihood is the gradient of its marginal likelihood (Fisher's identity). So the regression of l on phi over the
posterior draws estimates that gradient's slope without the prior ever entering, and for a quadratic log-likelihood
without error, however few the draws. The passes compute these gradients anyway; they are averaged here over every
sampled sweep, in slope and intercept, where log-likelihoods are nearly quadratic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration.layout import Layout
from concal.calibration.saving import Saved

Array = npt.NDArray[np.float64]


class MomentSums:
    """Running sums over sweeps, one array (items, width, chains) per group; see the kernel `add_moments`."""

    def __init__(self, layout: Layout, chains: int) -> None:
        self.layout, self.chains = layout, chains
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        self.sums = [np.zeros((g.n_items, width(g.p), self.chains)) for g in self.layout.groups]

    def save(self) -> Saved:
        """See `concal.calibration.saving.Part`."""
        return {"count": self.count} | {f"sums{k}": sums for k, sums in enumerate(self.sums)}

    def load(self, saved: Saved) -> None:
        """See `concal.calibration.saving.Part`."""
        self.count, self.sums = int(saved["count"]), [saved[f"sums{k}"] for k in range(len(self.sums))]

    def means(self) -> list[Array | None]:
        """Averages over sweeps and chains, group by group; None while there is nothing."""
        return [sums.sum(axis=2) / self.count if self.count else None for sums in self.sums]


def width(p: int) -> int:
    """How many averages the engine keeps of an item with p parameters."""
    return 2 * p + 2 * p * p


class ItemMoments(NamedTuple):
    """Averages over the sampled sweeps, taken apart.

    `mean` (items, p) and `covariance` (items, p, p) of phi, the mean `gradient` (items, p) of the log-likelihood, and
    Cov(phi, gradient), (items, p, p) with phi along the rows.
    """

    mean: Array
    covariance: Array
    gradient: Array
    cross: Array


def take_apart(means: Array, p: int) -> ItemMoments:
    """Name the averages [phi, l, phi phi', phi l'] and centre the products."""
    phi, gradient = means[:, :p], means[:, p : 2 * p]
    square, cross = (means[:, 2 * p :].reshape(-1, 2, p, p)[:, k] for k in range(2))
    return ItemMoments(
        phi, square - phi[:, :, None] * phi[:, None, :], gradient, cross - phi[:, :, None] * gradient[:, None, :]
    )


def put_together(moments: ItemMoments) -> Array:
    """The averages that `take_apart` names, (items, width)."""
    phi, covariance, gradient, cross = moments
    square = covariance + phi[:, :, None] * phi[:, None, :]
    product = cross + phi[:, :, None] * gradient[:, None, :]
    return np.concatenate([phi, gradient, *(part.reshape(len(phi), -1) for part in (square, product))], axis=1)
