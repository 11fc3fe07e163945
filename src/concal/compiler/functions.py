"""Elementary functions: the compiled meaning of `concal.response.arithmetic` for lanes and for scalars."""

from __future__ import annotations

import math
from typing import Any

from numba import types
from numba.extending import overload

from concal.compiler.memory import put, row
from concal.compiler.vector import (
    INLINE,
    LanesType,
    inlined,
    lane_abs,
    lane_max,
    lane_min,
    lane_round,
    select_less,
    split_float,
    two_to,
)
from concal.response import arithmetic


@inlined
def _exp_single(x: Any) -> Any:
    x = lane_min(lane_max(x, -87.0), 88.0)
    n = lane_round(x * 1.4426950408889634)
    r = x - n * 0.693359375
    r = r - n * -2.12194440e-4
    z = 1.9875691500e-4
    poly = r * z + 1.3981999507e-3
    poly = poly * r + 8.3334519073e-3
    poly = poly * r + 4.1665795894e-2
    poly = poly * r + 1.6666665459e-1
    poly = poly * r + 5.0000001201e-1
    return (poly * r * r + r + 1.0) * two_to(n)


@inlined
def _log_single(x: Any) -> Any:
    m, e = split_float(x)
    r = m - 1.0
    z = r * r
    poly = r * 7.0376836292e-2 - 1.1514610310e-1
    poly = poly * r + 1.1676998740e-1
    poly = poly * r - 1.2420140846e-1
    poly = poly * r + 1.4249322787e-1
    poly = poly * r - 1.6668057665e-1
    poly = poly * r + 2.0000714765e-1
    poly = poly * r - 2.4999993993e-1
    poly = poly * r + 3.3333331174e-1
    y = poly * r * z + e * -2.12194440e-4 - 0.5 * z
    return r + y + e * 0.693359375


@inlined
def _sigmoid_single(x: Any) -> Any:
    t = _exp_single(-lane_abs(x))
    r = 1.0 / (1.0 + t)
    return select_less(x, 0.0, t * r, r)


@inlined
def _sigmoid_scalar(x: float) -> float:
    t = math.exp(-abs(x))
    return t / (1.0 + t) if x < 0.0 else 1.0 / (1.0 + t)


@inlined
def _exp_scalar(x: float) -> float:
    return math.exp(min(x, 700.0))


@inlined
def _log_scalar(x: float) -> float:
    return math.log(x)


def _serve(function: Any, lanes: Any, scalar: Any) -> None:
    """Give an arithmetic function of one argument its compiled meanings."""

    @overload(function, strict=False, jit_options=INLINE)
    def choose(x: Any) -> Any:
        if isinstance(x, LanesType):
            return lambda x: lanes(x)
        if isinstance(x, types.Float):
            return lambda x: scalar(x)
        return None


_serve(arithmetic.exp, _exp_single, _exp_scalar)
_serve(arithmetic.log, _log_single, _log_scalar)
_serve(arithmetic.sigmoid, _sigmoid_single, _sigmoid_scalar)


@overload(arithmetic.maximum, strict=False, jit_options=INLINE)
def _maximum(x: Any, y: Any) -> Any:
    if isinstance(x, LanesType) or isinstance(y, LanesType):
        return lambda x, y: lane_max(x, y)
    return lambda x, y: max(x, y)


@overload(arithmetic.minimum, strict=False, jit_options=INLINE)
def _minimum(x: Any, y: Any) -> Any:
    if isinstance(x, LanesType) or isinstance(y, LanesType):
        return lambda x, y: lane_min(x, y)
    return lambda x, y: min(x, y)


@overload(arithmetic.where_less, strict=False, jit_options=INLINE)
def _where_less(x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    if any(isinstance(t, LanesType) for t in (x, y, then, otherwise)):
        return lambda x, y, then, otherwise: select_less(x, y, then, otherwise)
    return lambda x, y, then, otherwise: then if x < y else otherwise


@overload(arithmetic.load, strict=False, jit_options=INLINE)
def _load(par: Any, k: Any) -> Any:
    if isinstance(par, types.BaseTuple):  # (array of rows, item): lanes of the item's row k
        return lambda par, k: row(par[0], (par[1], k))
    if par.ndim == 2:  # rows of lanes, such as a kernel's own output
        return lambda par, k: row(par, (k,))
    return lambda par, k: par[k]


@overload(arithmetic.store, strict=False, jit_options=INLINE)
def _store(out: Any, k: Any, value: Any) -> Any:
    if isinstance(value, LanesType):
        return lambda out, k, value: put(out, (k,), value)

    def scalar(out: Any, k: Any, value: Any) -> None:
        out[k] = value

    return scalar
