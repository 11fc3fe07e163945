"""Moments of one period's population model (beta, Sigma), on the period's own metric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from concal.calibration.result import GroupDraws
from concal.calibration.state import PINNED, pinned
from concal.consensus.gaussian import effective_covariance_draws, inverse, log_cholesky, symmetric
from concal.errors import DataError

Array = npt.NDArray[np.float64]
RIDGE = 1e-10  # keeps V invertible when the draws carry a fixed population


@dataclass(frozen=True)
class PopulationMoments:
    """Posterior of (beta, Sigma) in one period.

    Attributes
    ----------
    b : (features, p)
    V : (features * p, same), feature-major
    precision : same shape
        V^-1, corrected for the finite number of draws.
    sigma : (p, p)
        Mean of Sigma over the draws.
    sigma_coordinates : (p (p + 1) / 2,)
        Mean of its log-Cholesky coordinates.
    """

    b: Array
    V: Array
    precision: Array
    sigma: Array
    sigma_coordinates: Array


def conditional_covariance(X: Array, hyperprior: Array, sigma: Array, sd: npt.ArrayLike) -> Array:
    r"""Average over draws of the conditional covariance of beta,
    :math:`(X'X \otimes \Sigma^{-1} + T \otimes S^{-2})^{-1}`, S the items' typical spreads `sd` (p,).

    In units of S, X'X and the hyperprior T are diagonalised together once, so that every draw costs F small inverses
    instead of one of size F p.
    """
    S = np.asarray(sd, dtype=np.float64)
    gram = X.T @ X
    try:
        root = np.linalg.cholesky(gram + hyperprior)
    except np.linalg.LinAlgError:
        raise DataError(
            "features are collinear and the hyperprior does not tell them apart; drop a feature or give tau > 0"
        ) from None
    inner = solve_triangular(root, solve_triangular(root, gram, lower=True).T, lower=True)
    share, vectors = np.linalg.eigh(symmetric(inner))
    share = np.clip(share, 0.0, 1.0)
    basis = solve_triangular(root, vectors, lower=True, trans="T")  # columns u_f
    omega = np.linalg.inv(sigma / np.outer(S, S))
    F, p = X.shape[1], sigma.shape[-1]
    small = np.empty((F, p, p))
    eye = np.eye(p)
    for f in range(F):
        small[f] = np.linalg.inv(share[f] * omega + (1.0 - share[f]) * eye).mean(axis=0)
    blocks = np.einsum("if,jf,fab->iajb", basis, basis, small * np.outer(S, S), optimize=True)
    return symmetric(blocks.reshape(F * p, F * p))


def shrunk_covariance(z: Array, n_effective: float) -> tuple[Array, float]:
    r"""Covariance of columns z (k, draws), shrunk towards a multiple of the identity, and the share of the target.

    The share balances the sampling error of the entries, from `n_effective` draws, against their distance from the
    target, so that it vanishes with many draws and keeps the matrix invertible with few.
    """
    k, s = z.shape
    sample = z @ z.T / (s - 1)
    centre = float(np.trace(sample)) / k
    distance = float(((sample - centre * np.eye(k)) ** 2).sum())
    noise = (float((z**2).sum(axis=0) @ (z**2).sum(axis=0)) / s - float((sample**2).sum())) / n_effective
    share = 1.0 if distance <= 0 else float(np.clip(noise / distance, 0.0, 1.0))
    return (1.0 - share) * sample + share * centre * np.eye(k), share


def population_moments(group: GroupDraws, hyperprior: Array) -> PopulationMoments:
    """Mean and covariance of beta, and Sigma; Rao-Blackwell moments where the engine gives them.

    With the conditional means of beta, V is the average conditional covariance plus the covariance of those means
    (only the latter has sampling error). With plain draws their covariance is shrunk in the metric of the conditional
    covariance.
    """
    if group.model.shared:
        return _with_shared(group, hyperprior)
    averaged = group.beta_mean is not None
    beta, sigma = group.flat("beta_mean" if averaged else "beta"), group.flat("sigma")
    return _moments(group, hyperprior, beta, sigma, np.array(group.model.prior.sd), averaged)


def _with_shared(group: GroupDraws, hyperprior: Array) -> PopulationMoments:
    """Coordinates that belong to the group have an intercept and nothing else: its draws' mean and variance."""
    p, F = len(group.model.parameters), len(group.features)
    free = [c for c in range(p) if c not in group.model.shared]
    averaged = group.beta_mean is not None
    beta, sigma = group.flat("beta_mean" if averaged else "beta"), group.flat("sigma")
    own = _moments(
        group, hyperprior, beta[:, :, free], sigma[:, free][:, :, free], np.array(group.model.prior.sd)[free], averaged
    )
    b, V, precision = np.zeros((F, p)), np.eye(F * p) * PINNED, np.eye(F * p) / PINNED
    at = np.array([f * p + c for f in range(F) for c in free])
    b[:, free], V[np.ix_(at, at)], precision[np.ix_(at, at)] = own.b, own.V, own.precision
    for c in group.model.shared:
        b[0, c], V[c, c] = beta[:, 0, c].mean(), beta[:, 0, c].var(ddof=1)
        precision[c, c] = 1.0 / V[c, c]
    whole = pinned(np.zeros((p, p)), group.model)
    whole[np.ix_(free, free)] = own.sigma
    return PopulationMoments(b, V, precision, whole, log_cholesky(pinned(sigma, group.model)).mean(axis=0))


def _moments(
    group: GroupDraws, hyperprior: Array, beta: Array, sigma: Array, sd: Array, averaged: bool
) -> PopulationMoments:
    s, F, p = beta.shape
    flat = beta.reshape(s, F * p)
    b = flat.mean(axis=0)
    n_effective = float(effective_covariance_draws(s, np.array(_population_ess(group, s))))
    root = np.linalg.cholesky(conditional_covariance(group.X, hyperprior, sigma, sd))
    z = solve_triangular(root, (flat - b).T, lower=True)
    spread, share = shrunk_covariance(z, n_effective)
    spread[np.diag_indices(F * p)] += RIDGE
    core = np.eye(F * p) + spread if averaged else spread
    unspread = inverse(core)
    sampled = float(np.sum(unspread * spread)) / (F * p)
    # the inverse of a covariance from finitely many draws is too large; nothing is lost with many draws. The correction
    # is of first order in coefficients per draw: beyond a half it would be wrong, and soon negative
    unspread *= max(0.5, 1.0 - (1.0 - share) * sampled * (F * p + 1.0) / n_effective)
    unroot = np.linalg.inv(root)
    return PopulationMoments(
        b.reshape(F, p),
        symmetric(root @ core @ root.T),
        symmetric(unroot.T @ unspread @ unroot),
        symmetric(sigma.mean(axis=0)),
        log_cholesky(sigma).mean(axis=0),
    )


def _population_ess(group: GroupDraws, n_draws: int) -> float:
    values = [v for name, v in group.population_ess.items() if name.startswith("beta") and np.isfinite(v) and v > 0]
    return min(float(np.median(values)), float(n_draws)) if values else float(n_draws)
