"""Compiled choices of nodes: where a likelihood is largest, and cells drawn from a posterior."""

from __future__ import annotations

from typing import Any

import numpy as np

from concal import compiler
from concal.compiler import LANES, inlined, kernel
from concal.score.kernels.posterior import add_rows, lane_sum, likelihoods, peak, rest_products

put: Any = compiler.put  # numba gives them their signatures
row: Any = compiler.row


@inlined
def whole(D: int, blocks: int) -> Any:
    """The window (D, 2) of all nodes."""
    window = np.zeros((D, 2), np.int32)
    window[:, 1] = blocks
    return window


@inlined
def cells(prior: Any, q: int, c: Any, cell: Any, one: Any) -> float:
    """Prior times likelihood over the rest of the grid at node q of the first dimension, and their sum."""
    total = row(c, (0,)) * 0.0
    for b in range(c.shape[0]):
        value = row(prior, (q, b)) * row(c, (b,))
        put(cell, (b,), value)
        total = total + value
    return lane_sum(total, one)


@inlined
def chosen(mass: Any, left: float) -> int:
    """The place up to which the masses sum to `left`."""
    q = 0
    while q < mass.shape[0] - 1 and left >= mass[q]:
        left -= mass[q]
        q += 1
    return q


@kernel
def peaks(table: Any, dim: Any, rows: Any, start: Any, mode: Any, lo: int, hi: int) -> None:
    """Nodes where the likelihood of examinees lo..hi is largest: mode (persons, D)."""
    D, blocks = mode.shape[1], table.shape[1]
    L, level, one = np.empty((D, blocks, LANES)), np.zeros((D, blocks, LANES)), np.empty((1, LANES))
    flat, window = np.zeros(D), whole(D, blocks)
    for i in range(lo, hi):
        add_rows(table, dim, rows, start[i], start[i + 1], flat, level, window, L)
        for k in range(D):
            mode[i, k] = peak(L[k], 0, blocks, one)


@kernel
def pick(
    table: Any, dim: Any, rows: Any, start: Any, group: Any, tilt: Any, nodes: Any, prior: Any, margin: Any,
    uniform: Any, node: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """A cell of the grid drawn from the posterior of examinees lo..hi: node (persons, 2), in the first and the rest.

    Arrays as in `concal.score.kernels.posterior.moments`. `uniform` (persons, 2) picks the node of the first dimension
    and then the cell among the rest.
    """
    D, blocks, rest_blocks = nodes.shape[1], nodes.shape[2], prior.shape[2]
    Q, R = blocks * LANES, rest_blocks * LANES
    L, weight, one = np.empty((D, blocks, LANES)), np.empty((blocks, LANES)), np.empty((1, LANES))
    c, mass, cell = np.empty((rest_blocks, LANES)), np.empty(Q), np.empty((rest_blocks, LANES))
    at, window = np.empty(D, np.int64), whole(D, blocks)
    flat, even, every = L.reshape(D, Q), weight.reshape(Q), cell.reshape(R)
    for i in range(lo, hi):
        g = group[i]
        add_rows(table, dim, rows, start[i], start[i + 1], tilt[i], nodes[g], window, L)
        likelihoods(L, flat, margin[g], window, weight, even, one, at)
        rest_products(L, c)
        for q in range(Q):
            mass[q] = flat[0, q] * cells(prior[g], q, c, cell, one)
        q = chosen(mass, uniform[i, 0] * mass.sum())
        inside = cells(prior[g], q, c, cell, one)
        node[i, 0], node[i, 1] = q, chosen(every, uniform[i, 1] * inside)
