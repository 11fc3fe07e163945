r"""What every sweep says about an item beyond where it is: the gradient of its log posterior there.

For the posterior p of everything, and any one item's x, integration by parts gives

.. math:: E[\nabla_x \log p] = 0, \qquad E[(x - Ex)\, (\nabla_x \log p)'] = -I ,

so the regression of the gradient on x has slope -Cov(x)^-1. For a Gaussian it has no error at all, however few the
draws: means and products give the posterior's mean and precision with a small part of the Monte Carlo error of the
draws' own moments. The likelihood's part of the gradient, averaged over the abilities, is the gradient of the item's
marginal likelihood (Fisher's identity); its regression on x is the item's likelihood factor, found without the prior
ever entering. The passes compute these gradients anyway; the consensus uses them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibrate.layout import Layout

Array = npt.NDArray[np.float64]


class GradientSums:
    """Running sums over sweeps and chains, one array (items, width) per group; see the kernel `add_gradients`."""

    def __init__(self, layout: Layout, chains: int) -> None:
        self.layout, self.chains = layout, chains
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        self.sums = [np.zeros((g.n_items, width(g.p))) for g in self.layout.groups]

    def means(self) -> list[Array | None]:
        """Averages, group by group; None while there is nothing."""
        return [sums / self.count if self.count else None for sums in self.sums]


def width(p: int) -> int:
    """How many averages the engine keeps of an item with p parameters."""
    return 3 * p + 3 * p * p


class ItemGradients(NamedTuple):
    """Averages over the sampled sweeps, taken apart.

    `mean` (items, p) and `covariance` (items, p, p) of x; `likelihood` and `prior` (items, p), the mean gradients of
    the log-likelihood given the abilities and of the log prior given beta and Sigma; and (items, p, p) the means of
    (x - mean) times each gradient', rows x.
    """

    mean: Array
    covariance: Array
    likelihood: Array
    likelihood_product: Array
    prior: Array
    prior_product: Array


def take_apart(means: Array, p: int) -> ItemGradients:
    """Name the averages [x, l, q, x x', x l', x q'] and centre the products."""
    x, likelihood, prior = (means[:, k * p : (k + 1) * p] for k in range(3))
    products = means[:, 3 * p :].reshape(-1, 3, p, p)
    xx, xl, xq = (products[:, k] - x[:, :, None] * y[:, None, :] for k, y in enumerate((x, likelihood, prior)))
    return ItemGradients(x, xx, likelihood, xl, prior, xq)
