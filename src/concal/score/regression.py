r"""Latent regression: abilities given person variables, estimated from the responses that are scored.

.. math:: \theta_i = \Gamma' x_i + e_i, \qquad e_i \sim N(0, \Sigma)

Plausible values drawn with the bank's own prior know nothing of x, and regressions on x computed from them are
attenuated. Here the regression is the prior. It is first estimated by EM at the items' means; then every set of
plausible values comes from a Gibbs sampler at its own draw of the items, abilities given :math:`(\Gamma, \Sigma)` and
these given the abilities (flat prior on :math:`\Gamma`, :math:`|\Sigma|^{-(D+1)/2}`):

.. math:: \Sigma | \theta \sim IW(n - p, S), \qquad \Gamma | \Sigma, \theta \sim MN(\hat\Gamma, (X'X)^{-1}, \Sigma) .

A normal prior with another mean is the same prior times :math:`\exp(t'\theta)`, :math:`t = \Sigma^{-1}` times the
shift: on a grid, one more term of the log-likelihood in each dimension (`Target.tilt`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.score.estimate import Estimator
from concal.score.grid import Grid, common_grid
from concal.score.plausible import Keys, draw_abilities
from concal.score.posterior import Target
from concal.score.rows import Answered, LikelihoodRows
from concal.score.stages import posterior

Array = npt.NDArray[np.float64]
ROUNDS, TOLERANCE = 200, 1e-4
"""Of EM, in ability SDs; where it stops matters little, as the sampler goes on from there."""
STEPS = 5
"""Gibbs steps for a set: the share of what a step leaves is one minus the reliability, .3 to the fifth is .002."""
NARROWER = 0.9
"""The grid is laid for residual SDs so much smaller than EM's, as draws of them vary."""


@dataclass(frozen=True)
class Regression:
    """Coefficients (p, D) and residual covariance (D, D)."""

    coefficients: Array
    covariance: Array

    def target(self, X: Array, rows_at: Callable[[LikelihoodRows, Array], Array]) -> Target:
        """The posterior of examinees with variables X (n, p)."""
        means = X @ self.coefficients
        centre = means.mean(axis=0)
        tilt = np.linalg.solve(self.covariance, (means - centre).T).T
        group = np.zeros(X.shape[0], np.int32)
        return Target(group, centre[None], self.covariance[None], rows_at, np.ascontiguousarray(tilt))

    def grid(self, X: Array) -> Grid:
        """One that serves all examinees, at this regression and those near it."""
        means = X @ self.coefficients
        ends = np.stack([means.min(axis=0), means.max(axis=0)])
        nodes = common_grid(ends, np.stack([NARROWER**2 * self.covariance] * 2)).nodes
        return Grid.of_nodes(nodes[:1].copy())


def estimate_regression(estimator: Estimator, rows: LikelihoodRows, answered: Answered, X: Array) -> Regression:
    """EM from the bank's prior, items at their means."""
    p = estimator.priors
    found = Regression(np.zeros((X.shape[1], p.mean.shape[1])), p.covariance[0])
    found.coefficients[0] = p.mean[0]
    at_means = _rows_at_means(estimator)
    projection = np.linalg.pinv(X)
    for _ in range(ROUNDS):
        got = posterior(estimator.items, rows, answered, found.target(X, at_means), found.grid(X), estimator.workers)
        coefficients = projection @ got.mean
        off = got.mean - X @ coefficients
        covariance = (off.T @ off + got.covariance.sum(axis=0)) / X.shape[0]
        moved = np.abs(X @ (coefficients - found.coefficients)).max() + np.abs(covariance - found.covariance).max()
        found = Regression(coefficients, covariance)
        if moved < TOLERANCE * np.sqrt(np.diagonal(covariance)).min():
            break
    return found


def draw_regression(theta: Array, X: Array, rng: np.random.Generator) -> Regression:
    """Coefficients and covariance given abilities (n, D)."""
    n, D = theta.shape
    root = np.linalg.cholesky(np.linalg.inv(X.T @ X))
    centre = np.linalg.pinv(X) @ theta
    off = theta - X @ centre
    # Bartlett: Sigma^-1 ~ W(n - p, S^-1)
    A = np.tril(rng.standard_normal((D, D)), -1)
    A[range(D), range(D)] = np.sqrt(rng.chisquare(n - X.shape[1] - np.arange(D)))
    factor = np.linalg.cholesky(off.T @ off) @ np.linalg.inv(A).T
    covariance = factor @ factor.T
    noise = root @ rng.standard_normal(centre.shape) @ np.linalg.cholesky(covariance).T
    return Regression(centre + noise, covariance)


def conditioned_values(estimator: Estimator, answered: Answered, X: Array, keys: Keys, seed: int) -> Iterator[Array]:
    """One set of plausible values (persons, D) after the other, given person variables X."""
    rows = LikelihoodRows.of(estimator.items, answered)
    regression = estimate_regression(estimator, rows, answered, X)
    grid, rng = regression.grid(X), np.random.default_rng(seed)
    theta = np.empty((0, 0))
    for k, s in enumerate(estimator.draws):
        rows_at = estimator.target_of_draw(int(s), np.zeros(0, np.int32)).rows_at
        for step in range(STEPS):
            target = regression.target(X, rows_at)
            theta = draw_abilities(estimator, rows, answered, target, grid, keys, STEPS * k + step)
            regression = draw_regression(theta, X, rng)
        yield theta


def _rows_at_means(estimator: Estimator) -> Callable[[LikelihoodRows, Array], Array]:
    return lambda rows, nodes: rows.mean_table(nodes, estimator.workers)
