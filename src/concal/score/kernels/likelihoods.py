"""Compiled likelihoods: rows at the nodes of a grid, and derivatives at examinees' abilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from concal import compiler
from concal.compiler import LANES, call_factored, call_terms, kernel
from concal.response import arithmetic

splat: Any = compiler.splat
lane_max: Any = compiler.lane_max
put: Any = compiler.put  # numba gives them their signatures
row: Any = compiler.row


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
            top = sums[0].max()
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
