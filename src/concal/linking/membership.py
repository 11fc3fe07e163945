r"""Who drifted, drawn: the doubt about it belongs into the link.

Purification decides about every anchor, and the link is then solved as if the decision were known. Where anchors moved
by one or two of their SDs it is not: some that drifted stay in, some that stayed go, and B is wrong by more than its
draws say. So memberships of the two-groups model are drawn from their posterior by Gibbs sampling, with the shares of
the item groups and the centre :math:`\mu` of those that stayed:

.. math::
    P(z_j = k \mid \mu, \pi) &\propto \pi_k\,N\{u_j;\ g_j(\mu + \Delta_k),\ v_{jk}\}, \qquad
    v_{jk} = s_j^2 + g_j^2(\tau^2 + \omega_k^2), \\
    \mu \mid z &\sim N\{m(z),\ 1/\textstyle\sum_j g_j^2/v_{jz_j}\}, \qquad
    m(z) = \frac{\sum_j g_j(u_j - g_j\Delta_{z_j})/v_{jz_j}}{\sum_j g_j^2/v_{jz_j}}, \\
    \pi \mid z &\sim \mathrm{Dirichlet}(\text{counts} + \text{prior}),\ \ \pi_0 \ge 1/2 \text{ on average}.

A draw of the link had the memberships :math:`\hat z` that purification decided for; with memberships z of its own its B
is larger by :math:`m(z) - m(\hat z)`. Given z the draws contain the noise of the anchors already, so only the mean of
:math:`\mu` given z is taken, not a draw. Where nothing drifts z hardly varies, and B stays what it was.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.linking.criteria import Array
from concal.linking.two_groups import (
    DELTA,
    GROUP,
    SMALLEST_SHARE,
    STAYED,
    ScoreShifts,
    TwoGroups,
    component_variances,
    log_members,
)

_DRIFTED = 1.0 / (DELTA.size - 1)
"""Prior count of each size of drift: one for all sizes together, beside nine that stayed."""

_WARMUP, _SWEEPS = 50, 250
_SEED = 20269
_TRIES = 64


def center_moves(shifts: ScoreShifts, found: TwoGroups, kept: npt.NDArray[np.bool_], n_draws: int) -> Array:
    """What B changes by, draw by draw (n_draws,), when every draw has its own draw of who drifted.

    Parameters
    ----------
    kept : (anchors,)
        What purification decided; a dropped anchor is taken to have its most probable size of drift.
    """
    rng = np.random.default_rng(_SEED)
    variance = component_variances(shifts, found.misfit**2)
    size = np.bincount(shifts.group).astype(np.float64)
    members = log_members(shifts, found.share, found.center, variance)
    decided = center_given(shifts, np.where(kept, 0, 1 + members[:, 1:].argmax(axis=1)), variance)[0]
    center, share = found.center, found.share
    # what stays the same from sweep to sweep, sizes first: sums over them are sums of rows
    scale = np.sqrt(0.5 / variance.T)
    start, pull = scale * (shifts.mean - np.outer(DELTA, shifts.gain)), scale * shifts.gain
    level = np.log(scale) - (np.log(scale) - (start - pull * center) ** 2).max(axis=0)  # keeps exp in range
    moves = np.empty(_SWEEPS)
    for sweep in range(-_WARMUP, _SWEEPS):
        members = np.exp(level - np.square(start - pull * center)) * share.T[:, shifts.group]
        below = members.cumsum(axis=0)
        z = (below < rng.random(len(shifts.mean)) * below[-1]).sum(axis=0)
        mean, precision = center_given(shifts, z, variance)
        center = mean + rng.standard_normal() / np.sqrt(precision)
        share = _draw_shares(z, shifts.group, size, rng)
        if sweep >= 0:
            moves[sweep] = mean - decided
    return np.asarray(moves[np.arange(n_draws) % _SWEEPS])


def center_given(shifts: ScoreShifts, z: npt.NDArray[np.intp], variance: Array) -> tuple[float, float]:
    """m(z), and the precision of the centre given z."""
    pull = shifts.gain / np.take_along_axis(variance, z[:, None], axis=1)[:, 0]
    precision = float((pull * shifts.gain).sum())
    return float((pull * (shifts.mean - shifts.gain * DELTA[z])).sum()) / precision, precision


def _draw_shares(z: npt.NDArray[np.intp], group: npt.NDArray[np.intp], size: Array, rng: np.random.Generator) -> Array:
    """Shares (groups, sizes) given memberships: the first draw by which half of all anchors stay, or the nearest."""
    counts = np.bincount(group * DELTA.size + z, minlength=size.size * DELTA.size).reshape(size.size, -1).astype(float)
    if size.size > 1:
        counts += GROUP * counts.sum(axis=0) / size.sum()
    counts += _DRIFTED
    counts[:, 0] += STAYED * size / size.sum()
    drawn = np.maximum(rng.gamma(counts, size=(_TRIES, *counts.shape)), SMALLEST_SHARE)
    drawn /= drawn.sum(axis=2, keepdims=True)
    stayed = drawn[:, :, 0] @ size / size.sum()
    return np.asarray(drawn[int((stayed >= 0.5).argmax())] if (stayed >= 0.5).any() else drawn[int(stayed.argmax())])
