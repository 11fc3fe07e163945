r"""Which anchors drifted: a two-groups model of the change of their mean scores.

With the link (A, B) at hand, what anchor j says of itself in the two periods differs by

.. math:: u_j = \sum_k w_k\{E_j((t_k - B)/A) - E_j^{ref}(t_k)\},

the change of its mean score where the examinees are (normal weights w). It is positive where the item has become
easier, as its displacement :math:`d^{ref} - (Ad + B)` is. Its mean and SD :math:`s_j` are those over the draws; given
the link the two periods are independent, so their variances add. A shift of the item's location by x makes
:math:`u_j = g_jx`, with g_j the mean slope of its curve. A flat or far item has a noisy location, but its mean score is
known as well as any other's.

Some anchors stayed, some drifted (Efron 2008):

.. math:: u_j \sim \sum_k\pi_k\,N\{g_j(\mu + \Delta_k),\; s_j^2 + g_j^2(\tau^2 + \omega_k^2)\},\qquad \Delta_0 = 0.

Sizes of drift :math:`\Delta_k` lie on a fixed grid, so that nothing is assumed about how many drifted, how far, and to
which side (Stephens 2017). The shares :math:`\pi_k` are those of the anchor's item group, drawn towards those of all:
a format that was rescored drifts as a whole, and its shares say nothing about the others'. On average over the anchors
:math:`\pi_0 \ge 1/2`, for those that stayed are the majority. Their centre :math:`\mu` is what drift had pulled out of
B; :math:`\tau` is misfit that all anchors share: where it is large, none stands out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.linking import kernels
from concal.linking.criteria import Anchors, Array, Quadrature
from concal.response import ResponseModel

_SIZES = 0.3 * np.sqrt(2.0) ** np.arange(8)
"""Sizes of drift, .3 to 3.4 on the reference metric. Smaller ones are left to the misfit: 20 % of the anchors would
move B by .04 at most, and a grid that reaches down to them takes misfit for drift."""

_SPREAD = 0.2
"""SD of a drift component over its size: half the way to the next one, (sqrt(2) - 1)/2."""

STAYED = 9.0
"""Prior count of the group that stayed (Stephens' penalty of 10): without evidence nobody drifted."""

GROUP = 10.0
"""Anchors for which the shares of all count in the shares of one group. With 69 of 345 anchors in another format, all
of them shifted by .5, one of them stays in on average and B is -.5 of its SDs off; with one share for all, fifteen stay
in, some of the other format go in their place, and B is +1.1 SDs off (`benchmarks/drifting_links.py`)."""

_MISFIT = 0.05
"""Prior SD of tau. Noisy anchors cannot tell misfit of all from drift of some: with .1, a fifth of them shifted by .5
passed as misfit in one of ten simulated links. Precise anchors overrule it."""

_STARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Weighted quantiles of the shifts from which the centre is searched, with half of the anchors taken for drifted: from
the median with few drifted, EM stays where all is misfit. The best end is taken."""

DELTA = np.concatenate([[0.0], _SIZES, -_SIZES])
_WIDTH = (_SPREAD * DELTA) ** 2
_FIRST_PASSES, _PASSES = 30, 300
SMALLEST_SHARE = 1e-12  # a group nobody is in keeps a finite logarithm
_TOLERANCE = 1e-5  # of shares, centre and tau^2: far below what decides about an anchor
_ROUNDING = 1e-6  # float32 curves are known no better
_CHUNK = 8 << 20  # bytes of curves at a time


@dataclass(frozen=True)
class ScoreShifts:
    """Change of each anchor's mean score: u, its SD s, and the gain g, its change by a location shift of one.

    `group` numbers the item groups the anchors belong to, from 0.
    """

    mean: Array
    sd: Array
    gain: Array
    group: npt.NDArray[np.intp]


@dataclass(frozen=True)
class TwoGroups:
    r"""P(drifted) and standardised residual of each anchor; centre and misfit of those that stayed; shares by group.

    The residual is :math:`(u_j - g_j\mu)/(s_j^2 + g_j^2\tau^2)^{1/2}`.
    """

    probability: Array
    residual: Array
    center: float
    misfit: float
    share: Array


def score_shifts(blocks: list[Anchors], quadrature: Quadrature, A: float, B: float) -> ScoreShifts:
    """The change of every anchor's mean score under the link (A, B), in the order of the blocks."""
    t, w = quadrature.nodes, quadrature.weights
    own = metric.own_theta(t, A, B)
    parts = []
    for b in blocks:
        ref, ref_var = _mean_scores(b.ref_model, b.ref, t, w)
        foc, foc_var = _mean_scores(b.foc_model, b.foc, own, w)
        xi = b.foc.mean(axis=0, dtype=np.float64)[:, None, :]
        gain = (np.exp(xi[..., 1]) * b.foc_model.expected_curve(own, xi)[1]) @ w / A
        sd = np.sqrt(ref_var + foc_var)
        parts.append((foc - ref, np.maximum(sd, _ROUNDING), np.maximum(gain, _ROUNDING)))
    u, s, g = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ScoreShifts(u, s, g, np.repeat(np.arange(len(blocks)), [b.omega.size for b in blocks]))


def _mean_scores(model: ResponseModel, xi: npt.NDArray[np.floating], nodes: Array, w: Array) -> tuple[Array, Array]:
    """Mean and variance over the draws of each item's mean score; curves by the compiled kernel, in float32."""
    padded = kernels.pad_nodes(nodes).astype(np.float32)
    n_draws, n = xi.shape[:2]
    step = max(1, _CHUNK // (4 * padded.size * n))
    scores = np.empty((n_draws, n))
    for i in range(0, n_draws, step):
        par = np.ascontiguousarray(model.kernel_parameters(xi[i : i + step].astype(np.float32)), dtype=np.float32)
        curves = np.empty((*par.shape[:2], padded.size), dtype=np.float32)
        kernels.fixed_curves(model.tag, par, padded, curves)
        scores[i : i + step] = curves[:, :, 1 : nodes.size + 1] @ w
    return scores.mean(axis=0), scores.var(axis=0, ddof=min(1, n_draws - 1))


def two_groups(shifts: ScoreShifts) -> TwoGroups:
    """Fit the model of the module by EM with its priors: some passes from every start, then the best one to its end."""
    share = np.full((int(shifts.group.max()) + 1, DELTA.size), 0.5 / (DELTA.size - 1))
    share[:, 0] = 0.5
    shift, precision = shifts.mean / shifts.gain, (shifts.gain / shifts.sd) ** 2
    starts = [_Fit(share, center, _MISFIT**2) for center in _weighted_quantiles(shift, precision)]
    best = max((_improve(shifts, fit, _FIRST_PASSES) for fit in starts), key=lambda fit: fit.value)
    best = _improve(shifts, best, _PASSES)
    residual = (shifts.mean - shifts.gain * best.center) / np.sqrt(shifts.sd**2 + shifts.gain**2 * best.tau2)
    return TwoGroups(1.0 - best.stayed, residual, best.center, float(np.sqrt(best.tau2)), best.share)


@dataclass(frozen=True)
class _Fit:
    """Parameters, and the log posterior and P(stayed) at the parameters of the pass before; share (groups, sizes)."""

    share: Array
    center: float
    tau2: float
    value: float = -np.inf
    stayed: Array = field(default_factory=lambda: np.ones(0))


def _improve(shifts: ScoreShifts, fit: _Fit, passes: int) -> _Fit:
    """At most so many passes of EM; tau by a step of scoring instead of a full M-step."""
    u, s2, g = shifts.mean[:, None], shifts.sd[:, None] ** 2, shifts.gain[:, None]
    size = np.bincount(shifts.group).astype(np.float64)
    for _ in range(passes):
        variance = component_variances(shifts, fit.tau2)
        rest = u - g * (fit.center + DELTA)
        member = log_members(shifts, fit.share, fit.center, variance)
        top = member.max(axis=1, keepdims=True)
        member = np.exp(member - top)
        total = member.sum(axis=1, keepdims=True)
        member /= total
        stayed = float((size * np.log(fit.share[:, 0])).sum() / size.sum())
        value = float((np.log(total) + top).sum()) + STAYED * stayed - 0.5 * fit.tau2 / _MISFIT**2
        share = np.maximum(_shares(member, shifts.group, size), SMALLEST_SHARE)
        pull = member * g / variance
        step = float((pull * rest).sum() / (pull * g).sum())
        tau2 = _misfit(member[:, 0], (rest[:, :1] - g * step)[:, 0], g[:, 0], s2[:, 0], fit.tau2)
        change = max(float(np.abs(share - fit.share).max()), abs(step), abs(tau2 - fit.tau2))
        fit = _Fit(share, fit.center + step, tau2, value, member[:, 0])
        if change < _TOLERANCE:
            break
    return fit


def component_variances(shifts: ScoreShifts, tau2: float) -> Array:
    """Variance of every anchor's change of score as a member of every component, (anchors, sizes)."""
    return np.asarray(shifts.sd[:, None] ** 2 + shifts.gain[:, None] ** 2 * (tau2 + _WIDTH))


def log_members(shifts: ScoreShifts, share: Array, center: float, variance: Array) -> Array:
    """Log density of every anchor in every component, times the component's share, (anchors, sizes); no constants."""
    rest = shifts.mean[:, None] - shifts.gain[:, None] * (center + DELTA)
    return np.asarray(np.log(share)[shifts.group] - 0.5 * np.log(variance) - 0.5 * rest**2 / variance)


def _shares(member: Array, group: npt.NDArray[np.intp], size: Array) -> Array:
    """Shares (groups, sizes) from memberships, the groups' own drawn towards those of all; at least half stayed."""
    n = size[:, None]
    counts = np.zeros((size.size, member.shape[1]))
    np.add.at(counts, group, member)
    counts = (counts + GROUP * member.mean(axis=0)) * n / (n + GROUP)
    counts[:, 0] += STAYED * size / size.sum()
    share = counts / counts.sum(axis=1, keepdims=True)
    stayed = float((size * share[:, 0]).sum() / size.sum())
    if stayed < 0.5:  # what makes them those that stayed
        share *= 0.5 / (1.0 - stayed)
        share[:, 0] = 1.0 - share[:, 1:].sum(axis=1)
    return share


def _misfit(stayed: Array, rest: Array, g: Array, s2: Array, tau2: float) -> float:
    r"""A step of Fisher scoring for :math:`\tau^2`, on the anchors by their probability to have stayed.

    It falls to a quarter at most: a full step can end at zero, where precise anchors no longer have any group to be in.
    """
    v = s2 + g * g * tau2
    score = 0.5 * float((stayed * g * g * (rest**2 - v) / v**2).sum()) - 0.5 / _MISFIT**2
    information = 0.5 * float((stayed * (g * g / v) ** 2).sum())
    return max(0.25 * tau2, tau2 + score / max(information, 1e-300))


def _weighted_quantiles(x: Array, weight: Array) -> list[float]:
    order = np.argsort(x, kind="stable")
    below = np.cumsum(weight[order])
    places = np.searchsorted(below, np.array(_STARTS) * below[-1])
    return [float(x[order[k]]) for k in np.minimum(places, x.size - 1)]
