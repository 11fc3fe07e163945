"""Protection of the links against items that moved: how probable it is that each factor agrees with its item.

Given the item's other periods (the cavity) the score u = h - Q mu of a factor that agrees is N(0, Q + Q C Q); for an
item that moved by N(0, kappa Sigma) between periods it is wider. The posterior probability of "did not move" is the
factor's weight for the links.
"""

# Compiled functions carry no annotations; their Python callers do.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from numba import njit

from concal.combine.displacement import DRIFT_SHARE, DRIFT_SPREAD, probability_same
from concal.combine.factors import GroupFactors
from concal.combine.marginal import invert
from concal.combine.posterior import JointPosterior, evaluate, make_buffers, run_blocks, unpack

Array = npt.NDArray[np.float64]
UNTESTED = 700.0
SURE = 0.9  # probabilities above count as one, so that nothing is lost where nothing drifts


@njit(cache=True, nogil=True)
def _normal(u, V, C, L):
    """Log density of N(0, V) at u but for the constant; NaN where V is not positive definite."""
    log_det = invert(V, C, L)
    if not np.isfinite(log_det):
        return np.nan
    value = -0.5 * log_det
    for a in range(u.shape[0]):
        for b in range(u.shape[0]):
            value -= 0.5 * u[a] * C[a, b] * u[b]
    return value


@njit(cache=True, nogil=True)
def _same_pass(first, last, start, period, Q, h, weight, active, u, B, xi, C, Sigma, spread, out, worst):
    """Log Bayes factor "did not move" over "moved" for every factor of items first..last, and each item's worst one.

    Of two factors that disagree the later one is called the worst: somebody has to keep the item's place.
    """
    p = xi.shape[1]
    P, L, cavity, V, work = np.empty((p, p)), np.zeros((p, p)), np.empty((p, p)), np.empty((p, p)), np.empty((p, p))
    EQE, narrow, wide = np.empty((p, p)), np.empty((p, p)), np.empty((p, p))
    s, shift, mean, score = np.empty(p), np.empty(p), np.empty(p), np.empty(p)
    for j in range(first, last):
        if not active[j] or start[j + 1] - start[j] < 2:
            continue
        if not np.isfinite(invert(C[j], P, L)):
            continue
        least, at = np.inf, -1
        for i in range(start[j], start[j + 1]):
            m, w = period[i], weight[i]
            inv_A = np.exp(-u[m])
            e0, e1 = -B[m] * inv_A, u[m]
            for a in range(p):
                Ea = inv_A if a == 0 else 1.0
                s[a] = Ea * (h[i, a] - Q[i, a, 0] * e0 - Q[i, a, 1] * e1)
                shift[a] = -w * s[a]
                for b in range(p):
                    EQE[a, b] = Ea * Q[i, a, b] * (inv_A if b == 0 else 1.0)
                    cavity[a, b] = P[a, b] - w * EQE[a, b]
                    shift[a] += P[a, b] * xi[j, b]
            if not np.isfinite(invert(cavity, V, L)):
                continue
            for a in range(p):
                mean[a] = 0.0
                for b in range(p):
                    mean[a] += V[a, b] * shift[b]
            for a in range(p):
                score[a] = s[a]
                for b in range(p):
                    score[a] -= EQE[a, b] * mean[b]
                    total, more = 0.0, 0.0
                    for c in range(p):
                        for d in range(p):
                            total += EQE[a, c] * V[c, d] * EQE[d, b]
                            more += EQE[a, c] * Sigma[c, d] * EQE[d, b]
                    narrow[a, b] = EQE[a, b] + total
                    wide[a, b] = narrow[a, b] + spread * more
            # a factor that knows nothing about some direction is judged by d alone
            proper = np.isfinite(invert(EQE, work, L))
            if proper:
                value = _normal(score, narrow, work, L) - _normal(score, wide, work, L)
                if np.isfinite(value):
                    out[i] = value
            elif EQE[0, 0] > 0.0 and narrow[0, 0] > 0.0:
                ratio = wide[0, 0] / narrow[0, 0]
                out[i] = 0.5 * np.log(ratio) - 0.5 * score[0] ** 2 * (1.0 / narrow[0, 0] - 1.0 / wide[0, 0])
            if out[i] <= least + 0.1:
                least, at = min(least, out[i]), i
        if at >= 0:
            worst[at] = True


def robust_weights(posterior: JointPosterior, theta: Array) -> dict[str, Array]:
    """Age weight of every factor times the probability that it agrees with the item's other periods.

    Items seen once have nothing to disagree with.
    """
    at = evaluate(posterior, theta, make_buffers(posterior))
    if not np.isfinite(at.value):
        return {name: group.age.copy() for name, group in posterior.groups.items()}
    return {
        name: _group_weights(posterior, name, group, theta, at.xi[name], at.C[name])
        for name, group in posterior.groups.items()
    }


def _group_weights(
    posterior: JointPosterior, name: str, group: GroupFactors, theta: Array, xi: Array, C: Array
) -> Array:
    u, B, L, _, _ = unpack(posterior.layout, name, group, theta)
    Sigma = L @ L.T
    log_same = np.full(group.n_pairs, UNTESTED)
    worst = np.zeros(group.n_pairs, dtype=np.bool_)

    def work(block: tuple[int, int]) -> None:
        _same_pass(
            block[0],
            block[1],
            group.start,
            group.period,
            group.Q,
            group.h,
            group.weight,
            group.active,
            u,
            B,
            xi,
            C,
            Sigma,
            DRIFT_SPREAD,
            log_same,
            worst,
        )

    run_blocks(work, group.n_items)
    same = probability_same(log_same, _share_moved(group, log_same, worst))
    # only the worst factor of an item is suspected anew, or two that disagree would both go and then both come back
    suspect = worst | (group.weight < group.age)
    return np.asarray(group.age * np.where(suspect & (same <= SURE), same, 1.0))


def _share_moved(group: GroupFactors, log_same: Array, worst: npt.NDArray[np.bool_]) -> Array:
    """How often items moved, estimated period by period (a few steps of EM, kept between 0.5 and 30 percent)."""
    out = np.full(group.n_pairs, DRIFT_SHARE)
    for m in np.unique(group.period):
        here = np.flatnonzero((group.period == m) & (log_same < UNTESTED))
        moved = here[worst[here]]
        share = DRIFT_SHARE
        for _ in range(10):
            gone = float((1.0 - probability_same(log_same[moved], np.array(share))).sum())
            share = float(np.clip(gone / max(here.size, 1), 0.005, 0.3))
        out[here] = share
    return out


def drifting(posterior: JointPosterior) -> Mapping[str, npt.NDArray[np.intp]]:
    """Factors whose weight for the links is less than half their age weight."""
    return {n: np.flatnonzero(g.weight < 0.5 * g.age) for n, g in posterior.groups.items()}
