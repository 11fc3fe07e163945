"""Compiled passes over the estimates of an item set: whether a grid served them, and sums over the sets."""

from __future__ import annotations

import math
from typing import Any

from concal.compiler import kernel

NARROWEST = 1.1
"""Posterior SDs in spacings from which on a grid is fine enough: the rule's error is then 1e-10 of the density and, as
derivatives of its exponent enter, below 1e-7 of the variance."""
EDGE = 5.5
"""Posterior SDs a grid must reach beyond the mean: 4e-8 of a normal lies further out."""


@kernel
def misfit(mean: Any, covariance: Any, nodes: Any, coarse: Any, short: Any) -> None:
    """Whose posterior is narrower than nodes (D, Q) can tell or was missed altogether, and whose goes beyond them."""
    last = nodes.shape[1] - 1
    for i in range(mean.shape[0]):
        coarse[i], short[i] = False, False
        for k in range(mean.shape[1]):
            m, sd = mean[i, k], math.sqrt(max(covariance[i, k, k], 0.0))
            if not sd >= NARROWEST * (nodes[k, 1] - nodes[k, 0]) or not math.isfinite(m):
                coarse[i] = True
            if m - EDGE * sd < nodes[k, 0] or m + EDGE * sd > nodes[k, last]:
                short[i] = True


@kernel
def add_set(
    theta: Any, covariance: Any, group: Any, Z: Any, centre: Any, endless: Any, within: Any, total: Any, square: Any,
    projected: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """Add one set's estimates of examinees lo..hi to the sums over sets, as differences from `centre` (persons, D).

    `Z` (groups, q) are the regressors of this set. An estimate that is not finite is kept in `endless` and adds
    nothing.
    """
    D = theta.shape[1]
    for i in range(lo, hi):
        for k in range(D):
            if not math.isfinite(theta[i, k]):
                endless[i, k] = theta[i, k]
            for l in range(D):
                within[i, k, l] += covariance[i, k, l]
        for k in range(D):
            off = theta[i, k] - centre[i, k] if math.isfinite(theta[i, k]) else 0.0
            total[i, k] += off
            for l in range(D):
                square[i, k, l] += off * (theta[i, l] - centre[i, l]) if math.isfinite(theta[i, l]) else 0.0
            for q in range(Z.shape[1]):
                projected[i, k, q] += off * Z[group[i], q]
