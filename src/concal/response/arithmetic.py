"""The few functions a response model is written with.

A model's kernel is plain arithmetic on these. Called from Python the arguments are NumPy arrays (float64, any
shape that broadcasts); inside the engine the very same source is compiled with numba, and the arguments are SIMD
lanes, one lane per chain (`concal.compiler` gives these functions their compiled meaning). One source, so the
engine and the reference cannot drift apart.

Rules for kernel code: only + - * /, comparisons through `where`, and the functions below; no `if` on a value; loops
over `range` only with scalar bounds; rows of `par` and `out` through `load` and `store`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

Value = Any
"""A float64 array here, a vector of lanes in compiled code."""


def exp(x: Value) -> Value:
    """e^x; the compiled version saturates instead of overflowing."""
    return np.exp(x)


def log(x: Value) -> Value:
    """Natural logarithm of a positive value."""
    return np.log(x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e^-x) without overflow."""
    return special.expit(x)


def maximum(x: Value, y: Value) -> Value:
    """The larger of two values."""
    return np.maximum(x, y)


def minimum(x: Value, y: Value) -> Value:
    """The smaller of two values."""
    return np.minimum(x, y)


def where_less(x: Value, y: Value, then: Value, otherwise: Value) -> Value:
    """`then` where x < y, else `otherwise` (both are evaluated)."""
    return np.where(np.less(x, y), then, otherwise)


def load(par: Value, k: int) -> Value:
    """Row k of an item's kernel parameters."""
    return par[k]


def store(out: Value, k: int, value: Value) -> None:
    """Write row k of a kernel's output."""
    out[k] = value
