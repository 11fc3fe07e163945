"""Small passes over rows of units: sums, rescaling, choosing lanes."""

from __future__ import annotations

from typing import Any

from concal.compiler import (
    as_double,
    inlined,
    kernel,
    put,
    row,
    select_less,
    widen,
)


@inlined
def widen_row(array: Any, i: int, m: int) -> Any:
    """Lanes of row (i, m) in float64, whatever the array's precision."""
    return as_double(row(array, (i, m)))


@inlined
def solve_back(n: int, chol: Any, x: Any) -> None:
    """x -> K'^-1 x, in place, with a lower Cholesky factor K (n, n, LANES) and x (n, LANES)."""
    for back in range(n):
        u = n - 1 - back
        s = row(x, (u,))
        for m in range(u + 1, n):
            s = s - row(chol, (m, u)) * row(x, (m,))
        put(x, (u,), s / row(chol, (u, u)))


@kernel
def ability_sums(theta: Any, pop: Any, sums: Any, lo: int, hi: int) -> None:
    """Add [theta (D), theta theta' (D(D+1)/2)] of examinees lo..hi to `sums` (populations, rows, LANES) float64."""
    n = theta.shape[1]
    for i in range(lo, hi):
        m = pop[i]
        for u in range(n):
            tu = widen(row(theta, (i, u)))
            put(sums, (m, u), row(sums, (m, u)) + tu)
            for v in range(u + 1):
                at = n + u * (u + 1) // 2 + v
                put(sums, (m, at), row(sums, (m, at)) + tu * widen(row(theta, (i, v))))


@kernel
def rescale(theta: Any, scale: Any, shift: Any, lo: int, hi: int) -> None:
    """theta -> scale theta + shift, in place; scale, shift (D, LANES) float64. So with items, of either precision."""
    for i in range(lo, hi):
        for u in range(theta.shape[1]):
            put(theta, (i, u), widen_row(theta, i, u) * row(scale, (u,)) + row(shift, (u,)))


@kernel
def add_abilities(theta: Any, chains: int, total: Any, square: Any, lo: int, hi: int) -> None:
    """Running sums over chains for the examinees' posterior means and SDs."""
    for i in range(lo, hi):
        for u in range(theta.shape[1]):
            for c in range(chains):
                value = theta[i, u, c]
                total[i, u] += value
                square[i, u] += value * value


@kernel
def add_products(x: Any, centre: Any, total: Any, square: Any, lo: int, hi: int) -> None:
    """Add z = x - centre of all chains to `total` (items, n), and z z' to `square` (items, n, n)."""
    n, chains = x.shape[1], x.shape[2]
    for j in range(lo, hi):
        for u in range(n):
            for c in range(chains):
                total[j, u] += x[j, u, c] - centre[j, u]
            for v in range(u + 1):
                both = 0.0
                for c in range(chains):
                    both += (x[j, u, c] - centre[j, u]) * (x[j, v, c] - centre[j, v])
                square[j, u, v] += both
                if v < u:
                    square[j, v, u] += both


@kernel
def take_lanes(x: Any, moved: Any, yes: Any, lo: int, hi: int) -> None:
    """x[i] = moved[i] in the lanes where `yes` is one."""
    flag = row(yes, (0,))
    for i in range(lo, hi):
        for m in range(x.shape[1]):
            put(x, (i, m), select_less(0.5, flag, widen_row(moved, i, m), widen_row(x, i, m)))
