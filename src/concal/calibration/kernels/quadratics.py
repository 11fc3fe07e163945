r"""Quadratic factors :math:`-\phi'Q\phi/2 + h'\phi` of items seen through links, added up.

Factor f belongs to one item and one period, whose metric is reached by theta_ref = A theta + B, lane by lane; the
period sees an item phi = (c, a, e) of the reference metric as (c + B a, A a, e) (`concal.metric`). So, given the links,
all factors of an item add up to one quadratic in its phi; given the items, all factors of a period to one in (A, B):

.. math:: -\tfrac12 (S_{AA} A^2 + 2 S_{AB} A B + S_{BB} B^2) + s_A A + s_B B .

Each factor is read once for either; what is evaluated afterwards costs the same whatever the number of periods.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.calibration.kernels.rows import widen_row
from concal.compiler import LANES, inlined, kernel, put, row, splat64, widen


@kernel
def sum_by_item(
    n: int, start: Any, period: Any, Q: Any, h: Any, A: Any, B: Any, total: Any, shift: Any, lo: int, hi: int
) -> None:
    """Quadratics of items lo..hi on the reference metric.

    Their matrices go to `total` (items, n(n+1)/2, LANES), lower triangle by rows, their vectors to `shift` (items, n,
    LANES).
    """
    flat_Q, flat_h = np.zeros((n, n)), np.zeros(n)
    for j in range(lo, hi):
        ca, aa, ha = splat64(0.0), splat64(0.0), splat64(0.0)
        for u in range(n):
            flat_h[u] = 0.0
            for v in range(n):
                flat_Q[u, v] = 0.0
        for u in range(2, n):
            put(total, (j, u * (u + 1) // 2 + 1), splat64(0.0))
        for f in range(start[j], start[j + 1]):
            A_f, B_f = widen(row(A, (period[f],))), widen(row(B, (period[f],)))
            cross = B_f * splat64(Q[f, 0, 0]) + A_f * splat64(Q[f, 0, 1])
            ca = ca + cross
            aa = aa + B_f * cross + A_f * (B_f * splat64(Q[f, 0, 1]) + A_f * splat64(Q[f, 1, 1]))
            ha = ha + B_f * splat64(h[f, 0]) + A_f * splat64(h[f, 1])
            flat_h[0] += h[f, 0]
            flat_Q[0, 0] += Q[f, 0, 0]
            for u in range(2, n):
                at = u * (u + 1) // 2 + 1
                mixed = B_f * splat64(Q[f, u, 0]) + A_f * splat64(Q[f, u, 1])
                put(total, (j, at), row(total, (j, at)) + mixed)
                flat_h[u] += h[f, u]
                flat_Q[u, 0] += Q[f, u, 0]
                for v in range(2, u + 1):
                    flat_Q[u, v] += Q[f, u, v]
        put(total, (j, 0), splat64(flat_Q[0, 0]))
        put(total, (j, 1), ca)
        put(total, (j, 2), aa)
        put(shift, (j, 0), splat64(flat_h[0]))
        put(shift, (j, 1), ha)
        for u in range(2, n):
            line = u * (u + 1) // 2
            put(shift, (j, u), splat64(flat_h[u]))
            put(total, (j, line), splat64(flat_Q[u, 0]))
            for v in range(2, u + 1):
                put(total, (j, line + v), splat64(flat_Q[u, v]))


@inlined
def _evaluate(n: int, j: int, total: Any, shift: Any, a: Any, x: Any, phi: Any, g: Any) -> Any:
    """Value of an item's quadratic at x; phi and its gradient g are filled in."""
    put(phi, (0,), -a * widen_row(x, j, 0))
    put(phi, (1,), a)
    for u in range(2, n):
        put(phi, (u,), widen_row(x, j, u))
    value = splat64(0.0)
    for u in range(n):
        s = splat64(0.0)
        for v in range(n):
            big, small = max(u, v), min(u, v)
            s = s + row(total, (j, big * (big + 1) // 2 + small)) * row(phi, (v,))
        put(g, (u,), row(shift, (j, u)) - s)
        value = value + (row(shift, (j, u)) - 0.5 * s) * row(phi, (u,))
    return value


@kernel
def item_quadratics(n: int, total: Any, shift: Any, par: Any, x: Any, acc: Any, lo: int, hi: int) -> None:
    r"""Accumulators of items lo..hi (rows 0..hi-lo of `acc`) at x (items, n, LANES).

    With phi = (-a d, a, e): d phi / d d = (-a, 0, 0), d phi / d log a = (phi_1, phi_2, 0); information is J'QJ.
    """
    phi, g = np.zeros((n, LANES)), np.zeros((n, LANES))
    base = 1 + n
    for j in range(lo, hi):
        k = j - lo
        a = widen(row(par, (j, 0)))
        put(acc, (k, 0), _evaluate(n, j, total, shift, a, x, phi, g))
        c = row(phi, (0,))
        cc, ca, aa = row(total, (j, 0)), row(total, (j, 1)), row(total, (j, 2))
        put(acc, (k, 1), -a * row(g, (0,)))
        put(acc, (k, 2), c * row(g, (0,)) + a * row(g, (1,)))
        put(acc, (k, base), a * a * cc)
        put(acc, (k, base + 1), -a * (cc * c + ca * a))
        put(acc, (k, base + 2), cc * c * c + 2.0 * ca * c * a + aa * a * a)
        for u in range(2, n):
            line, own = base + u * (u + 1) // 2, u * (u + 1) // 2
            put(acc, (k, 1 + u), row(g, (u,)))
            put(acc, (k, line), -a * row(total, (j, own)))
            put(acc, (k, line + 1), row(total, (j, own)) * c + row(total, (j, own + 1)) * a)
            for v in range(2, u + 1):
                put(acc, (k, line + v), row(total, (j, own + v)))


@kernel
def item_quadratics_value(n: int, total: Any, shift: Any, par: Any, x: Any, out: Any, lo: int, hi: int) -> None:
    """The log-likelihood alone of items lo..hi (rows 0..hi-lo of `out`)."""
    phi, g = np.zeros((n, LANES)), np.zeros((n, LANES))
    for j in range(lo, hi):
        put(out, (j - lo,), _evaluate(n, j, total, shift, widen(row(par, (j, 0))), x, phi, g))


@kernel
def sum_by_period(
    n: int, item: Any, period: Any, weight: Any, Q: Any, h: Any, par: Any, x: Any, sums: Any, lo: int, hi: int
) -> None:
    """Add factors lo..hi, weighted, to `sums` (periods, 5, LANES): S_AA, S_AB, S_BB, s_A, s_B of their links."""
    for f in range(lo, hi):
        j, m = item[f], period[f]
        a = widen(row(par, (j, 0)))
        c, share = -a * widen_row(x, j, 0), splat64(weight[f])
        pull_A = splat64(h[f, 1]) - splat64(Q[f, 0, 1]) * c
        pull_B = splat64(h[f, 0]) - splat64(Q[f, 0, 0]) * c
        for u in range(2, n):
            e = widen_row(x, j, u)
            pull_A = pull_A - splat64(Q[f, u, 1]) * e
            pull_B = pull_B - splat64(Q[f, u, 0]) * e
        square = share * a * a
        put(sums, (m, 0), row(sums, (m, 0)) + square * splat64(Q[f, 1, 1]))
        put(sums, (m, 1), row(sums, (m, 1)) + square * splat64(Q[f, 0, 1]))
        put(sums, (m, 2), row(sums, (m, 2)) + square * splat64(Q[f, 0, 0]))
        put(sums, (m, 3), row(sums, (m, 3)) + share * a * pull_A)
        put(sums, (m, 4), row(sums, (m, 4)) + share * a * pull_B)
