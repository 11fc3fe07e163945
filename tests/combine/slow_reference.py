"""The analytic consensus with plain loops, one item and one draw at a time: slow, obvious, no shared code."""

import numpy as np


def linked_period(calibration, link):
    """Item id -> (mu, Lambda, m, Omega), and population (b, V, log-Cholesky mean, item count), plain moments."""
    (group,) = calibration.groups.values()
    S, p = group.n_draws, len(group.model.parameters)
    xi = group.xi.reshape(S, group.n_items, p)
    beta = group.beta.reshape(S, len(group.features), p)
    sigma = group.sigma.reshape(S, p, p)
    A = np.ones(S) if link is None else link.A[:, 0]
    B = np.zeros(S) if link is None else link.B[:, 0]
    items = {}
    for j, item in enumerate(group.item_ids):
        draws, predictions, spreads = [], [], []
        for s in range(S):
            x = xi[s, j].copy()
            x[0] = A[s] * x[0] + B[s]
            x[1] = x[1] - np.log(A[s])
            draws.append(x)
            D = np.eye(p)
            D[0, 0] = A[s]
            t = np.zeros(p)
            t[0], t[1] = B[s], -np.log(A[s])
            predictions.append(D @ (group.X[j] @ beta[s]) + t)
            spreads.append(D @ sigma[s] @ D)
        total = np.mean(spreads, axis=0) + np.cov(np.array(predictions).T)
        items[item] = (
            np.mean(draws, axis=0),
            np.linalg.inv(np.cov(np.array(draws).T)),
            np.mean(predictions, axis=0),
            np.linalg.inv(total),
        )
    flat, coordinates = [], []
    for s in range(S):
        b = beta[s].copy()
        b[:, 0] *= A[s]
        b[0, 0] += B[s]
        b[0, 1] -= np.log(A[s])
        flat.append(b.ravel())
        D = np.eye(p)
        D[0, 0] = A[s]
        L = np.linalg.cholesky(D @ sigma[s] @ D)
        coordinates.append([np.log(L[i, i]) if i == k else L[i, k] for i in range(p) for k in range(i + 1)])
    population = np.mean(flat, axis=0), np.cov(np.array(flat).T), np.mean(coordinates, axis=0), group.n_items
    return items, population, group


def slow_consensus(pairs, tau):
    """Item id -> (mean, covariance, is it a fallback?), by METHOD section 5 as the paper writes it."""
    periods = [linked_period(c, link) for c, link in pairs]
    _, _, group = periods[0]
    p, F = len(group.model.parameters), len(group.features)
    precision, shift = -(len(periods) - 1) * tau * np.eye(F * p), np.zeros(F * p)
    coordinates, count = 0.0, 0
    for _, (b, V, psi, n), _ in periods:
        precision = precision + np.linalg.inv(V)
        shift = shift + np.linalg.solve(V, b)
        coordinates, count = coordinates + n * psi, count + n
    beta = np.linalg.solve(precision, shift).reshape(F, p)
    psi = coordinates / count
    L, k = np.zeros((p, p)), 0
    for i in range(p):
        for j in range(i + 1):
            L[i, j] = np.exp(psi[k]) if i == j else psi[k]
            k += 1
    omega = np.linalg.inv(L @ L.T)
    X = {item: g.X[j] for _, _, g in periods for j, item in enumerate(g.item_ids)}
    out = {}
    for item in X:
        total, b = omega.copy(), omega @ (X[item] @ beta)
        for items, _, _ in periods:
            if item in items:
                mu, Lambda, m, Omega = items[item]
                total = total + Lambda - Omega
                b = b + Lambda @ mu - Omega @ m
        if np.linalg.eigvalsh(total)[0] <= 0:
            out[item] = (X[item] @ beta, L @ L.T, True)
        else:
            out[item] = (np.linalg.solve(total, b), np.linalg.inv(total), False)
    return out
