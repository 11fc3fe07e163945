r"""Every prior of a calibration: its log density and a draw from it.

- Coefficients of coordinate k on the standardised design: :math:`\beta_{\cdot k} \sim N(m_k e_0, I s_k^2/\tau)`, the
  intercept around where items of the response model typically are (`PopulationPrior.mean`), all on the scale of how
  much such items differ (`PopulationPrior.sd`): `BetaPrior`.
- Spread of the items: half-t with :math:`\nu = 2` degrees of freedom on each SD, its scale the response model's
  (`PopulationPrior.sd`), each correlation uniform. It is a scale mixture of inverse Wisharts (`sigma`, `mixing`):

  .. math:: \Sigma \mid a \sim IW(\nu + p - 1,\ 2\nu\, diag(1/a)), \qquad 1/a_k \sim Gamma(1/2, \text{scale } A_k^2).

- Abilities: the first population has mean zero and a correlation matrix, uniform (`correlation`). Every other one has
  :math:`\mu \sim N(0, 10^2)` and :math:`R \sim IW(D + 2, I)` (`population`); one dimension of it alone, as the unit and
  origin of a period: `unit`.
- The link (log A, B) of a guided period to the bank's metric: flat.

Densities are up to constants. `p` coordinates lie along the first axis; further axes broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.response import PopulationPrior

Array = npt.NDArray[np.float64]
NU = 2.0
MU_VARIANCE = 100.0


@dataclass(frozen=True)
class BetaPrior:
    """Normal prior of coefficients (features, p): the intercepts' mean (p,), and the precision of each column (p,)."""

    mean: Array
    precision: Array

    @classmethod
    def of(cls, typical: PopulationPrior, tau: float) -> BetaPrior:
        """Of a response model whose items are typically so."""
        return cls(np.array(typical.mean, dtype=np.float64), tau / np.square(typical.sd, dtype=np.float64))

    def __getitem__(self, coordinates: int | Sequence[int] | npt.NDArray[np.intp]) -> BetaPrior:
        return BetaPrior(self.mean[coordinates], self.precision[coordinates])

    def centred(self, beta: Array) -> Array:
        """Coefficients (features, p, ...) less their mean."""
        gap = np.array(beta, dtype=np.float64)
        gap[0] -= self.mean.reshape(-1, *(1,) * (gap.ndim - 2))
        return gap

    def log_density(self, beta: Array) -> Array:
        """Of coefficients (features, p, ...), summed over both."""
        return np.asarray(-0.5 * np.tensordot(self.precision, (self.centred(beta) ** 2).sum(axis=0), axes=1))

    def draw(self, features: int, rng: np.random.Generator) -> Array:
        """Coefficients (features, p)."""
        beta = rng.standard_normal((features, self.mean.size)) / np.sqrt(self.precision)
        beta[0] += self.mean
        return beta


def beta_moments(features: Array, typical: PopulationPrior) -> tuple[Array, Array]:
    """Prior mean b_0 (f, p) and precision T (f p, f p), feature-major, of all coefficients in the user's units.

    `features` (f, f) is tau in the features' own units (`Standardisation.prior_precision`).
    """
    unit = BetaPrior.of(typical, 1.0)
    mean = np.zeros((features.shape[0], unit.mean.size))
    mean[0] = unit.mean
    return mean, np.asarray(np.kron(features, np.diag(unit.precision)), dtype=np.float64)


def sigma_given_mixing(sd_mixing: Array) -> tuple[float, Array]:
    """Degrees of freedom and scale matrices (..., p, p) of Sigma's inverse Wishart given a (..., p)."""
    p = sd_mixing.shape[-1]
    return NU + p - 1.0, 2.0 * NU * np.eye(p) / sd_mixing[..., None]


def log_sigma_power(log_det: npt.ArrayLike, p: int) -> Array:
    """The power of |Sigma| in its prior, given a or not."""
    return np.asarray(-0.5 * (NU + 2 * p) * np.asarray(log_det))


def mixing_rate(information: Array, scale: Array) -> Array:
    """Rate of a's conditional given Sigma (inverse gamma): what Sigma^-1 and the half-t scale A say of it."""
    return np.asarray(NU * information + scale**-2.0)


def mixing_shape(p: int) -> float:
    """Shape of the same."""
    return (NU + p) / 2.0


def log_sigma(log_det: npt.ArrayLike, inverse_diagonal: Array, sd_mixing: Array) -> Array:
    """Log density of Sigma given a, from log|Sigma|, the diagonal of Sigma^-1 (p, ...) and a (p, ...)."""
    p = inverse_diagonal.shape[0]
    return np.asarray(log_sigma_power(log_det, p) - (NU / sd_mixing * inverse_diagonal).sum(axis=0))


def log_mixing(sd_mixing: Array, scale: Array) -> Array:
    """Log density of a (p, ...) for half-t scales A (p,): that of 1/a ~ Gamma(1/2) with the change of variable."""
    A = scale.reshape(-1, *(1,) * (sd_mixing.ndim - 1))
    p = sd_mixing.shape[0]
    # Sigma's inverse Wishart brings |2 nu diag(1/a)|^((nu + p - 1) / 2), which depends on a
    return np.asarray((-(0.5 + 1.0 + 0.5 * (NU + p - 1)) * np.log(sd_mixing) - 1.0 / (A**2 * sd_mixing)).sum(axis=0))


def log_sigma_alone(log_det: npt.ArrayLike, inverse_diagonal: Array, scale: Array) -> Array:
    r"""Log density of Sigma with a integrated out, A (p,) the half-t scales.

    .. math:: |\Sigma|^{-(\nu + 2p)/2} \prod_k \big(\nu (\Sigma^{-1})_{kk} + A_k^{-2}\big)^{-(\nu + p)/2}
    """
    p = inverse_diagonal.shape[0]
    A = scale.reshape(-1, *(1,) * (inverse_diagonal.ndim - 1))
    bend = np.log(mixing_rate(inverse_diagonal, A)).sum(axis=0)
    return np.asarray(log_sigma_power(log_det, p) - mixing_shape(p) * bend)


def draw_sigma(scale: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Sigma (p, p) and its mixing variables a (p,)."""
    from scipy import stats

    a = 1.0 / rng.gamma(0.5, scale**2)
    df, rates = sigma_given_mixing(a)
    return np.atleast_2d(stats.invwishart.rvs(df=df, scale=rates, random_state=rng)), a


def unit_power(k: int, p: int) -> float:
    """Powers of s that k coefficients of d and Sigma (p, p) bring under d -> s d: their volumes and Sigma's prior."""
    return k + (p + 1) - (NU + 2 * p)


def unit_slope(k: int, p: int, inverse_dd: float, scale: float) -> float:
    """Slope in log s of a group's prior (a integrated out) under d -> s d, given (Sigma^-1)_dd; beta's is weak."""
    return unit_power(k, p) + NU * (NU + p) * inverse_dd / (NU * inverse_dd + scale**-2)


def correlation_of_z(z: Array, D: int) -> tuple[Array, Array]:
    """Correlation matrices (..., D, D) from unconstrained z (..., D(D-1)/2), and log density of z for uniform ones."""
    L = np.zeros((*z.shape[:-1], D, D))
    L[..., 0, 0] = 1.0
    log_density = np.zeros(z.shape[:-1])
    at = 0
    for i in range(1, D):
        rest = np.ones(z.shape[:-1])
        for j in range(i):
            w = np.tanh(z[..., at])
            L[..., i, j] = w * np.sqrt(rest)
            log_density += 0.5 * np.log(rest) + np.log1p(-w * w)
            rest = rest * (1.0 - w * w)
            at += 1
        L[..., i, i] = np.sqrt(rest)
        log_density += (D - 1 - i) * 0.5 * np.log(rest)
    return L @ np.swapaxes(L, -1, -2), log_density


def draw_correlation(D: int, rng: np.random.Generator) -> Array:
    """A correlation matrix (D, D), uniform: LKJ(1), one partial correlation after the other."""
    L = np.zeros((D, D))
    L[0, 0] = 1.0
    for i in range(1, D):
        rest = 1.0
        for j in range(i):
            shape = 0.5 * (D - j)  # of the partial correlation given j others
            w = 2.0 * rng.beta(shape, shape) - 1.0
            L[i, j] = w * np.sqrt(rest)
            rest *= 1.0 - w * w
        L[i, i] = np.sqrt(rest)
    return L @ L.T


def log_population(mu: Array, R: Array) -> float:
    """Log density of a further population's mean (D,) and covariance (D, D)."""
    D = mu.size
    covariance = -0.5 * (2 * D + 3) * np.linalg.slogdet(R)[1] - 0.5 * np.trace(np.linalg.inv(R))
    return float(-0.5 * (mu @ mu) / MU_VARIANCE + covariance)


def draw_population(D: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Mean (D,) and covariance (D, D) of a further population."""
    from scipy import stats

    R = stats.invwishart.rvs(df=D + 2, scale=np.eye(D), random_state=rng)
    return np.sqrt(MU_VARIANCE) * rng.standard_normal(D), np.atleast_2d(R)


def population_power(D: int) -> float:
    """Powers of s that a further population brings under theta -> s theta in one dimension."""
    return 1 + (D + 1) - (2 * D + 3)


def log_unit(log_A: Array) -> tuple[Array, Array, Array]:
    """Log density of the log SD of one dimension of a further population, its slope, its negative curvature."""
    inverse = np.exp(-2.0 * log_A)
    return -3.0 * log_A - 0.5 * inverse, inverse - 3.0, 2.0 * inverse
