r"""Three-parameter logistic model: :math:`P(1) = c + (1 - c)\,\sigma(\eta)`.

With :math:`m = e^{-|\eta|}` everything is a ratio of sums of positive terms, so nothing cancels and one exponential
and one logarithm serve the whole response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import special

from concal.response.arithmetic import Value, exp, load, log, maximum, minimum, store, where_less
from concal.response.base import Array, PopulationPrior
from concal.response.dichotomous import Dichotomous
from concal.response.registry import register

_SMALLEST_C = 1e-30  # below it a lower asymptote cannot be told from none, and float32 would underflow


class ThreePLTag(NamedTuple):
    """Compiled code dispatches on this."""


def odds(eta: Value) -> tuple[Value, Value, Value, Value]:
    r"""min(1, e^eta), 1 / (1 + e^-|eta|), sigma(eta) and 1 - sigma(eta)."""
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    A = where_less(eta, 0.0, m, 1.0)
    return A, one, A * one, where_less(eta, 0.0, 1.0, m) * one


def terms(tag: Any, y: Value, eta: Value, par: Value) -> tuple[Value, Value, Value, Value]:
    r"""With :math:`s = \sigma(\eta)`: information :math:`(1-c)\,s^2(1-s)/P(1)` in eta.

    P(1) is compared with the larger of c and e^eta, so that the factor is at least 1/2.
    """
    c, free = load(par, 2), load(par, 3)
    A, one, s, rest = odds(eta)
    right = c + free * s
    linear = where_less(y, 0.5, load(par, 5) - maximum(eta, 0.0), maximum(minimum(eta, 0.0), load(par, 4)))
    factor = where_less(y, 0.5, one, right / maximum(A, c))
    slope = free * s * rest / right
    return linear, factor, where_less(y, 0.5, 0.0 - s, slope), s * slope


def extra_terms(tag: Any, y: Value, eta: Value, par: Value, out: Value) -> tuple[Value, Value, Value]:
    r"""Also in logit c: derivative :math:`c(1-c)(1-s)/P(1)` for a right answer, -c for a wrong one."""
    c, free = load(par, 2), load(par, 3)
    _, one, s, rest = odds(eta)
    right = c + free * s
    ll = log(where_less(y, 0.5, free * one, right)) - where_less(y, 0.5, maximum(eta, 0.0), 0.0)
    share = free * rest / right
    store(out, 0, where_less(y, 0.5, 0.0 - c, c * share))
    store(out, 1, c * s * share)
    store(out, 2, c * c * share)
    return ll, where_less(y, 0.5, 0.0 - s, s * share), s * s * share


def curve(tag: Any, eta: Value, par: Value) -> tuple[Value, Value]:
    """P(1) and its slope."""
    _, _, s, rest = odds(eta)
    return load(par, 2) + load(par, 3) * s, load(par, 3) * s * rest


@register(ThreePLTag, terms, extra_terms, curve, factored=True)
@dataclass(frozen=True)
class ThreePL(Dichotomous):
    """Right or wrong, scored 0/1, with a chance c of being right whatever the ability."""

    name: ClassVar[str] = "3pl"

    @property
    def extras(self) -> tuple[str, ...]:
        """The lower asymptote on the logit scale."""
        return ("logit_c",)

    @property
    def prior(self) -> PopulationPrior:
        """A guess succeeds about one time in five or six."""
        return PopulationPrior(mean=(0.0, 0.0, -1.5), sd=(1.0, 0.3, 0.5))

    @property
    def tag(self) -> ThreePLTag:
        """See the contract."""
        return ThreePLTag()

    def kernel_extras(self, xi: Array) -> Array:
        """The asymptote c, 1 - c, and their logarithms."""
        c = np.maximum(special.expit(xi[..., 2]), _SMALLEST_C)
        free = np.maximum(special.expit(-xi[..., 2]), _SMALLEST_C)
        return np.stack([c, free, np.log(c), np.log(free)], axis=-1)

    @property
    def natural_extras(self) -> tuple[str, ...]:
        """The lower asymptote."""
        return ("c",)

    def natural_rule(self) -> str:
        """For messages."""
        return "a above 0, c strictly between 0 and 1 (for c = 0 use 2pl), every number finite"

    def to_natural(self, xi: Array) -> Array:
        """Columns a, d, c."""
        return np.concatenate([super().to_natural(xi)[..., :2], special.expit(xi[..., 2:3])], axis=-1)

    def from_natural(self, natural: Mapping[str, Array]) -> Array:
        """Xi from a, d, c; c must lie strictly between 0 and 1."""
        return np.stack([natural["d"], np.log(natural["a"]), special.logit(natural["c"])], axis=-1)
