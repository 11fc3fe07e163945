"""R-hat and effective sample sizes, one parameter at a time; defined in `concal.calibration.diagnostics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from concal.compiler import kernel

_compiled: Callable[..., Any] = njit(nogil=True, error_model="numpy")
_summing: Callable[..., Any] = njit(nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")


@kernel(fastmath=False)
def diagnose_block(
    values: Any,
    order: Any,
    place: Any,
    half: int,
    halves: int,
    scores: Any,
    low: float,
    high: float,
    wanted: Any,
    out: Any,
) -> None:
    """Values (parameters, chain * draw) with their sorting `order` -> out (kinds, parameters).

    A parameter's half chains are kept draw by draw, all halves of a draw side by side: the sum of products at a lag
    is then one long product of contiguous numbers.
    """
    total, kept = place.size, halves * half
    x, to, z = np.empty(kept), np.empty(kept, np.int64), np.empty(kept)
    folded, folded_to = np.empty(kept), np.empty(kept, np.int64)
    rho = np.empty(half)
    for p in range(values.shape[0]):
        value, by = values[p], order[p]
        if np.isnan(value[by[total - 1]]):  # NaN sorts last
            continue
        k = 0
        for s in range(total):
            if place[by[s]] >= 0:
                x[k], to[k] = value[by[s]], place[by[s]]
                k += 1
        if wanted[0] or wanted[1]:
            _normal_scores(x, to, scores, z)
            between = _center(z, halves)
            if wanted[0]:
                out[0, p] = _rhat(z, halves, between)
            if wanted[1]:
                out[1, p] = _ess(z, halves, between, rho)
        if wanted[0]:
            _fold(x, to, folded, folded_to)
            _normal_scores(folded, folded_to, scores, z)
            between = _center(z, halves)
            tail_rhat = _rhat(z, halves, between)
            if tail_rhat > out[0, p]:
                out[0, p] = tail_rhat
        if wanted[2]:
            _indicator(value, by, place, low, z)
            between = _center(z, halves)
            first = _ess(z, halves, between, rho)
            _indicator(value, by, place, high, z)
            between = _center(z, halves)
            out[2, p] = min(first, _ess(z, halves, between, rho))


@_compiled
def _normal_scores(x: Any, to: Any, scores: Any, z: Any) -> None:
    """Normal scores of sorted values x, written to their places; equal values share their average rank."""
    n, i = x.size, 0
    while i < n:
        j = i + 1
        while j < n and x[j] == x[i]:
            j += 1
        score = scores[i + j - 1]  # average of ranks i + 1 .. j, in steps of a half from rank 1
        for m in range(i, j):
            z[to[m]] = score
        i = j


@_compiled
def _fold(x: Any, to: Any, folded: Any, folded_to: Any) -> None:
    """Distances of sorted values from their median, sorted: a merge of the two sides."""
    n = x.size
    middle = (x[(n - 1) // 2] + x[n // 2]) / 2.0
    up = n // 2
    while up > 0 and x[up - 1] >= middle:
        up -= 1
    while up < n and x[up] < middle:
        up += 1
    down = up - 1
    for k in range(n):
        if down < 0 or (up < n and abs(x[up] - middle) <= abs(x[down] - middle)):
            folded[k], folded_to[k] = abs(x[up] - middle), to[up]
            up += 1
        else:
            folded[k], folded_to[k] = abs(x[down] - middle), to[down]
            down -= 1


@_compiled
def _indicator(value: Any, by: Any, place: Any, prob: float, z: Any) -> None:
    """1(x <= q) in the half chains, q the quantile of all draws (linear between order statistics)."""
    n = value.size
    at = (n - 1) * prob
    below = int(at)
    share = at - below
    a, b = value[by[below]], value[by[min(below + 1, n - 1)]]
    q = a + (b - a) * share if share < 0.5 else b - (b - a) * (1.0 - share)
    for i in range(n):
        if place[i] >= 0:
            z[place[i]] = 1.0 if value[i] <= q else 0.0


@_summing
def _lagged(z: Any, halves: int, lag: int) -> float:
    """Autocovariance at a lag, averaged over half chains, of values centred within each."""
    ahead = z[lag * halves :]
    total = 0.0
    for i in range(ahead.size):
        total += z[i] * ahead[i]
    return total / z.size


@_compiled
def _center(z: Any, halves: int) -> float:
    """Take each half chain's mean out of z, in place; returns the variance of the means."""
    half = z.size // halves
    center, squares = 0.0, 0.0
    for h in range(halves):
        first, total = z[h], 0.0  # sums of differences: a chain that stands still has exactly this mean
        for i in range(h, z.size, halves):
            total += z[i] - first
        mean = first + total / half
        for i in range(h, z.size, halves):
            z[i] -= mean
        step = mean - center  # running variance (Welford)
        center += step / (h + 1)
        squares += step * (mean - center)
    return squares / (halves - 1)


@_compiled
def _rhat(z: Any, halves: int, between: float) -> float:
    """Split R-hat of centred z with variance `between` of the half chains' means."""
    half = z.size // halves
    within = _lagged(z, halves, 0) * half / (half - 1)
    return np.sqrt((half * between / within + half - 1) / half)


@_compiled
def _ess(z: Any, halves: int, between: float, rho: Any) -> float:
    """Effective sample size of centred z; autocorrelations only as far as Geyer's sequence needs them."""
    half = z.size // halves
    c0 = _lagged(z, halves, 0)
    within = c0 * half / (half - 1)
    plus = c0 + between
    if plus == 0.0:  # draws that never change
        return float(z.size)
    for i in range(half):
        rho[i] = 0.0
    even, odd = 1.0, 1.0 - (within - _lagged(z, halves, 1)) / plus
    rho[0], rho[1] = even, odd
    t = 1
    while t < half - 3 and even + odd > 0.0:
        even = 1.0 - (within - _lagged(z, halves, t + 1)) / plus
        odd = 1.0 - (within - _lagged(z, halves, t + 2)) / plus
        if even + odd >= 0.0:
            rho[t + 1], rho[t + 2] = even, odd
        t += 2
    last = t - 2
    if even > 0.0:
        rho[last + 1] = even
    t = 1
    while t <= last - 2:  # sums of pairs may only fall
        if rho[t + 1] + rho[t + 2] > rho[t - 1] + rho[t]:
            rho[t + 1] = (rho[t - 1] + rho[t]) / 2.0
            rho[t + 2] = rho[t + 1]
        t += 2
    tau = -1.0 + rho[last + 1]
    for t in range(last + 1):
        tau += 2.0 * rho[t]
    return z.size / max(tau, 1.0 / np.log10(z.size))
