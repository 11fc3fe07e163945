r"""Rank-normalised split R-hat and effective sample sizes of very many parameters at once.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021) as ArviZ computes them. Each chain
is split in half (an odd middle draw is left out) and, over all S draws of a parameter,

.. math:: z_s = \Phi^{-1}\left(\frac{r_s - 3/8}{S + 1/4}\right),\qquad
          \hat R = \sqrt{\frac{B / W + n - 1}{n}},\qquad
          \mathrm{ESS} = \frac{S}{-1 + 2\sum_t \hat\rho_t},

with r the ranks (ties averaged), n the draws of a half chain, B and W the variances between and within half chains,
and the autocorrelations cut by Geyer's initial monotone sequence. R-hat is the larger of that of z and that of the
folded draws :math:`|x - \mathrm{median}|`, bulk ESS that of z, tail ESS the smaller of the two of
:math:`1(x \le q)` at the quantiles `TAIL`.

What makes it fast: a parameter's draws are sorted once (the folded order and both quantiles follow from that order),
normal scores come from a table over ranks, and autocovariances are summed only up to the lag at which Geyer's
sequence stops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from concal.calibration.kernels.diagnostics import diagnose_block
from concal.calibration.workers import available_cores

Array = npt.NDArray[np.float64]

KINDS = ("rhat", "ess_bulk", "ess_tail")
TAIL = (1 - 0.89, 0.89)
"""Quantiles of the tail ESS: the default interval of arviz-stats, which its summaries use."""

_BLOCK = 400_000  # draws sorted at a time by one thread: about 10 MB of working memory
_MIN_DRAWS = 4  # per chain, so that each half has a variance


class Diagnostics(NamedTuple):
    """How well chains mixed, per parameter; a kind that was not asked for is NaN."""

    rhat: Array
    ess_bulk: Array
    ess_tail: Array


def diagnose(
    draws: npt.ArrayLike,
    kinds: Sequence[str] = KINDS,
    *,
    tail: tuple[float, float] = TAIL,
    threads: int | None = None,
) -> Diagnostics:
    """R-hat, bulk ESS and tail ESS of every parameter.

    Parameters
    ----------
    draws : (chain, draw, ...) array of any real dtype
        Taken as float64, block by block.
    kinds
        Which of "rhat", "ess_bulk" and "ess_tail" to compute.
    tail
        The two quantiles of the tail ESS.
    threads
        Threads to use; by default one per available core. Results do not depend on it.

    Returns
    -------
    Diagnostics
        Arrays of shape (...). A parameter with a NaN among its draws is NaN throughout, as is everything with fewer
        than four draws a chain; R-hat is NaN with a single chain. Draws that never change have no R-hat (NaN: no
        variance to compare) and count as independent (ESS = chains x draws, a middle draw left out); chains that each
        stand still at values of their own have R-hat infinity.
    """
    draws = np.asarray(draws)
    if draws.ndim < 2:
        raise ValueError(f"draws need axes (chain, draw, ...), got shape {draws.shape}")
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"unknown diagnostics {sorted(unknown)}; known: {', '.join(KINDS)}")
    chains, length, *shape = draws.shape
    rows = shape[0] if shape else 1
    width = math.prod(shape[1:])
    out = np.full((len(KINDS), rows, width), np.nan)
    wanted = np.array([kind in kinds for kind in KINDS])
    wanted[0] &= chains > 1
    if chains and length >= _MIN_DRAWS and out.size and wanted.any():
        _run(draws.reshape(chains, length, rows, *shape[1:]), wanted, tail, out, threads or available_cores())
    return Diagnostics(*(values.reshape(shape) for values in out))


def _run(draws: npt.NDArray[Any], wanted: npt.NDArray[np.bool_], tail: tuple[float, float], out: Array, n: int) -> None:
    """Fill `out` (kind, row, parameter) some rows at a time: draws are never copied as a whole, whatever their axes."""
    chains, length, rows = draws.shape[:3]
    width = out.shape[2]
    half = length // 2
    kept = 2 * half * chains
    place = np.full((chains, length), -1)  # where a draw goes among the half chains; -1 for an odd middle draw
    place[:, :half] = 2 * chains * np.arange(half) + np.arange(chains)[:, None]
    place[:, length - half :] = place[:, :half] + chains
    scores = ndtri((np.arange(2, 2 * kept + 1) / 2 - 3 / 8) / (kept + 1 / 4))  # at ranks 1, 1.5, 2, ..
    step = max(1, min(_BLOCK // (chains * length * width), -(-rows // n)))

    def work(lo: int) -> None:
        hi = min(lo + step, rows)
        block = draws[:, :, lo:hi].reshape(chains * length, (hi - lo) * width)
        values = np.ascontiguousarray(block.T, dtype=np.float64)
        found = np.full((len(KINDS), len(values)), np.nan)
        order = np.argsort(values, axis=1)
        diagnose_block(values, order, place.ravel(), half, 2 * chains, scores, tail[0], tail[1], wanted, found)
        out[:, lo:hi] = found.reshape(len(KINDS), hi - lo, width)

    starts = range(0, rows, step)
    if n > 1 and len(starts) > 1:
        with ThreadPoolExecutor(min(n, len(starts))) as pool:
            list(pool.map(work, starts))
    else:
        for lo in starts:
            work(lo)
