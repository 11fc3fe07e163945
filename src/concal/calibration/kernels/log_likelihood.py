"""Passes that need the log-likelihood alone."""

from __future__ import annotations

from typing import Any

from concal.calibration.kernels.passes import AHEAD, BLOCK
from concal.compiler import (
    call_factored,
    kernel,
    prefetch,
    put,
    row,
    splat,
    splat64,
    widen,
)
from concal.response import arithmetic


@kernel
def person_log_likelihood(
    tag: Any, start: Any, item: Any, y: Any, theta: Any, par: Any, dim: int, total: Any, lo: int, hi: int
) -> None:
    """Add one group's log-likelihood of examinees lo..hi to `total` (rows 0..hi-lo)."""
    for i in range(lo, hi):
        last = start[i + 1]
        th = row(theta, (i, dim))
        ll = splat64(0.0)
        for block in range(start[i], last, BLOCK):
            l8, f8 = splat(0.0), splat(1.0)
            for r in range(block, min(block + BLOCK, last)):
                j = item[r]
                eta = row(par, (j, 0)) * (th - row(par, (j, 1)))
                part, factor, _, _ = call_factored(tag, splat(y[r]), eta, (par, j))
                l8 = l8 + part
                f8 = f8 * factor
            ll = ll + widen(l8 + arithmetic.log(f8))
        put(total, (i - lo,), row(total, (i - lo,)) + ll)


@kernel
def item_log_likelihood(
    tag: Any, start: Any, person: Any, y: Any, theta: Any, dim: int, par: Any, total: Any, lo: int, hi: int
) -> None:
    """Log-likelihood of items lo..hi (rows 0..hi-lo of `total`)."""
    end = person.shape[0] - 1
    for j in range(lo, hi):
        a, d = row(par, (j, 0)), row(par, (j, 1))
        last = start[j + 1]
        ll = splat64(0.0)
        for block in range(start[j], last, BLOCK):
            l8, f8 = splat(0.0), splat(1.0)
            for r in range(block, min(block + BLOCK, last)):
                prefetch(theta, (person[min(r + AHEAD, end)], dim))
                eta = a * (row(theta, (person[r], dim)) - d)
                part, factor, _, _ = call_factored(tag, splat(y[r]), eta, (par, j))
                l8 = l8 + part
                f8 = f8 * factor
            ll = ll + widen(l8 + arithmetic.log(f8))
        put(total, (j - lo,), ll)
