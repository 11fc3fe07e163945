r"""Compiled sums over anchors, node by node: what every characteristic-curve criterion is made of.

One curve of each anchor stands still (its values at the nodes are computed once per draw), the other moves with
(A, B): it is evaluated at the moved node v. Every criterion needs, per draw and node, three sums over the anchors j,

.. math:: \sum_j\omega_j\rho(r_j),\quad
          \frac{d}{dv}\sum_j\omega_j\rho(r_j),\quad
          \frac{d^2}{dv^2}\sum_j\omega_j\rho(r_j),\qquad r_j = E_j^{fixed} - E_j(v),

and because the moved node is a function of (log A, B) alone, the chain rule to (log A, B) is done afterwards on 61
numbers instead of on every anchor. The second derivative of a curve is the difference of its slopes at the two
neighbouring nodes: the response contract gives slopes only, and a Newton step needs no more.

Nodes sit in SIMD lanes, so any registered model's `curve` kernel serves, by its tag. Node arrays are padded: one ghost
node before the first and after the last (for the differences), then up to a multiple of the lane count.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from concal import compiler
from concal.compiler import LANES, call_curve, kernel

put: Any = compiler.put  # numba gives them their signatures
row: Any = compiler.row

SQUARED, ROOT, POWER, PLAIN = 0, 1, 2, 3
"""Losses: r^2 / 2; sqrt(r^2 + eps); (r^2 + eps)^(power/2); and r itself, for the difference of test curves."""

_BLOCK = 32  # anchors summed in float32 before the sums move to float64


def padded_size(n_nodes: int) -> int:
    """Length of a padded node row: two ghosts, rounded up to whole lanes."""
    return -(-(n_nodes + 2) // LANES) * LANES


def pad_nodes(nodes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Nodes (..., K) with a ghost at either end and equally spaced padding, (..., padded_size(K))."""
    size, K = padded_size(nodes.shape[-1]), nodes.shape[-1]
    out = np.empty((*nodes.shape[:-1], size))
    out[..., 1 : K + 1] = nodes
    out[..., 0] = 2.0 * nodes[..., 0] - nodes[..., 1]
    step = nodes[..., -1] - nodes[..., -2]
    for i in range(K + 1, size):
        out[..., i] = nodes[..., -1] + step * (i - K)
    return out


@kernel
def fixed_curves(tag: Any, par: Any, nodes: Any, out: Any) -> None:
    """Curve values at nodes that do not move: par (S, n, P) and nodes (K8,) float32 -> out (S, n, K8) float32."""
    S, n, P = par.shape
    blocks = nodes.shape[0] // LANES
    grid = nodes.reshape(blocks, LANES)
    rows = out.reshape(S, n, blocks, LANES)
    scratch = np.empty((1, P, LANES), np.float32)
    for s in range(S):
        for j in range(n):
            for k in range(P):
                put(scratch, (0, k), par[s, j, k])
            a, d = par[s, j, 0], par[s, j, 1]
            for b in range(blocks):
                value, _ = call_curve(tag, (row(grid, (b,)) - d) * a, (scratch, 0))
                put(rows, (s, j, b), value)


@kernel
def curve_sums(
    tag: Any, par: Any, omega: Any, nodes: Any, fixed: Any, which: Any, loss: int, eps: float, out: Any
) -> None:
    """Add one group's sums for the draws `which`: out (3, len(which), K8) float64.

    par (S, n, P), omega (n,), fixed (S, n, K8) and nodes (len(which), K8), all float32. `loss` is SQUARED, ROOT or
    PLAIN (then the rows are the sums of r, of the slopes and of the second derivatives).
    """
    n, P = par.shape[1], par.shape[2]
    K = nodes.shape[1]
    blocks = K // LANES
    scratch = np.empty((1, P, LANES), np.float32)
    e2, s2 = np.zeros((blocks, LANES), np.float32), np.zeros((blocks, LANES), np.float32)
    e, slope = e2.reshape(K), s2.reshape(K)
    value, first, second = np.zeros(K, np.float32), np.zeros(K, np.float32), np.zeros(K, np.float32)
    spread = np.zeros(K, np.float32)
    eps32, one, half = np.float32(eps), np.float32(1.0), np.float32(0.5)
    for i in range(which.shape[0]):
        s = which[i]
        grid = nodes[i].reshape(blocks, LANES)
        for k in range(1, K - 1):
            spread[k] = one / (nodes[i, k + 1] - nodes[i, k - 1])
        start = 0
        while start < n:
            stop = min(start + _BLOCK, n)
            value[:] = 0.0
            first[:] = 0.0
            second[:] = 0.0
            for j in range(start, stop):
                for k in range(P):
                    put(scratch, (0, k), par[s, j, k])
                a, d, w = par[s, j, 0], par[s, j, 1], omega[j]
                for b in range(blocks):
                    level, rise = call_curve(tag, (row(grid, (b,)) - d) * a, (scratch, 0))
                    put(e2, (b,), level)
                    put(s2, (b,), rise)
                still = fixed[s, j]
                wa = w * a
                if loss == SQUARED:
                    for k in range(1, K - 1):
                        r = still[k] - e[k]
                        g = a * slope[k]
                        value[k] += half * w * r * r
                        first[k] += w * r * g
                        second[k] += w * g * g - wa * r * ((slope[k + 1] - slope[k - 1]) * spread[k])
                elif loss == PLAIN:
                    for k in range(1, K - 1):
                        value[k] += w * (still[k] - e[k])
                        first[k] += wa * slope[k]
                        second[k] -= wa * ((slope[k + 1] - slope[k - 1]) * spread[k])
                else:
                    for k in range(1, K - 1):
                        r = still[k] - e[k]
                        z = r * r + eps32
                        q = one / np.sqrt(z)
                        g = a * slope[k]
                        rq = r * q
                        value[k] += w * (z * q)
                        first[k] += w * rq * g
                        curl = (slope[k + 1] - slope[k - 1]) * spread[k]
                        second[k] += w * (eps32 * q * q * q) * g * g - wa * rq * curl
            for k in range(1, K - 1):
                out[0, i, k] += value[k]
                out[1, i, k] -= first[k]
                out[2, i, k] += second[k]
            start = stop


@kernel
def exact_curves(tag: Any, par: Any, nodes: Any, out: Any) -> None:
    """`fixed_curves` in float64."""
    S, n, _ = par.shape
    for s in range(S):
        for j in range(n):
            for k in range(nodes.shape[0]):
                out[s, j, k], _ = call_curve(tag, par[s, j, 0] * (nodes[k] - par[s, j, 1]), par[s, j])


@kernel
def exact_sums(
    tag: Any,
    par: Any,
    omega: Any,
    nodes: Any,
    fixed: Any,
    which: Any,
    loss: int,
    eps: float,
    power: float,
    out: Any,
) -> None:
    """`curve_sums` in float64 and for every loss: slower, for single links and for the last digits."""
    n, K = par.shape[1], nodes.shape[1]
    e, slope = np.zeros(K), np.zeros(K)
    for i in range(which.shape[0]):
        s = which[i]
        for j in range(n):
            a, d, w = par[s, j, 0], par[s, j, 1], omega[j]
            for k in range(K):
                e[k], slope[k] = call_curve(tag, a * (nodes[i, k] - d), par[s, j])
            for k in range(1, K - 1):
                r = fixed[s, j, k] - e[k]
                g = a * slope[k]
                curl = a * (slope[k + 1] - slope[k - 1]) / (nodes[i, k + 1] - nodes[i, k - 1])
                if loss == SQUARED:
                    rho, psi, dpsi = 0.5 * r * r, r, 1.0
                elif loss == ROOT:
                    root = math.sqrt(r * r + eps)
                    rho, psi, dpsi = root, r / root, eps / (root * root * root)
                elif loss == POWER:
                    z = r * r + eps
                    rho = z ** (0.5 * power)
                    psi = power * r * rho / z
                    dpsi = power * rho / z * (1.0 + (power - 2.0) * r * r / z)
                else:
                    rho, psi, dpsi = r, 1.0, 0.0
                out[0, i, k] += w * rho
                out[1, i, k] -= w * psi * g
                out[2, i, k] += w * (dpsi * g * g - psi * curl)
