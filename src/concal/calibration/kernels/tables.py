r"""Passes over response tables: the likelihood of what an item was answered, by ability.

A cell of n responses with score y in a bin of abilities N(mu, sigma) counts

.. math:: n \log \sum_k w_k\, p(y \mid \eta_k), \qquad \eta_k = a (\mu + \sigma z_k - d),

with three nodes. A unit is one table; accumulators are those of the other passes.

A score that has a probability of its own tells little of one ability, and the nodes are those of Gauss and Hermite in
the bin. A score in between may tell more than the bin does: of a score as precise as .1 in the logit three nodes half a
logit apart see next to nothing, and made the precision's log-likelihood wrong by tens. There the nodes lie where bin
and score say, each as a normal (`aim` of `concal.response.registry.register`), and count by how much likelier the
ability is in the bin than there. With x = (theta - mu) / sigma and s = a sigma, for a score that tells eta to be e with
information w,

.. math:: x_k = \hat x + r z_k, \quad \hat x = r^2 s w (e - a(\mu - d)), \quad r^2 = (1 + w s^2)^{-1}, \quad
          \log w_k = \log w_k^{GH} + (z_k^2 - x_k^2) / 2 + \log r .
"""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.calibration.kernels.passes import put_head, put_item
from concal.compiler import (
    LANES,
    aims,
    call_aim,
    call_extra_terms,
    call_terms,
    inlined,
    kernel,
    lane_sqrt,
    put,
    row,
    splat,
    splat64,
    widen,
)
from concal.response import arithmetic

ROOT_3 = 1.7320508075688772
OUTER, MIDDLE = 1.0 / 6.0, 2.0 / 3.0  # Gauss-Hermite weights of the nodes -sqrt(3), 0, sqrt(3)


@inlined
def _mix(l0: Any, l1: Any, l2: Any, r: Any) -> Any:
    """log(r sum w_k e^l_k) and the nodes' shares in it."""
    top = arithmetic.maximum(l1, arithmetic.maximum(l0, l2))
    e0 = OUTER * arithmetic.exp(l0 - top)
    e1 = MIDDLE * arithmetic.exp(l1 - top)
    e2 = OUTER * arithmetic.exp(l2 - top)
    total = e0 + e1 + e2
    scale = 1.0 / total
    return top + arithmetic.log(r * total), e0 * scale, e1 * scale, e2 * scale


@inlined
def _nodes(tag: Any, y: Any, m: Any, s: Any, par: Any) -> Any:
    """Eta at the three nodes of a score in a bin N(m, s) of eta, what each has in log w beyond Gauss-Hermite, and r."""
    if aims(tag):
        place, w = call_aim(tag, y, par)
        ws = w * s
        r2 = 1.0 / (1.0 + ws * s)
        r = lane_sqrt(r2)
        x1 = r2 * (ws * (place - m))
        x0 = x1 - ROOT_3 * r
        x2 = x1 + ROOT_3 * r
        return m + s * x0, m + s * x1, m + s * x2, 1.5 - 0.5 * x0 * x0, -0.5 * x1 * x1, 1.5 - 0.5 * x2 * x2, r
    step = s * ROOT_3
    return m - step, m, m + step, splat(0.0), splat(0.0), splat(0.0), splat(1.0)


@kernel
def table_pass(
    tag: Any, bins: Any, mean: Any, sd: Any, score: Any, count: Any, par: Any, acc: Any, lo: int, hi: int
) -> None:
    """Accumulators of tables lo..hi (rows 0..hi-lo of `acc`) of a model without extras."""
    for j in range(lo, hi):
        a, d = row(par, (j, 0)), row(par, (j, 1))
        ll, g, ge = splat64(0.0), splat64(0.0), splat64(0.0)
        w, we, wee = splat64(0.0), splat64(0.0), splat64(0.0)
        for b in range(bins[j]):
            middle, spread = a * (splat(mean[j, b]) - d), a * splat(sd[j, b])
            for k in range(count.shape[2]):
                n = count[j, b, k]
                if n > 0.0:
                    y = splat(score[j, b, k])
                    eta0, eta1, eta2, v0, v1, v2, r = _nodes(tag, y, middle, spread, (par, j))
                    l0, g0, w0 = call_terms(tag, y, eta0, (par, j))
                    l1, g1, w1 = call_terms(tag, y, eta1, (par, j))
                    l2, g2, w2 = call_terms(tag, y, eta2, (par, j))
                    log_mean, p0, p1, p2 = _mix(l0 + v0, l1 + v1, l2 + v2, r)
                    many = splat64(n)
                    g0, g1, g2 = p0 * g0, p1 * g1, p2 * g2
                    w0, w1, w2 = p0 * w0, p1 * w1, p2 * w2
                    ll = ll + many * widen(log_mean)
                    g = g + many * widen(g0 + g1 + g2)
                    ge = ge + many * widen(g0 * eta0 + g1 * eta1 + g2 * eta2)
                    w = w + many * widen(w0 + w1 + w2)
                    we = we + many * widen(w0 * eta0 + w1 * eta1 + w2 * eta2)
                    wee = wee + many * widen(w0 * eta0 * eta0 + w1 * eta1 * eta1 + w2 * eta2 * eta2)
        put_head(2, widen(a), ll, g, ge, w, we, wee, acc, j - lo)


@kernel
def table_pass_extras(
    tag: Any, bins: Any, mean: Any, sd: Any, score: Any, count: Any, par: Any, jacobian: Any, acc: Any, lo: int, hi: int
) -> None:
    """The same for a model with q extras; `jacobian` is d psi / d extras, (tables lo..hi, q, q, LANES) float64."""
    q = jacobian.shape[1]
    n_out = 2 * q + q * (q + 1) // 2
    out0 = np.zeros((n_out, LANES), np.float32)
    out1 = np.zeros((n_out, LANES), np.float32)
    out2 = np.zeros((n_out, LANES), np.float32)
    total = np.zeros((n_out + q, LANES), np.float64)  # the outputs, then the eta-weighted cross informations
    mapped = np.zeros((q, q, LANES), np.float64)
    for j in range(lo, hi):
        a, d = row(par, (j, 0)), row(par, (j, 1))
        ll, g, ge = splat64(0.0), splat64(0.0), splat64(0.0)
        w, we, wee = splat64(0.0), splat64(0.0), splat64(0.0)
        for m in range(n_out + q):
            put(total, (m,), splat64(0.0))
        for b in range(bins[j]):
            middle, spread = a * (splat(mean[j, b]) - d), a * splat(sd[j, b])
            for k in range(count.shape[2]):
                n = count[j, b, k]
                if n > 0.0:
                    y = splat(score[j, b, k])
                    eta0, eta1, eta2, v0, v1, v2, r = _nodes(tag, y, middle, spread, (par, j))
                    l0, g0, w0 = call_extra_terms(tag, y, eta0, (par, j), out0)
                    l1, g1, w1 = call_extra_terms(tag, y, eta1, (par, j), out1)
                    l2, g2, w2 = call_extra_terms(tag, y, eta2, (par, j), out2)
                    log_mean, p0, p1, p2 = _mix(l0 + v0, l1 + v1, l2 + v2, r)
                    many = splat64(n)
                    g0, g1, g2 = p0 * g0, p1 * g1, p2 * g2
                    w0, w1, w2 = p0 * w0, p1 * w1, p2 * w2
                    ll = ll + many * widen(log_mean)
                    g = g + many * widen(g0 + g1 + g2)
                    ge = ge + many * widen(g0 * eta0 + g1 * eta1 + g2 * eta2)
                    w = w + many * widen(w0 + w1 + w2)
                    we = we + many * widen(w0 * eta0 + w1 * eta1 + w2 * eta2)
                    wee = wee + many * widen(w0 * eta0 * eta0 + w1 * eta1 * eta1 + w2 * eta2 * eta2)
                    for m in range(n_out):
                        mixed = p0 * row(out0, (m,)) + p1 * row(out1, (m,)) + p2 * row(out2, (m,))
                        put(total, (m,), row(total, (m,)) + many * widen(mixed))
                    for m in range(q):
                        u = q + m
                        mixed = p0 * eta0 * row(out0, (u,)) + p1 * eta1 * row(out1, (u,))
                        mixed = mixed + p2 * eta2 * row(out2, (u,))
                        put(total, (n_out + m,), row(total, (n_out + m,)) + many * widen(mixed))
        put_item(q, n_out, widen(a), ll, g, ge, w, we, wee, total, jacobian, mapped, acc, j - lo)


@kernel
def add_table_values(
    tag: Any, start: Any, period: Any, bins: Any, mean: Any, sd: Any, score: Any, count: Any, A: Any, B: Any,
    par: Any, total: Any, lo: int, hi: int,
) -> None:  # fmt: skip
    """Add the log-likelihood of the tables of items lo..hi, seen through their periods' links, to rows 0..hi-lo.

    Item j of the reference metric has the tables start[j] to start[j + 1]; bins are moved to A mean + B, A sd.
    """
    for j in range(lo, hi):
        a, d = row(par, (j, 0)), row(par, (j, 1))
        ll = splat64(0.0)
        for f in range(start[j], start[j + 1]):
            A_f, B_f = row(A, (period[f],)), row(B, (period[f],))
            for b in range(bins[f]):
                middle, spread = a * (A_f * mean[f, b] + B_f - d), a * (A_f * sd[f, b])
                for k in range(count.shape[2]):
                    n = count[f, b, k]
                    if n > 0.0:
                        y = splat(score[f, b, k])
                        eta0, eta1, eta2, v0, v1, v2, r = _nodes(tag, y, middle, spread, (par, j))
                        l0, _, _ = call_terms(tag, y, eta0, (par, j))
                        l1, _, _ = call_terms(tag, y, eta1, (par, j))
                        l2, _, _ = call_terms(tag, y, eta2, (par, j))
                        log_mean, _, _, _ = _mix(l0 + v0, l1 + v1, l2 + v2, r)
                        ll = ll + splat64(n) * widen(log_mean)
        put(total, (j - lo,), row(total, (j - lo,)) + ll)
