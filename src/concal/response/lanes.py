"""SIMD lanes: the compiled meaning of `concal.response.arithmetic`.

The engine runs its chains side by side: lane c of a vector of `LANES` float32 belongs to chain c. A response's item
parameters (or its examinee's ability) are then one contiguous load for all chains, no gather, and every arithmetic
instruction serves eight chains at once. This module teaches numba the vector type, its arithmetic and the elementary
functions; `float64` scalars are served by the same names, for code that works draw by draw.

Accuracy of the float32 functions (worst error over the useful range, checked in the tests): exp, log and sigmoid 2e-7
of the value; softplus 2e-7, log_gamma 1.5e-6 and digamma 1e-6 of the larger of one and the value; trigamma 2e-6 of
the value; a normal 1e-6. Digamma and trigamma only aim proposals.
"""

from __future__ import annotations

import math
import operator
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import (
    intrinsic,
    lower_builtin,
    overload,
    register_jitable,
    register_model,
    type_callable,
)
from numba.np.arrayobj import make_array

from concal.response import arithmetic
from concal.response.registry import kernels

LANES = 8
"""Chains the engine runs side by side: one AVX register of float32."""

FAST = {"contract", "afn", "arcp", "nsz"}
"""Fast-math the kernels allow: fused multiply-add and reciprocals, but no assumption that values are finite."""


_INLINE = {"forceinline": True, "fastmath": FAST, "error_model": "numpy"}
_inlined = njit(**_INLINE)


class LanesType(types.Type):
    """`LANES` floating-point numbers of 32 or 64 bits in a vector register."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        super().__init__(name=f"Lanes{bits}")


single = LanesType(32)
double = LanesType(64)
_IR = {32: ir.VectorType(ir.FloatType(), LANES), 64: ir.VectorType(ir.DoubleType(), LANES)}
_INT = ir.VectorType(ir.IntType(32), LANES)
_FLAGS = ("contract", "nsz", "arcp")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: LanesType) -> None:
        super().__init__(dmm, fe_type, _IR[fe_type.bits])


# --- building blocks: IR ------------------------------------------------------------------------------------------


def _splat_ir(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(_INT, [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def _constant(vector: ir.VectorType, value: float) -> Any:
    return ir.Constant(vector, [value] * LANES)


def _as_lanes(context: Any, builder: Any, value: Any, from_type: Any, to: LanesType) -> Any:
    """An IR value of lanes type `to`, from lanes or from a scalar."""
    if isinstance(from_type, LanesType):
        return value
    scalar = context.cast(builder, value, from_type, types.float32 if to.bits == 32 else types.float64)
    return _splat_ir(builder, scalar, _IR[to.bits])


def _common(a: Any, b: Any) -> LanesType | None:
    lanes = [t for t in (a, b) if isinstance(t, LanesType)]
    if not lanes or any(t.bits != lanes[0].bits for t in lanes):
        return None
    others = [t for t in (a, b) if not isinstance(t, LanesType)]
    return lanes[0] if all(isinstance(t, types.Number | types.Literal) for t in others) else None


def _define_operator(op: Any, build: str) -> None:
    @type_callable(op)
    def resolve(context: Any) -> Any:
        return lambda a, b: _common(a, b)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to = sig.return_type
        x, y = (_as_lanes(context, builder, v, t, to) for v, t in zip(args, sig.args, strict=True))
        return getattr(builder, build)(x, y, flags=_FLAGS)

    for left, right in ((LanesType, LanesType), (LanesType, types.Number), (types.Number, LanesType)):
        lower_builtin(op, left, right)(lower)


for _op, _build in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _define_operator(_op, _build)
for _op, _build in ((operator.iadd, "fadd"), (operator.isub, "fsub"), (operator.imul, "fmul")):
    _define_operator(_op, _build)


@type_callable(operator.neg)
def _resolve_neg(context: Any) -> Any:
    return lambda a: a if isinstance(a, LanesType) else None


@lower_builtin(operator.neg, LanesType)
def _lower_neg(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fneg(args[0])


def _llvm(builder: Any, name: str, args: Any) -> Any:
    """Call an LLVM vector intrinsic such as llvm.sqrt.v8f32."""
    kind = args[0].type
    suffix = "v8f32" if kind == _IR[32] else "v8f64"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * len(args)), f"llvm.{name}.{suffix}"
    )
    return builder.call(function, args)


def _unary(name: str) -> Any:
    """An intrinsic that applies an LLVM intrinsic lane by lane."""

    @intrinsic
    def apply(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _llvm(builder, name, args)

        return x(x), codegen

    return apply


_sqrt, _abs, _rint = _unary("sqrt"), _unary("fabs"), _unary("rint")


def _extreme(comparison: str) -> Any:
    """The larger or smaller of two values by compare and select: one instruction, unlike NaN-aware intrinsics."""

    @intrinsic
    def apply(typingctx: Any, x: Any, y: Any) -> Any:
        to = _common(x, y)
        if to is None:
            return None

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b = (_as_lanes(context, builder, v, t, to) for v, t in zip(args, sig.args, strict=True))
            return builder.select(builder.fcmp_ordered(comparison, a, b), a, b)

        return to(x, y), codegen

    return apply


_max, _min = _extreme(">"), _extreme("<")


@intrinsic
def splat(typingctx: Any, x: Any) -> Any:
    """A float32 vector with the same scalar in every lane."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _as_lanes(context, builder, args[0], sig.args[0], single)

    return single(x), codegen


@intrinsic
def splat64(typingctx: Any, x: Any) -> Any:
    """A float64 vector with the same scalar in every lane."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _as_lanes(context, builder, args[0], sig.args[0], double)

    return double(x), codegen


@intrinsic
def widen(typingctx: Any, x: Any) -> Any:
    """float32 lanes as float64 lanes."""
    return double(single), lambda context, builder, sig, args: builder.fpext(args[0], _IR[64])


@intrinsic
def narrow(typingctx: Any, x: Any) -> Any:
    """float64 lanes as float32 lanes."""
    return single(double), lambda context, builder, sig, args: builder.fptrunc(args[0], _IR[32])


@intrinsic
def select_less(typingctx: Any, x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    """`then` where x < y, else `otherwise`, lane by lane."""
    test, value = _common(x, y), _common(then, otherwise)
    if test is None or value is None:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (_as_lanes(context, builder, v, t, test) for v, t in zip(args[:2], sig.args[:2], strict=True))
        c, d = (_as_lanes(context, builder, v, t, value) for v, t in zip(args[2:], sig.args[2:], strict=True))
        return builder.select(builder.fcmp_ordered("<", a, b), c, d)

    return value(x, y, then, otherwise), codegen


@intrinsic
def _two_to(typingctx: Any, n: Any) -> Any:
    """2^n for float32 lanes that hold whole numbers in [-126, 127]: the exponent field, written directly."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = builder.fptosi(args[0], _INT)
        bits = builder.shl(builder.add(whole, _constant(_INT, 127)), _constant(_INT, 23))
        return builder.bitcast(bits, _IR[32])

    return single(single), codegen


@intrinsic
def _split(typingctx: Any, x: Any) -> Any:
    """(m, e) with x = m 2^e and m in [sqrt(1/2), sqrt(2)), for positive normal float32 lanes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        # adding the distance from sqrt(1/2) to 1 carries into the exponent exactly when the mantissa passes sqrt(2)
        shifted = builder.add(builder.bitcast(args[0], _INT), _constant(_INT, 0x3F800000 - 0x3F3504F3))
        exponent = builder.sub(builder.ashr(shifted, _constant(_INT, 23)), _constant(_INT, 127))
        mantissa = builder.add(builder.and_(shifted, _constant(_INT, 0x007FFFFF)), _constant(_INT, 0x3F3504F3))
        values = (builder.bitcast(mantissa, _IR[32]), builder.sitofp(exponent, _IR[32]))
        return context.make_tuple(builder, sig.return_type, values)

    return types.UniTuple(single, 2)(single), codegen


# --- memory -------------------------------------------------------------------------------------------------------


def _row_pointer(context: Any, builder: Any, array_type: Any, array: Any, indices: Any, vector: Any) -> Any:
    """Pointer to the lane row array[indices[0], ..., :] of a C-contiguous array whose last axis has LANES entries."""
    view = make_array(array_type)(context, builder, array)
    shape = cgutils.unpack_tuple(builder, view.shape)
    flat = indices[0]
    for index, size in zip(indices[1:], shape[1:], strict=False):
        flat = builder.add(builder.mul(flat, size), index)
    offset = builder.mul(flat, ir.Constant(flat.type, LANES))
    return builder.bitcast(builder.gep(view.data, [offset]), vector.as_pointer())


def _lanes_of(array_type: Any) -> LanesType:
    return double if array_type.dtype == types.float64 else single


def _indices(context: Any, builder: Any, values: Any, kinds: Any) -> list[Any]:
    return [context.cast(builder, v, t, types.intp) for v, t in zip(values, kinds, strict=True)]


@intrinsic
def row(typingctx: Any, array: Any, index: Any) -> Any:
    """Lanes ``array[*index, :]``; `index` is a tuple of integers."""
    lanes = _lanes_of(array)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        places = cgutils.unpack_tuple(builder, args[1])
        places = _indices(context, builder, places, sig.args[1].types)
        pointer = _row_pointer(context, builder, sig.args[0], args[0], places, _IR[lanes.bits])
        return builder.load(pointer, align=lanes.bits // 8)

    return lanes(array, index), codegen


@intrinsic
def put(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[*index, :] = value``, converting to the array's precision."""
    lanes = _lanes_of(array)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        places = _indices(context, builder, cgutils.unpack_tuple(builder, args[1]), sig.args[1].types)
        pointer = _row_pointer(context, builder, sig.args[0], args[0], places, _IR[lanes.bits])
        value_ir = args[2]
        kind = sig.args[2]
        if not isinstance(kind, LanesType):
            value_ir = _as_lanes(context, builder, value_ir, kind, lanes)
        elif kind.bits < lanes.bits:
            value_ir = builder.fpext(value_ir, _IR[lanes.bits])
        elif kind.bits > lanes.bits:
            value_ir = builder.fptrunc(value_ir, _IR[lanes.bits])
        builder.store(value_ir, pointer, align=lanes.bits // 8)
        return context.get_dummy_value()

    return types.void(array, index, value), codegen


# --- random numbers -----------------------------------------------------------------------------------------------


@intrinsic
def uniforms(typingctx: Any, seed: Any, unit: Any, sweep: Any, stream: Any) -> Any:
    """Four uniforms in (0, 1) per lane from Philox 4x32-10 at counter (unit, sweep, stream, lane) and key `seed`.

    A counter instead of a state: the numbers depend on what they are for, never on which thread asks first.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64 = ir.IntType(64)
        wide = ir.VectorType(i64, LANES)
        key64 = context.cast(builder, args[0], sig.args[0], types.uint64)
        words = [context.cast(builder, v, t, types.uint64) for v, t in zip(args[1:], sig.args[1:], strict=True)]
        mask = ir.Constant(wide, [0xFFFFFFFF] * LANES)

        def low(value: Any) -> Any:
            return builder.and_(value, mask)

        c = [low(_splat_ir(builder, w, wide)) for w in words]
        c.append(ir.Constant(wide, list(range(LANES))))
        key = [
            low(_splat_ir(builder, key64, wide)),
            _splat_ir(builder, builder.lshr(key64, ir.Constant(i64, 32)), wide),
        ]
        for _ in range(10):
            first = builder.mul(c[0], ir.Constant(wide, [0xD2511F53] * LANES))
            second = builder.mul(c[2], ir.Constant(wide, [0xCD9E8D57] * LANES))
            shift = ir.Constant(wide, [32] * LANES)
            c = [
                builder.xor(builder.xor(builder.lshr(second, shift), c[1]), key[0]),
                low(second),
                builder.xor(builder.xor(builder.lshr(first, shift), c[3]), key[1]),
                low(first),
            ]
            key = [
                low(builder.add(key[0], ir.Constant(wide, [0x9E3779B9] * LANES))),
                low(builder.add(key[1], ir.Constant(wide, [0xBB67AE85] * LANES))),
            ]
        out = []
        for word in c:
            # 23 bits and a half: exact in float32, so that rounding never reaches one
            top = builder.trunc(builder.lshr(word, ir.Constant(wide, [9] * LANES)), _INT)
            number = builder.fadd(builder.sitofp(top, _IR[32]), _constant(_IR[32], 0.5))
            out.append(builder.fmul(number, _constant(_IR[32], 2.0**-23)))
        return context.make_tuple(builder, sig.return_type, out)

    return types.UniTuple(single, 4)(seed, unit, sweep, stream), codegen


@_inlined
def normal_pair(u: Any, v: Any) -> Any:
    """Two standard normals from two uniforms (Box-Muller)."""
    radius = _sqrt(-2.0 * arithmetic.log(u))
    # angle 2 pi v with v in (0, 1): fold to x in [-1/4, 1/4] turns, where short polynomials are accurate
    turn = v - _rint(v)
    folded = 0.25 - _abs(turn)  # sin(2 pi turn) = sign(turn) cos(2 pi folded), cos(2 pi turn) = sin(2 pi folded)
    x = 6.283185307179586 * folded
    z = x * x
    # least worst error over that range: 5e-9 and 3e-10 before rounding
    sine = x * (1.0 + z * (-1.66666605e-1 + z * (8.33308817e-3 + z * (-1.98111127e-4 + z * 2.60893261e-6))))
    cosine = -4.99999995e-1 + z * (4.16666407e-2 + z * (-1.38884035e-3 + z * (2.47618862e-5 - z * 2.60771049e-7)))
    cosine = 1.0 + z * cosine
    return radius * sine, radius * select_less(turn, 0.0, -cosine, cosine)


# --- elementary functions -----------------------------------------------------------------------------------------


@_inlined
def _exp_single(x: Any) -> Any:
    x = _min(_max(x, -87.0), 88.0)
    n = _rint(x * 1.4426950408889634)
    r = x - n * 0.693359375
    r = r - n * -2.12194440e-4
    z = 1.9875691500e-4
    poly = r * z + 1.3981999507e-3
    poly = poly * r + 8.3334519073e-3
    poly = poly * r + 4.1665795894e-2
    poly = poly * r + 1.6666665459e-1
    poly = poly * r + 5.0000001201e-1
    return (poly * r * r + r + 1.0) * _two_to(n)


@_inlined
def _log_single(x: Any) -> Any:
    m, e = _split(x)
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


@_inlined
def _softplus_single(x: Any) -> Any:
    return _max(x, 0.0) + _log_single(1.0 + _exp_single(-_abs(x)))


@_inlined
def _sigmoid_single(x: Any) -> Any:
    t = _exp_single(-_abs(x))
    r = 1.0 / (1.0 + t)
    return select_less(x, 0.0, t * r, r)


@_inlined
def _log_gamma_single(x: Any) -> Any:
    # Stirling at x + 3 after dividing out x (x + 1) (x + 2): small arguments cost nothing extra, no branch
    s = x + 3.0
    r = 1.0 / s
    z = r * r
    series = r * (0.08333333333 + z * (-0.00277777778 + z * (0.00079365079 - z * 0.00059523809)))
    return (s - 0.5) * _log_single(s) - s + 0.9189385332 + series - _log_single(x * (x + 1.0) * (x + 2.0))


@_inlined
def _digamma_single(x: Any) -> Any:
    s = x + 3.0
    r = 1.0 / s
    z = r * r
    shift = (3.0 * x * x + 6.0 * x + 2.0) / (x * (x + 1.0) * (x + 2.0))  # 1/x + 1/(x+1) + 1/(x+2)
    return _log_single(s) - 0.5 * r - z * (0.08333333333 - z * (0.00833333333 - z * 0.00396825397)) - shift


@_inlined
def _trigamma_single(x: Any) -> Any:
    s = x + 2.0
    r = 1.0 / s
    z = r * r
    p, q = 1.0 / x, 1.0 / (x + 1.0)
    return p * p + q * q + r * (1.0 + r * 0.5 + z * (0.16666666667 - z * (0.03333333333 - z * 0.02380952381)))


@_inlined
def _sigmoid_scalar(x: float) -> float:
    t = math.exp(-abs(x))
    return t / (1.0 + t) if x < 0.0 else 1.0 / (1.0 + t)


@_inlined
def _softplus_scalar(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@_inlined
def _exp_scalar(x: float) -> float:
    return math.exp(min(x, 700.0))


@_inlined
def _log_scalar(x: float) -> float:
    return math.log(x)


@_inlined
def _log_gamma_scalar(x: float) -> float:
    return math.lgamma(x)


@_inlined
def _digamma_scalar(x: float) -> float:
    value = 0.0
    while x < 8.0:
        value -= 1.0 / x
        x += 1.0
    z = 1.0 / (x * x)
    return value + math.log(x) - 0.5 / x - z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132))))


@_inlined
def _trigamma_scalar(x: float) -> float:
    value = 0.0
    while x < 8.0:
        value += 1.0 / (x * x)
        x += 1.0
    z = 1.0 / (x * x)
    return value + 1.0 / x + 0.5 * z + z / x * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - z * 5 / 66))))


def _serve(function: Any, lanes: Any, scalar: Any) -> None:
    """Give an arithmetic function of one argument its compiled meanings."""

    @overload(function, strict=False, jit_options=_INLINE)
    def choose(x: Any) -> Any:
        if isinstance(x, LanesType):
            return lambda x: lanes(x)
        if isinstance(x, types.Float):
            return lambda x: scalar(x)
        return None


_serve(arithmetic.exp, _exp_single, _exp_scalar)
_serve(arithmetic.log, _log_single, _log_scalar)
_serve(arithmetic.softplus, _softplus_single, _softplus_scalar)
_serve(arithmetic.sigmoid, _sigmoid_single, _sigmoid_scalar)
_serve(arithmetic.log_gamma, _log_gamma_single, _log_gamma_scalar)
_serve(arithmetic.digamma, _digamma_single, _digamma_scalar)
_serve(arithmetic.trigamma, _trigamma_single, _trigamma_scalar)


@overload(arithmetic.maximum, strict=False, jit_options=_INLINE)
def _maximum(x: Any, y: Any) -> Any:
    if isinstance(x, LanesType) or isinstance(y, LanesType):
        return lambda x, y: _max(x, y)
    return lambda x, y: max(x, y)


@overload(arithmetic.minimum, strict=False, jit_options=_INLINE)
def _minimum(x: Any, y: Any) -> Any:
    if isinstance(x, LanesType) or isinstance(y, LanesType):
        return lambda x, y: _min(x, y)
    return lambda x, y: min(x, y)


@overload(arithmetic.where_less, strict=False, jit_options=_INLINE)
def _where_less(x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    if any(isinstance(t, LanesType) for t in (x, y, then, otherwise)):
        return lambda x, y, then, otherwise: select_less(x, y, then, otherwise)
    return lambda x, y, then, otherwise: then if x < y else otherwise


@overload(arithmetic.load, strict=False, jit_options=_INLINE)
def _load(par: Any, k: Any) -> Any:
    if isinstance(par, types.BaseTuple):  # (array of rows, item): lanes of the item's row k
        return lambda par, k: row(par[0], (par[1], k))
    if par.ndim == 2:  # rows of lanes, such as a kernel's own output
        return lambda par, k: row(par, (k,))
    return lambda par, k: par[k]


@overload(arithmetic.store, strict=False, jit_options=_INLINE)
def _store(out: Any, k: Any, value: Any) -> Any:
    if isinstance(value, LanesType):
        return lambda out, k, value: put(out, (k,), value)

    def scalar(out: Any, k: Any, value: Any) -> None:
        out[k] = value

    return scalar


# --- calling a response model from compiled code ------------------------------------------------------------------


def call_terms(tag: Any, y: Any, eta: Any, par: Any) -> Any:
    """The `terms` kernel of the model whose tag this is."""
    return kernels(tag).terms(tag, y, eta, par)


def call_factored(tag: Any, y: Any, eta: Any, par: Any) -> Any:
    """(l, f, d/d eta, information) with log-likelihood l + log f; f is one where the model has no such kernel."""
    factored = kernels(tag).factored
    if factored is not None:
        return factored(tag, y, eta, par)
    ll, g, w = kernels(tag).terms(tag, y, eta, par)
    return ll, np.ones_like(ll), g, w


def call_extra_terms(tag: Any, y: Any, eta: Any, par: Any, out: Any) -> Any:
    """The `extra_terms` kernel of the model whose tag this is."""
    return kernels(tag).extra_terms(tag, y, eta, par, out)


def call_curve(tag: Any, eta: Any, par: Any) -> Any:
    """The `curve` kernel of the model whose tag this is."""
    return kernels(tag).curve(tag, eta, par)


_COMPILED: dict[Any, Any] = {}
_CALLABLE: set[Any] = set()


def _compiled(function: Any) -> Any:
    """A model's kernel, compiled; functions of its own module that it calls are compiled along."""
    if function not in _COMPILED:
        _make_callable(function)
        _COMPILED[function] = _inlined(function)
    return _COMPILED[function]


def _make_callable(function: Any) -> None:
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__ == function.__module__ and called not in _CALLABLE:
            _CALLABLE.add(called)
            register_jitable(**_INLINE)(called)
            _make_callable(called)


@overload(call_terms, strict=False, jit_options=_INLINE)
def _call_terms(tag: Any, y: Any, eta: Any, par: Any) -> Any:
    kernel = _compiled(kernels(tag.instance_class).terms)
    return lambda tag, y, eta, par: kernel(tag, y, eta, par)


@overload(call_factored, strict=False, jit_options=_INLINE)
def _call_factored(tag: Any, y: Any, eta: Any, par: Any) -> Any:
    known = kernels(tag.instance_class)
    if known.factored is not None:
        factored = _compiled(known.factored)
        return lambda tag, y, eta, par: factored(tag, y, eta, par)
    terms = _compiled(known.terms)

    def unfactored(tag: Any, y: Any, eta: Any, par: Any) -> Any:
        ll, g, w = terms(tag, y, eta, par)
        return ll, splat(1.0), g, w

    return unfactored


@overload(call_extra_terms, strict=False, jit_options=_INLINE)
def _call_extra_terms(tag: Any, y: Any, eta: Any, par: Any, out: Any) -> Any:
    kernel = _compiled(kernels(tag.instance_class).extra_terms)
    return lambda tag, y, eta, par, out: kernel(tag, y, eta, par, out)


@overload(call_curve, strict=False, jit_options=_INLINE)
def _call_curve(tag: Any, eta: Any, par: Any) -> Any:
    kernel = _compiled(kernels(tag.instance_class).curve)
    return lambda tag, eta, par: kernel(tag, eta, par)


def empty_lanes(*shape: int, dtype: Any = np.float32) -> Any:
    """An array with a trailing lane axis, (*shape, LANES)."""
    return np.zeros((*shape, LANES), dtype=dtype)


def as_double(x: Any) -> Any:
    """Lanes (or a number) in float64, whatever they are now."""
    return np.asarray(x, dtype=np.float64)


@overload(as_double, strict=False, jit_options=_INLINE)
def _as_double(x: Any) -> Any:
    if isinstance(x, LanesType) and x.bits == 64:
        return lambda x: x
    return lambda x: widen(x)
