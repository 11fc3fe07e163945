"""Parameters for items nobody has answered, from their features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from concal.consensus.analytic.population import Population
from concal.consensus.result import Consensus, GroupConsensus
from concal.errors import DataError, first_few

Array = npt.NDArray[np.float64]


def predict_items(consensus: Consensus, group: str, item_ids: Sequence[str], X: Array) -> GroupConsensus:
    r"""Population prediction :math:`N(X\beta^*, \Sigma^* + X V^* X')` for new items of a group.

    Parameters
    ----------
    X : (items, features)
        Design rows in the columns of ``consensus.groups[group].features``.
    """
    if group not in consensus.groups:
        raise DataError(f"the consensus has no group {group!r}; it has {first_few(list(consensus.groups))}")
    known = consensus.groups[group]
    X = np.asarray(X, dtype=np.float64)
    if X.shape != (len(item_ids), len(known.features)) or not np.isfinite(X).all():
        raise DataError(
            f"group {group!r}: features of {first_few(item_ids)} must be finite, one row per item and one column for "
            f"each of {list(known.features)}; got shape {X.shape}"
        )
    F, p = known.beta.shape
    V = known.beta_covariance if known.beta_covariance is not None else np.zeros((F * p, F * p))
    mean, covariance = Population(known.beta, V, known.sigma).predict(X)
    n = len(item_ids)
    return replace(
        known,
        item_ids=tuple(item_ids),
        X=X,
        mean=mean,
        covariance=covariance,
        source=np.full(n, "predicted"),
        n_responses=np.zeros(n, dtype=np.int64),
        n_periods=np.zeros(n, dtype=np.int64),
    )
