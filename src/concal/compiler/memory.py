"""Rows of lanes in arrays: one contiguous load or store."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from concal.compiler.vector import LANES, VECTOR, LanesType, as_lanes, double, single


def _row_pointer(context: Any, builder: Any, sig: Any, args: Any, lanes: LanesType) -> Any:
    """Pointer to the lane row array[*index, :] of a C-contiguous array whose last axis has LANES entries.

    The first arguments are the array and the index, a tuple of integers.
    """
    places = zip(cgutils.unpack_tuple(builder, args[1]), sig.args[1].types, strict=True)
    indices = [context.cast(builder, value, kind, types.intp) for value, kind in places]
    view = make_array(sig.args[0])(context, builder, args[0])
    shape = cgutils.unpack_tuple(builder, view.shape)
    flat = indices[0]
    for index, size in zip(indices[1:], shape[1:], strict=False):
        flat = builder.add(builder.mul(flat, size), index)
    offset = builder.mul(flat, ir.Constant(flat.type, LANES))
    return builder.bitcast(builder.gep(view.data, [offset]), VECTOR[lanes.bits].as_pointer())


def _lanes_of(array_type: Any) -> LanesType:
    return double if array_type.dtype == types.float64 else single


@intrinsic
def row(typingctx: Any, array: Any, index: Any) -> Any:
    """Lanes ``array[*index, :]``; `index` is a tuple of integers."""
    lanes = _lanes_of(array)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_row_pointer(context, builder, sig, args, lanes), align=lanes.bits // 8)

    return lanes(array, index), codegen


@intrinsic
def put(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[*index, :] = value``, converting to the array's precision."""
    lanes = _lanes_of(array)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _row_pointer(context, builder, sig, args, lanes)
        value_ir = args[2]
        kind = sig.args[2]
        if not isinstance(kind, LanesType):
            value_ir = as_lanes(context, builder, value_ir, kind, lanes)
        elif kind.bits < lanes.bits:
            value_ir = builder.fpext(value_ir, VECTOR[lanes.bits])
        elif kind.bits > lanes.bits:
            value_ir = builder.fptrunc(value_ir, VECTOR[lanes.bits])
        builder.store(value_ir, pointer, align=lanes.bits // 8)
        return context.get_dummy_value()

    return types.void(array, index, value), codegen


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Ask for the row ``array[*index, :]`` to be in the cache when it is needed; changes nothing else."""
    lanes = _lanes_of(array)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _row_pointer(context, builder, sig, args, lanes)
        address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, near, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [builder.bitcast(pointer, address), read, near, data])
        return context.get_dummy_value()

    return types.void(array, index), codegen
