r"""Compiled posterior moments: sums over an examinee's responses, and integrals over the grid.

Items load on one dimension each, so an examinee's likelihood on a grid of D dimensions is a product of D vectors: the
sums of the rows of the items answered. With a = exp of the first vector, c the product of the others over the `rest` of
the grid (Q^(D-1) nodes, one for D = 1) and P the prior's weights, every moment is a sum of :math:`a_i P_{ir} c_r`.

A posterior fills a part of the grid. Where it lies is much the same for every draw of the items, so that later draws
look only at a **window** of the nodes: window (D, 2), the first and the last block (plus one) of LANES nodes in every
dimension. The window grows until what lies at its ends is negligible, so it decides about speed alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from concal import compiler
from concal.compiler import LANES, inlined, kernel

lane_max: Any = compiler.lane_max
put: Any = compiler.put  # numba gives them their signatures
row: Any = compiler.row
prefetch: Any = compiler.prefetch

NEGLIGIBLE = -60.0
"""Log of the share of the largest weight, likelihood times the prior's margin, below which a node counts as zero."""
OUTSIDE = 1e-9
"""Share of the posterior at the ends of a window below which nothing is missed beyond: six SDs from the mean."""
AHEAD = 8
"""Rows of the table are asked for so many responses ahead, those of the next examinee too: they lie anywhere in it."""
MAGIC = 1.5 * 2.0**52
"""Added to a number below 2^51 it leaves the nearest whole number in the last bits."""


@inlined
def quick_exp(x: float) -> float:
    """e^x for |x| up to 700, without a call or a branch, so that loops of it vectorise.

    x = n log 2 + r, |r| <= log(2)/2; the series in r, and n put into the exponent's bits.
    """
    shifted = x * 1.4426950408889634 + MAGIC
    n = shifted - MAGIC
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    exponent = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52)
    two_to_n = np.int64(exponent).view(np.float64)
    return p * two_to_n


@inlined
def lane_sum(x: Any, one: Any) -> float:
    """The sum of lanes; `one` (1, LANES) is scratch."""
    put(one, (0,), x)
    s = one[0]
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]))


@inlined
def peak(values: Any, begin: int, end: int, one: Any) -> int:
    """Where values (blocks, LANES) are largest, of blocks begin..end; `one` (1, LANES) is scratch."""
    largest = row(values, (begin,))
    for b in range(begin + 1, end):
        largest = lane_max(largest, row(values, (b,)))
    put(one, (0,), largest)
    top = max(one[0])
    for b in range(begin, end):
        for l in range(LANES):
            if values[b, l] == top:
                return b * LANES + l
    return begin * LANES


@inlined
def add_rows(
    table: Any, dim: Any, rows: Any, first: int, last: int, tilt: Any, nodes: Any, window: Any, out: Any
) -> None:
    """Sums of an examinee's rows by dimension within the window, on top of tilt (D,) times nodes (D, blocks, LANES).

    `table` is (rows, blocks, LANES), `out` (D, blocks, LANES).
    """
    for k in range(out.shape[0]):
        for b in range(window[k, 0], window[k, 1]):
            put(out, (k, b), row(nodes, (k, b)) * tilt[k])
    for r in range(first, last):
        ahead = rows[min(r + AHEAD, rows.shape[0] - 1)]
        k = dim[ahead]
        for b in range(window[k, 0], window[k, 1]):
            prefetch(table, (ahead, b))
        j = rows[r]
        k = dim[j]
        for b in range(window[k, 0], window[k, 1]):
            put(out, (k, b), row(out, (k, b)) + row(table, (j, b)))


@inlined
def likelihoods(L: Any, flat: Any, margin: Any, window: Any, weight: Any, even: Any, one: Any, at: Any) -> None:
    """Log-likelihoods (D, blocks, LANES) as likelihoods, in place and up to a factor, zero outside the window.

    The factor is set where likelihood times the prior's margin (its log, like L) is largest: with a prior far from the
    responses the posterior lies where the likelihood alone is negligible. `at` (D,) are these nodes' places; `weight`
    (blocks, LANES) and `one` (1, LANES) are scratch. `flat` (D, Q) and `even` (Q,) are L and weight themselves, node
    after node: a loop of constant length would not become vector code.
    """
    for k in range(L.shape[0]):
        begin, end = window[k, 0], window[k, 1]
        for b in range(begin, end):
            put(weight, (b,), row(L, (k, b)) + row(margin, (k, b)))
        at[k] = peak(weight, begin, end, one)
        top, most = flat[k, at[k]], even[at[k]]
        for b in range(L.shape[1]):
            if b < begin or b >= end:
                put(L, (k, b), 0.0)
        values, both = flat[k, begin * LANES : end * LANES], even[begin * LANES : end * LANES]
        for q in range(values.shape[0]):
            value = quick_exp(min(max(values[q] - top, -700.0), 600.0))
            values[q] = value if both[q] - most > NEGLIGIBLE else 0.0


@inlined
def rest_products(L: Any, c: Any) -> None:
    """Products of the vectors of all dimensions but the first, over the rest of the grid (the last varies fastest).

    L (D, blocks, LANES), c (blocks of the rest, LANES).
    """
    Q, n = L.shape[1] * LANES, 1
    for b in range(c.shape[0]):
        put(c, (b,), 0.0)
    c[0, 0] = 1.0
    for k in range(1, L.shape[0]):
        for r in range(n - 1, -1, -1):
            base = c[r // LANES, r % LANES]
            for b in range(L.shape[1]):  # Q is whole lanes, so a vector begins a block
                put(c, (r * L.shape[1] + b,), row(L, (k, b)) * base)
        n *= Q


@inlined
def occupied(values: Any, one: Any) -> Any:
    """First and last of the blocks (blocks, LANES) that is not all zero (plus one); values are not negative."""
    begin, end = 0, values.shape[0]
    while begin < end - 1 and lane_sum(row(values, (begin,)), one) == 0.0:
        begin += 1
    while end > begin + 1 and lane_sum(row(values, (end - 1,)), one) == 0.0:
        end -= 1
    return begin, end


@kernel
def grow(window: Any, a: Any, prior: Any, c: Any, w0: Any, least: float, one: Any) -> bool:
    """Add a block wherever more than `least` of the posterior lies at an end of the window; whether any was added.

    The posterior over the rest of the grid is w0 times c, (blocks, LANES) each.
    """
    D, n_blocks, grown = window.shape[0], a.shape[0], False
    Q = n_blocks * LANES
    for k in range(D):
        for side in range(2):
            if window[k, side] == side * n_blocks:
                continue
            q = window[k, 0] * LANES if side == 0 else window[k, 1] * LANES - 1
            there = 0.0
            if k == 0:
                sums = row(c, (0,)) * 0.0
                for b in range(c.shape[0]):
                    sums = sums + row(prior, (q, b)) * row(c, (b,))
                there = a[q // LANES, q % LANES] * lane_sum(sums, one)
            else:
                stride = Q ** (D - 1 - k)
                for before in range(Q ** (k - 1)):
                    for after in range(stride):
                        r = (before * Q + q) * stride + after
                        if c[r // LANES, r % LANES] > 0.0:
                            there += w0[r // LANES, r % LANES] * c[r // LANES, r % LANES]
            if not there <= least:
                window[k, side] += 2 * side - 1
                grown = True
    return grown


@inlined
def first_sums(
    prior: Any, a: Any, nodes: Any, centre: float, low: int, high: int, begin: int, end: int, w0: Any, w1: Any, w2: Any
) -> None:
    """Sums of likelihood times prior over blocks low..high of the first dimension, for blocks begin..end of the rest.

    As they are (w0), times the nodes about the centre (w1), and times the squares of these (w2).
    """
    for b in range(begin, end):
        s0 = row(nodes, (0,)) * 0.0
        s1 = s0
        s2 = s0
        for m in range(low, high):
            for l in range(LANES):
                t = nodes[m, l] - centre
                p = row(prior, (m * LANES + l, b)) * a[m, l]
                s0 = s0 + p
                p = p * t
                s1 = s1 + p
                s2 = s2 + p * t
        put(w0, (b,), s0)
        put(w1, (b,), s1)
        put(w2, (b,), s2)


@inlined
def rest_sums(
    w0: Any, w1: Any, w2: Any, c: Any, rest: Any, centre: Any, begin: int, end: int, sums: Any, one: Any
) -> None:
    """Total, first and second moments about the centre, unnormalised.

    In the order total, (0), (0, 0), and for every further dimension k: (k), (0, k), (1, k), ..., (k, k).
    """
    s0 = row(c, (begin,)) * 0.0
    s1 = s0
    s2 = s0
    for b in range(begin, end):
        weight = row(c, (b,))
        s0 = s0 + row(w0, (b,)) * weight
        s1 = s1 + row(w1, (b,)) * weight
        s2 = s2 + row(w2, (b,)) * weight
    sums[0], sums[1], sums[2] = lane_sum(s0, one), lane_sum(s1, one), lane_sum(s2, one)
    at = 3
    for k in range(1, centre.shape[0]):
        s0 = row(c, (begin,)) * 0.0
        s1 = s0
        for b in range(begin, end):
            x = (row(rest, (k - 1, b)) - centre[k]) * row(c, (b,))
            s0 = s0 + row(w0, (b,)) * x
            s1 = s1 + row(w1, (b,)) * x
        sums[at], sums[at + 1] = lane_sum(s0, one), lane_sum(s1, one)
        at += 2
        for l in range(1, k + 1):
            s0 = row(c, (begin,)) * 0.0
            for b in range(begin, end):
                x = (row(rest, (k - 1, b)) - centre[k]) * row(c, (b,))
                s0 = s0 + row(w0, (b,)) * (row(rest, (l - 1, b)) - centre[l]) * x
            sums[at] = lane_sum(s0, one)
            at += 1


@inlined
def take(sums: Any, centre: Any, mean: Any, covariance: Any) -> None:
    """Mean (D,) and covariance (D, D) from the sums of `rest_sums`."""
    total = sums[0]
    m1 = sums[1] / total
    mean[0] = centre[0] + m1
    covariance[0, 0] = sums[2] / total - m1 * m1
    at = 3
    for k in range(1, centre.shape[0]):
        mk = sums[at] / total
        mean[k] = centre[k] + mk
        covariance[0, k] = covariance[k, 0] = sums[at + 1] / total - m1 * mk
        at += 2
        for l in range(1, k + 1):
            covariance[k, l] = covariance[l, k] = sums[at] / total - mk * (mean[l] - centre[l])
            at += 1


@kernel
def moments(
    table: Any, dim: Any, rows: Any, start: Any, group: Any, tilt: Any, nodes: Any, prior: Any, margin: Any, rest: Any,
    window: Any, mean: Any, covariance: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """Posterior moments of examinees lo..hi.

    Parameters
    ----------
    table : (rows, Q), dim : (rows,)
        Log-likelihood rows and the dimension of each. Nodes come as blocks of lanes: Q stands for (blocks, LANES), and
        so does `rest`, the product of all dimensions but the first (filled up with nodes of no weight).
    rows, start
        Rows of an examinee's responses: rows[start[i]:start[i + 1]].
    group : (persons,), prior : (groups, Q, rest), margin : (groups, D, Q)
        Which prior; its weights on the grid, and the logs of its margins.
    tilt : (persons, D), nodes : (groups, D, Q)
        The prior of an examinee is the group's times exp(tilt'theta): a normal one with another mean.
    rest : (groups, D - 1, rest)
        Nodes of all dimensions but the first over the rest of the grid.
    window : (persons, D, 2)
        Where to look; grown where that is not enough.
    mean : (persons, D), covariance : (persons, D, D)
        Filled in.
    """
    D, blocks, rest_blocks = nodes.shape[1], nodes.shape[2], prior.shape[2]
    L, weight, one = np.empty((D, blocks, LANES)), np.empty((blocks, LANES)), np.empty((1, LANES))
    c, w0 = np.empty((rest_blocks, LANES)), np.empty((rest_blocks, LANES))
    w1, w2 = np.empty((rest_blocks, LANES)), np.empty((rest_blocks, LANES))
    flat, even = L.reshape(D, blocks * LANES), weight.reshape(blocks * LANES)
    at, centre, sums = np.empty(D, np.int64), np.empty(D), np.empty(3 + (D - 1) * (D + 4) // 2)
    for i in range(lo, hi):
        g, own = group[i], window[i]
        looking = True
        while looking:
            add_rows(table, dim, rows, start[i], start[i + 1], tilt[i], nodes[g], own, L)
            likelihoods(L, flat, margin[g], own, weight, even, one, at)
            for k in range(D):  # moments about a node near the mean keep their digits
                centre[k] = nodes[g, k, at[k] // LANES, at[k] % LANES]
            rest_products(L, c)
            begin, end = occupied(c, one)
            first_sums(prior[g], L[0], nodes[g, 0], centre[0], own[0, 0], own[0, 1], begin, end, w0, w1, w2)
            rest_sums(w0, w1, w2, c, rest[g], centre, begin, end, sums, one)
            looking = grow(own, L[0], prior[g], c, w0, OUTSIDE * sums[0], one)
        take(sums, centre, mean[i], covariance[i])
