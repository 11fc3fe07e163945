r"""The Newton-Metropolis step of a unit (an examinee or an item).

A displacement v is drawn around the Newton step with the posterior's local covariance H^-1 and the unit moves to
x + v. Three refinements, all exact because the Metropolis ratio knows them:

*Kinds of move.* Half of the proposals go beyond the Newton step, v = (1 + alpha) step + sqrt(1 - alpha^2) noise: for a
Gaussian they leave it as it is and land on the other side of the mode, which undoes the memory that alternating between
examinees and items leaves. Others take the step as it is, and a few are random walks, which are never trapped.

*Bent moves of items.* The spread of d shrinks as a grows, since responses inform on a (theta - d). With
:math:`\theta_0` the ability where the responses inform most and :math:`m = d - \theta_0`, the item moves to

.. math:: \log a' = \log a + v_2, \qquad d' = \theta_0 + e^{-\kappa v_2} (m (1 + \kappa v_2) + v_1) ,

which for kappa = 1 is straight in (a (d - theta_0), log a). kappa is the share of the responses in the precision of d,
so an item that knows only its prior moves straight. The map's Jacobian is :math:`e^{-\kappa v_2}`.

*Safe length.* The Newton step is cut at four posterior standard deviations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from concal.calibration.kernels.rows import solve_back, widen_row
from concal.compiler import (
    LANES,
    inlined,
    kernel,
    lane_abs,
    lane_max,
    lane_min,
    lane_sqrt,
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
from concal.response import arithmetic

RANDOM_WALK_SHARE = 0.08
OVERRELAXED_SHARE = 0.5
OVERRELAXATION = 0.6  # alpha
RANDOM_WALK_SCALE = 1.7
MAX_NEWTON_STEP = 4.0  # in posterior standard deviations
LARGEST_FALL = 10.0  # of the log target in a climbing step


class Priors(NamedTuple):
    """Gaussian priors of many units: unit i has precision[which[i]] and mean[mean_of[i]].

    `precision` is (priors, n, n, LANES), `mean` (means, n, LANES), both float64; `which` and `mean_of` (units,) int32.
    """

    precision: Any
    which: Any
    mean: Any
    mean_of: Any


class Step(NamedTuple):
    """How units move, and where their random numbers come from.

    `climbing` in the first sweeps; `bent` for items, whose first two coordinates are d and log a. Unit i draws from the
    counter (seed, i, sweep, stream).
    """

    climbing: bool
    bent: bool
    seed: int
    sweep: int
    stream: int


@inlined
def _aim(n: int, acc: Any, k: int, prior: Any, i: int, delta: Any, chol: Any, step: Any) -> Any:
    r"""Newton step and Cholesky factor of the proposal precision H = information + prior precision.

    `delta` holds x - prior mean. Returns (log prior density up to a constant, log det H / 2, step scale).
    """
    density, precision, at = splat64(0.0), prior.precision, prior.which[i]
    half_log_det = splat(0.0)
    for u in range(n):
        pd = splat64(0.0)
        for v in range(n):
            pd = pd + row(precision, (at, u, v)) * row(delta, (v,))
        density = density - 0.5 * pd * row(delta, (u,))
        put(step, (u,), row(acc, (k, 1 + u)) - pd)
        for v in range(u + 1):
            s = row(acc, (k, 1 + n + u * (u + 1) // 2 + v)) + row(precision, (at, u, v))
            for m in range(v):
                s = s - row(chol, (u, m)) * row(chol, (v, m))
            if u == v:
                s = lane_sqrt(lane_max(s, 1e-10))
                half_log_det = half_log_det + arithmetic.log(narrow(s))
                put(chol, (u, u), s)
            else:
                put(chol, (u, v), s / row(chol, (v, v)))
    # solve H step = gradient: forward, then backward; the forward part's square length is the Newton decrement
    decrement = splat64(0.0)
    for u in range(n):
        s = row(step, (u,))
        for m in range(u):
            s = s - row(chol, (u, m)) * row(step, (m,))
        s = s / row(chol, (u, u))
        put(step, (u,), s)
        decrement = decrement + s * s
    solve_back(n, chol, step)
    scale = lane_min(MAX_NEWTON_STEP / lane_sqrt(lane_max(decrement, 1e-12)), 1.0)
    return density, widen(half_log_det), scale


@inlined
def _kind_of_move(u: Any, climbing: bool) -> Any:
    """Scale of the noise and weight of the Newton step, lane by lane."""
    walk = select_less(u, RANDOM_WALK_SHARE, 1.0, splat(0.0))
    alpha = splat(0.0)
    if not climbing:
        alpha = select_less(u, 1.0 - OVERRELAXED_SHARE, splat(0.0), OVERRELAXATION)
    spread = lane_sqrt(1.0 - alpha * alpha)
    return widen(spread + (RANDOM_WALK_SCALE - spread) * walk), widen((1.0 + alpha) * (1.0 - walk))


@inlined
def _bend(n: int, acc: Any, k: int, prior: Any, i: int) -> Any:
    """m = d - theta_0 and kappa of an item, from its information about (d, log a)."""
    own = lane_max(row(acc, (k, 1 + n)), 1e-10)
    return row(acc, (k, 2 + n)) / own, own / (own + row(prior.precision, (prior.which[i], 0, 0)))


@kernel
def propose(
    n: int, x: Any, acc: Any, prior: Any, proposal: Any, forward: Any, current: Any, how: Any, lo: int, hi: int
) -> None:
    """Draw a proposal for units lo..hi under their `Priors`; `how` is a `Step`.

    `forward` keeps log target at x plus log density of the proposal (the target alone while climbing), `current` the
    log-likelihood at x.
    """
    delta, step = np.zeros((n, LANES)), np.zeros((n, LANES))
    chol, noise = np.zeros((n, n, LANES)), np.zeros((n + 1, LANES))
    for i in range(lo, hi):
        k = i - lo
        for m in range(n):
            put(delta, (m,), widen_row(x, i, m) - row(prior.mean, (prior.mean_of[i], m)))
        density, half_log_det, scale = _aim(n, acc, k, prior, i, delta, chol, step)
        u = uniforms(how.seed, i, how.sweep, how.stream)
        spread, newton = _kind_of_move(u[1], how.climbing)
        length = splat64(0.0)
        z0, z1 = normal_pair(u[2], u[3])
        put(noise, (0,), z0)
        put(noise, (1,), z1)
        extra = how.stream
        for m in range(2, n, 2):
            extra += 1
            v = uniforms(how.seed, i, how.sweep, extra)
            z0, z1 = normal_pair(v[0], v[1])
            put(noise, (m,), z0)
            if m + 1 < n:
                put(noise, (m + 1,), z1)
        for m in range(n):
            z = row(noise, (m,))
            length = length + z * z
        solve_back(n, chol, noise)
        for m in range(n):
            v = newton * scale * row(step, (m,)) + spread * row(noise, (m,))
            put(delta, (m,), v)
            put(proposal, (k, m), widen_row(x, i, m) + v)
        log_jacobian = splat64(0.0)  # of the displacement in the proposal
        if how.bent:
            pivot, kappa = _bend(n, acc, k, prior, i)
            log_jacobian = kappa * row(delta, (1,))
            shrink = widen(arithmetic.exp(narrow(-log_jacobian)))
            moved = shrink * (pivot * (1.0 + log_jacobian) + row(delta, (0,))) - pivot
            put(proposal, (k, 0), widen_row(x, i, 0) + moved)
        put(current, (i,), row(acc, (k, 0)))
        target = row(acc, (k, 0)) + density
        if not how.climbing:
            target = target + half_log_det - 0.5 * length + log_jacobian
        put(forward, (k,), target)


@kernel
def accept(
    n: int, x: Any, acc: Any, prior: Any, proposal: Any, forward: Any, current: Any, accepted: Any, how: Any,
    lo: int, hi: int,
) -> None:  # fmt: skip
    """Metropolis-Hastings decision for units lo..hi, lane by lane; `acc` holds the pass at the proposal.

    Moves are added up in `accepted` (rows 0..hi-lo); `forward` holds the log ratios afterwards.
    While climbing (the first sweeps, far from where the posterior is) a proposal is taken unless it makes the target
    much smaller: the way back is so unlikely there that a Metropolis step would stay for ever.
    """
    delta, step, chol = np.zeros((n, LANES)), np.zeros((n, LANES)), np.zeros((n, n, LANES))
    for i in range(lo, hi):
        k = i - lo
        for m in range(n):
            put(delta, (m,), widen_row(proposal, k, m) - row(prior.mean, (prior.mean_of[i], m)))
        density, half_log_det, scale = _aim(n, acc, k, prior, i, delta, chol, step)
        u = uniforms(how.seed, i, how.sweep, how.stream)
        spread, newton = _kind_of_move(u[1], how.climbing)
        # L' (displacement back to x - Newton step from the proposal) is the noise the way back would have needed
        for m in range(n):
            put(delta, (m,), widen_row(x, i, m) - widen_row(proposal, k, m))
        log_jacobian = splat64(0.0)
        if how.bent:
            pivot, kappa = _bend(n, acc, k, prior, i)
            log_jacobian = kappa * row(delta, (1,))
            grow = widen(arithmetic.exp(narrow(log_jacobian)))
            put(delta, (0,), grow * (row(delta, (0,)) + pivot) - pivot * (1.0 + log_jacobian))
        for m in range(n):
            put(delta, (m,), (row(delta, (m,)) - newton * scale * row(step, (m,))) / spread)
        length = splat64(0.0)
        for m in range(n):
            s = splat64(0.0)
            for l in range(m, n):
                s = s + row(chol, (l, m)) * row(delta, (l,))
            length = length + s * s
        target = row(acc, (k, 0)) + density
        threshold = widen(arithmetic.log(u[0]))
        if how.climbing:
            threshold = splat64(-LARGEST_FALL)
        else:
            target = target + half_log_det - 0.5 * length + log_jacobian
        ratio = target - row(forward, (k,))
        put(forward, (k,), ratio)
        finite = select_less(lane_abs(ratio), 1e200, ratio, splat64(-1e301))
        for m in range(n):
            put(x, (i, m), select_less(threshold, finite, widen_row(proposal, k, m), widen_row(x, i, m)))
        yes = select_less(threshold, finite, 1.0, splat64(0.0))
        put(accepted, (k,), row(accepted, (k,)) + narrow(yes))
        put(current, (i,), select_less(threshold, finite, row(acc, (k, 0)), row(current, (i,))))
