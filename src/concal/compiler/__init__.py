"""The compiler layer: `kernel`, and SIMD lanes as the compiled meaning of `concal.response.arithmetic`.

Only kernels look in here (and those who ask where machine code is kept and what compiling it cost).

The engine runs its chains side by side: lane c of a vector of `LANES` float32 belongs to chain c. A response's item
parameters (or its examinee's ability) are then one contiguous load for all chains, no gather, and every arithmetic
instruction serves eight chains at once. This module teaches numba the vector type, its arithmetic and the elementary
functions; `float64` scalars are served by the same names, for code that works draw by draw.

Accuracy of the float32 functions (worst error over the useful range, checked in the tests): exp, log and sigmoid 2e-7
of the value; a normal 1e-6.
"""

from concal.compiler import functions as functions  # gives the arithmetic its compiled meaning
from concal.compiler.cache import cache_folder, kernel, sources_hash
from concal.compiler.clock import compile_seconds
from concal.compiler.dispatch import aims, call_aim, call_curve, call_extra_terms, call_factored, call_terms
from concal.compiler.memory import prefetch, put, row
from concal.compiler.random import normal_pair, uniforms
from concal.compiler.vector import (
    LANES,
    as_double,
    inlined,
    lane_abs,
    lane_max,
    lane_min,
    lane_sqrt,
    narrow,
    select_less,
    splat,
    splat64,
    widen,
)  # fmt: skip

__all__ = [
    "LANES",
    "aims",
    "as_double",
    "cache_folder",
    "call_aim",
    "call_curve",
    "call_extra_terms",
    "call_factored",
    "call_terms",
    "compile_seconds",
    "inlined",
    "kernel",
    "lane_abs",
    "lane_max",
    "lane_min",
    "lane_sqrt",
    "narrow",
    "normal_pair",
    "prefetch",
    "put",
    "row",
    "select_less",
    "sources_hash",
    "splat",
    "splat64",
    "uniforms",
    "widen",
]
