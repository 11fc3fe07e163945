r"""The metric of a draw: what all items of a joint draw share, and how much of a score's variance is due to it.

The uncertainty of the links and of the reference's own metric (its wobble) moves all items of a draw together, as a
change of metric would: :math:`\xi_j \to \xi_j + P_j w`, with the patterns P of `concal.metric`. Regressing a draw's
deviations from the posterior means on the patterns, each item weighted by its precision, gives its metric
:math:`w_s = (\log A, B)` in every dimension. An examinee whose prior is that of one period also depends on the link of
that period.

The **link share** of a score's variance is the variance of its expectation given these quantities, the **item share**
what is left of the variance between draws:

.. math:: Var(\theta) = E[Var(\theta | \xi)] + E[Var(E[\theta | \xi] | w)] + Var(E[\theta | w]) .

The last is estimated by regression over the draws, corrected for the number of regressors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.score.items import ScoringItems

Array = npt.NDArray[np.float64]


def draw_metrics(items: ScoringItems, draws: npt.NDArray[np.int64]) -> Array:
    """(log A, B) of every draw and dimension, (draws, D, 2), relative to the posterior means; joint draws only."""
    D = len(items.dimensions)
    H, score = np.zeros((D, 2, 2)), np.zeros((draws.size, D, 2))
    for g in items.groups:
        if g.draws is None:
            raise ValueError("independent draws share no metric")
        P = metric.location_patterns(g.mean[:, 0], g.mean.shape[1])
        WP = np.linalg.solve(g.covariance, P)
        H[g.dim] += np.einsum("jpa,jpb->ab", P, WP)
        flat = WP.reshape(-1, 2)
        for s, draw in enumerate(draws):
            score[s, g.dim] += (g.draws[draw].astype(np.float64) - g.mean).ravel() @ flat
    return np.stack([score[:, k] @ np.linalg.pinv(H[k]) for k in range(D)], axis=1)


def regressors(metrics: Array, links: Array) -> Array:
    """Orthonormal columns (draws, q) that span the draws' metrics (draws, D, 2) and the prior's links (draws, 2 D)."""
    S = metrics.shape[0]
    X = np.concatenate([metrics.reshape(S, -1), links], axis=1)
    X = X - X.mean(axis=0)
    scale = np.sqrt((X * X).sum(axis=0))
    X = X[:, scale > 1e-12 * np.sqrt(S)] / scale[scale > 1e-12 * np.sqrt(S)]
    if not X.size:
        return np.zeros((S, 0))
    U, singular, _ = np.linalg.svd(X, full_matrices=False)
    return np.asarray(U[:, singular > 1e-6 * singular[0]])


def link_share(total: Array, projected: Array, q: npt.NDArray[np.int64], n_draws: int) -> Array:
    """Variance over draws due to the metric, from sums of squares about the mean and projections on q regressors.

    An unrelated regressor explains 1/(S - 1) of the squares; that much is taken off for each.
    """
    explained = (projected**2).sum(axis=-1)
    unexplained = np.maximum(total - explained, 0.0)
    freedom = np.maximum(n_draws - 1 - q, 1)
    return np.asarray(np.clip(explained - q * unexplained / freedom, 0.0, total) / (n_draws - 1))
