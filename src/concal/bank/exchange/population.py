r"""The population model :math:`\xi_j \sim N(X_j\beta, \Sigma)` where another program did not give it.

Conjugate steps with the weak prior Sigma ~ IW(p + 2, diag(sd^2)), sd of the response model's default prior, and
the prior of a calibration for beta, on standardised features.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

from concal.calibration.priors import BetaPrior
from concal.calibration.standardise import standardise
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]


def draw_population(
    xi: Array, X: Array, sigma: Array, model: ResponseModel, tau: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """One Gibbs step for (beta, Sigma) given items xi (items, p); features X are standardised."""
    n, p = xi.shape
    f, prior = X.shape[1], BetaPrior.of(model.prior, tau)
    weight = np.linalg.inv(sigma)
    precision = np.kron(X.T @ X, weight) + np.diag(np.tile(prior.precision, f))  # beta vectorised feature-major
    root = np.linalg.cholesky(precision)
    mean = np.linalg.solve(precision, (X.T @ (xi - prior.mean) @ weight).reshape(-1))
    beta = np.asarray(mean + np.linalg.solve(root.T, rng.standard_normal(f * p)), dtype=np.float64).reshape(f, p)
    beta[0] += prior.mean
    residual = xi - X @ beta
    scale = np.diag(np.square(model.prior.sd)) + residual.T @ residual
    drawn: Array = np.asarray(stats.invwishart(df=p + 2 + n, scale=scale).rvs(random_state=rng), dtype=np.float64)
    return beta, drawn.reshape(p, p)


def population_of_draws(
    xi: Array, X: Array, model: ResponseModel, tau: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """(beta, Sigma) for every draw of the items: xi (draws, items, p) -> (draws, f, p), (draws, p, p)."""
    design, sigma = standardise(X), np.diag(np.square(model.prior.sd))
    beta_draws, sigma_draws = [], []
    for values in xi:
        for _ in range(2):  # forget the start
            beta, sigma = draw_population(values, design.X, sigma, model, tau, rng)
        beta_draws.append(beta)
        sigma_draws.append(sigma)
    return design.to_user @ np.array(beta_draws), np.array(sigma_draws)


def gibbs(
    estimate: Array, se: Array, X: Array, model: ResponseModel, tau: float, draws: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    r"""Posterior of items whose likelihood is :math:`N(\hat\xi_j, diag(se_j^2))` under the population model.

    Returns draws of xi (draws, items, p), beta and Sigma. Taking the population's contribution out of it again leaves
    the estimates and their standard errors.
    """
    precision, design = 1.0 / np.square(se), standardise(X)
    xi, sigma = estimate.copy(), np.diag(np.square(model.prior.sd))
    kept: list[tuple[Array, Array, Array]] = []
    for step in range(200 + 2 * draws):
        beta, sigma = draw_population(xi, design.X, sigma, model, tau, rng)
        weight = np.linalg.inv(sigma)
        total = weight + precision[:, :, None] * np.eye(precision.shape[1])
        shift = (design.X @ beta) @ weight + precision * estimate
        root = np.linalg.cholesky(total)
        mean = np.linalg.solve(total, shift[..., None])[..., 0]
        noise = rng.standard_normal(mean.shape)
        xi = mean + np.linalg.solve(np.swapaxes(root, -1, -2), noise[..., None])[..., 0]
        if step >= 200 and step % 2 == 1:
            kept.append((xi, beta, sigma))
    return (
        np.array([k[0] for k in kept]),
        design.to_user @ np.array([k[1] for k in kept]),
        np.array([k[2] for k in kept]),
    )
