r"""The marginal posterior of links and population, items integrated out, with analytic derivatives.

On its own metric a period's factor is :math:`\exp(-x'Qx/2 + h'x)`, and :math:`x = E\xi + e` with
:math:`E = diag(1/A, 1, ..)`, :math:`e = (-B/A, \log A, 0, ..)`. Given links and population an item is Gaussian with

.. math:: P = \Omega + \sum_m E Q E, \qquad s = \Omega m + \sum_m E (h - Q e), \qquad \hat\xi = P^{-1} s,

and contributes :math:`\tfrac12\log|\Omega| - \tfrac12\log|P| + \tfrac12 s'P^{-1}s - \tfrac12 m'\Omega m
+ \sum_m(h'e - \tfrac12 e'Qe)`. First derivatives are expectations of the complete-data score over the item's
Gaussian, second derivatives add its covariance; both are closed because the score is quadratic in xi.
"""

# Compiled functions carry no annotations; their Python callers do.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def invert(P, C, L):
    """Cholesky P = L L', C = P^-1; returns log|P|, or NaN when P is not positive definite."""
    p = P.shape[0]
    log_det = 0.0
    for i in range(p):
        for j in range(i + 1):
            total = P[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i == j:
                if not total > 0.0:
                    return np.nan
                L[i, i] = np.sqrt(total)
                log_det += np.log(total)
            else:
                L[i, j] = total / L[j, j]
    for c in range(p):
        for i in range(p):
            total = 1.0 if i == c else 0.0
            for k in range(i):
                total -= L[i, k] * C[k, c]
            C[i, c] = total / L[i, i]
        for i in range(p - 1, -1, -1):
            total = C[i, c]
            for k in range(i + 1, p):
                total -= L[k, i] * C[k, c]
            C[i, c] = total / L[i, i]
    return log_det


@njit(cache=True, nogil=True)
def _item(lo, hi, period, Q, h, weight, u, B, mean, Omega, P, s, C, L, xi):
    """Conditional moments of one item (into C, xi) and its marginal log density up to log|Omega| / 2."""
    p = mean.shape[0]
    value = 0.0
    for a in range(p):
        s[a] = 0.0
        for b in range(p):
            P[a, b] = Omega[a, b]
            s[a] += Omega[a, b] * mean[b]
        value -= 0.5 * mean[a] * s[a]
    for i in range(lo, hi):
        w = weight[i]
        m = period[i]
        inv_A = np.exp(-u[m])
        e0, e1 = -B[m] * inv_A, u[m]
        for a in range(p):
            Ea = inv_A if a == 0 else 1.0
            Qe = Q[i, a, 0] * e0 + Q[i, a, 1] * e1
            s[a] += w * Ea * (h[i, a] - Qe)
            if a < 2:
                ea = e0 if a == 0 else e1
                value += w * ea * (h[i, a] - 0.5 * Qe)
            for b in range(p):
                P[a, b] += w * Ea * Q[i, a, b] * (inv_A if b == 0 else 1.0)
    log_det = invert(P, C, L)
    if not np.isfinite(log_det):
        return np.nan
    for a in range(p):
        xi[a] = 0.0
        for b in range(p):
            xi[a] += C[a, b] * s[b]
        value += 0.5 * s[a] * xi[a]
    return value - 0.5 * log_det


@njit(cache=True, nogil=True)
def value_pass(first, last, start, period, Q, h, weight, active, u, B, mean, Omega, own, own_Omega, xi, C, gradient):
    """Sum of marginal log densities of items first..last, with moments of every item and the link gradient (M, 2)."""
    p = mean.shape[1]
    P, L, s = np.empty((p, p)), np.zeros((p, p)), np.empty(p)
    total = 0.0
    for j in range(first, last):
        if not active[j]:
            continue
        prior = Omega if own[j] == 0 else own_Omega[own[j] - 1]
        value = _item(start[j], start[j + 1], period, Q, h, weight, u, B, mean[j], prior, P, s, C[j], L, xi[j])
        if not np.isfinite(value):
            return np.nan
        total += value
        for i in range(start[j], start[j + 1]):
            w = weight[i]
            m = period[i]
            inv_A = np.exp(-u[m])
            x0 = (xi[j, 0] - B[m]) * inv_A
            x1 = xi[j, 1] + u[m]
            r0, r1 = h[i, 0], h[i, 1]
            kappa = 0.0
            for b in range(p):
                xb = x0 if b == 0 else (x1 if b == 1 else xi[j, b])
                r0 -= Q[i, 0, b] * xb
                r1 -= Q[i, 1, b] * xb
                kappa += Q[i, 0, b] * C[j, b, 0] * inv_A * (inv_A if b == 0 else 1.0)
            gradient[m, 0] += w * (r1 - x0 * r0 + kappa)
            gradient[m, 1] -= w * r0 * inv_A
    return total


@njit(cache=True, nogil=True)
def curvature_pass(
    first, last, start, period, Q, h, weight, active, u, B, mean, own, X, xi, C, links, to_sigma, to_beta
):
    """Second derivatives in the links, and what couples links to Sigma and to beta.

    Parameters
    ----------
    links : (2 M, 2 M), added to
    to_sigma : (2 M, p, p), added to
        sum of r (C alpha)' + C A C / 2, to be contracted with dOmega.
    to_beta : (2 M, features, p), added to
        sum of X_j (x) C alpha, to be multiplied by Omega.
    """
    p, F = mean.shape[1], X.shape[1]
    most = 0
    for j in range(first, last):
        most = max(most, start[j + 1] - start[j])
    flat, square = np.empty((2 * most, p)), np.empty((most, p, p))
    alpha, root, T, work = np.empty((2, p)), np.zeros((p, p)), np.empty((p, p)), np.empty((p, p))
    quadratic = np.empty((p, p))
    for j in range(first, last):
        if not active[j]:
            continue
        Cj = C[j]
        for a in range(p):  # Cj = root root'
            for b in range(a + 1):
                total = Cj[a, b]
                for k in range(b):
                    total -= root[a, k] * root[b, k]
                root[a, b] = np.sqrt(total) if a == b else total / root[b, b]
        lo = start[j]
        n = start[j + 1] - lo
        for i in range(n):
            k = lo + i
            w = weight[k]
            m = period[k]
            inv_A = np.exp(-u[m])
            x0 = (xi[j, 0] - B[m]) * inv_A
            x1 = xi[j, 1] + u[m]
            r0, r1, kappa = h[k, 0], h[k, 1], 0.0
            for b in range(p):
                xb = x0 if b == 0 else (x1 if b == 1 else xi[j, b])
                r0 -= Q[k, 0, b] * xb
                r1 -= Q[k, 1, b] * xb
                kappa += Q[k, 0, b] * Cj[b, 0] * inv_A * (inv_A if b == 0 else 1.0)
            second = x0 * x0 + Cj[0, 0] * inv_A * inv_A
            uu = x0 * r0 - kappa - (second * Q[k, 0, 0] - 2.0 * x0 * Q[k, 0, 1] + Q[k, 1, 1])
            uB = (r0 - x0 * Q[k, 0, 0] + Q[k, 0, 1]) * inv_A
            links[2 * m, 2 * m] += w * uu
            links[2 * m, 2 * m + 1] += w * uB
            links[2 * m + 1, 2 * m] += w * uB
            links[2 * m + 1, 2 * m + 1] -= w * Q[k, 0, 0] * inv_A * inv_A
            for b in range(p):
                Eb = inv_A if b == 0 else 1.0
                alpha[0, b] = w * Eb * (x0 * Q[k, 0, b] - Q[k, 1, b] - (r0 if b == 0 else 0.0))
                alpha[1, b] = w * Eb * Q[k, 0, b] * inv_A
            for a in range(p):  # quadratic part of the log A score: E (e q' + q e') E
                for b in range(p):
                    quadratic[a, b] = 0.0
            for b in range(p):
                q = w * Q[k, 0, b] * inv_A * (inv_A if b == 0 else 1.0)
                quadratic[0, b] += q
                quadratic[b, 0] += q
            for a in range(p):
                for c in range(2):
                    total = 0.0
                    for b in range(a, p):
                        total += root[b, a] * alpha[c, b]
                    flat[2 * i + c, a] = total
            for a in range(p):
                for b in range(p):
                    total = 0.0
                    for c in range(b, p):
                        total += quadratic[a, c] * root[c, b]
                    work[a, b] = total
            for a in range(p):
                for b in range(p):
                    total = 0.0
                    for c in range(a, p):
                        total += root[c, a] * work[c, b]
                    T[a, b] = total
                    square[i, a, b] = total
            if own[j] == 0:
                for a in range(p):
                    Ca0, Ca1 = 0.0, 0.0
                    for b in range(p):
                        Ca0 += Cj[a, b] * alpha[0, b]
                        Ca1 += Cj[a, b] * alpha[1, b]
                    for b in range(p):
                        r = xi[j, b] - mean[j, b]
                        to_sigma[2 * m, a, b] += Ca0 * r
                        to_sigma[2 * m + 1, a, b] += Ca1 * r
                    for f in range(F):
                        to_beta[2 * m, f, a] += X[j, f] * Ca0
                        to_beta[2 * m + 1, f, a] += X[j, f] * Ca1
                for a in range(p):  # C A C / 2 = root T root' / 2
                    for b in range(p):
                        total = 0.0
                        for c in range(b + 1):
                            total += T[a, c] * root[b, c]
                        work[a, b] = total
                for a in range(p):
                    for b in range(p):
                        total = 0.0
                        for c in range(a + 1):
                            total += root[a, c] * work[c, b]
                        to_sigma[2 * m, a, b] += 0.5 * total
        for i in range(n):
            mi = period[lo + i]
            for i2 in range(n):
                mj = period[lo + i2]
                uu, ub, bb = 0.0, 0.0, 0.0
                for a in range(p):
                    uu += flat[2 * i, a] * flat[2 * i2, a]
                    ub += flat[2 * i, a] * flat[2 * i2 + 1, a]
                    bb += flat[2 * i + 1, a] * flat[2 * i2 + 1, a]
                    for b in range(p):
                        uu += 0.5 * square[i, a, b] * square[i2, a, b]
                links[2 * mi, 2 * mj] += uu
                links[2 * mi, 2 * mj + 1] += ub
                links[2 * mj + 1, 2 * mi] += ub
                links[2 * mi + 1, 2 * mj + 1] += bb
