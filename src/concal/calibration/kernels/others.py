"""Log-likelihoods of single responses at nodes of the examinee's ability."""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.compiler import LANES, call_terms, kernel, put, row, splat, splat64, widen


@kernel
def node_log_likelihoods(
    tag: Any, start: Any, item: Any, y: Any, mean: Any, sd: Any, node: Any, par: Any, blocks: int, turn: Any, out: Any,
    place: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """Of the responses of examinees lo..hi at mean + sd * node, averaged over points of the items.

    `par` (items * blocks, parameters, LANES): a point in every lane, `blocks` times as many as there are lanes. Into
    the rows of `out` (responses, nodes), and into `place` where the response stands in the order of items: turn[j]
    counts on from the responses of item j that were met before.
    """
    first = start[lo]
    lanes = np.zeros((1, LANES))
    for i in range(lo, hi):
        for r in range(start[i], start[i + 1]):
            j = item[r]
            place[r - first] = turn[j]
            turn[j] += 1
            for k in range(node.size):
                theta = splat(mean[i] + sd[i] * node[k])
                total = splat64(0.0)
                for b in range(j * blocks, (j + 1) * blocks):
                    eta = row(par, (b, 0)) * (theta - row(par, (b, 1)))
                    ll, _, _ = call_terms(tag, splat(y[r]), eta, (par, b))
                    total = total + widen(ll)
                put(lanes, (0,), total)
                value = 0.0
                for c in range(LANES):
                    value += lanes[0, c]
                out[r - first, k] = value / (LANES * blocks)
