r"""Graded response model: :math:`P(X \ge k) = \sigma(\eta - c_k)`, thresholds increasing and centred.

With :math:`t = e^{-|\eta|}`, :math:`A = \min(1, e^\eta)`, :math:`B = \min(1, e^{-\eta})`, :math:`e_k = e^{c_k}` and
:math:`D_k = A + B e_k`,

.. math:: \sigma(\eta - c_k) = A / D_k, \qquad
          P(k) = \frac{A B e_{k+1}}{D_k D_{k+1}} \left(1 - e^{-(c_{k+1} - c_k)}\right),

products of positive terms only: close thresholds and extreme abilities lose no digits, and one exponential and one
logarithm serve the whole response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import special

from concal.response.arithmetic import Value, exp, load, log, minimum, store, where_less
from concal.response.base import Array, PopulationPrior
from concal.response.polytomous import Polytomous
from concal.response.registry import register

_LARGEST = 40.0  # |c_k| beyond it is cut: products of two e_k still fit float32
_SMALLEST_GAP = 1e-12


class GRMTag(NamedTuple):
    """Compiled code dispatches on this."""

    categories: int


# Kernel rows after a and d, with n = K - 1 thresholds: e_1..e_n; then for each score 0..n-1 the constant of its
# log-likelihood, log(1 - exp(-gap)) + c_{score+1}; then 1 / (exp(gap) - 1) for the scores 1..n-1.


def terms(tag: Any, y: Value, eta: Value, par: Value) -> tuple[Value, Value, Value]:
    r"""In eta: derivative :math:`1 - \sigma_y - \sigma_{y+1}` and the information, its expected square."""
    n = tag.categories - 1
    t = exp(minimum(eta, 0.0 - eta))
    A = where_less(eta, 0.0, t, 1.0 + 0.0 * t)
    B = where_less(eta, 0.0, 1.0 + 0.0 * t, t)
    D_below = 1.0 + 0.0 * t
    above_below = 1.0 + 0.0 * t  # sigma_0 = 1
    under_below = 0.0 * t
    product = 1.0 + 0.0 * t
    constant = 0.0 * t
    gradient = 0.0 * t
    information = 0.0 * t
    for k in range(1, n + 1):  # completes score k - 1
        odds = B * load(par, 1 + k)
        D = A + odds
        scale = 1.0 / D
        above = A * scale
        slope = under_below - above
        information = information + (above_below - above) * slope * slope
        product = where_less(k - 1.5, y, D_below * D, product)
        constant = where_less(k - 1.5, y, load(par, 1 + n + k), constant)
        gradient = where_less(k - 1.5, y, slope, gradient)
        D_below = D
        above_below = above
        under_below = odds * scale
    information = information + above_below * under_below * under_below
    product = where_less(n - 0.5, y, D_below, product)
    constant = where_less(n - 0.5, y, 0.0 * t, constant)
    gradient = where_less(n - 0.5, y, under_below, gradient)
    low = where_less(y, 0.5, 0.0 * t, minimum(eta, 0.0))
    high = where_less(n - 0.5, y, 0.0 * t, minimum(0.0 - eta, 0.0))
    return constant + low + high - log(product), gradient, information


def extra_terms(tag: Any, y: Value, eta: Value, par: Value, out: Value) -> tuple[Value, Value, Value]:
    r"""Also in :math:`\psi_j = c_{j+1} - c_1`, which moves threshold j + 1 and, to keep the centre, eta by 1/(K-1)."""
    n = tag.categories - 1
    q = n - 1
    ll, gradient, information = terms(tag, y, eta, par)
    t = exp(minimum(eta, 0.0 - eta))
    A = where_less(eta, 0.0, t, 1.0 + 0.0 * t)
    B = where_less(eta, 0.0, 1.0 + 0.0 * t, t)
    share = 1.0 / n
    D_below = A + B * load(par, 2)
    D = D_below
    for k in range(2, n + 1):  # threshold k, between the scores k - 1 and k
        j = k - 2
        scale_below = 1.0 / D_below
        D = A + B * load(par, 1 + k)
        scale = 1.0 / D
        above = A * scale
        under = B * load(par, 1 + k) * scale
        density = above * under
        density_below = A * B * load(par, k) * scale_below * scale_below
        low = D_below * scale * (1.0 + load(par, 2 * n + k))  # density / P(k - 1)
        high = under
        above_next = 0.0 * t
        if k < n:
            D_next = A + B * load(par, 2 + k)
            high = D_next * scale * load(par, 2 * n + k + 1)  # density / P(k)
            above_next = A / D_next
        own = where_less(y, k - 1.5, 0.0 * t, where_less(y, k - 0.5, low, where_less(y, k + 0.5, 0.0 - high, 0.0 * t)))
        slope_below = B * load(par, k) * scale_below - above
        cross = density * (slope_below - under + above_next) + information * share
        store(out, j, own + gradient * share)
        store(out, q + j, cross)
        row = 2 * q + j * (j + 1) // 2
        for l in range(j):
            store(out, row + l, (cross + load(out, q + l) - information * share) * share)
        if j > 0:
            store(out, row + j - 1, load(out, row + j - 1) - density_below * low)
        store(out, row + j, density * (low + high) + (2.0 * cross - information * share) * share)
        D_below = D
    return ll, gradient, information


def curve(tag: Any, eta: Value, par: Value) -> tuple[Value, Value]:
    """Mean of the K - 1 curves P(X >= k), and its slope."""
    n = tag.categories - 1
    t = exp(minimum(eta, 0.0 - eta))
    A = where_less(eta, 0.0, t, 1.0 + 0.0 * t)
    B = where_less(eta, 0.0, 1.0 + 0.0 * t, t)
    total = 0.0 * t
    slope = 0.0 * t
    for k in range(1, n + 1):
        odds = B * load(par, 1 + k)
        scale = 1.0 / (A + odds)
        total = total + A * scale
        slope = slope + A * scale * odds * scale
    return total / n, slope / n


@register(GRMTag, terms, extra_terms, curve)
@dataclass(frozen=True)
class GRM(Polytomous):
    """Ordered grades, scored 0, 1, ..., K - 1."""

    name: ClassVar[str] = "grm"

    @property
    def extras(self) -> tuple[str, ...]:
        """Logs of the K - 2 gaps between neighbouring thresholds."""
        return tuple(f"log_gap_{k}" for k in range(1, self.categories - 1))

    @property
    def prior(self) -> PopulationPrior:
        """Thresholds spread over about four logits."""
        q = self.categories - 2
        gap = float(np.log(4.0 / (q + 1)))
        return PopulationPrior(mean=(0.0, 0.0, *(gap,) * q), sd=(1.0, 0.3, *(0.4,) * q))

    @property
    def tag(self) -> GRMTag:
        """See the contract."""
        return GRMTag(self.categories)

    def thresholds(self, xi: Array) -> Array:
        """Centred c_1..c_{K-1} from xi."""
        zero = np.zeros((*xi.shape[:-1], 1))
        c = np.concatenate([zero, np.cumsum(np.exp(xi[..., 2:]), axis=-1)], axis=-1)
        centred: Array = c - c.mean(axis=-1, keepdims=True)
        return centred

    def kernel_extras(self, xi: Array) -> Array:
        """See the row layout above the kernels."""
        c = np.clip(self.thresholds(xi), -_LARGEST, _LARGEST)
        gap = np.clip(np.exp(xi[..., 2:]), _SMALLEST_GAP, 2.0 * _LARGEST)
        inside = -np.expm1(-gap)
        first = np.zeros((*xi.shape[:-1], 1))
        constant = np.concatenate([first, np.log(inside)], axis=-1) + c
        return np.concatenate([np.exp(c), constant, 1.0 / np.expm1(gap)], axis=-1)

    def extras_jacobian(self, xi: Array) -> Array:
        """psi_j is the sum of the first j gaps."""
        q = self.categories - 2
        return np.tril(np.ones((q, q))) * np.exp(xi[..., None, 2:])

    def natural_rule(self) -> str:
        """For messages."""
        return "a above 0, thresholds c_1 < c_2 < ... increasing, every number finite"

    def to_natural(self, xi: Array) -> Array:
        """Columns a, d, c_1..c_{K-1}."""
        columns = [np.exp(xi[..., 1:2]), xi[..., 0:1], self.thresholds(xi)]
        return np.concatenate(columns, axis=-1)[..., : 2 + len(self.natural_extras)]

    def from_natural(self, natural: Mapping[str, Array]) -> Array:
        """Xi from a, d and increasing thresholds; thresholds that are not centred move d by their mean over a."""
        if not self.natural_extras:
            return super().from_natural(natural)
        c = np.stack([natural[name] for name in self.natural_extras], axis=-1)
        head = np.stack([natural["d"] + c.mean(axis=-1) / natural["a"], np.log(natural["a"])], axis=-1)
        return np.concatenate([head, np.log(np.diff(c, axis=-1))], axis=-1)

    def simulate(self, theta: Array, xi: Array, rng: np.random.Generator) -> Array:
        """The number of thresholds a logistic draw around eta exceeds."""
        eta = np.exp(xi[..., 1]) * (theta - xi[..., 0])
        above = special.expit(eta[:, None] - self.thresholds(xi))
        u = rng.random((theta.shape[0], 1))
        drawn: Array = (u < above).sum(axis=-1).astype(np.float64)
        return drawn
