"""Sums over sweeps of items, gradients of their log posterior, and products of the two."""

from __future__ import annotations

from typing import Any

from concal.response.compiled import kernel


@kernel
def add_gradients(
    n: int, x: Any, acc: Any, precision: Any, prior_of: Any, mean: Any, chains: int, sums: Any, lo: int, hi: int
) -> None:
    r"""Add every chain's [x, l, q, x x', x l', x q'] of items lo..hi to `sums` (items, 3 n + 3 n^2).

    l is the gradient of the log-likelihood, which `acc` (rows 0..hi-lo) holds at x, and
    :math:`q = -\Sigma^{-1}(x - X\beta)` that of the prior, whose precision is number prior_of[i] of `precision`.
    """
    square = n * n
    for i in range(lo, hi):
        for c in range(chains):
            for u in range(n):
                prior = 0.0
                for v in range(n):
                    prior -= precision[prior_of[i], u, v, c] * (x[i, v, c] - mean[i, v, c])
                likelihood = acc[i - lo, 1 + u, c]
                sums[i, u] += x[i, u, c]
                sums[i, n + u] += likelihood
                sums[i, 2 * n + u] += prior
                for v in range(n):
                    at = 3 * n + v * n + u
                    sums[i, at] += x[i, v, c] * x[i, u, c]
                    sums[i, at + square] += x[i, v, c] * likelihood
                    sums[i, at + 2 * square] += x[i, v, c] * prior
