r"""Links as unknowns: what holds the metric, a step for every link, and moves of the metric as a whole.

Given the items, a period's (log A, B) has its factors for a likelihood and moves by the engine's Newton-Metropolis
step. The metric is held by the reference: its link is (0, 0) but for its wobble, N(-C g, C), where g is the pull its
own population's prior had on its unit: that prior is counted here again, once for all periods. Other links are free: on
the reference metric a period's abilities have mean B and SD A, so they get the prior a calibration of several
populations gives these, :math:`B \sim N(0, 10^2)` and :math:`A^{-2} \sim Gamma(3/2, 1/2)`. Where a set of periods
shares no item with the reference's, the best of their own links stands in.

Items, population and all links can be carried to another metric together, theta -> s (theta + t). No factor changes,
only the priors do, so t and log s are drawn along the orbit directly (as `concal.calibration.moves.expansion` does).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration import kernels
from concal.calibration.family import HEAD, Family, families, in_common
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout
from concal.calibration.matrices import by_lane, lanes_last
from concal.calibration.moves.strata import unit_rate
from concal.calibration.priors import MU_VARIANCE, BetaPrior, log_unit, unit_power, unit_slope
from concal.calibration.state import GroupState
from concal.calibration.workers import Workers
from concal.consensus.factors.period import GroupFactors, PeriodFactors, Placed
from concal.consensus.joint.arrange import GroupTables
from concal.consensus.joint.likelihood import Factors
from concal.consensus.joint.state import JointState
from concal.errors import LinkError, first_few
from concal.names import split_stratum

Array = npt.NDArray[np.float64]
LINK_STREAM = 50_000
PINNED = 1e-8  # added to the variance of a link that is held: one without any is as good as fixed


class Member(NamedTuple):
    """A group of the dimension, the states of its strata, and the prior of its coefficients.

    A slope that several groups have in common has its prior once: `slope_counts` says where.
    """

    family: Family
    states: Sequence[GroupState]
    prior: BetaPrior
    slope_counts: bool = True


class LinkPriors:
    """Priors of (log A, B): held ones Gaussian, `mean` (dimensions, periods, 2) and `precision` (..., 2, 2).

    `free` (dimensions, periods) marks the others; their Gaussian part is that of B alone.
    """

    def __init__(self, placed: Sequence[Placed], groups: Sequence[GroupLayout], tables: Sequence[GroupTables]) -> None:
        reference = next((m for m, p in enumerate(placed) if p.period == p.reference), None)
        if reference is None:
            raise LinkError(
                f"the reference period {placed[0].reference!r} is not among the periods; it sets the metric"
            )
        M, K = len(placed), len(placed[0].factors.dimensions)
        self.mean = np.zeros((K, M, 2))
        self.precision = np.zeros((K, M, 2, 2))
        self.precision[:, :, 1, 1] = 1.0 / MU_VARIANCE
        self.free = np.ones((K, M), dtype=bool)
        for k, dimension in enumerate(placed[0].factors.dimensions):
            parts = connected(M, [t for g, t in zip(groups, tables, strict=True) if g.dim == k])
            wobble = placed[reference].factors.wobble[k]
            self._hold(k, reference, -wobble @ prior_pull(placed[reference].factors, dimension), wobble)
            held = {m for m, p in enumerate(placed) if p.held and m != reference}
            held |= {
                _holder(placed, parts, part, k, dimension) for part in parts if (held | {reference}).isdisjoint(part)
            }
            for m in held:
                self._hold(k, m, placed[m].link_mean[k], placed[m].link_covariance[k])

    def _hold(self, k: int, m: int, mean: Array, covariance: Array) -> None:
        self.mean[k, m], self.free[k, m] = mean, False
        self.precision[k, m] = np.linalg.inv(covariance + PINNED * np.eye(2))

    def density(self, k: int, x: Array) -> Array:
        """Log density of links x (periods, 2, LANES) of one dimension, (LANES,)."""
        r = x - self.mean[k][:, :, None]
        value = -0.5 * np.einsum("mal,mab,mbl->l", r, self.precision[k], r)
        return np.asarray(value + log_unit(x[self.free[k], 0])[0].sum(axis=0))


def prior_pull(factors: PeriodFactors, dimension: str) -> Array:
    r"""Slope in (log A, B) of a period's own population prior along a change of its metric, at what the period found.

    A group with k features and p parameters, :math:`w = (\Sigma^{-1})_{dd}` and the half-t prior of scale s on
    :math:`\sqrt{\Sigma_{dd}}` with its mixing variable integrated out, gives log A the slope

    .. math:: k + (p + 1) - (\nu + 2p) + \frac{\nu(\nu + p)\, w}{\nu w + s^{-2}} ;

    the hyperprior of beta is weak beside it and left out. In periods of a few hundred examinees this is half of the
    wobble's SD.
    """
    slope, strata = 0.0, _strata(factors, dimension)
    for first, *others in strata:
        k, p = len(first.features), first.sigma.shape[0]
        w = float(np.linalg.inv(first.sigma)[0, 0])
        for other in others:  # their steps add to what their common d and log a say
            p += other.sigma.shape[0] - HEAD
            w += float(np.linalg.inv(other.sigma)[0, 0] - np.linalg.inv(other.sigma[:HEAD, :HEAD])[0, 0])
        slope += unit_slope(k, p, w, first.model.prior.sd[0])
    return np.array([slope, 0.0])


def _strata(factors: PeriodFactors, dimension: str) -> list[list[GroupFactors]]:
    """Groups of a dimension that follow a population, strata of one group together."""
    found: dict[str, list[GroupFactors]] = {}
    for group in factors.groups.values():
        if group.dimension == dimension and not group.guided:
            found.setdefault(split_stratum(group.name)[0], []).append(group)
    return list(found.values())


def connected(n_periods: int, tables: Sequence[GroupTables]) -> list[list[int]]:
    """Sets of periods that hang together by common items; periods without an item are in none."""
    label = np.arange(n_periods)
    present = np.zeros(n_periods, dtype=bool)
    for t in tables:
        present[t.period] = True
        same = t.item[:-1] == t.item[1:]
        for a, b in sorted(set(zip(t.period[:-1][same].tolist(), t.period[1:][same].tolist(), strict=True))):
            label[label == label[b]] = label[a]
    return [np.flatnonzero((label == k) & present).tolist() for k in np.unique(label[present])]


def _holder(placed: Sequence[Placed], parts: list[list[int]], part: list[int], k: int, dimension: str) -> int:
    """The best linked period of a set that shares no item with the reference's."""
    linked = [m for m in part if placed[m].linked]
    if not linked:
        sets = "; ".join(first_few([placed[m].period for m in p]) for p in parts)
        raise LinkError(
            f"dimension {dimension!r}: periods fall into {len(parts)} sets without a common item ({sets}) and no link "
            "joins them; add a period or items that bridge them"
        )
    return min(linked, key=lambda m: float(np.trace(placed[m].link_covariance[k])))


class LinkSteps:
    """Moves of all links of all chains."""

    def __init__(self, factors: Factors, priors: LinkPriors, seed: int, workers: Workers) -> None:
        self.factors, self.priors, self.seed, self.workers = factors, priors, seed, workers
        self.families = families(factors.groups)
        self.follow = {k for c in in_common(factors.groups) if c.coordinate == 1 for k in c.members[1:]}
        K, M = priors.mean.shape[:2]
        self.accepted = np.zeros((K, M, LANES), np.float32)
        self._precision = np.ascontiguousarray(np.broadcast_to(priors.precision[..., None], (K, M, 2, 2, LANES)))
        self._mean = np.ascontiguousarray(np.broadcast_to(priors.mean[..., None], (K, M, 2, LANES)))
        self._own = np.arange(M, dtype=np.int32)

    def move(self, state: JointState) -> None:
        """One Newton-Metropolis step of every link given the items."""
        for k in range(state.links.shape[0]):
            x = state.links[k]
            M = x.shape[0]
            sums, current = self.factors.link_sums(state, k, self.workers), np.zeros((M, LANES))
            acc = self._accumulate(k, x, sums)
            proposal, forward = np.empty_like(x), np.empty((M, LANES))
            prior = kernels.Priors(self._precision[k], self._own, self._mean[k], self._own)
            how = kernels.Step(False, False, self.seed, state.sweep, LINK_STREAM + 64 * k)
            kernels.propose(2, x, acc, prior, proposal, forward, current, how, 0, M)
            acc = self._accumulate(k, proposal, sums)
            kernels.accept(2, x, acc, prior, proposal, forward, current, self.accepted[k], how, 0, M)
        state.refresh_links()

    def _accumulate(self, k: int, x: Array, sums: Array) -> Array:
        """Log density, slope and information of links x (periods, 2, LANES), Gaussian parts of priors left out."""
        log_A, B, free = x[:, 0], x[:, 1], self.priors.free[k]
        A = np.exp(log_A)
        S_AA, S_AB, S_BB, s_A, s_B = np.moveaxis(sums, 1, 0)
        slope_A, slope_B = s_A - S_AA * A - S_AB * B, s_B - S_AB * A - S_BB * B
        value = 0.5 * (A * (s_A + slope_A) + B * (s_B + slope_B))
        acc = np.stack([value, A * slope_A, slope_B, S_AA * A * A, S_AB * A, S_BB], axis=1)
        density, slope, curvature = log_unit(log_A[free])
        acc[free, 0] += density
        acc[free, 1] += slope
        acc[free, 3] += curvature
        return acc

    def move_metric(self, state: JointState, taus: Sequence[float], rng: np.random.Generator) -> None:
        """Draw t and then log s for every dimension, and carry items, populations and links along."""
        for k in range(state.links.shape[0]):
            mine = [
                Member(
                    f,
                    [state.groups[m] for m in f.members],
                    f.groups[0].beta_prior(taus[f.lead]),
                    f.lead not in self.follow,
                )
                for f in self.families
                if f.groups[0].dim == k
            ]
            x = state.links[k]
            t = self._draw_shift(x, k, mine, rng)
            x[:, 1] += t
            for member in mine:
                for s in member.states:
                    s.beta[0, 0] += t
            log_s = self._draw_log_scale(x, k, mine, rng)
            scale = np.exp(log_s)
            x[:, 1] *= scale
            x[:, 0] += log_s
            for member in mine:
                for g, s in zip(member.family.groups, member.states, strict=True):
                    s.beta[0, 0] -= t
                    _carry(g, s, scale, scale * t, self.workers)
        state.refresh_links()

    def _draw_shift(self, x: Array, k: int, mine: Sequence[Member], rng: np.random.Generator) -> Array:
        P = self.priors.precision[k]
        r = x - self.priors.mean[k][:, :, None]
        precision = np.full(LANES, P[:, 1, 1].sum() + sum(m.prior.precision[0] for m in mine))
        pull = np.einsum("mb,mbl->l", P[:, 1], r) + sum(
            (m.prior.precision[0] * m.states[0].beta[0, 0] for m in mine), np.zeros(LANES)
        )
        return np.asarray(-pull / precision + rng.standard_normal(LANES) / np.sqrt(precision))

    def _draw_log_scale(self, x: Array, k: int, mine: Sequence[Member], rng: np.random.Generator) -> Array:
        """An independence Metropolis step from the Gaussian that the priors of the links alone would give."""
        P = self.priors.precision[k]
        precision = P[:, 0, 0].sum()
        spread = 1.0 / np.sqrt(precision)

        def moved(log_s: Array) -> Array:
            links = x.copy()
            links[:, 0] += log_s
            links[:, 1] *= np.exp(log_s)
            return links

        def centre(links: Array) -> Array:
            return np.asarray(-np.einsum("mb,mbl->l", P[:, 0], links - self.priors.mean[k][:, :, None]) / precision)

        def density(log_s: Array) -> Array:
            value = self.priors.density(k, moved(log_s)) + x.shape[0] * log_s
            return value + sum((_population_density(member, log_s) for member in mine), np.zeros(LANES))

        forth = centre(x)
        drawn = forth + spread * rng.standard_normal(LANES)
        back = centre(moved(drawn))  # B moves too, so the way back is not quite the mirror image
        ratio = density(drawn) - density(np.zeros(LANES))
        ratio += 0.5 * ((drawn - forth) ** 2 - (drawn + back) ** 2) / spread**2
        return np.where(np.log(rng.random(LANES)) < ratio, drawn, 0.0)


def _population_density(member: Member, log_s: Array) -> Array:
    """A group's terms along log s: hyperpriors of beta and Sigma, and the volume of beta and Sigma."""
    family, states, prior, slope_counts = member
    e, s = np.exp(log_s), states[0]
    against = unit_rate(family, states)
    power = unit_power(family.groups[0].design.X.shape[1], family.n_spread)
    value = power * log_s - 0.5 * prior.precision[0] * (s.beta[:, 0] ** 2).sum(axis=0) * e * e
    gap = s.beta[0, 1] - log_s - prior.mean[1]
    return np.asarray(value - against / (e * e) - slope_counts * 0.5 * prior.precision[1] * gap**2)


def _carry(g: GroupLayout, group: GroupState, s: Array, shift: Array, workers: Workers) -> None:
    """Items and population to s theta + shift, in place."""
    factors, summands = metric.rows_moved(s, shift, g.p)
    tasks = [(values, *block) for values in (group.xi, group.mean) for block in g.item_blocks]
    workers.map(lambda task: kernels.rescale(task[0], factors, summands, *task[1:]), tasks)
    for values in (group.beta, group.beta_mean):
        values *= factors
        values[0] += summands
    group.sigma = lanes_last(metric.move_item_covariance(by_lane(group.sigma), s))
