"""Carrying units along when what governs them moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.calibration.kernels.rows import solve_back, widen_row
from concal.compiler import (
    LANES,
    inlined,
    kernel,
    lane_max,
    lane_sqrt,
    narrow,
    put,
    row,
    splat,
    splat64,
    widen,
)
from concal.response import arithmetic


@kernel
def carry(
    n: int, x: Any, information: Any, pull: Any, old: Any, new: Any, moved: Any, change: Any, lo: int, hi: int
) -> None:
    r"""Carry units from the `Priors` old to new at fixed standardised place.

    With the sketch of a unit's likelihood (information Q, pull h = Q m) its conditional under (m, P) is about
    N(C (P m + h), C), C = (P + Q)^-1 = (K K')^-1. The place z = K' (x - C (P m + h)) stays, x moves. `change` gets the
    log prior ratio (without the populations' normalising constants) plus the log Jacobian, log|K| - log|K_new|.
    """
    chol, centre, place = np.zeros((n, n, LANES)), np.zeros((n, LANES)), np.zeros((n, LANES))
    for i in range(lo, hi):
        m, u, k = old.which[i], old.mean_of[i], i - lo
        half_log_det = _standardise(n, information, pull, i, old.precision, m, old.mean, u, chol, centre)
        for a in range(n):  # z = K' (x - centre)
            s = splat64(0.0)
            for b in range(a, n):
                s = s + row(chol, (b, a)) * (widen_row(x, i, b) - row(centre, (b,)))
            put(place, (a,), s)
        new_half_log_det = _standardise(n, information, pull, i, new.precision, m, new.mean, u, chol, centre)
        solve_back(n, chol, place)
        for a in range(n):  # x = centre + K^-T z
            put(moved, (k, a), row(centre, (a,)) + row(place, (a,)))
        prior = splat64(0.0)
        for a in range(n):
            was, will = splat64(0.0), splat64(0.0)
            for b in range(n):
                was = was + row(old.precision, (m, a, b)) * (widen_row(x, i, b) - row(old.mean, (u, b)))
                will = will + row(new.precision, (m, a, b)) * (widen_row(moved, k, b) - row(new.mean, (u, b)))
            prior = prior + 0.5 * was * (widen_row(x, i, a) - row(old.mean, (u, a)))
            prior = prior - 0.5 * will * (widen_row(moved, k, a) - row(new.mean, (u, a)))
        put(change, (k,), prior + half_log_det - new_half_log_det)


@inlined
def _standardise(
    n: int, information: Any, pull: Any, i: int, precision: Any, m: int, mean: Any, u: int, chol: Any, centre: Any
) -> Any:
    """Cholesky factor K of P + Q and centre (P + Q)^-1 (P mean + h); returns log|K|."""
    half_log_det = splat(0.0)
    for a in range(n):
        s = splat64(pull[i, a])
        for b in range(n):
            s = s + row(precision, (m, a, b)) * row(mean, (u, b))
        put(centre, (a,), s)
        for b in range(a + 1):
            s = row(precision, (m, a, b)) + splat64(information[i, a * (a + 1) // 2 + b])
            for c in range(b):
                s = s - row(chol, (a, c)) * row(chol, (b, c))
            if a == b:
                s = lane_sqrt(lane_max(s, 1e-10))
                half_log_det = half_log_det + arithmetic.log(narrow(s))
                put(chol, (a, a), s)
            else:
                put(chol, (a, b), s / row(chol, (b, b)))
    for a in range(n):
        s = row(centre, (a,))
        for c in range(a):
            s = s - row(chol, (a, c)) * row(centre, (c,))
        put(centre, (a,), s / row(chol, (a, a)))
    solve_back(n, chol, centre)
    return widen(half_log_det)
