"""The vector type of lanes, its arithmetic and conversions, as numba sees them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, lower_builtin, overload, register_model, type_callable

LANES = 8
"""Chains the engine runs side by side: one AVX register of float32."""

FAST = {"contract", "afn", "arcp", "nsz"}
"""Fast-math the kernels allow: fused multiply-add and reciprocals, but no assumption that values are finite."""


INLINE = {"forceinline": True, "fastmath": FAST, "error_model": "numpy"}
inlined = njit(**INLINE)


class LanesType(types.Type):  # type: ignore[misc]
    """`LANES` floating-point numbers of 32 or 64 bits in a vector register."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        super().__init__(name=f"Lanes{bits}")


single = LanesType(32)
double = LanesType(64)
VECTOR = {32: ir.VectorType(ir.FloatType(), LANES), 64: ir.VectorType(ir.DoubleType(), LANES)}
INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_FLAGS = ("contract", "nsz", "arcp")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: LanesType) -> None:
        super().__init__(dmm, fe_type, VECTOR[fe_type.bits])


def splat_ir(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    """A vector with one IR scalar in every lane."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(INTEGERS, [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def constant(vector: ir.VectorType, value: float) -> Any:
    """A constant vector."""
    return ir.Constant(vector, [value] * LANES)


def as_lanes(context: Any, builder: Any, value: Any, from_type: Any, to: LanesType) -> Any:
    """An IR value of lanes type `to`, from lanes or from a scalar."""
    if isinstance(from_type, LanesType):
        return value
    scalar = context.cast(builder, value, from_type, types.float32 if to.bits == 32 else types.float64)
    return splat_ir(builder, scalar, VECTOR[to.bits])


def common_lanes(a: Any, b: Any) -> LanesType | None:
    """The lanes type two operands meet in (a number joins lanes), or None."""
    lanes = [t for t in (a, b) if isinstance(t, LanesType)]
    if not lanes or any(t.bits != lanes[0].bits for t in lanes):
        return None
    others = [t for t in (a, b) if not isinstance(t, LanesType)]
    return lanes[0] if all(isinstance(t, types.Number | types.Literal) for t in others) else None


def _define_operator(op: Any, build: str) -> None:
    @type_callable(op)
    def resolve(context: Any) -> Any:
        return lambda a, b: common_lanes(a, b)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to = sig.return_type
        x, y = (as_lanes(context, builder, v, t, to) for v, t in zip(args, sig.args, strict=True))
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
    suffix = "v8f32" if kind == VECTOR[32] else "v8f64"
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


lane_sqrt, lane_abs, lane_round = _unary("sqrt"), _unary("fabs"), _unary("rint")


def _extreme(comparison: str) -> Any:
    """The larger or smaller of two values by compare and select: one instruction, unlike NaN-aware intrinsics."""

    @intrinsic
    def apply(typingctx: Any, x: Any, y: Any) -> Any:
        to = common_lanes(x, y)
        if to is None:
            return None

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b = (as_lanes(context, builder, v, t, to) for v, t in zip(args, sig.args, strict=True))
            return builder.select(builder.fcmp_ordered(comparison, a, b), a, b)

        return to(x, y), codegen

    return apply


lane_max, lane_min = _extreme(">"), _extreme("<")


@intrinsic
def splat(typingctx: Any, x: Any) -> Any:
    """A float32 vector with the same scalar in every lane."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return as_lanes(context, builder, args[0], sig.args[0], single)

    return single(x), codegen


@intrinsic
def splat64(typingctx: Any, x: Any) -> Any:
    """A float64 vector with the same scalar in every lane."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return as_lanes(context, builder, args[0], sig.args[0], double)

    return double(x), codegen


@intrinsic
def widen(typingctx: Any, x: Any) -> Any:
    """float32 lanes as float64 lanes."""
    return double(single), lambda context, builder, sig, args: builder.fpext(args[0], VECTOR[64])


@intrinsic
def narrow(typingctx: Any, x: Any) -> Any:
    """float64 lanes as float32 lanes."""
    return single(double), lambda context, builder, sig, args: builder.fptrunc(args[0], VECTOR[32])


@intrinsic
def select_less(typingctx: Any, x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    """`then` where x < y, else `otherwise`, lane by lane."""
    test, value = common_lanes(x, y), common_lanes(then, otherwise)
    if test is None or value is None:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (as_lanes(context, builder, v, t, test) for v, t in zip(args[:2], sig.args[:2], strict=True))
        c, d = (as_lanes(context, builder, v, t, value) for v, t in zip(args[2:], sig.args[2:], strict=True))
        return builder.select(builder.fcmp_ordered("<", a, b), c, d)

    return value(x, y, then, otherwise), codegen


@intrinsic
def two_to(typingctx: Any, n: Any) -> Any:
    """2^n for float32 lanes that hold whole numbers in [-126, 127]: the exponent field, written directly."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = builder.fptosi(args[0], INTEGERS)
        bits = builder.shl(builder.add(whole, constant(INTEGERS, 127)), constant(INTEGERS, 23))
        return builder.bitcast(bits, VECTOR[32])

    return single(single), codegen


@intrinsic
def split_float(typingctx: Any, x: Any) -> Any:
    """(m, e) with x = m 2^e and m in [sqrt(1/2), sqrt(2)), for positive normal float32 lanes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        # adding the distance from sqrt(1/2) to 1 carries into the exponent exactly when the mantissa passes sqrt(2)
        shifted = builder.add(builder.bitcast(args[0], INTEGERS), constant(INTEGERS, 0x3F800000 - 0x3F3504F3))
        exponent = builder.sub(builder.ashr(shifted, constant(INTEGERS, 23)), constant(INTEGERS, 127))
        mantissa = builder.add(builder.and_(shifted, constant(INTEGERS, 0x007FFFFF)), constant(INTEGERS, 0x3F3504F3))
        values = (builder.bitcast(mantissa, VECTOR[32]), builder.sitofp(exponent, VECTOR[32]))
        return context.make_tuple(builder, sig.return_type, values)

    return types.UniTuple(single, 2)(single), codegen


def as_double(x: Any) -> Any:
    """Lanes (or a number) in float64, whatever they are now."""
    return np.asarray(x, dtype=np.float64)


@overload(as_double, strict=False, jit_options=INLINE)
def _as_double(x: Any) -> Any:
    if isinstance(x, LanesType) and x.bits == 64:
        return lambda x: x
    return lambda x: widen(x)
