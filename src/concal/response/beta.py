r"""Beta regression model for scores strictly between 0 and 1: Beta(mu phi, (1 - mu) phi), :math:`\mu = \sigma(\eta)`.

The kernels (`concal.response.beta_kernels`) read the logit of the score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from concal.response.base import Array, PopulationPrior, ResponseModel
from concal.response.beta_kernels import (
    LARGEST_LOG_PHI,
    SMALLEST_SHAPE,
    beta_aim,
    beta_curve,
    beta_extra_terms,
    beta_terms,
    precision_rows,
    trigamma,
)
from concal.response.registry import register

_TINY = 1e-50  # a shape whose third power is still a number; polygamma functions follow their limits long before


class BetaTag(NamedTuple):
    """Compiled code dispatches on this; shapes p and q below `smallest_shape` follow their limits."""

    smallest_shape: float
    log_smallest_shape: float


@register(BetaTag, beta_terms, beta_extra_terms, beta_curve, aim=beta_aim)
@dataclass(frozen=True)
class Beta(ResponseModel):
    """A share strictly between 0 and 1."""

    name: ClassVar[str] = "beta"

    @property
    def extras(self) -> tuple[str, ...]:
        """The precision's logarithm."""
        return ("log_phi",)

    @property
    def max_score(self) -> float:
        """One."""
        return 1.0

    @property
    def prior(self) -> PopulationPrior:
        """Precision about 7: at mu = 1/2 the score has an SD of .17."""
        return PopulationPrior(mean=(0.0, 0.0, 2.0), sd=(1.0, 0.3, 0.5))

    @property
    def tag(self) -> BetaTag:
        """See the contract."""
        return BetaTag(SMALLEST_SHAPE, float(np.log(SMALLEST_SHAPE)))

    def bad_scores(self, score: Array) -> npt.NDArray[np.bool_]:
        """Anything not strictly between 0 and 1."""
        with np.errstate(invalid="ignore"):
            return ~((score > 0) & (score < 1))

    def score_rule(self) -> str:
        """For messages."""
        return "strictly between 0 and 1"

    def remedy(self, bad: Array) -> str:
        """Scores at the ends have a model of their own; scores beyond them another unit."""
        zeros, ones = int((bad == 0).sum()), int((bad == 1).sum())
        if zeros + ones == bad.size:
            return f'{zeros:,} are exactly 0 and {ones:,} exactly 1: model = "ordered_beta" takes them'
        return unit_remedy(bad)

    def encode_score(self, score: Array) -> Array:
        """The logit of the score."""
        return np.asarray(special.logit(score), dtype=np.float64)

    def kernel_extras(self, xi: Array) -> Array:
        """See the row layout in `concal.response.beta_kernels`."""
        return precision_rows(xi[..., 2])

    @property
    def natural_extras(self) -> tuple[str, ...]:
        """The precision."""
        return ("phi",)

    def natural_rule(self) -> str:
        """For messages."""
        return "a and phi above 0, every number finite"

    def to_natural(self, xi: Array) -> Array:
        """Columns a, d, phi."""
        return np.concatenate([super().to_natural(xi)[..., :2], np.exp(xi[..., 2:3])], axis=-1)

    def from_natural(self, natural: Mapping[str, Array]) -> Array:
        """Xi from a, d, phi."""
        return np.stack([natural["d"], np.log(natural["a"]), np.log(natural["phi"])], axis=-1)

    def logit_moments(self, theta: Array, xi: Array) -> tuple[Array, Array]:
        """See `beta_logit_moments`."""
        return beta_logit_moments(np.exp(xi[..., 1]) * (theta - xi[..., 0]), xi[..., 2])

    def bias_term(self, theta: Array, xi: Array) -> Array:
        """See `beta_expectations`."""
        a = np.exp(xi[..., 1])
        return beta_expectations(a * (theta - xi[..., 0]), a, xi[..., 2])[1]

    def simulate(self, theta: Array, xi: Array, rng: np.random.Generator) -> Array:
        """One beta draw per response, kept off the endpoints."""
        return draw_inside(self.expected_score(theta, xi), np.exp(xi[..., 2]), rng)


def unit_remedy(bad: Array) -> str:
    """For scores above 1: points, or percent, of a maximum that was not declared."""
    highest = float(np.nanmax(bad, initial=0.0))
    if not (np.isfinite(highest) and highest > 1.0):
        return ""
    return (
        f"the largest is {highest:g}: points or percent need their maximum declared (max_score, in the group "
        "or in the item table)"
    )


def beta_expectations(eta: Array, a: Array, log_phi: Array) -> tuple[Array, Array]:
    r"""Information I and bias term J of beta scores, in closed form.

    The score enters through its logit T alone, whose mean, variance and third moment are differences and sums of
    polygamma functions of the shapes :math:`p = \mu\phi, q = (1-\mu)\phi`: :math:`l' = \phi\mu'(T - E T)` and

    .. math:: I = a^2 [(1-\mu)^2 p^2 \psi_1(p) + \mu^2 q^2 \psi_1(q)], \qquad
              J = a^3 [(1-\mu)^3 p^3 \psi_2(p) - \mu^3 q^3 \psi_2(q)] + a (1 - 2\mu) I .

    The products have limits (1 and -2) at shapes of zero.
    """
    phi = np.exp(np.clip(log_phi, -LARGEST_LOG_PHI, LARGEST_LOG_PHI))
    mu, nu = special.expit(eta), special.expit(-eta)
    p, q = np.maximum(mu * phi, _TINY), np.maximum(nu * phi, _TINY)
    information = a**2 * ((nu * p) ** 2 * special.polygamma(1, p) + (mu * q) ** 2 * special.polygamma(1, q))
    third = a**3 * ((nu * p) ** 3 * special.polygamma(2, p) - (mu * q) ** 3 * special.polygamma(2, q))
    return np.asarray(information), np.asarray(third + a * (nu - mu) * information)


def beta_logit_moments(eta: Array, log_phi: Array) -> tuple[Array, Array]:
    r"""Mean :math:`\psi(p) - \psi(q)` and variance :math:`\psi_1(p) + \psi_1(q)` of the logit of a beta score."""
    phi = np.exp(np.clip(log_phi, -LARGEST_LOG_PHI, LARGEST_LOG_PHI))
    p, q = (np.maximum(special.expit(side) * phi, _TINY) for side in (eta, -eta))
    return np.asarray(special.digamma(p) - special.digamma(q)), trigamma(p) + trigamma(q)


def draw_inside(mu: Array, phi: Array, rng: np.random.Generator) -> Array:
    """Beta(mu phi, (1 - mu) phi) draws, moved off 0 and 1 by rounding's width."""
    shape = np.maximum(np.stack([mu * phi, (1.0 - mu) * phi]), 1e-6)
    drawn: Array = np.clip(rng.beta(shape[0], shape[1]), 1e-12, 1.0 - 1e-12)
    return drawn
