"""What a displacement means: for scores where the examinees are, and for the period's link."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.consensus.gaussian import inverse, times
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
NODES = np.linspace(-3.0, 3.0, 25)
AT_ONCE = 8192


def score_change(model: ResponseModel, before: Array, after: Array, A: Array, B: Array) -> tuple[Array, Array]:
    r"""Average and root-mean-square change of the expected score, from items to items in xi, over the examinees.

    A period's own metric is that of its examinees, N(0, 1); on the reference metric they are :math:`N(B, A^2)`.
    """
    weight = np.exp(-0.5 * NODES**2)
    weight /= weight.sum()
    level, size = np.empty(before.shape[0]), np.empty(before.shape[0])
    for start in range(0, before.shape[0], AT_ONCE):
        part = slice(start, start + AT_ONCE)
        theta = metric.move_theta(NODES, A[part, None], B[part, None])
        change = model.expected_score(theta, after[part, None]) - model.expected_score(theta, before[part, None])
        level[part], size[part] = change @ weight, np.sqrt(change**2 @ weight)
    return level, size


def leave_out(Q: Array, score: Array, spread: Array, slope: Array, period: npt.NDArray[np.intp]) -> Array:
    """First-order change of each period's (log A, B) when the item is left out of its link, (factors, 2)."""
    out = np.zeros((Q.shape[0], 2))
    P = metric.patterns(slope, Q.shape[-1])
    # a weak factor's spread is hardly invertible: a part in a million of its size makes it so and moves nothing
    ridge = 1e-6 * np.trace(spread, axis1=1, axis2=2)[:, None, None] * np.eye(Q.shape[-1])
    info = Q @ inverse(spread + ridge)
    H = np.swapaxes(P, 1, 2) @ info @ Q @ P
    pull = times(np.swapaxes(P, 1, 2), times(info, score))
    for m in np.unique(period):
        here = period == m
        total = H[here].sum(axis=0)
        if np.linalg.cond(total) < 1e12:
            out[here] = pull[here] @ np.linalg.inv(total)
    return out
