"""A 2pl whose best examinees still slip: P(1) = u sigma(eta), with the extra coordinate logit u."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import special

from concal.response import PopulationPrior, ResponseModel, register
from concal.response.arithmetic import exp, load, log, minimum, store, where_less


class UpperTag(NamedTuple):
    max_score: float


def terms(tag: Any, y: Any, eta: Any, par: Any) -> Any:
    u, v = load(par, 2), load(par, 3)  # u and 1 - u
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    s = where_less(eta, 0.0, m, 1.0) * one
    rest = where_less(eta, 0.0, 1.0, m) * one
    wrong = v + u * rest
    ll = log(where_less(y, 0.5, wrong, u * one)) + where_less(y, 0.5, 0.0, minimum(eta, 0.0))
    slope = u * s * rest / wrong
    return ll, where_less(y, 0.5, 0.0 - slope, rest), rest * slope


def extra_terms(tag: Any, y: Any, eta: Any, par: Any, out: Any) -> Any:
    u, v = load(par, 2), load(par, 3)
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    s = where_less(eta, 0.0, m, 1.0) * one
    rest = where_less(eta, 0.0, 1.0, m) * one
    wrong = v + u * rest
    ll = log(where_less(y, 0.5, wrong, u * one)) + where_less(y, 0.5, 0.0, minimum(eta, 0.0))
    share = u * s / wrong
    store(out, 0, where_less(y, 0.5, 0.0 - v * share, v))
    store(out, 1, v * rest * share)
    store(out, 2, v * v * share)
    return ll, where_less(y, 0.5, 0.0 - rest * share, rest), rest * rest * share


def curve(tag: Any, eta: Any, par: Any) -> Any:
    m = exp(minimum(eta, 0.0 - eta))
    one = 1.0 / (1.0 + m)
    return load(par, 2) * where_less(eta, 0.0, m, 1.0) * one, load(par, 2) * m * one * one


@register(UpperTag, terms, extra_terms, curve)
@dataclass(frozen=True)
class UpperTwoPL(ResponseModel):
    name: ClassVar[str] = "2pl_upper"
    extras = ("logit_u",)
    max_score = 1.0
    n_categories = 2
    prior = PopulationPrior(mean=(0.0, 0.0, 2.0), sd=(1.0, 0.3, 0.5))
    tag = UpperTag(1.0)

    def bad_scores(self, score: Any) -> Any:
        return ~((score == 0) | (score == 1))

    def score_rule(self) -> str:
        return "0 or 1"

    def kernel_extras(self, xi: Any) -> Any:
        return np.stack([special.expit(xi[..., 2]), special.expit(-xi[..., 2])], axis=-1)

    def extras_jacobian(self, xi: Any) -> Any:
        return np.broadcast_to(np.eye(1), (*xi.shape[:-1], 1, 1))

    def simulate(self, theta: Any, xi: Any, rng: np.random.Generator) -> Any:
        return (rng.random(theta.shape[0]) < self.expected_score(theta, xi)).astype(np.float64)
