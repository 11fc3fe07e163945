r"""Generalised partial credit model: the log-odds of score k over k-1 are :math:`\eta - c_k`, the c_k sum to zero.

With :math:`C_k = c_1 + \dots + c_k` (so :math:`C_0 = C_{K-1} = 0`) and :math:`w_k = e^{-C_k}`,

.. math:: P(k) = w_k e^{k\eta} / \sum_l w_l e^{l\eta}.

Counting scores from the end that :math:`\eta` favours turns the sum into a polynomial in :math:`t = e^{-|\eta|} \le 1`
whose constant term is one: no overflow, one exponential and one logarithm whatever the number of categories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from concal.response.arithmetic import Value, exp, load, log, maximum, minimum, store, where_less
from concal.response.base import Array, PopulationPrior
from concal.response.polytomous import Polytomous
from concal.response.registry import register

_LARGEST = 60.0  # |C_k| beyond it is cut: e^60 still leaves float32 room for the sums


class GPCMTag(NamedTuple):
    """Compiled code dispatches on this."""

    categories: int


def terms(tag: Any, y: Value, eta: Value, par: Value) -> tuple[Value, Value, Value, Value]:
    """In eta: derivative y - E[score], and the variance of the score.

    The logarithm is left to the caller: the sum over its largest term lies between 1 and K.
    """
    last = tag.categories - 1
    low = minimum(eta, 0.0 - eta)
    t = exp(low)
    power = t
    log_power = low
    total = 1.0 + 0.0 * t
    largest = 1.0 + 0.0 * t
    log_largest = 0.0 * t
    first = 0.0 * t
    second = 0.0 * t
    own = 0.0 * t
    for j in range(1, last):
        weight = where_less(eta, 0.0, load(par, 1 + j), load(par, 1 + last - j)) * power
        steps = where_less(eta, 0.0, load(par, last + j), load(par, 2 * last - j))
        largest = maximum(largest, weight)
        log_largest = maximum(log_largest, log_power - steps)
        total = total + weight
        first = first + j * weight
        second = second + j * j * weight
        own = where_less(j - 0.5, y, load(par, last + j), own)
        power = power * t
        log_power = log_power + low
    own = where_less(last - 0.5, y, 0.0 * t, own)
    total = total + power
    scale = 1.0 / total
    first = (first + last * power) * scale
    variance = (second + last * last * power) * scale - first * first
    mean = where_less(eta, 0.0, first, last - first)
    linear = where_less(eta, 0.0, y, y - last) * eta - own - log_largest
    return linear, largest * scale, y - mean, variance


def moments(tag: Any, eta: Value, par: Value) -> tuple[Value, Value, Value, Value]:
    """t = e^-|eta|, one over the sum of the weights, mean and variance of the score."""
    last = tag.categories - 1
    t = exp(minimum(eta, 0.0 - eta))
    power = t
    total = 1.0 + 0.0 * t
    first = 0.0 * t
    second = 0.0 * t
    for j in range(1, last):
        weight = where_less(eta, 0.0, load(par, 1 + j), load(par, 1 + last - j)) * power
        total = total + weight
        first = first + j * weight
        second = second + j * j * weight
        power = power * t
    scale = 1.0 / (total + power)
    first = (first + last * power) * scale
    variance = (second + last * last * power) * scale - first * first
    return t, scale, where_less(eta, 0.0, first, last - first), variance


def extra_terms(tag: Any, y: Value, eta: Value, par: Value, out: Value) -> tuple[Value, Value, Value]:
    """Also in the cumulated steps C_1..C_{K-2}: derivative P(k) - [y = k], information cov([X = k], [X = l])."""
    last = tag.categories - 1
    q = last - 1
    t, scale, mean, variance = moments(tag, eta, par)
    power = t
    own = 1.0 + 0.0 * t
    for j in range(1, last):
        own = where_less(j - 0.5, y, load(par, 1 + j), own)
        store(out, q + j - 1, power)
        power = power * t
    own = where_less(last - 0.5, y, 1.0 + 0.0 * t, own)
    ll = where_less(eta, 0.0, y, y - last) * eta + log(own * scale)
    for k in range(1, last):  # the probabilities, where the gradient will be
        steps = where_less(eta, 0.0, load(out, q + k - 1), load(out, q + last - k - 1))
        store(out, k - 1, load(par, 1 + k) * steps * scale)
    for k in range(1, last):
        p = load(out, k - 1)
        store(out, q + k - 1, p * (mean - k))
        row = 2 * q + (k - 1) * k // 2
        for l in range(1, k):
            store(out, row + l - 1, 0.0 - p * load(out, l - 1))
        store(out, row + k - 1, p * (1.0 - p))
    for k in range(1, last):
        p = load(out, k - 1)
        store(out, k - 1, where_less(y, k - 0.5, p, where_less(y, k + 0.5, p - 1.0, p)))
    return ll, y - mean, variance


def curve(tag: Any, eta: Value, par: Value) -> tuple[Value, Value]:
    """Expected score over K - 1, and its slope: the variance over K - 1."""
    last = tag.categories - 1
    _, _, mean, variance = moments(tag, eta, par)
    return mean / last, variance / last


@register(GPCMTag, terms, extra_terms, curve, factored=True)
@dataclass(frozen=True)
class GPCM(Polytomous):
    """Partial credit, scored 0, 1, ..., K - 1."""

    name: ClassVar[str] = "gpcm"
    known_as: ClassVar[Mapping[tuple[str, ...], str]] = {("slopes",): "pcm", ("slopes", "steps"): "rsm"}

    @property
    def extras(self) -> tuple[str, ...]:
        """All steps but the last, which makes the sum zero."""
        return tuple(f"c_{k}" for k in range(1, self.categories - 1))

    @property
    def prior(self) -> PopulationPrior:
        """Steps spread evenly over two logits, so that every category has its place."""
        steps = np.linspace(-1.0, 1.0, self.categories - 1) if self.categories > 2 else np.zeros(1)
        q = self.categories - 2
        return PopulationPrior(mean=(0.0, -0.3, *steps[:q].tolist()), sd=(1.0, 0.3, *(0.5,) * q))

    @property
    def tag(self) -> GPCMTag:
        """See the contract."""
        return GPCMTag(self.categories)

    def kernel_extras(self, xi: Array) -> Array:
        """The weights w_1..w_{K-2}, then C_1..C_{K-2}."""
        C = np.clip(np.cumsum(xi[..., 2:], axis=-1), -_LARGEST, _LARGEST)
        return np.concatenate([np.exp(-C), C], axis=-1)

    def extras_jacobian(self, xi: Array) -> Array:
        """C_k = c_1 + ... + c_k."""
        q = self.categories - 2
        return np.broadcast_to(np.tril(np.ones((q, q))), (*xi.shape[:-1], q, q))

    def to_natural(self, xi: Array) -> Array:
        """Columns a, d, c_1..c_{K-1}."""
        last = -xi[..., 2:].sum(axis=-1, keepdims=True)
        return np.concatenate([super().to_natural(xi), last], axis=-1)[..., : 2 + len(self.natural_extras)]

    def from_natural(self, natural: Mapping[str, Array]) -> Array:
        """Xi from a, d and all K - 1 steps; steps that do not sum to zero move d by their mean over a."""
        if not self.natural_extras:
            return super().from_natural(natural)
        steps = np.stack([natural[name] for name in self.natural_extras], axis=-1)
        mean = steps.mean(axis=-1)
        head = np.stack([natural["d"] + mean / natural["a"], np.log(natural["a"])], axis=-1)
        return np.concatenate([head, (steps - mean[..., None])[..., :-1]], axis=-1)

    def probabilities(self, theta: Array, xi: Array) -> Array:
        """P(score = k) for k = 0..K-1 on a last axis."""
        eta = np.exp(xi[..., 1]) * (theta - xi[..., 0])
        inner = np.cumsum(xi[..., 2:], axis=-1)
        ends = np.zeros((*inner.shape[:-1], 1))
        C = np.concatenate([ends, inner, ends], axis=-1)
        logits = eta[..., None] * np.arange(self.categories) - C
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        total: Array = weights / weights.sum(axis=-1, keepdims=True)
        return total

    def simulate(self, theta: Array, xi: Array, rng: np.random.Generator) -> Array:
        """One categorical draw per response, by inversion."""
        cumulated = np.cumsum(self.probabilities(theta, xi), axis=-1)[..., :-1]
        u = rng.random((theta.shape[0], 1))
        drawn: Array = (u > cumulated).sum(axis=-1).astype(np.float64)
        return drawn
