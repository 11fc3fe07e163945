"""Passes over responses that fill the accumulators of examinees and items."""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.compiler import (
    LANES,
    call_extra_terms,
    call_factored,
    inlined,
    kernel,
    prefetch,
    put,
    row,
    splat,
    splat64,
    widen,
)
from concal.response import arithmetic

AHEAD = 24  # responses whose abilities are asked for in advance: with many examinees they lie in memory, not in a cache
BLOCK = 8  # responses summed in float32 before the sum goes on in float64


@kernel
def person_pass(
    tag: Any, start: Any, item: Any, y: Any, theta: Any, par: Any, dim: int, n: int, acc: Any, lo: int, hi: int
) -> None:
    """Add one group's responses to the accumulators of examinees lo..hi (rows 0..hi-lo of `acc`)."""
    gradient_at = 1 + dim
    information_at = 1 + n + (dim * (dim + 3)) // 2
    for i in range(lo, hi):
        first, last = start[i], start[i + 1]
        if first == last:
            continue
        th = row(theta, (i, dim))
        ll, g, w = splat64(0.0), splat64(0.0), splat64(0.0)
        for block in range(first, last, BLOCK):
            l8, f8, g8, w8 = splat(0.0), splat(1.0), splat(0.0), splat(0.0)
            for r in range(block, min(block + BLOCK, last)):
                j = item[r]
                a = row(par, (j, 0))
                part, factor, slope, weight = call_factored(tag, splat(y[r]), a * (th - row(par, (j, 1))), (par, j))
                l8 = l8 + part
                f8 = f8 * factor
                g8 = g8 + a * slope
                w8 = w8 + a * a * weight
            ll = ll + widen(l8 + arithmetic.log(f8))
            g = g + widen(g8)
            w = w + widen(w8)
        k = i - lo
        put(acc, (k, 0), row(acc, (k, 0)) + ll)
        put(acc, (k, gradient_at), row(acc, (k, gradient_at)) + g)
        put(acc, (k, information_at), row(acc, (k, information_at)) + w)


@kernel
def item_pass(
    tag: Any, start: Any, person: Any, y: Any, theta: Any, dim: int, par: Any, acc: Any, lo: int, hi: int
) -> None:
    """Accumulators of items lo..hi of a model without extras (rows 0..hi-lo of `acc`), from all their responses."""
    end = person.shape[0] - 1
    for j in range(lo, hi):
        a, d = row(par, (j, 0)), row(par, (j, 1))
        ll, g, ge = splat64(0.0), splat64(0.0), splat64(0.0)
        w, we, wee = splat64(0.0), splat64(0.0), splat64(0.0)
        last = start[j + 1]
        for block in range(start[j], last, BLOCK):
            l8, f8, g8, ge8 = splat(0.0), splat(1.0), splat(0.0), splat(0.0)
            w8, we8, wee8 = splat(0.0), splat(0.0), splat(0.0)
            for r in range(block, min(block + BLOCK, last)):
                prefetch(theta, (person[min(r + AHEAD, end)], dim))
                eta = a * (row(theta, (person[r], dim)) - d)
                part, factor, slope, weight = call_factored(tag, splat(y[r]), eta, (par, j))
                l8 = l8 + part
                f8 = f8 * factor
                g8 = g8 + slope
                ge8 = ge8 + slope * eta
                w8 = w8 + weight
                we8 = we8 + weight * eta
                wee8 = wee8 + weight * eta * eta
            ll = ll + widen(l8 + arithmetic.log(f8))
            g, ge = g + widen(g8), ge + widen(ge8)
            w, we, wee = w + widen(w8), we + widen(we8), wee + widen(wee8)
        put_head(2, widen(a), ll, g, ge, w, we, wee, acc, j - lo)


@kernel
def item_pass_extras(
    tag: Any,
    start: Any,
    person: Any,
    y: Any,
    theta: Any,
    dim: int,
    par: Any,
    jacobian: Any,
    acc: Any,
    lo: int,
    hi: int,
) -> None:
    """The same for a model with q extras; `jacobian` is d psi / d extras, (items of the chunk, q, q, LANES) float64."""
    end = person.shape[0] - 1
    q = jacobian.shape[1]
    n_out = 2 * q + q * (q + 1) // 2
    out = np.zeros((n_out, LANES), np.float32)
    block_sum = np.zeros((n_out + q, LANES), np.float32)  # the outputs, then the eta-weighted cross informations
    total = np.zeros((n_out + q, LANES), np.float64)
    mapped = np.zeros((q, q, LANES), np.float64)
    for j in range(lo, hi):
        a, d = row(par, (j, 0)), row(par, (j, 1))
        ll, g, ge = splat64(0.0), splat64(0.0), splat64(0.0)
        w, we, wee = splat64(0.0), splat64(0.0), splat64(0.0)
        for m in range(n_out + q):
            put(total, (m,), splat64(0.0))
        last = start[j + 1]
        for block in range(start[j], last, BLOCK):
            l8, g8, ge8 = splat(0.0), splat(0.0), splat(0.0)
            w8, we8, wee8 = splat(0.0), splat(0.0), splat(0.0)
            for m in range(n_out + q):
                put(block_sum, (m,), splat(0.0))
            for r in range(block, min(block + BLOCK, last)):
                prefetch(theta, (person[min(r + AHEAD, end)], dim))
                eta = a * (row(theta, (person[r], dim)) - d)
                part, slope, weight = call_extra_terms(tag, splat(y[r]), eta, (par, j), out)
                l8 = l8 + part
                g8 = g8 + slope
                ge8 = ge8 + slope * eta
                w8 = w8 + weight
                we8 = we8 + weight * eta
                wee8 = wee8 + weight * eta * eta
                for m in range(n_out):
                    put(block_sum, (m,), row(block_sum, (m,)) + row(out, (m,)))
                for m in range(q):
                    put(block_sum, (n_out + m,), row(block_sum, (n_out + m,)) + eta * row(out, (q + m,)))
            ll, g, ge = ll + widen(l8), g + widen(g8), ge + widen(ge8)
            w, we, wee = w + widen(w8), we + widen(we8), wee + widen(wee8)
            for m in range(n_out + q):
                put(total, (m,), row(total, (m,)) + widen(row(block_sum, (m,))))
        put_item(q, n_out, widen(a), ll, g, ge, w, we, wee, total, jacobian, mapped, acc, j - lo)


@inlined
def put_head(n: int, a: Any, ll: Any, g: Any, ge: Any, w: Any, we: Any, wee: Any, acc: Any, k: int) -> None:
    """From sums in eta to an accumulator in (d, log a), the first of n coordinates."""
    put(acc, (k, 0), ll)
    put(acc, (k, 1), -a * g)  # d eta / d d = -a
    put(acc, (k, 2), ge)  # d eta / d log a = eta
    put(acc, (k, 1 + n), a * a * w)
    put(acc, (k, 2 + n), -a * we)
    put(acc, (k, 3 + n), wee)


@inlined
def put_item(
    q: int,
    n_out: int,
    a: Any,
    ll: Any,
    g: Any,
    ge: Any,
    w: Any,
    we: Any,
    wee: Any,
    total: Any,
    jacobian: Any,
    mapped: Any,
    acc: Any,
    k: int,
) -> None:
    """From sums in (eta, psi) to the accumulator in xi: J' g, slopes v' J, J' W J."""
    put_head(q + 2, a, ll, g, ge, w, we, wee, acc, k)
    base = q + 3
    for u in range(q):
        gradient, cross_d, cross_a = splat64(0.0), splat64(0.0), splat64(0.0)
        for v in range(q):
            jvu = row(jacobian, (k, v, u))
            gradient = gradient + jvu * row(total, (v,))
            cross_d = cross_d - a * jvu * row(total, (q + v,))
            cross_a = cross_a + jvu * row(total, (n_out + v,))
            inner = splat64(0.0)  # (W J)_vu
            for z in range(q):
                big, small = max(v, z), min(v, z)
                inner = inner + row(total, (2 * q + big * (big + 1) // 2 + small,)) * row(jacobian, (k, z, u))
            put(mapped, (v, u), inner)
        put(acc, (k, 3 + u), gradient)
        line = base + (u + 2) * (u + 3) // 2
        put(acc, (k, line), cross_d)
        put(acc, (k, line + 1), cross_a)
    for u in range(q):
        line = base + (u + 2) * (u + 3) // 2
        for s in range(u + 1):
            value = splat64(0.0)
            for v in range(q):
                value = value + row(jacobian, (k, v, u)) * row(mapped, (v, s))
            put(acc, (k, line + 2 + s), value)
