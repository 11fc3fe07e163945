r"""Solving a link: Newton in (log A, B) for many draws at once, and a safe method for the draws Newton leaves.

The curves run in float32 (eight nodes per instruction) and are summed in float64; a link of draws is then accurate to
about 1e-7, far below its own uncertainty. `exact=True` repeats the last steps in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize

from concal.calibration.workers import available_cores
from concal.linking import kernels
from concal.linking.criteria import (
    MOMENT_METHODS,
    Anchors,
    Array,
    Loss,
    Quadrature,
    chain_to_link,
    moment_link,
    moved_nodes,
    sides,
    stocking_lord_sums,
)
from concal.linking.stored import Block

_CHUNK_BYTES = 8 << 20  # fixed curves of the draws solved together stay near the cache
_MAX_PASSES = 40
_MAX_STEP = 0.7


@dataclass(frozen=True)
class Criterion:
    """What is minimised."""

    method: str
    loss: Loss
    quadrature: Quadrature
    grid_metric: str = "ref"


@dataclass(frozen=True)
class Solution:
    """(A, B) of every draw, and which of them Newton solved (the others the safe method did)."""

    A: Array
    B: Array
    newton: npt.NDArray[np.bool_]
    passes: int = 0


class _Objective:
    """The criterion of some draws, ready to be evaluated at any (log A, B)."""

    def __init__(self, blocks: Sequence[Anchors], criterion: Criterion, exact: bool) -> None:
        self.criterion, self.exact = criterion, exact or criterion.loss.kind == kernels.POWER
        self.n_draws = blocks[0].n_draws
        self.scale = 1.0 / sum(float(b.omega.sum()) for b in blocks)
        self.real = slice(1, criterion.quadrature.nodes.size + 1)
        dtype = np.float64 if self.exact else np.float32
        padded = kernels.pad_nodes(criterion.quadrature.nodes)
        self.parts: list[tuple[str, list[tuple[Any, Any, Any, Any]]]] = []
        for side in sides(criterion.grid_metric):
            part = []
            for b in blocks:
                ref = (b.ref_model, b.ref)
                foc = (b.foc_model, b.foc)
                (still, still_xi), (moving, moving_xi) = (ref, foc) if side == "ref" else (foc, ref)
                par, still_par = (
                    np.ascontiguousarray(model.kernel_parameters(xi.astype(dtype, copy=False)), dtype=dtype)
                    for model, xi in ((moving, moving_xi), (still, still_xi))
                )
                fixed = np.empty((*par.shape[:2], padded.size), dtype=dtype)
                fill = kernels.exact_curves if self.exact else kernels.fixed_curves
                fill(still.tag, still_par, padded.astype(dtype), fixed)
                part.append((moving.tag, par, np.ascontiguousarray(b.omega, dtype=dtype), fixed))
            self.parts.append((side, part))

    def __call__(self, x: Array, B: Array, which: npt.NDArray[np.int64]) -> tuple[Array, Array, Array]:
        """Value (n,), gradient (n, 2) and Hessian (n, 2, 2) of the draws `which`."""
        t, w = self.criterion.quadrature.nodes, self.criterion.quadrature.weights
        A = np.exp(x)
        value, gradient, hessian = np.zeros(x.size), np.zeros((x.size, 2)), np.zeros((x.size, 2, 2))
        for side, part in self.parts:
            moved, v = moved_nodes(t, A[:, None], B[:, None], side)
            sums = self._sums(kernels.pad_nodes(moved), part, which)[:, :, self.real]
            if self.criterion.method == "stocking_lord":
                sums = stocking_lord_sums(sums, self.criterion.loss)
            for total, term in zip((value, gradient, hessian), chain_to_link(sums, w, A, v, side), strict=True):
                total += self.scale * term
        return value, gradient, hessian

    def _sums(self, moved: Array, part: Any, which: npt.NDArray[np.int64]) -> Array:
        loss = self.criterion.loss
        kind = kernels.PLAIN if self.criterion.method == "stocking_lord" else loss.kind
        out = np.zeros((3, *moved.shape))
        if self.exact:
            for tag, par, omega, fixed in part:
                kernels.exact_sums(tag, par, omega, moved, fixed, which, kind, loss.eps, loss.power, out)
        else:
            moved32 = moved.astype(np.float32)
            for tag, par, omega, fixed in part:
                kernels.curve_sums(tag, par, omega, moved32, fixed, which, kind, loss.eps, out)
        return out


def _newton_step(gradient: Array, hessian: Array, damping: Array) -> Array:
    """Steps of damped Newton; a Hessian that is not safely positive definite has its eigenvalues mended first."""
    values, vectors = np.linalg.eigh(hessian)
    top = np.abs(values).max(axis=1, keepdims=True)
    values = np.maximum(np.abs(values), 1e-4 * top + 1e-300) + damping[:, None] * top
    step = -np.einsum("nij,nj,nkj,nk->ni", vectors, 1.0 / values, vectors, gradient)
    length = np.linalg.norm(step, axis=1, keepdims=True)
    limited: Array = step * np.minimum(1.0, _MAX_STEP / np.maximum(length, 1e-300))
    return limited


def _newton(objective: _Objective, x: Array, B: Array, tolerance: float) -> tuple[Array, Array, Any, int]:
    """Damped Newton for every draw; a draw leaves as soon as its step is below the tolerance."""
    n = x.size
    x, B = x.copy(), B.copy()
    done = np.zeros(n, dtype=bool)
    which = np.arange(n)
    value, gradient, hessian = objective(x, B, which)
    damping = np.zeros(n)
    noise = 1e-12 if objective.exact else 3e-6  # below this a rise of the value is rounding
    passes = 0
    while which.size and passes < _MAX_PASSES:
        passes += 1
        step = _newton_step(gradient, hessian, damping)
        small = np.abs(step).max(axis=1) < tolerance
        new_x, new_B = x[which] + step[:, 0], B[which] + step[:, 1]
        ok = small & np.isfinite(step).all(axis=1)
        x[which[ok]], B[which[ok]] = new_x[ok], new_B[ok]
        done[which[ok]] = True
        keep = ~ok
        which, new_x, new_B = which[keep], new_x[keep], new_B[keep]
        value, gradient, hessian, damping = value[keep], gradient[keep], hessian[keep], damping[keep]
        if which.size == 0:
            break
        new = objective(new_x, new_B, which)
        better = new[0] <= value + noise * np.abs(value)
        x[which[better]], B[which[better]] = new_x[better], new_B[better]
        value = np.where(better, new[0], value)
        gradient = np.where(better[:, None], new[1], gradient)
        hessian = np.where(better[:, None, None], new[2], hessian)
        damping = np.where(better, np.where(damping > 1e-3, 0.1 * damping, 0.0), np.maximum(4.0 * damping, 0.1))
    return x, B, done, passes


def _safe(objective: _Objective, draw: int, x: float, B: float) -> tuple[float, float]:
    """Nelder-Mead from three starts, the best end: no derivative to be wrong about."""
    which = np.array([draw])

    def at(point: Array) -> float:
        if not np.abs(point).max() < 50.0:
            return np.inf
        value = float(objective(np.array([point[0]]), np.array([point[1]]), which)[0][0])
        return value if np.isfinite(value) else np.inf

    options = {"xatol": 1e-9, "fatol": 1e-14, "maxiter": 2000, "maxfev": 4000}
    ends = [
        optimize.minimize(at, start, method="Nelder-Mead", options=options)
        for start in (np.array([x, B]), np.array([0.0, 0.0]), np.array([x + 0.3, B - 0.3]))
    ]
    best = min(ends, key=lambda end: float(end.fun))
    return float(best.x[0]), float(best.x[1])


def _solve_chunk(blocks: list[Anchors], criterion: Criterion, x: Array, B: Array, exact: bool) -> tuple[Any, ...]:
    """Newton in float32; in float64 for draws it left (or for all, if asked); then the safe method."""
    objective = _Objective(blocks, criterion, exact=False)
    x, B, done, passes = _newton(objective, x, B, 1e-10 if objective.exact else 1e-6)
    rest = np.flatnonzero(~done) if not exact else np.arange(x.size)
    if rest.size and not objective.exact:
        # flat criteria (few or hardly discriminating anchors) can have steps below float32's resolution
        objective = _Objective([b.take(rest) for b in blocks], criterion, exact=True)
        x[rest], B[rest], done[rest], more = _newton(objective, x[rest], B[rest], 1e-10)
        passes += more
    if not done.all():
        objective = _Objective(blocks, criterion, exact=True)
        for s in np.flatnonzero(~done):
            x[s], B[s] = _safe(objective, int(s), float(x[s]), float(B[s]))
    return np.exp(x), B, done, passes


def solve(
    blocks: Sequence[Block],
    criterion: Criterion,
    *,
    start: tuple[Array, Array] | None = None,
    exact: bool = False,
    threads: int | None = None,
) -> Solution:
    """(A, B) for every draw of the anchors.

    Parameters
    ----------
    blocks
        Anchors by pair of groups; all with the same number of draws.
    criterion
        What to minimise; moment methods are computed, not minimised.
    start
        (A, B) to start from; default the log-mean-mean link.
    exact
        Finish in float64.
    threads
        Default: the cores this process may use. The answer does not depend on it.
    """
    n = blocks[0].n_draws
    if criterion.method in MOMENT_METHODS:
        A, B = moment_link(criterion.method, blocks)
        return Solution(A, B, np.ones(n, dtype=bool))
    A, B = start if start is not None else moment_link("log_mean_mean", blocks)
    x = np.log(A)
    n_anchors = sum(b.omega.size for b in blocks)
    per_draw = n_anchors * kernels.padded_size(criterion.quadrature.nodes.size) * (8 if exact else 4)
    size = max(1, min(n, _CHUNK_BYTES // per_draw))
    chunks = [slice(i, min(i + size, n)) for i in range(0, n, size)]

    def run(chunk: slice) -> tuple[Any, ...]:
        return _solve_chunk([b.take(chunk) for b in blocks], criterion, x[chunk], B[chunk], exact)

    workers = min(threads or available_cores(), len(chunks))
    if workers > 1:
        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(run, chunks))
    else:
        parts = [run(chunk) for chunk in chunks]
    A, B, newton = (np.concatenate([p[i] for p in parts]) for i in range(3))
    return Solution(A, B, newton, max(p[3] for p in parts))
