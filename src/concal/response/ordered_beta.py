r"""Ordered beta model for scores from 0 to 1, both ends included.

.. math:: P(0) = 1 - \sigma(\eta - k_0), \qquad P(1) = \sigma(\eta - k_1),

and with the remaining probability a score from Beta(mu phi, (1 - mu) phi), :math:`\mu = \sigma(\eta)`. The three
events are a graded response with thresholds :math:`k_0 < k_1` and are computed the same way (`concal.response.grm`);
the density inside is that of `concal.response.beta`. The kernels read the logit of the score, and -10,000 or +10,000
for the endpoints, far beyond the logit of any number inside.
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
from concal.response.beta import draw_inside, precision_rows
from concal.response.registry import register

_ENDPOINT = 1e4
_LARGEST = 40.0  # |k_0|, |k_1| beyond it are cut: products of two exponentials still fit float32
_SMALLEST_WIDTH = 1e-12


class OrderedBetaTag(NamedTuple):
    """Compiled code dispatches on this; `endpoint` is what the kernels read for a score of 1, its negative for 0."""

    smallest_shape: float
    log_smallest_shape: float
    endpoint: float


# Kernel rows after a and d: the five of `precision_rows` (2-6), e^k_0, e^k_1 (7, 8), k_0, k_1 + log(1 - e^-width)
# (9, 10), and 1 / (e^width - 1) (11): the reciprocal of 1 - e^-width less one, which float32 could not resolve there.


def terms(tag: Any, y: Value, eta: Value, par: Value) -> tuple[Value, Value, Value]:
    r"""In eta: information :math:`\sum P g^2` of the three events plus P(inside) times the beta information."""
    phi = load(par, 2)
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    A = where_less(eta, 0.0, m, 1.0)
    B = where_less(eta, 0.0, 1.0, m)
    mu = A * one
    nu = B * one
    odds_0 = B * load(par, 7)
    odds_1 = B * load(par, 8)
    D_0 = A + odds_0
    D_1 = A + odds_1
    above_0 = A / D_0
    above_1 = A / D_1
    under_0 = odds_0 / D_0
    under_1 = odds_1 / D_1
    inside = above_0 * under_1 / (1.0 + load(par, 11))
    z = where_less(y, -0.5 * tag.endpoint, 0.0, where_less(0.5 * tag.endpoint, y, 0.0, y))
    p = maximum(mu * phi, tag.smallest_shape)
    q = maximum(nu * phi, tag.smallest_shape)
    room = load(par, 3) - tag.log_smallest_shape
    low = minimum(eta, 0.0)
    high = minimum(0.0 - eta, 0.0)
    tail = minimum(low + room, 0.0) + minimum(high + room, 0.0)
    size = maximum(z, 0.0 - z)
    density = load(par, 4) - log_gamma(p) - log_gamma(q) + tail
    density = density - q * maximum(z, 0.0) + p * minimum(z, 0.0) - (phi - 2.0) * log(1.0 + exp(0.0 - size)) + size
    density_slope = mu * nu * phi * z - nu * (p * digamma(p)) + mu * (q * digamma(q))
    p_share = nu * p
    q_share = mu * q
    density_information = p_share * (p_share * trigamma(p)) + q_share * (q_share * trigamma(q))
    middle = under_0 - above_1
    product = where_less(y, -0.5 * tag.endpoint, D_0, where_less(0.5 * tag.endpoint, y, D_1, D_0 * D_1))
    free = where_less(
        y,
        -0.5 * tag.endpoint,
        high + load(par, 9),
        where_less(0.5 * tag.endpoint, y, low, low + high + load(par, 10) + density),
    )
    gradient = where_less(
        y,
        -0.5 * tag.endpoint,
        0.0 - above_0,
        where_less(0.5 * tag.endpoint, y, under_1, middle + density_slope),
    )
    events = under_0 * above_0 * above_0 + above_1 * under_1 * under_1 + inside * middle * middle
    return free - log(product), gradient, events + inside * density_information


def extra_terms(tag: Any, y: Value, eta: Value, par: Value, out: Value) -> tuple[Value, Value, Value]:
    """Also in log phi, k_0 and k_1; the density's precision tells nothing of the thresholds."""
    phi = load(par, 2)
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    A = where_less(eta, 0.0, m, 1.0)
    B = where_less(eta, 0.0, 1.0, m)
    mu = A * one
    nu = B * one
    odds_0 = B * load(par, 7)
    odds_1 = B * load(par, 8)
    D_0 = A + odds_0
    D_1 = A + odds_1
    above_0 = A / D_0
    above_1 = A / D_1
    under_0 = odds_0 / D_0
    under_1 = odds_1 / D_1
    inside = above_0 * under_1 / (1.0 + load(par, 11))
    z = where_less(y, -0.5 * tag.endpoint, 0.0, where_less(0.5 * tag.endpoint, y, 0.0, y))
    p = maximum(mu * phi, tag.smallest_shape)
    q = maximum(nu * phi, tag.smallest_shape)
    room = load(par, 3) - tag.log_smallest_shape
    low = minimum(eta, 0.0)
    high = minimum(0.0 - eta, 0.0)
    tail = minimum(low + room, 0.0) + minimum(high + room, 0.0)
    size = maximum(z, 0.0 - z)
    small = log(1.0 + exp(0.0 - size))
    power = 0.0 - q * maximum(z, 0.0) + p * minimum(z, 0.0) - phi * small
    density = load(par, 4) - log_gamma(p) - log_gamma(q) + tail + power + 2.0 * small + size
    p_first = p * digamma(p)
    q_first = q * digamma(q)
    p_second = p * (p * trigamma(p))
    q_second = q * (q * trigamma(q))
    density_slope = mu * nu * phi * z - nu * p_first + mu * q_first
    density_information = nu * nu * p_second + mu * mu * q_second
    precision_slope = load(par, 5) - p_first - q_first + power
    precision_information = maximum(p_second + q_second - load(par, 6), 0.5)
    middle = under_0 - above_1
    product = where_less(y, -0.5 * tag.endpoint, D_0, where_less(0.5 * tag.endpoint, y, D_1, D_0 * D_1))
    free = where_less(
        y,
        -0.5 * tag.endpoint,
        high + load(par, 9),
        where_less(0.5 * tag.endpoint, y, low, low + high + load(par, 10) + density),
    )
    gradient = where_less(
        y,
        -0.5 * tag.endpoint,
        0.0 - above_0,
        where_less(0.5 * tag.endpoint, y, under_1, middle + density_slope),
    )
    events = under_0 * above_0 * above_0 + above_1 * under_1 * under_1 + inside * middle * middle
    ratio = D_1 / D_0
    rise_0 = ratio * load(par, 11)  # slope of the lower curve / P(inside)
    rise_1 = (1.0 + load(par, 11)) / ratio  # slope of the upper curve / P(inside)
    slope_0 = above_0 * under_0
    slope_1 = above_1 * under_1
    nothing = 0.0 * m
    store(
        out, 0, where_less(y, -0.5 * tag.endpoint, nothing, where_less(0.5 * tag.endpoint, y, nothing, precision_slope))
    )
    store(out, 1, where_less(y, -0.5 * tag.endpoint, above_0, where_less(0.5 * tag.endpoint, y, nothing, 0.0 - rise_0)))
    store(out, 2, where_less(y, -0.5 * tag.endpoint, nothing, where_less(0.5 * tag.endpoint, y, 0.0 - under_1, rise_1)))
    store(out, 3, inside * (nu * p_second - mu * q_second))
    store(out, 4, 0.0 - slope_0 * (above_0 + middle))
    store(out, 5, slope_1 * (middle - under_1))
    store(out, 6, inside * precision_information)
    store(out, 7, nothing)
    store(out, 8, slope_0 * (above_0 + rise_0))
    store(out, 9, nothing)
    store(out, 10, 0.0 - slope_0 * rise_1)
    store(out, 11, slope_1 * (under_1 + rise_1))
    return free - log(product), gradient, events + inside * density_information


def curve(tag: Any, eta: Value, par: Value) -> tuple[Value, Value]:
    """P(1) + P(inside) mu, and its slope: a sum of positive terms, so the curve rises."""
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    A = where_less(eta, 0.0, m, 1.0)
    B = where_less(eta, 0.0, 1.0, m)
    mu = A * one
    nu = B * one
    odds_0 = B * load(par, 7)
    odds_1 = B * load(par, 8)
    above_0 = A / (A + odds_0)
    above_1 = A / (A + odds_1)
    slope_0 = above_0 * odds_0 / (A + odds_0)
    under_1 = odds_1 / (A + odds_1)
    inside = above_0 * under_1 / (1.0 + load(par, 11))
    return above_1 + inside * mu, above_1 * under_1 * nu + slope_0 * mu + inside * mu * nu


@register(OrderedBetaTag, terms, extra_terms, curve)
@dataclass(frozen=True)
class OrderedBeta(ResponseModel):
    """A share from 0 to 1, endpoints included."""

    name: ClassVar[str] = "ordered_beta"

    @property
    def extras(self) -> tuple[str, ...]:
        """Precision, lower threshold, and the distance to the upper one."""
        return ("log_phi", "k_0", "log_width")

    @property
    def max_score(self) -> float:
        """One."""
        return 1.0

    @property
    def prior(self) -> PopulationPrior:
        """Precision about 7; at eta = 0 about one score in eight at either end."""
        return PopulationPrior(mean=(0.0, 0.0, 2.0, -2.0, 1.4), sd=(1.0, 0.3, 0.5, 0.5, 0.3))

    @property
    def tag(self) -> OrderedBetaTag:
        """See the contract."""
        return OrderedBetaTag(1e-12, float(np.log(1e-12)), _ENDPOINT)

    def bad_scores(self, score: Array) -> npt.NDArray[np.bool_]:
        """Anything outside 0 to 1."""
        with np.errstate(invalid="ignore"):
            return ~((score >= 0) & (score <= 1))

    def score_rule(self) -> str:
        """For messages."""
        return "a number from 0 to 1"

    def encode_score(self, score: Array) -> Array:
        """The logit of the score; -10,000 for 0 and 10,000 for 1."""
        inside = special.logit(np.clip(score, 0.0, 1.0))
        return np.asarray(np.clip(inside, -_ENDPOINT, _ENDPOINT), dtype=np.float64)

    def kernel_extras(self, xi: Array) -> Array:
        """See the row layout above the kernels."""
        width = np.clip(np.exp(xi[..., 4]), _SMALLEST_WIDTH, 2.0 * _LARGEST)
        k_0 = np.clip(xi[..., 3], -_LARGEST, _LARGEST)
        k_1 = np.clip(xi[..., 3] + width, -_LARGEST, _LARGEST)
        inside = -np.expm1(-width)
        rows = np.stack([np.exp(k_0), np.exp(k_1), k_0, k_1 + np.log(inside), 1.0 / np.expm1(width)], axis=-1)
        return np.concatenate([precision_rows(xi[..., 2]), rows], axis=-1)

    def extras_jacobian(self, xi: Array) -> Array:
        """k_1 = k_0 + exp(log_width)."""
        jacobian = np.broadcast_to(np.eye(3), (*xi.shape[:-1], 3, 3)).copy()
        jacobian[..., 2, 1] = 1.0
        jacobian[..., 2, 2] = np.exp(xi[..., 4])
        return jacobian

    @property
    def natural_extras(self) -> tuple[str, ...]:
        """Precision and both thresholds."""
        return ("phi", "k_0", "k_1")

    def natural_rule(self) -> str:
        """For messages."""
        return "a and phi above 0, k_0 below k_1, every number finite"

    def to_natural(self, xi: Array) -> Array:
        """Columns a, d, phi, k_0, k_1."""
        columns = [np.exp(xi[..., 1]), xi[..., 0], np.exp(xi[..., 2]), xi[..., 3], xi[..., 3] + np.exp(xi[..., 4])]
        return np.stack(columns, axis=-1)

    def from_natural(self, natural: Mapping[str, Array]) -> Array:
        """Xi from a, d, phi and k_0 < k_1."""
        width = natural["k_1"] - natural["k_0"]
        logs = (np.log(natural["a"]), np.log(natural["phi"]), np.log(width))
        return np.stack([natural["d"], logs[0], logs[1], natural["k_0"], logs[2]], axis=-1)

    def simulate(self, theta: Array, xi: Array, rng: np.random.Generator) -> Array:
        """Which event first, then a beta draw inside."""
        eta = np.exp(xi[..., 1]) * (theta - xi[..., 0])
        u = rng.random(theta.shape[0])
        inside = draw_inside(special.expit(eta), np.exp(xi[..., 2]), rng)
        at_one = u < special.expit(eta - xi[..., 3] - np.exp(xi[..., 4]))
        at_zero = u >= special.expit(eta - xi[..., 3])
        return np.where(at_one, 1.0, np.where(at_zero, 0.0, inside))
