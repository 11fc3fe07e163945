r"""Compiled passes over responses, and the Newton-Metropolis step of a unit (an examinee or an item).

All arrays end in a lane axis: lane c belongs to chain c. A unit with n coordinates has the accumulator

    [log-likelihood, gradient (n), information (n(n+1)/2, lower triangle by rows)]

which the passes fill and `propose` / `accept` read. Every unit draws its random numbers from a counter
(seed, unit, sweep, stream), so results do not depend on how units are spread over threads.

Sums run in float32 over `BLOCK` responses and in float64 beyond: popular items lose nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from concal.response import arithmetic
from concal.response.compiled import kernel
from concal.response.lanes import (
    FAST,
    LANES,
    _abs,
    _max,
    _min,
    _sqrt,
    as_double,
    call_extra_terms,
    call_factored,
    narrow,
    normal_pair,
    put,
    row,
    select_less,
    splat,
    splat64,
    uniforms,
    widen,
)

BLOCK = 8
RANDOM_WALK_SHARE = 0.1
RANDOM_WALK_SCALE = 1.7
MAX_NEWTON_STEP = 4.0  # in posterior standard deviations

_inlined = njit(forceinline=True, fastmath=FAST, error_model="numpy")


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
    for j in range(lo, hi):
        a, d = row(par, (j, 0)), row(par, (j, 1))
        ll, g, ge = splat64(0.0), splat64(0.0), splat64(0.0)
        w, we, wee = splat64(0.0), splat64(0.0), splat64(0.0)
        last = start[j + 1]
        for block in range(start[j], last, BLOCK):
            l8, f8, g8, ge8 = splat(0.0), splat(1.0), splat(0.0), splat(0.0)
            w8, we8, wee8 = splat(0.0), splat(0.0), splat(0.0)
            for r in range(block, min(block + BLOCK, last)):
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
        a64 = widen(a)
        k = j - lo
        put(acc, (k, 0), ll)
        put(acc, (k, 1), -a64 * g)  # d eta / d d = -a
        put(acc, (k, 2), ge)  # d eta / d log a = eta
        put(acc, (k, 3), a64 * a64 * w)
        put(acc, (k, 4), -a64 * we)
        put(acc, (k, 5), wee)


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
        _item_chain_rule(q, n_out, widen(a), ll, g, ge, w, we, wee, total, jacobian, mapped, acc, j - lo)


@_inlined
def _item_chain_rule(
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
    n = q + 2
    put(acc, (k, 0), ll)
    put(acc, (k, 1), -a * g)
    put(acc, (k, 2), ge)
    base = 1 + n
    put(acc, (k, base), a * a * w)
    put(acc, (k, base + 1), -a * we)
    put(acc, (k, base + 2), wee)
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


# --- the Newton-Metropolis step of a unit -------------------------------------------------------------------------


@_inlined
def _aim(n: int, acc: Any, k: int, precision: Any, pop: int, delta: Any, chol: Any, step: Any) -> Any:
    r"""Newton step and Cholesky factor of the proposal precision H = information + prior precision.

    `delta` holds x - prior mean. Returns (log prior density up to a constant, log det H / 2, step scale).
    """
    prior = splat64(0.0)
    half_log_det = splat(0.0)
    for i in range(n):
        pd = splat64(0.0)
        for j in range(n):
            pd = pd + row(precision, (pop, i, j)) * row(delta, (j,))
        prior = prior - 0.5 * pd * row(delta, (i,))
        put(step, (i,), row(acc, (k, 1 + i)) - pd)
        for j in range(i + 1):
            s = row(acc, (k, 1 + n + i * (i + 1) // 2 + j)) + row(precision, (pop, i, j))
            for m in range(j):
                s = s - row(chol, (i, m)) * row(chol, (j, m))
            if i == j:
                s = _sqrt(_max(s, 1e-10))
                half_log_det = half_log_det + arithmetic.log(narrow(s))
                put(chol, (i, i), s)
            else:
                put(chol, (i, j), s / row(chol, (j, j)))
    # solve H step = gradient: forward, then backward; the forward part's square length is the Newton decrement
    decrement = splat64(0.0)
    for i in range(n):
        s = row(step, (i,))
        for m in range(i):
            s = s - row(chol, (i, m)) * row(step, (m,))
        s = s / row(chol, (i, i))
        put(step, (i,), s)
        decrement = decrement + s * s
    for back in range(n):
        i = n - 1 - back
        s = row(step, (i,))
        for m in range(i + 1, n):
            s = s - row(chol, (m, i)) * row(step, (m,))
        put(step, (i,), s / row(chol, (i, i)))
    scale = _min(MAX_NEWTON_STEP / _sqrt(_max(decrement, 1e-12)), 1.0)
    return prior, widen(half_log_det), scale


@kernel
def propose(
    n: int,
    x: Any,
    acc: Any,
    precision: Any,
    pop: Any,
    mean: Any,
    mean_of: Any,
    proposal: Any,
    forward: Any,
    current: Any,
    seed: int,
    sweep: int,
    stream: int,
    lo: int,
    hi: int,
) -> None:
    """Draw a proposal for units lo..hi.

    `forward` keeps log target at x plus log density of the proposal, `current` the log-likelihood at x.
    """
    delta, step = np.zeros((n, LANES)), np.zeros((n, LANES))
    chol, noise = np.zeros((n, n, LANES)), np.zeros((n + 1, LANES))
    for i in range(lo, hi):
        k = i - lo
        for m in range(n):
            put(delta, (m,), widen_row(x, i, m) - row(mean, (mean_of[i], m)))
        prior, half_log_det, scale = _aim(n, acc, k, precision, pop[i], delta, chol, step)
        u = uniforms(seed, i, sweep, stream)
        walk = select_less(u[1], RANDOM_WALK_SHARE, 1.0, splat(0.0))
        spread = widen(1.0 + (RANDOM_WALK_SCALE - 1.0) * walk)
        newton = widen(1.0 - walk)
        length = splat64(0.0)
        z0, z1 = normal_pair(u[2], u[3])
        put(noise, (0,), z0)
        put(noise, (1,), z1)
        extra = stream
        for m in range(2, n, 2):
            extra += 1
            v = uniforms(seed, i, sweep, extra)
            z0, z1 = normal_pair(v[0], v[1])
            put(noise, (m,), z0)
            if m + 1 < n:
                put(noise, (m + 1,), z1)
        for m in range(n):
            z = row(noise, (m,))
            length = length + z * z
        for back in range(n):  # L' v = z
            m = n - 1 - back
            s = row(noise, (m,))
            for l in range(m + 1, n):
                s = s - row(chol, (l, m)) * row(noise, (l,))
            put(noise, (m,), s / row(chol, (m, m)))
        for m in range(n):
            moved = widen_row(x, i, m) + newton * scale * row(step, (m,)) + spread * row(noise, (m,))
            put(proposal, (k, m), moved)
        put(current, (i,), row(acc, (k, 0)))
        put(forward, (k,), row(acc, (k, 0)) + prior + half_log_det - 0.5 * length)


@kernel
def accept(
    n: int,
    x: Any,
    acc: Any,
    precision: Any,
    pop: Any,
    mean: Any,
    mean_of: Any,
    proposal: Any,
    forward: Any,
    current: Any,
    accepted: Any,
    always: bool,
    seed: int,
    sweep: int,
    stream: int,
    lo: int,
    hi: int,
) -> None:
    """Metropolis-Hastings decision for units lo..hi, lane by lane; `acc` holds the pass at the proposal."""
    delta, step, chol = np.zeros((n, LANES)), np.zeros((n, LANES)), np.zeros((n, n, LANES))
    for i in range(lo, hi):
        k = i - lo
        for m in range(n):
            put(delta, (m,), widen_row(proposal, k, m) - row(mean, (mean_of[i], m)))
        prior, half_log_det, scale = _aim(n, acc, k, precision, pop[i], delta, chol, step)
        u = uniforms(seed, i, sweep, stream)
        walk = select_less(u[1], RANDOM_WALK_SHARE, 1.0, splat(0.0))
        spread = widen(1.0 + (RANDOM_WALK_SCALE - 1.0) * walk)
        newton = widen(1.0 - walk)
        # L' (x - proposal - Newton step from the proposal) is the noise the way back would have needed
        for m in range(n):
            back = widen_row(x, i, m) - widen_row(proposal, k, m) - newton * scale * row(step, (m,))
            put(delta, (m,), back / spread)
        length = splat64(0.0)
        for m in range(n):
            s = splat64(0.0)
            for l in range(m, n):
                s = s + row(chol, (l, m)) * row(delta, (l,))
            length = length + s * s
        ratio = row(acc, (k, 0)) + prior + half_log_det - 0.5 * length - row(forward, (k,))
        threshold = widen(arithmetic.log(u[0]))
        if always:
            threshold = splat64(-1e300)
        finite = select_less(_abs(ratio), 1e200, ratio, splat64(-1e301))
        for m in range(n):
            put(x, (i, m), select_less(threshold, finite, widen_row(proposal, k, m), widen_row(x, i, m)))
        yes = select_less(threshold, finite, 1.0, splat64(0.0))
        put(accepted, (i,), row(accepted, (i,)) + narrow(yes))
        put(current, (i,), select_less(threshold, finite, row(acc, (k, 0)), row(current, (i,))))


@_inlined
def widen_row(array: Any, i: int, m: int) -> Any:
    """Lanes of row (i, m) in float64, whatever the array's precision."""
    return as_double(row(array, (i, m)))


# --- carrying units along when what governs them moves ------------------------------------------------------------


@kernel
def carry(
    n: int,
    x: Any,
    information: Any,
    pull: Any,
    precision: Any,
    mean: Any,
    new_precision: Any,
    new_mean: Any,
    pop: Any,
    mean_of: Any,
    moved: Any,
    change: Any,
    lo: int,
    hi: int,
) -> None:
    r"""Carry units from one population model to another at fixed standardised place.

    With the sketch of a unit's likelihood (information Q, pull h = Q m) its conditional under (m, P) is about
    N(C (P m + h), C), C = (P + Q)^-1 = (K K')^-1. The place z = K' (x - C (P m + h)) stays, x moves. `change` gets the
    log prior ratio (without the populations' normalising constants) plus the log Jacobian, log|K| - log|K_new|.
    """
    chol, centre, place = np.zeros((n, n, LANES)), np.zeros((n, LANES)), np.zeros((n, LANES))
    for i in range(lo, hi):
        m, u, k = pop[i], mean_of[i], i - lo
        half_log_det = _standardise(n, information, pull, i, precision, m, mean, u, chol, centre)
        for a in range(n):  # z = K' (x - centre)
            s = splat64(0.0)
            for b in range(a, n):
                s = s + row(chol, (b, a)) * (widen_row(x, i, b) - row(centre, (b,)))
            put(place, (a,), s)
        new_half_log_det = _standardise(n, information, pull, i, new_precision, m, new_mean, u, chol, centre)
        for back in range(n):  # x = centre + K^-T z
            a = n - 1 - back
            s = row(place, (a,))
            for b in range(a + 1, n):
                s = s - row(chol, (b, a)) * row(place, (b,))
            put(place, (a,), s / row(chol, (a, a)))
        for a in range(n):
            put(moved, (k, a), row(centre, (a,)) + row(place, (a,)))
        prior = splat64(0.0)
        for a in range(n):
            old, new = splat64(0.0), splat64(0.0)
            for b in range(n):
                old = old + row(precision, (m, a, b)) * (widen_row(x, i, b) - row(mean, (u, b)))
                new = new + row(new_precision, (m, a, b)) * (widen_row(moved, k, b) - row(new_mean, (u, b)))
            prior = prior + 0.5 * old * (widen_row(x, i, a) - row(mean, (u, a)))
            prior = prior - 0.5 * new * (widen_row(moved, k, a) - row(new_mean, (u, a)))
        put(change, (k,), prior + half_log_det - new_half_log_det)


@_inlined
def _standardise(
    n: int, information: Any, pull: Any, i: int, precision: Any, m: int, mean: Any, u: int, chol: Any, centre: Any
) -> Any:
    """Cholesky factor K of P + Q and centre (P + Q)^-1 (P mean + h); returns log|K|."""
    half_log_det = splat(0.0)
    for a in range(n):
        s = splat64(pull[i, a])
        for b in range(n):
            s = s + row(precision, (m, a, b)) * row(mean, (u, b))
        put(centre, (a,), s)
        for b in range(a + 1):
            s = row(precision, (m, a, b)) + splat64(information[i, a * (a + 1) // 2 + b])
            for c in range(b):
                s = s - row(chol, (a, c)) * row(chol, (b, c))
            if a == b:
                s = _sqrt(_max(s, 1e-10))
                half_log_det = half_log_det + arithmetic.log(narrow(s))
                put(chol, (a, a), s)
            else:
                put(chol, (a, b), s / row(chol, (b, b)))
    for a in range(n):
        s = row(centre, (a,))
        for c in range(a):
            s = s - row(chol, (a, c)) * row(centre, (c,))
        put(centre, (a,), s / row(chol, (a, a)))
    for back in range(n):
        a = n - 1 - back
        s = row(centre, (a,))
        for c in range(a + 1, n):
            s = s - row(chol, (c, a)) * row(centre, (c,))
        put(centre, (a,), s / row(chol, (a, a)))
    return widen(half_log_det)


@kernel
def person_log_likelihood(
    tag: Any, start: Any, item: Any, y: Any, theta: Any, par: Any, dim: int, total: Any, lo: int, hi: int
) -> None:
    """Add one group's log-likelihood of examinees lo..hi to `total` (rows 0..hi-lo)."""
    for i in range(lo, hi):
        last = start[i + 1]
        th = row(theta, (i, dim))
        ll = splat64(0.0)
        for block in range(start[i], last, BLOCK):
            l8, f8 = splat(0.0), splat(1.0)
            for r in range(block, min(block + BLOCK, last)):
                j = item[r]
                eta = row(par, (j, 0)) * (th - row(par, (j, 1)))
                part, factor, _, _ = call_factored(tag, splat(y[r]), eta, (par, j))
                l8 = l8 + part
                f8 = f8 * factor
            ll = ll + widen(l8 + arithmetic.log(f8))
        put(total, (i - lo,), row(total, (i - lo,)) + ll)


@kernel
def item_log_likelihood(
    tag: Any, start: Any, person: Any, y: Any, theta: Any, dim: int, par: Any, total: Any, lo: int, hi: int
) -> None:
    """Log-likelihood of items lo..hi (rows 0..hi-lo of `total`)."""
    for j in range(lo, hi):
        a, d = row(par, (j, 0)), row(par, (j, 1))
        last = start[j + 1]
        ll = splat64(0.0)
        for block in range(start[j], last, BLOCK):
            l8, f8 = splat(0.0), splat(1.0)
            for r in range(block, min(block + BLOCK, last)):
                eta = a * (row(theta, (person[r], dim)) - d)
                part, factor, _, _ = call_factored(tag, splat(y[r]), eta, (par, j))
                l8 = l8 + part
                f8 = f8 * factor
            ll = ll + widen(l8 + arithmetic.log(f8))
        put(total, (j - lo,), ll)


@kernel
def take_lanes(x: Any, moved: Any, yes: Any, lo: int, hi: int) -> None:
    """x[i] = moved[i] in the lanes where `yes` is one."""
    flag = row(yes, (0,))
    for i in range(lo, hi):
        for m in range(x.shape[1]):
            put(x, (i, m), select_less(0.5, flag, widen_row(moved, i, m), widen_row(x, i, m)))


# --- sums over examinees ------------------------------------------------------------------------------------------


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
    """theta -> scale theta + shift, in place; scale, shift (D, LANES) float64."""
    for i in range(lo, hi):
        for u in range(theta.shape[1]):
            put(theta, (i, u), widen(row(theta, (i, u))) * row(scale, (u,)) + row(shift, (u,)))


@kernel
def add_abilities(theta: Any, chains: int, total: Any, square: Any, lo: int, hi: int) -> None:
    """Running sums over chains for the examinees' posterior means and SDs."""
    for i in range(lo, hi):
        for u in range(theta.shape[1]):
            for c in range(chains):
                value = theta[i, u, c]
                total[i, u] += value
                square[i, u] += value * value
