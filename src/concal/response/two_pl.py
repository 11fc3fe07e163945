r"""Two-parameter logistic model: :math:`P(1) = \sigma(\eta)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from concal.response.arithmetic import Value, exp, log, maximum, minimum, sigmoid, where_less
from concal.response.base import Array, PopulationPrior
from concal.response.dichotomous import Dichotomous
from concal.response.registry import register


class TwoPLTag(NamedTuple):
    """Compiled code dispatches on this."""


def terms(tag: Any, y: Value, eta: Value, par: Value) -> tuple[Value, Value, Value, Value]:
    r"""Log-likelihood :math:`y\eta - \max(\eta,0) - \log(1+e^{-|\eta|})`, derivative y - P, information P(1 - P)."""
    t = exp(minimum(eta, -eta))
    r = 1.0 / (1.0 + t)
    p = where_less(eta, 0.0, t * r, r)
    return y * eta - maximum(eta, 0.0), r, y - p, t * r * r


def extra_terms(tag: Any, y: Value, eta: Value, par: Value, out: Value) -> tuple[Value, Value, Value]:
    """The same: there are no extras."""
    linear, factor, slope, information = terms(tag, y, eta, par)
    return linear + log(factor), slope, information


def curve(tag: Any, eta: Value, par: Value) -> tuple[Value, Value]:
    """P(1) and its slope."""
    p = sigmoid(eta)
    return p, p * (1.0 - p)


@register(TwoPLTag, terms, extra_terms, curve, factored=True)
@dataclass(frozen=True)
class TwoPL(Dichotomous):
    """Right or wrong, scored 0/1."""

    name: ClassVar[str] = "2pl"
    known_as: ClassVar[Mapping[tuple[str, ...], str]] = {("slopes",): "1pl"}

    @property
    def extras(self) -> tuple[str, ...]:
        """No further coordinates."""
        return ()

    @property
    def prior(self) -> PopulationPrior:
        """Locations spread like abilities, discriminations around one."""
        return PopulationPrior(mean=(0.0, 0.0), sd=(1.0, 0.3))

    @property
    def tag(self) -> TwoPLTag:
        """See the contract."""
        return TwoPLTag()

    def kernel_extras(self, xi: Array) -> Array:
        """None."""
        return np.empty((*xi.shape[:-1], 0))
