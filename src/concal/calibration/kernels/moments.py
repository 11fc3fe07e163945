"""Sums over sweeps of items in slope and intercept, gradients of their log-likelihood, and products of the two."""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.compiler import kernel


@kernel
def add_moments(n: int, x: Any, acc: Any, sums: Any, lo: int, hi: int) -> None:
    r"""Add every chain's [phi, l, phi phi', phi l'] of items lo..hi to `sums` (items, 2 n + 2 n^2, chains).

    x is xi = (d, log a, e) and `acc` (rows 0..hi-lo) holds the gradient g of the log-likelihood in xi. In
    :math:`\phi = (-a d, a, e)` it is :math:`l = (-g_d / a,\ (g_{\log a} - d\, g_d) / a,\ g_e)`.
    """
    phi, l = np.empty(n), np.empty(n)
    for i in range(lo, hi):
        for c in range(sums.shape[2]):
            d, a = x[i, 0, c], np.exp(x[i, 1, c])
            phi[0], phi[1] = -a * d, a
            l[0] = -acc[i - lo, 1, c] / a
            l[1] = (acc[i - lo, 2, c] - d * acc[i - lo, 1, c]) / a
            for u in range(2, n):
                phi[u], l[u] = x[i, u, c], acc[i - lo, 1 + u, c]
            for u in range(n):
                sums[i, u, c] += phi[u]
                sums[i, n + u, c] += l[u]
                for v in range(n):
                    at = 2 * n + u * n + v
                    sums[i, at, c] += phi[u] * phi[v]
                    sums[i, at + n * n, c] += phi[u] * l[v]
