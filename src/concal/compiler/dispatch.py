"""Calling a response model from compiled code, by the type of its tag."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np
from numba.extending import overload, register_jitable

from concal.compiler.vector import INLINE, inlined, splat
from concal.response import arithmetic
from concal.response.registry import kernels


def call_terms(tag: Any, y: Any, eta: Any, par: Any) -> Any:
    """(Log-likelihood, d/d eta, information) of the model whose tag this is."""
    return kernels(tag).log_terms(tag, y, eta, par)


def call_factored(tag: Any, y: Any, eta: Any, par: Any) -> Any:
    """(l, f, d/d eta, information) with log-likelihood l + log f, in lanes; f is one without such a kernel."""
    known = kernels(tag)
    if known.factored:
        return known.terms(tag, y, eta, par)
    ll, g, w = known.terms(tag, y, eta, par)
    return ll, np.ones_like(ll), g, w


def call_extra_terms(tag: Any, y: Any, eta: Any, par: Any, out: Any) -> Any:
    """The `extra_terms` kernel of the model whose tag this is."""
    return kernels(tag).extra_terms(tag, y, eta, par, out)


def call_curve(tag: Any, eta: Any, par: Any) -> Any:
    """The `curve` kernel of the model whose tag this is."""
    return kernels(tag).curve(tag, eta, par)


def aims(tag: Any) -> bool:
    """Whether the model says where in eta a score points (`concal.response.registry.register`)."""
    return kernels(tag).aim is not None


def call_aim(tag: Any, y: Any, par: Any) -> Any:
    """(Place, information) of a score in eta; no information where the model has no such kernel."""
    known = kernels(tag).aim
    return (np.zeros_like(y), np.zeros_like(y)) if known is None else known(tag, y, par)


_COMPILED: dict[Any, Any] = {}
_CALLABLE: set[Any] = set()


def _compiled(function: Any) -> Any:
    """A model's kernel, compiled; functions of its own module that it calls are compiled along."""
    if function not in _COMPILED:
        _make_callable(function)
        _COMPILED[function] = inlined(function)
    return _COMPILED[function]


def _make_callable(function: Any) -> None:
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__ == function.__module__ and called not in _CALLABLE:
            _CALLABLE.add(called)
            register_jitable(**INLINE)(called)
            _make_callable(called)


@overload(call_terms, strict=False, jit_options=INLINE)
def _call_terms(tag: Any, y: Any, eta: Any, par: Any) -> Any:
    known = kernels(tag.instance_class)
    terms = _compiled(known.terms)
    if not known.factored:
        return lambda tag, y, eta, par: terms(tag, y, eta, par)

    def whole(tag: Any, y: Any, eta: Any, par: Any) -> Any:
        ll, f, g, w = terms(tag, y, eta, par)
        return ll + arithmetic.log(f), g, w

    return whole


@overload(call_factored, strict=False, jit_options=INLINE)
def _call_factored(tag: Any, y: Any, eta: Any, par: Any) -> Any:
    known = kernels(tag.instance_class)
    terms = _compiled(known.terms)
    if known.factored:
        return lambda tag, y, eta, par: terms(tag, y, eta, par)

    def unfactored(tag: Any, y: Any, eta: Any, par: Any) -> Any:
        ll, g, w = terms(tag, y, eta, par)
        return ll, splat(1.0), g, w

    return unfactored


@overload(call_extra_terms, strict=False, jit_options=INLINE)
def _call_extra_terms(tag: Any, y: Any, eta: Any, par: Any, out: Any) -> Any:
    kernel = _compiled(kernels(tag.instance_class).extra_terms)
    return lambda tag, y, eta, par, out: kernel(tag, y, eta, par, out)


@overload(call_curve, strict=False, jit_options=INLINE)
def _call_curve(tag: Any, eta: Any, par: Any) -> Any:
    kernel = _compiled(kernels(tag.instance_class).curve)
    return lambda tag, eta, par: kernel(tag, eta, par)


@overload(aims, strict=False, jit_options=INLINE)
def _aims(tag: Any) -> Any:
    if kernels(tag.instance_class).aim is None:
        return lambda tag: False
    return lambda tag: True


@overload(call_aim, strict=False, jit_options=INLINE)
def _call_aim(tag: Any, y: Any, par: Any) -> Any:
    known = kernels(tag.instance_class).aim
    if known is None:
        return lambda tag, y, par: (splat(0.0), splat(0.0))
    kernel = _compiled(known)
    return lambda tag, y, par: kernel(tag, y, par)
