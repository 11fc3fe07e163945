"""Random numbers from a counter, one stream per lane."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from concal.compiler.vector import (
    INTEGERS,
    LANES,
    VECTOR,
    constant,
    inlined,
    lane_abs,
    lane_round,
    lane_sqrt,
    select_less,
    single,
    splat_ir,
)
from concal.response import arithmetic


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

        c = [low(splat_ir(builder, w, wide)) for w in words]
        c.append(ir.Constant(wide, list(range(LANES))))
        key = [
            low(splat_ir(builder, key64, wide)),
            splat_ir(builder, builder.lshr(key64, ir.Constant(i64, 32)), wide),
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
            top = builder.trunc(builder.lshr(word, ir.Constant(wide, [9] * LANES)), INTEGERS)
            number = builder.fadd(builder.sitofp(top, VECTOR[32]), constant(VECTOR[32], 0.5))
            out.append(builder.fmul(number, constant(VECTOR[32], 2.0**-23)))
        return context.make_tuple(builder, sig.return_type, out)

    return types.UniTuple(single, 4)(seed, unit, sweep, stream), codegen


@inlined
def normal_pair(u: Any, v: Any) -> Any:
    """Two standard normals from two uniforms (Box-Muller)."""
    radius = lane_sqrt(-2.0 * arithmetic.log(u))
    # angle 2 pi v with v in (0, 1): fold to x in [-1/4, 1/4] turns, where short polynomials are accurate
    turn = v - lane_round(v)
    folded = 0.25 - lane_abs(turn)  # sin(2 pi turn) = sign(turn) cos(2 pi folded), cos(2 pi turn) = sin(2 pi folded)
    x = 6.283185307179586 * folded
    z = x * x
    # least worst error over that range: 5e-9 and 3e-10 before rounding
    sine = x * (1.0 + z * (-1.66666605e-1 + z * (8.33308817e-3 + z * (-1.98111127e-4 + z * 2.60893261e-6))))
    cosine = -4.99999995e-1 + z * (4.16666407e-2 + z * (-1.38884035e-3 + z * (2.47618862e-5 - z * 2.60771049e-7)))
    cosine = 1.0 + z * cosine
    return radius * sine, radius * select_less(turn, 0.0, -cosine, cosine)
