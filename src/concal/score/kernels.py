r"""Compiled passes of scoring: likelihood rows at the nodes, sums over an examinee's responses, posterior moments.

Items load on one dimension each, so an examinee's likelihood on a grid of D dimensions is a product of D vectors: the
sums of the rows of the items answered. With a = exp of the first vector, c the product of the others over the `rest` of
the grid (Q^(D-1) nodes, one for D = 1) and P the prior's weights, every moment is a sum of :math:`a_i P_{ir} c_r`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from concal import compiler
from concal.compiler import LANES, call_factored, call_terms, inlined, kernel
from concal.response import arithmetic

splat: Any = compiler.splat
lane_max: Any = compiler.lane_max
put: Any = compiler.put  # numba gives them their signatures
row: Any = compiler.row
prefetch: Any = compiler.prefetch

NEGLIGIBLE = -60.0
"""Log of the share of the largest weight, likelihood times the prior's margin, below which a node counts as zero."""


AHEAD = 4
"""Rows of the table are asked for so many responses ahead: they lie anywhere in it."""
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


@kernel
def peak(values: Any) -> int:
    """Where a vector is largest."""
    best = 0
    for q in range(1, values.shape[0]):
        if values[q] > values[best]:
            best = q
    return best


@kernel
def log_rows(tag: Any, par: Any, which: Any, y: Any, nodes: Any, out: Any, lo: int, hi: int) -> None:
    """Log-likelihood of rows lo..hi at the nodes: row j is score y[j] on the item with parameters par[which[j]]."""
    for j in range(lo, hi):
        item = which[j]
        a, d = par[item, 0], par[item, 1]
        for k in range(nodes.shape[0]):
            out[j, k] = call_terms(tag, y[j], a * (nodes[k] - d), par[item])[0]


@kernel
def soft_rows(tag: Any, par: Any, blocks: int, which: Any, y: Any, nodes: Any, out: Any, lo: int, hi: int) -> None:
    """Log of the likelihood averaged over the points of the item's posterior: lanes of float32, `blocks` for an item.

    `par` (items * blocks, parameters, LANES). The models leave their logarithm to us: the average is of f exp(l), and
    one logarithm serves all points. The points' rounding errors, 2e-7 each, cancel in their average.
    """
    log_part, factor = np.empty((blocks, LANES), np.float32), np.empty((blocks, LANES), np.float32)
    sums = np.empty((1, LANES), np.float32)
    for j in range(lo, hi):
        first, score = which[j] * blocks, splat(y[j])
        for k in range(nodes.shape[0]):
            node, largest = splat(nodes[k]), splat(-np.inf)
            for b in range(blocks):
                at = first + b
                eta = row(par, (at, 0)) * (node - row(par, (at, 1)))
                part, f, _, _ = call_factored(tag, score, eta, (par, at))
                put(log_part, (b,), part)
                put(factor, (b,), f)
                largest = lane_max(largest, part)
            put(sums, (0,), largest)
            top = sums[0, peak(sums[0])]
            total = splat(0.0)
            for b in range(blocks):
                total = total + row(factor, (b,)) * arithmetic.exp(row(log_part, (b,)) - splat(top))
            put(sums, (0,), total)
            out[j, k] = top + math.log(sums.sum() / (blocks * LANES))


@kernel
def response_terms(
    tag: Any, par: Any, which: Any, y: Any, dim: int, theta: Any, out: Any, start: Any, lo: int, hi: int
) -> None:
    """Add one group's log-likelihood, gradient and information of examinees lo..hi to out (persons, dimensions, 3)."""
    for i in range(lo, hi):
        t = theta[i, dim]
        for r in range(start[i], start[i + 1]):
            item = which[r]
            a = par[item, 0]
            ll, g, w = call_terms(tag, y[r], a * (t - par[item, 1]), par[item])
            out[i, dim, 0] += ll
            out[i, dim, 1] += a * g
            out[i, dim, 2] += a * a * w


@kernel
def add_rows(table: Any, dim: Any, rows: Any, first: int, last: int, tilt: Any, nodes: Any, out: Any) -> None:
    """Sums of an examinee's rows by dimension, on top of tilt (D,) times nodes (D, Q): out (D, Q), whole lanes."""
    blocks = table.shape[1] // LANES
    wide = table.reshape(table.shape[0], blocks, LANES)
    sums = out.reshape(out.shape[0], blocks, LANES)
    for k in range(out.shape[0]):
        for q in range(out.shape[1]):
            out[k, q] = tilt[k] * nodes[k, q]
    for r in range(first, last):
        ahead = rows[min(r + AHEAD, last - 1)]
        for b in range(blocks):
            prefetch(wide, (ahead, b))
        j = rows[r]
        k = dim[j]
        for b in range(blocks):
            put(sums, (k, b), row(sums, (k, b)) + row(wide, (j, b)))


@kernel
def likelihoods(L: Any, margin: Any, weight: Any) -> float:
    """Log-likelihoods (D, Q) as likelihoods, in place, and the sum of the logs they were divided by.

    The scale is set where likelihood times the prior's margin (its log, (D, Q)) is largest: with a prior far from the
    responses the posterior lies where the likelihood alone is negligible. `weight` (Q,) is scratch.
    """
    logs = 0.0
    for k in range(L.shape[0]):
        one, own = L[k], margin[k]
        for q in range(one.shape[0]):
            weight[q] = one[q] + own[q]
        at = peak(weight)
        top, most = one[at], weight[at]
        logs += top
        for q in range(one.shape[0]):
            one[q] = quick_exp(min(one[q] - top, 600.0)) if weight[q] - most > NEGLIGIBLE else 0.0
    return logs


@kernel
def rest_products(L: Any, c: Any) -> None:
    """Products of the vectors of all dimensions but the first, over the rest of the grid (the last varies fastest)."""
    Q, n = L.shape[1], 1
    c[:] = 0.0
    c[0] = 1.0
    for k in range(1, L.shape[0]):
        for r in range(n - 1, -1, -1):
            base = c[r]
            for q in range(Q - 1, -1, -1):
                c[r * Q + q] = base * L[k, q]
        n *= Q


@kernel
def occupied(values: Any) -> Any:
    """First and last place (plus one) that is not zero; at least one place."""
    begin, end = 0, values.shape[0]
    while begin < end - 1 and values[begin] == 0.0:
        begin += 1
    while end > begin + 1 and values[end - 1] == 0.0:
        end -= 1
    return begin, end


@kernel
def moments(
    table: Any, dim: Any, rows: Any, start: Any, group: Any, tilt: Any, nodes: Any, prior: Any, margin: Any, first: Any,
    rest: Any, mean: Any, second: Any, log_marginal: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """Posterior moments of examinees lo..hi.

    Parameters
    ----------
    table : (rows, Q), dim : (rows,)
        Log-likelihood rows and the dimension of each.
    rows, start
        Rows of an examinee's responses: rows[start[i]:start[i + 1]].
    group : (persons,), prior : (groups, Q, rest), margin : (groups, D, Q)
        Which prior; its weights on the grid, and the logs of its margins.
    tilt : (persons, D), nodes : (groups, D, Q)
        The prior of an examinee is the group's times exp(tilt'theta): a normal one with another mean.
    first : (groups, Q), rest : (groups, D - 1, rest)
        Nodes of the first dimension, and of the others over the rest of the grid, which is a multiple of LANES long
        (filled up with nodes of no weight).
    mean : (persons, D), second : (persons, D, D), log_marginal : (persons,)
        Filled in; `second` holds the covariance.
    """
    D, Q, R = mean.shape[1], table.shape[1], prior.shape[2]
    blocks = R // LANES
    L, c = np.empty((D, Q)), np.empty(R)
    w0, w1, w2 = np.empty((blocks, LANES)), np.empty((blocks, LANES)), np.empty((blocks, LANES))
    v0, v1, v2 = w0.reshape(R), w1.reshape(R), w2.reshape(R)
    a1, a2, scratch = np.empty(Q), np.empty(Q), np.empty(Q)
    wide = prior.reshape(prior.shape[0], Q, blocks, LANES)
    for i in range(lo, hi):
        g = group[i]
        add_rows(table, dim, rows, start[i], start[i + 1], tilt[i], nodes[g], L)
        centre = first[g, peak(L[0])]  # moments about the likelihood's largest value keep their digits
        logs = likelihoods(L, margin[g], scratch)
        rest_products(L, c)
        low, high = occupied(L[0])
        begin, end = occupied(c)
        a = L[0]
        for q in range(low, high):
            t = first[g, q] - centre
            a1[q] = a[q] * t
            a2[q] = a1[q] * t
        for b in range(begin // LANES, (end - 1) // LANES + 1):
            s0 = row(wide, (g, low, b)) * 0.0
            s1 = s0
            s2 = s0
            for q in range(low, high):
                p = row(wide, (g, q, b))
                s0 = s0 + p * a[q]
                s1 = s1 + p * a1[q]
                s2 = s2 + p * a2[q]
            put(w0, (b,), s0)
            put(w1, (b,), s1)
            put(w2, (b,), s2)
        total, m1, m2 = 0.0, 0.0, 0.0
        for r in range(begin, end):
            v0[r] *= c[r]
            v1[r] *= c[r]
            total += v0[r]
            m1 += v1[r]
            m2 += v2[r] * c[r]
        log_marginal[i] = logs + math.log(total)
        m1 /= total
        mean[i, 0] = centre + m1
        second[i, 0, 0] = m2 / total - m1 * m1
        for k in range(1, D):
            x = rest[g, k - 1]
            sk = 0.0
            for r in range(begin, end):
                sk += v0[r] * x[r]
            mk = sk / total
            mean[i, k] = mk
            s1k = 0.0
            for r in range(begin, end):
                s1k += v1[r] * (x[r] - mk)
            second[i, 0, k] = second[i, k, 0] = s1k / total
            for l in range(1, k + 1):
                z, ml, skl = rest[g, l - 1], mean[i, l], 0.0
                for r in range(begin, end):
                    skl += v0[r] * (x[r] - mk) * (z[r] - ml)
                second[i, k, l] = second[i, l, k] = skl / total


@kernel
def peaks(table: Any, dim: Any, rows: Any, start: Any, mode: Any, lo: int, hi: int) -> None:
    """Nodes where the likelihood of examinees lo..hi is largest: mode (persons, D)."""
    L = np.empty((mode.shape[1], table.shape[1]))
    level = np.zeros(L.shape)
    for i in range(lo, hi):
        add_rows(table, dim, rows, start[i], start[i + 1], level[:, 0], level, L)
        for k in range(mode.shape[1]):
            mode[i, k] = peak(L[k])


@kernel
def pick(
    table: Any, dim: Any, rows: Any, start: Any, group: Any, tilt: Any, nodes: Any, prior: Any, margin: Any,
    uniform: Any, node: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """A cell of the grid drawn from the posterior of examinees lo..hi: node (persons, 2), in the first and the rest.

    `uniform` (persons, 2) picks the node of the first dimension and then the cell among the rest.
    """
    D, Q, R = margin.shape[1], table.shape[1], prior.shape[2]
    L, c, mass = np.empty((D, Q)), np.empty(R), np.empty(Q)
    for i in range(lo, hi):
        g = group[i]
        add_rows(table, dim, rows, start[i], start[i + 1], tilt[i], nodes[g], L)
        likelihoods(L, margin[g], mass)
        rest_products(L, c)
        total = 0.0
        for q in range(Q):
            mass[q] = 0.0
            if L[0, q] > 0.0:
                s = 0.0
                for r in range(R):
                    s += prior[g, q, r] * c[r]
                mass[q] = s * L[0, q]
                total += mass[q]
        left, q = uniform[i, 0] * total, 0
        while q < Q - 1 and left >= mass[q]:
            left -= mass[q]
            q += 1
        inside = 0.0
        for r in range(R):
            inside += prior[g, q, r] * c[r]
        left, r = uniform[i, 1] * inside, 0
        while r < R - 1 and left >= prior[g, q, r] * c[r]:
            left -= prior[g, q, r] * c[r]
            r += 1
        node[i, 0], node[i, 1] = q, r
