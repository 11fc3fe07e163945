r"""Kernels of the beta family, for `concal.response.beta` and `concal.response.ordered_beta`.

The density of a score with logit z is, with :math:`p = \mu\phi`, :math:`q = (1-\mu)\phi`,

.. math:: \ell = \log\Gamma(\phi) - \log\Gamma(p) - \log\Gamma(q) - q z^+ + p z^- - (\phi - 2) \log(1 + e^{-|z|}) + |z|

where :math:`z^\pm` are max(z, 0) and min(z, 0). Every gamma function is shifted by four, :math:`\Gamma(x) =
\Gamma(x+4) / (x (x+1) (x+2) (x+3))`, and expanded there (Stirling, error below 1e-9): one logarithm and one division
serve log-gamma, digamma and trigamma of a shape. The large :math:`\phi \log \phi` that the three log-gammas share is
taken out per item (row 4), so that float32 keeps its digits for what depends on the response.

For extreme abilities p (or q) leaves the range of float32; there :math:`\Gamma(p) \approx 1/p`, and :math:`\log p`
is known from eta itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from concal.response.arithmetic import Value, exp, load, log, maximum, minimum, store, where_less
from concal.response.base import Array

SMALLEST_SHAPE = 1e-8
LARGEST_LOG_PHI = 10.0  # a score with an SD below .004: beyond it counts as this, so that products fit float32

# Rows of an item's kernel parameters after a and d, made by `precision_rows`: phi, log phi, the constant of the
# density, 1 / s with s = phi / 2 + 4, phi (digamma(phi) - log s), phi^2 trigamma(phi).
# ordered_beta adds e^k_0, e^k_1 (8, 9), k_0, k_1 + log(1 - e^-width) (10, 11) and 1 / (e^width - 1) (12).


def precision_rows(log_phi: Array) -> Array:
    """What the kernels need of phi, computed once per item: (...,) to (..., 6)."""
    log_phi = np.clip(log_phi, -LARGEST_LOG_PHI, LARGEST_LOG_PHI)
    phi = np.exp(log_phi)
    s = 0.5 * phi + 4.0
    constant = special.gammaln(phi) - (phi + 7.0) * np.log(s) + phi + 8.0 - np.log(2.0 * np.pi)
    first = phi * (special.digamma(phi) - np.log(s))
    return np.stack([phi, log_phi, constant, 1.0 / s, first, phi * phi * trigamma(phi)], axis=-1)


def trigamma(x: Array) -> Array:
    """Trigamma for x > 0 to about 1e-13: eight steps up, then its series (ten times faster than SciPy's zeta)."""
    steps: Array = np.zeros_like(x)
    for k in range(8):
        steps += 1.0 / ((x + k) * (x + k))
    r = 1.0 / (x + 8.0)
    z = r * r
    series = 1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - z * (5 / 66 - z * (691 / 2730 - z * (7 / 6))))))
    return steps + r + z * (0.5 + r * series)


def gamma_terms(x: Value, unit: Value) -> tuple[Value, Value, Value, Value]:
    """(r, P, x (digamma(x) + log unit), x^2 trigamma(x)) with log Gamma(x) = r - log P - (x + 3.5) log unit + const."""
    s = x + 4.0
    u = x * (x + 3.0)
    v = u + 2.0
    product = u * v  # x (x + 1) (x + 2) (x + 3)
    inverse = 1.0 / (s * product)
    r = product * inverse
    z = r * r
    level = log(s * unit)
    slope = (2.0 * x + 3.0) * (u + v)  # derivatives of the product
    bend = 2.0 * (u + v) + 2.0 * (2.0 * x + 3.0) * (2.0 * x + 3.0)
    inverse = s * inverse
    shift = slope * inverse
    rest = r * (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z * (1 / 1188)))))
    first = level - 0.5 * r - shift
    first = first - z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132)))))
    second = 1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - z * (5 / 66))))
    second = r + z * (0.5 + r * second)
    # x^2 (shift^2 - bend / product), from x shift first: both are near one for small x, where 1 / x^2 would overflow
    near = x * shift
    return (x + 3.5) * level + rest, product, x * first, near * near - x * (x * bend * inverse) + x * (x * second)


def sides(eta: Value) -> tuple[Value, Value, Value, Value, Value]:
    """min(1, e^eta), min(1, e^-eta), 1 / (1 + e^-|eta|), and the logarithms of the first two."""
    m = exp(minimum(eta, 0.0 - eta))
    A = where_less(eta, 0.0, m, 1.0)
    B = where_less(eta, 0.0, 1.0, m)
    return A, B, 1.0 / (1.0 + m), minimum(eta, 0.0), minimum(0.0 - eta, 0.0)


def density(tag: Any, z: Value, mu: Value, nu: Value, low: Value, high: Value, par: Value) -> Any:
    """Density of an inside score as (l, f, d/d eta, p^2 trigamma p, q^2 trigamma q, d/d log phi), likelihood f e^l."""
    phi, unit = load(par, 2), load(par, 5)
    exact_p, exact_q = mu * phi, nu * phi
    p = maximum(exact_p, tag.smallest_shape)
    q = maximum(exact_q, tag.smallest_shape)
    room = load(par, 3) - tag.log_smallest_shape
    tail = minimum(low + room, 0.0) + minimum(high + room, 0.0)
    size = maximum(z, 0.0 - z)
    small = log(1.0 + exp(0.0 - size))
    power = exact_p * minimum(z, 0.0) - exact_q * maximum(z, 0.0) - phi * small
    p_zero, p_product, p_first, p_second = gamma_terms(p, unit)
    q_zero, q_product, q_first, q_second = gamma_terms(q, unit)
    linear = load(par, 4) - p_zero - q_zero + tail + power + 2.0 * small + size
    slope = mu * nu * phi * z - nu * p_first + mu * q_first
    return linear, p_product * q_product, slope, p_second, q_second, load(par, 6) - p_first - q_first + power


def beta_terms(tag: Any, y: Value, eta: Value, par: Value) -> tuple[Value, Value, Value]:
    r"""In eta: derivative :math:`k (z - \mathrm{digamma}\,p + \mathrm{digamma}\,q)` with k = mu (1 - mu) phi."""
    A, B, one, low, high = sides(eta)
    mu = A * one
    nu = B * one
    linear, f, slope, p_second, q_second, _ = density(tag, y, mu, nu, low, high, par)
    return linear + log(f), slope, nu * nu * p_second + mu * mu * q_second


def beta_extra_terms(tag: Any, y: Value, eta: Value, par: Value, out: Value) -> tuple[Value, Value, Value]:
    r"""Also in log phi; the information p^2 trigamma p + q^2 trigamma q - phi^2 trigamma phi lies between 1/2 and 1."""
    A, B, one, low, high = sides(eta)
    mu = A * one
    nu = B * one
    linear, f, slope, p_second, q_second, precision = density(tag, y, mu, nu, low, high, par)
    store(out, 0, precision)
    store(out, 1, nu * p_second - mu * q_second)
    store(out, 2, maximum(p_second + q_second - load(par, 7), 0.5))
    return linear + log(f), slope, nu * nu * p_second + mu * mu * q_second


def beta_aim(tag: Any, y: Value, par: Value) -> tuple[Value, Value]:
    r"""Normal like the likelihood in eta of a score s, logit y: highest near :math:`\mu = (s\phi + 1/2) / (\phi + 1)`,
    with about the information :math:`(\phi + 1) \mu (1 - \mu)`.
    """
    phi = load(par, 2)
    A, B, one, _, _ = sides(y)
    p = A * one * phi + 0.5
    q = B * one * phi + 0.5
    return log(p / q), p * q / (phi + 1.0)


def beta_curve(tag: Any, eta: Value, par: Value) -> tuple[Value, Value]:
    """Mean of the score and its slope."""
    A, B, one, _, _ = sides(eta)
    return A * one, A * B * one * one


def pick(tag: Any, y: Value, at_zero: Value, at_one: Value, inside: Value) -> Value:
    """By the score: 0, 1 or inside."""
    return where_less(y, -0.5 * tag.endpoint, at_zero, where_less(0.5 * tag.endpoint, y, at_one, inside))


def ordered_aim(tag: Any, y: Value, par: Value) -> tuple[Value, Value]:
    """The same of a score inside; an atom tells no more than any answer to a question with two."""
    place, information = beta_aim(tag, pick(tag, y, 0.0 * y, 0.0 * y, y), par)
    return place, pick(tag, y, 0.0 * y, 0.0 * y, information)


def ordered_terms(tag: Any, y: Value, eta: Value, par: Value) -> tuple[Value, Value, Value]:
    r"""In eta: information :math:`\sum P g^2` of the three events plus P(inside) times the density's."""
    A, B, one, low, high = sides(eta)
    mu = A * one
    nu = B * one
    linear, f, slope, p_second, q_second, _ = density(tag, pick(tag, y, 0.0, 0.0, y), mu, nu, low, high, par)
    D_0 = A + B * load(par, 8)
    D_1 = A + B * load(par, 9)
    above_0 = A / D_0
    above_1 = A / D_1
    under_0 = 1.0 - above_0
    under_1 = B * load(par, 9) / D_1
    middle = under_0 - above_1
    inside = above_0 * under_1 / (1.0 + load(par, 12))
    ll = pick(tag, y, high + load(par, 10), low, low + high + load(par, 11) + linear)
    ll = ll + log(pick(tag, y, 1.0 / D_0, 1.0 / D_1, f / (D_0 * D_1)))
    gradient = pick(tag, y, 0.0 - above_0, under_1, middle + slope)
    events = under_0 * above_0 * above_0 + above_1 * under_1 * under_1 + inside * middle * middle
    return ll, gradient, events + inside * (nu * nu * p_second + mu * mu * q_second)


def ordered_extra_terms(tag: Any, y: Value, eta: Value, par: Value, out: Value) -> tuple[Value, Value, Value]:
    """Also in log phi, k_0 and k_1; the density's precision tells nothing of the thresholds."""
    A, B, one, low, high = sides(eta)
    mu = A * one
    nu = B * one
    linear, f, slope, p_second, q_second, precision = density(tag, pick(tag, y, 0.0, 0.0, y), mu, nu, low, high, par)
    rest = load(par, 12)
    D_0 = A + B * load(par, 8)
    D_1 = A + B * load(par, 9)
    above_0 = A / D_0
    above_1 = A / D_1
    under_0 = B * load(par, 8) / D_0
    under_1 = B * load(par, 9) / D_1
    middle = under_0 - above_1
    inside = above_0 * under_1 / (1.0 + rest)
    ll = pick(tag, y, high + load(par, 10), low, low + high + load(par, 11) + linear)
    ll = ll + log(pick(tag, y, 1.0 / D_0, 1.0 / D_1, f / (D_0 * D_1)))
    gradient = pick(tag, y, 0.0 - above_0, under_1, middle + slope)
    events = under_0 * above_0 * above_0 + above_1 * under_1 * under_1 + inside * middle * middle
    ratio = D_1 / D_0
    rise_0 = ratio * rest  # slope of the lower curve / P(inside)
    rise_1 = (1.0 + rest) / ratio  # slope of the upper curve / P(inside)
    slope_0 = above_0 * under_0
    slope_1 = above_1 * under_1
    nothing = 0.0 * one
    store(out, 0, pick(tag, y, nothing, nothing, precision))
    store(out, 1, pick(tag, y, above_0, nothing, 0.0 - rise_0))
    store(out, 2, pick(tag, y, nothing, 0.0 - under_1, rise_1))
    store(out, 3, inside * (nu * p_second - mu * q_second))
    store(out, 4, 0.0 - slope_0 * (above_0 + middle))
    store(out, 5, slope_1 * (middle - under_1))
    store(out, 6, inside * maximum(p_second + q_second - load(par, 7), 0.5))
    store(out, 7, nothing)
    store(out, 8, slope_0 * (above_0 + rise_0))
    store(out, 9, nothing)
    store(out, 10, 0.0 - slope_0 * rise_1)
    store(out, 11, slope_1 * (under_1 + rise_1))
    return ll, gradient, events + inside * (nu * nu * p_second + mu * mu * q_second)


def ordered_curve(tag: Any, eta: Value, par: Value) -> tuple[Value, Value]:
    """P(1) + P(inside) mu, and its slope: a sum of positive terms, so the curve rises."""
    A, B, one, _, _ = sides(eta)
    mu = A * one
    nu = B * one
    odds_0 = B * load(par, 8)
    odds_1 = B * load(par, 9)
    above_0 = A / (A + odds_0)
    above_1 = A / (A + odds_1)
    slope_0 = above_0 * odds_0 / (A + odds_0)
    under_1 = odds_1 / (A + odds_1)
    inside = above_0 * under_1 / (1.0 + load(par, 12))
    return above_1 + inside * mu, above_1 * under_1 * nu + slope_0 * mu + inside * mu * nu
