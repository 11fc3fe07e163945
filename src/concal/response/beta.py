r"""Beta regression model for scores strictly between 0 and 1: Beta(mu phi, (1 - mu) phi), :math:`\mu = \sigma(\eta)`.

The kernels read the logit z of the score. With :math:`p = \mu\phi`, :math:`q = (1-\mu)\phi`,

.. math:: \ell = \log\Gamma(\phi) - \log\Gamma(p) - \log\Gamma(q) - q z^+ + p z^- - (\phi - 2) \log(1 + e^{-|z|}) + |z|

where :math:`z^\pm` are max(z, 0) and min(z, 0). For extreme abilities p (or q) leaves the range of
float32; there :math:`\Gamma(p) \approx 1/p`, and :math:`\log p` is known from eta itself, so likelihood and
derivatives stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from concal.response.arithmetic import (
    Value,
    digamma,
    exp,
    load,
    log,
    log_gamma,
    maximum,
    minimum,
    store,
    trigamma,
    where_less,
)
from concal.response.base import Array, PopulationPrior, ResponseModel
from concal.response.registry import register

_LARGEST_LOG_PHI = 18.0


class BetaTag(NamedTuple):
    """Compiled code dispatches on this; shapes p and q below `smallest_shape` follow their limits."""

    smallest_shape: float
    log_smallest_shape: float


# Kernel rows after a and d: phi, log phi, log Gamma(phi), phi digamma(phi), phi^2 trigamma(phi).


def terms(tag: Any, y: Value, eta: Value, par: Value) -> tuple[Value, Value, Value]:
    r"""In eta: derivative :math:`k (z - \mathrm{digamma}\,p + \mathrm{digamma}\,q)` with k = mu (1 - mu) phi."""
    phi = load(par, 2)
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    mu = where_less(eta, 0.0, m, 1.0) * one
    nu = where_less(eta, 0.0, 1.0, m) * one
    p = maximum(mu * phi, tag.smallest_shape)
    q = maximum(nu * phi, tag.smallest_shape)
    room = load(par, 3) - tag.log_smallest_shape
    tail = minimum(minimum(eta, 0.0) + room, 0.0) + minimum(minimum(0.0 - eta, 0.0) + room, 0.0)
    size = maximum(y, 0.0 - y)
    ll = load(par, 4) - log_gamma(p) - log_gamma(q) + tail
    ll = ll - q * maximum(y, 0.0) + p * minimum(y, 0.0) - (phi - 2.0) * log(1.0 + exp(0.0 - size)) + size
    gradient = mu * nu * phi * y - nu * (p * digamma(p)) + mu * (q * digamma(q))
    p_share = nu * p
    q_share = mu * q
    return ll, gradient, p_share * (p_share * trigamma(p)) + q_share * (q_share * trigamma(q))


def extra_terms(tag: Any, y: Value, eta: Value, par: Value, out: Value) -> tuple[Value, Value, Value]:
    r"""Also in log phi; the information p^2 trigamma p + q^2 trigamma q - phi^2 trigamma phi lies between 1/2 and 1."""
    phi = load(par, 2)
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    mu = where_less(eta, 0.0, m, 1.0) * one
    nu = where_less(eta, 0.0, 1.0, m) * one
    p = maximum(mu * phi, tag.smallest_shape)
    q = maximum(nu * phi, tag.smallest_shape)
    room = load(par, 3) - tag.log_smallest_shape
    tail = minimum(minimum(eta, 0.0) + room, 0.0) + minimum(minimum(0.0 - eta, 0.0) + room, 0.0)
    size = maximum(y, 0.0 - y)
    small = log(1.0 + exp(0.0 - size))
    power = 0.0 - q * maximum(y, 0.0) + p * minimum(y, 0.0) - phi * small
    ll = load(par, 4) - log_gamma(p) - log_gamma(q) + tail + power + 2.0 * small + size
    p_first = p * digamma(p)
    q_first = q * digamma(q)
    p_second = p * (p * trigamma(p))
    q_second = q * (q * trigamma(q))
    store(out, 0, load(par, 5) - p_first - q_first + power)
    store(out, 1, nu * p_second - mu * q_second)
    store(out, 2, maximum(p_second + q_second - load(par, 6), 0.5))
    gradient = mu * nu * phi * y - nu * p_first + mu * q_first
    return ll, gradient, nu * nu * p_second + mu * mu * q_second


def curve(tag: Any, eta: Value, par: Value) -> tuple[Value, Value]:
    """Mean of the score and its slope."""
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    return where_less(eta, 0.0, m, 1.0) * one, m * one * one


@register(BetaTag, terms, extra_terms, curve)
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
        return BetaTag(1e-12, float(np.log(1e-12)))

    def bad_scores(self, score: Array) -> npt.NDArray[np.bool_]:
        """Anything not strictly between 0 and 1."""
        with np.errstate(invalid="ignore"):
            return ~((score > 0) & (score < 1))

    def score_rule(self) -> str:
        """For messages."""
        return "strictly between 0 and 1 (ordered_beta takes 0 and 1 as well)"

    def encode_score(self, score: Array) -> Array:
        """The logit of the score."""
        return np.asarray(special.logit(score), dtype=np.float64)

    def kernel_extras(self, xi: Array) -> Array:
        """See the row layout above the kernels."""
        return precision_rows(xi[..., 2])

    def extras_jacobian(self, xi: Array) -> Array:
        """The kernels differentiate in log phi itself."""
        return np.broadcast_to(np.eye(1), (*xi.shape[:-1], 1, 1))

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

    def simulate(self, theta: Array, xi: Array, rng: np.random.Generator) -> Array:
        """One beta draw per response, kept off the endpoints."""
        return draw_inside(self.expected_score(theta, xi), np.exp(xi[..., 2]), rng)


def precision_rows(log_phi: Array) -> Array:
    """What the kernels need of phi, computed once per item: (...,) to (..., 5)."""
    log_phi = np.clip(log_phi, -_LARGEST_LOG_PHI, _LARGEST_LOG_PHI)
    phi = np.exp(log_phi)
    rows = [phi, log_phi, special.gammaln(phi), phi * special.digamma(phi), phi * phi * special.polygamma(1, phi)]
    return np.stack(rows, axis=-1)


def draw_inside(mu: Array, phi: Array, rng: np.random.Generator) -> Array:
    """Beta(mu phi, (1 - mu) phi) draws, moved off 0 and 1 by rounding's width."""
    shape = np.maximum(np.stack([mu * phi, (1.0 - mu) * phi]), 1e-6)
    drawn: Array = np.clip(rng.beta(shape[0], shape[1]), 1e-12, 1.0 - 1e-12)
    return drawn
