"""Moments of one period's population model (beta, Sigma), on the metric the period is linked to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from concal.calibrate.result import GroupDraws
from concal.combine.gaussian import effective_covariance_draws, inverse, log_cholesky, symmetric
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
    V_estimated : same shape
        The part of V that is known from a finite number of draws only.
    precision : same shape
        V^-1, corrected for the finite number of draws.
    sigma : (p, p)
        Mean of D Sigma D over the draws.
    sigma_coordinates : (p (p + 1) / 2,)
        Mean of its log-Cholesky coordinates.
    n_effective : float
        Effective number of draws behind V.
    """

    b: Array
    V: Array
    V_estimated: Array
    precision: Array
    sigma: Array
    sigma_coordinates: Array
    n_effective: float


def link_coefficients(beta: Array, A: Array, B: Array) -> Array:
    """Move beta (draws, F, p) draw by draw: the d column is scaled by A, the intercepts shifted by (B, -log A)."""
    moved = beta.copy()
    moved[:, :, 0] *= A[:, None]
    moved[:, 0, 0] += B
    moved[:, 0, 1] -= np.log(A)
    return moved


def link_sigma(sigma: Array, A: Array) -> Array:
    """D Sigma D for every draw."""
    moved = sigma.copy()
    moved[:, 0, :] *= A[:, None]
    moved[:, :, 0] *= A[:, None]
    return moved


def conditional_covariance(X: Array, hyperprior: Array, sigma: Array, A: Array | None) -> Array:
    r"""Average over draws of the conditional covariance of beta, :math:`D (\Sigma^{-1} \otimes X'X + T)^{-1} D`.

    X'X and the hyperprior T are diagonalised together once, so that every draw costs F small inverses instead of one
    of size F p.
    """
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
    omega = np.linalg.inv(sigma)
    F, p = X.shape[1], sigma.shape[-1]
    small = np.empty((F, p, p))
    eye = np.eye(p)
    for f in range(F):
        small[f] = _scaled_mean(np.linalg.inv(share[f] * omega + (1.0 - share[f]) * eye), A)
    blocks = np.einsum("if,jf,fab->iajb", basis, basis, small, optimize=True)
    return symmetric(blocks.reshape(F * p, F * p))


def _scaled_mean(covariance: Array, A: Array | None) -> Array:
    return np.asarray((covariance if A is None else link_sigma(covariance, A)).mean(axis=0))


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


def population_moments(
    group: GroupDraws,
    hyperprior: Array,
    link: tuple[Array, Array] | None,
    which: npt.NDArray[np.intp] | None,
    *,
    correct: bool,
    literal: bool,
) -> PopulationMoments:
    """Mean and covariance of linked beta, and Sigma; Rao-Blackwell moments where the engine gives them.

    With the conditional means of beta, V is the average conditional covariance plus the covariance of those means
    (only the latter has sampling error). With plain draws their covariance is shrunk in the metric of the conditional
    covariance. `literal` takes the plain covariance of the draws.
    """
    p, F = len(group.model.parameters), len(group.features)
    means = group.beta_mean if group.beta_mean is not None and not literal else None
    beta = group.flat("beta" if means is None else "beta_mean")
    sigma = group.flat("sigma")
    if which is not None:
        beta, sigma = beta[which], sigma[which]
    if link is not None:
        beta, sigma_linked = link_coefficients(beta, *link), link_sigma(sigma, link[0])
    else:
        sigma_linked = sigma
    s = beta.shape[0]
    flat = beta.reshape(s, F * p)
    b = flat.mean(axis=0)
    n_effective = float(effective_covariance_draws(s, np.array(_population_ess(group, s)))) if correct else float(s)
    if literal:
        if s < F * p + 2:
            raise DataError(
                f"group {group.name!r}: {s} linked draws cannot give the covariance of {F * p} coefficients; "
                "use all draws and the default (Rao-Blackwell or shrunk) moments"
            )
        V = symmetric(np.atleast_2d(np.cov(flat, rowvar=False)))
        V += RIDGE * np.diag(np.maximum(np.diag(V), RIDGE))
        estimated, precision = V, inverse(V)
    else:
        root = np.linalg.cholesky(conditional_covariance(group.X, hyperprior, sigma, None if link is None else link[0]))
        z = solve_triangular(root, (flat - b).T, lower=True)
        spread, share = shrunk_covariance(z, n_effective)
        spread[np.diag_indices(F * p)] += RIDGE
        core = spread if means is None else np.eye(F * p) + spread
        V, estimated = symmetric(root @ core @ root.T), symmetric(root @ spread @ root.T)
        unspread = inverse(core)
        if correct:
            sampled = float(np.sum(unspread * spread)) / (F * p)
            unspread *= max(0.5, 1.0 - (1.0 - share) * sampled * (F * p + 1.0) / n_effective)
        unroot = np.linalg.inv(root)
        precision = symmetric(unroot.T @ unspread @ unroot)
    return PopulationMoments(
        b.reshape(F, p),
        V,
        estimated,
        precision,
        symmetric(sigma_linked.mean(axis=0)),
        log_cholesky(sigma_linked).mean(axis=0),
        n_effective,
    )


def _population_ess(group: GroupDraws, n_draws: int) -> float:
    values = [v for name, v in group.population_ess.items() if name.startswith("beta") and np.isfinite(v) and v > 0]
    return min(float(np.median(values)), float(n_draws)) if values else float(n_draws)
