r"""Likelihood factors that are right draw by draw of the population, not only for its average.

Given a draw of (beta, Sigma) an item's posterior is its likelihood times N(X beta, Sigma). With a Gaussian likelihood
factor (Q, h) the draws of xi are therefore a mixture,

.. math:: \xi_s \sim N\big((Q+\Omega_s)^{-1}(h + \Omega_s m_s),\ (Q+\Omega_s)^{-1}\big),

and (Q, h) follow from matching its mean and covariance to the item's. Subtracting one average prior precision instead
is the same when the population is well known, and biased when it is not.
"""

# Compiled functions carry no annotations; their Python callers do.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

import numpy as np
import numpy.typing as npt
from numba import njit

from concal.calibrate.result import GroupDraws
from concal.combine.gaussian import inverse, symmetric, times
from concal.combine.marginal import invert

Array = npt.NDArray[np.float64]
PRIOR_DRAWS = 200  # population draws the mixture is taken over
BLOCK = 1024


@njit(cache=True, nogil=True)
def _match(Omega, offset, mean, target, shift, Q, h, ok, rounds):
    """Newton-like rounds on (Q, h), item by item: natural parameters move by what the moments still miss.

    Parameters
    ----------
    Omega : (T, p, p); offset : (items, T, p), X beta_s; mean, shift : (items, p); target : (items, p, p)
        Mean of xi, target precision and target precision times mean.
    """
    n, T, p = offset.shape
    P, C, L = np.empty((p, p)), np.empty((p, p)), np.zeros((p, p))
    S, S_inverse = np.empty((p, p)), np.empty((p, p))
    s, x, total = np.empty(p), np.empty(p), np.empty(p)
    for j in range(n):
        if not ok[j]:
            continue
        Q0, h0 = Q[j].copy(), h[j].copy()
        gap = np.inf
        for _ in range(rounds):
            for a in range(p):
                total[a] = 0.0
                for b in range(p):
                    S[a, b] = 0.0
            proper = True
            for t in range(T):
                for a in range(p):
                    s[a] = h[j, a]
                    for b in range(p):
                        P[a, b] = Q[j, a, b] + Omega[t, a, b]
                        s[a] += Omega[t, a, b] * offset[j, t, b]
                if not np.isfinite(invert(P, C, L)):
                    proper = False
                    break
                for a in range(p):
                    x[a] = -mean[j, a]
                    for b in range(p):
                        x[a] += C[a, b] * s[b]
                    total[a] += x[a] / T
                for a in range(p):
                    for b in range(p):
                        S[a, b] += (C[a, b] + x[a] * x[b]) / T
            if proper:
                for a in range(p):
                    for b in range(p):
                        S[a, b] -= total[a] * total[b]
                proper = np.isfinite(invert(S, S_inverse, L))
            if not proper:
                ok[j] = False
                break
            gap = 0.0
            for a in range(p):
                step = shift[j, a]
                for b in range(p):
                    step -= S_inverse[a, b] * (mean[j, b] + total[b])
                    change = target[j, a, b] - S_inverse[a, b]
                    Q[j, a, b] += change
                    gap = max(gap, abs(change) / np.sqrt(target[j, a, a] * target[j, b, b]))
                h[j, a] += step
            if gap < 1e-6:
                break
        if not ok[j] or gap > 1e-2:
            ok[j] = False
            Q[j] = Q0
            h[j] = h0


def conditional_factors(
    group: GroupDraws, b: Array, mean: Array, precision: Array, Q: Array, h: Array, wanted: npt.NDArray[np.bool_]
) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Factors by moment matching over population draws, starting from the averaged ones.

    Parameters
    ----------
    b : (features, p)
        Mean of beta; the thinned draws are centred on it.
    mean, precision : (items, p), (items, p, p)
        Target moments of every item, on the period's own metric.
    Q, h : starting factors
    wanted : (items,) bool
        Items to match.

    Returns
    -------
    Q, h, and which items were matched (the others keep their starting factor).
    """
    if not wanted.any():
        return Q, h, wanted
    s = group.n_draws
    which = np.arange(min(s, PRIOR_DRAWS)) * s // min(s, PRIOR_DRAWS)
    beta = group.flat("beta")[which]
    beta = beta - beta.mean(axis=0) + b
    Omega = inverse(group.flat("sigma")[which])
    Q, h = Q.copy(), h.copy()
    shift = times(precision, mean)
    ok = wanted.copy()
    T, F, p = beta.shape
    wide = np.ascontiguousarray(beta.transpose(1, 0, 2).reshape(F, T * p))

    def work(start: int) -> None:
        part = slice(start, start + BLOCK)
        offset = (group.X[part] @ wide).reshape(-1, T, p)
        _match(Omega, offset, mean[part], precision[part], shift[part], Q[part], h[part], ok[part], 30)

    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        list(pool.map(work, range(0, group.n_items, BLOCK)))
    return symmetric(Q), h, ok
