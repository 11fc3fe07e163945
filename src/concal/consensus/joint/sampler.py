"""The second stage as a small calibration: the engine's moves, with factors in the place of responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration import kernels
from concal.calibration.diagnostics import diagnose
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout, Layout
from concal.calibration.matrices import by_lane
from concal.calibration.moves.shared import move_shared
from concal.calibration.moves.sigma import SigmaMove
from concal.calibration.moves.strata import draw_family
from concal.calibration.moves.units import UnitSteps
from concal.calibration.targets import worst_ess, worst_rhat
from concal.calibration.workers import Workers, one_blas_thread
from concal.consensus.joint.likelihood import Factors
from concal.consensus.joint.links import LinkSteps
from concal.consensus.joint.state import JointState

Array = npt.NDArray[np.float64]
Tell = Callable[[float, str], None]
WARMUP = 100
"""Sweeps before anything counts. The chains start from draws of the analytic consensus, near where they belong; what
takes time is a spread Sigma that the analytic population layer put too low (tiny periods)."""
MOST_BLOCK, LEAST_BLOCK, BLOCK_WORK = 500, 100, 5_000_000
"""Sweeps between two looks at convergence: as many as cost so many factors, within these bounds. Eight chains give
4,000 draws a block in banks of up to 10,000 factors (an SD is then known to 2 %), 800 in banks of millions."""
MOST_SWEEPS = 2000
"""Protects from chains that never mix (spreads near zero, periods tied by few items). With it eight chains have given
16,000 draws; more would cost in proportion and the effective ones are told in a warning."""
TARGET_ESS, TARGET_RHAT = 200.0, 1.05
KEPT = 400
"""Joint draws kept for those who need the dependence across items."""


@dataclass(frozen=True)
class JointDraws:
    """What the chains gave.

    Attributes
    ----------
    mean, covariance : lists by group, (items, p), (items, p, p)
    xi : list by group, (kept draws, items, p) float32
    beta, beta_mean : lists by group, (draws, features, p), standardised design
    sigma : list by group, (draws, p, p)
    links : (draws, dimensions, periods, 2)
        (log A, B).
    sweeps : int
    max_rhat, min_ess : float
        Over links and populations.
    kept : (kept draws,)
        Which of the draws those of `xi` are.
    """

    mean: list[Array]
    covariance: list[Array]
    xi: list[npt.NDArray[np.float32]]
    beta: list[Array]
    beta_mean: list[Array]
    sigma: list[Array]
    links: Array
    sweeps: int
    max_rhat: float
    min_ess: float
    kept: npt.NDArray[np.intp]

    @property
    def kept_links(self) -> Array:
        """Links of the draws in `xi`, (kept draws, dimensions, periods, 2)."""
        return self.links[self.kept]


class JointSampler:
    """Eight chains of items, links and populations.

    Parameters
    ----------
    links : LinkSteps or None
        How the links move; None: they are given.
    given : (sweeps, dimensions, periods, 2, LANES)
        Their draws, of which every chain goes through those of one chain in their order. The warm-up goes through the
        last ones.
    """

    def __init__(
        self, groups: Sequence[GroupLayout], factors: Factors, state: JointState, taus: Sequence[float], seed: int,
        workers: Workers, keep: int, *, links: LinkSteps | None = None, given: Array | None = None,
    ) -> None:  # fmt: skip
        self.keep, self.links, self.given, self.workers = keep, links, given, workers
        self.state, self.taus, self.seed = state, taus, seed
        nobody = np.zeros(0, np.int32)
        names = tuple(str(k) for k in range(state.links.shape[0]))
        self.layout = Layout(names, 0, 0, ("",), nobody, np.zeros(1, np.int64), tuple(groups), ())
        self.steps = UnitSteps(self.layout, seed, self.workers, factors)
        self.sigma = SigmaMove(self.layout)
        self.factors = factors

    @one_blas_thread
    def run(self, tell: Tell, most_sweeps: int = MOST_SWEEPS) -> JointDraws:
        """Warm up, sample until links and populations have enough effective draws, and sum up.

        Half-way through the warm-up the factors are linearised anew, where the items are by then.
        """
        trace = JointTrace(self.layout.groups, self.state, self.workers)
        for k in range(WARMUP):
            self.sweep(adapting=True)
            if WARMUP // 4 <= k < WARMUP // 2:
                trace.record(self.state)
            if k == WARMUP // 2:
                self._relocate(trace)
            tell(0.4 * (k + 1) / WARMUP, f"warm-up {k + 1} of {WARMUP}")
        return self._sample(tell, most_sweeps)

    def _relocate(self, trace: JointTrace) -> None:
        link = self.state.links.mean(axis=-1)
        for k, (mean, covariance) in enumerate(trace.moments()):
            self.factors.relocate(k, mean, covariance, link[self.layout.groups[k].dim], self.workers)

    def sweep(self, *, adapting: bool) -> None:
        """One sweep of every chain."""
        state, steps = self.state, self.steps
        state.sweep += 1
        rng = np.random.Generator(
            np.random.Philox(key=np.array([self.seed, 3], dtype=np.uint64), counter=[0, 0, state.sweep, 0])
        )
        if self.given is not None:
            state.links[:] = self.given[state.sweep - 1 - WARMUP]
            state.refresh_links()
        self.factors.see_through(state, self.workers)
        steps.items(state)
        for family in self.layout.families:
            draw_family(family, [state.groups[k] for k in family.members], self.taus[family.lead], rng)
        move_shared(steps, state, self.taus, rng)
        self.sigma.move(state, steps, rng, adapting=adapting)  # type: ignore[arg-type]
        if self.links is not None:
            self.links.move_metric(state, self.taus, rng)
        steps.refresh(state)
        if self.links is not None:
            self.links.move(state)

    def _sample(self, tell: Tell, most_sweeps: int) -> JointDraws:
        size = sum(t.n_factors for t in self.factors.tables)
        block = int(np.clip(BLOCK_WORK // size, LEAST_BLOCK, MOST_BLOCK))
        every = max(1, block * LANES // self.keep)
        trace = JointTrace(self.layout.groups, self.state, self.workers, keep_every=every, keep=self.keep)
        while True:
            for _ in range(block):
                self.sweep(adapting=False)
                trace.record(self.state)
                # how many blocks it takes is not known: each goes half of the way that is left
                tell(1.0 - 0.6 * 0.5 ** (trace.sweeps / block), f"sweep {trace.sweeps}")
            trace.check()
            if (trace.min_ess >= TARGET_ESS and trace.max_rhat <= TARGET_RHAT) or trace.sweeps >= most_sweeps:
                return trace.result()


class Governing(NamedTuple):
    """What governs the items in one sweep: (LANES, ...) of links, and by group of the population; see `JointDraws`."""

    links: Array
    beta: list[Array]
    beta_mean: list[Array]
    sigma: list[Array]

    def judged(self) -> Array:
        """All of it side by side, (LANES, entries); beta's conditional means are no draws."""
        parts = [self.links, *(part for pair in zip(self.beta, self.sigma, strict=True) for part in pair)]
        return np.concatenate([part.reshape(LANES, -1) for part in parts], axis=1)


class JointTrace:
    """Running moments of the items, and every sweep of links and populations."""

    def __init__(
        self, groups: Sequence[GroupLayout], state: JointState, workers: Workers, keep_every: int = 0, keep: int = 0
    ) -> None:
        self.groups, self.workers, self.keep_every, self.keep = groups, workers, keep_every, keep
        self.blocks = [(k, block) for k, g in enumerate(groups) for block in g.item_blocks]
        self.sweeps = 0
        self.centre = [s.xi.mean(axis=2) for s in state.groups]
        self.total = [np.zeros((g.n_items, g.p)) for g in groups]
        self.square = [np.zeros((g.n_items, g.p, g.p)) for g in groups]
        room = -(-keep // LANES) * LANES if keep_every else 0
        self.kept = [np.empty((room, g.n_items, g.p), np.float32) for g in groups]  # as many as n_kept are there
        self.n_kept = 0
        self.governing: list[Governing] = []
        self.max_rhat, self.min_ess = np.inf, 0.0

    def record(self, state: JointState) -> None:
        """Take in one sweep."""
        self.sweeps += 1
        self.workers.map(lambda task: self._add(state, *task), self.blocks)
        if self.keep_every and self.n_kept < self.keep and self.sweeps % self.keep_every == 0:
            for kept, s in zip(self.kept, state.groups, strict=True):
                kept[self.n_kept : self.n_kept + LANES] = np.moveaxis(s.xi, -1, 0)
            self.n_kept += LANES
        groups = state.groups
        self.governing.append(
            Governing(
                np.moveaxis(state.links, -1, 0).copy(),
                [np.moveaxis(s.beta, -1, 0).copy() for s in groups],
                [np.moveaxis(s.beta_mean, -1, 0).copy() for s in groups],
                [by_lane(s.sigma) for s in groups],
            )
        )

    def _add(self, state: JointState, k: int, block: tuple[int, int]) -> None:
        """Moments of some items of one group."""
        kernels.add_products(state.groups[k].xi, self.centre[k], self.total[k], self.square[k], *block)

    def check(self) -> None:
        """R-hat and ESS of links and populations."""
        chains = np.stack([sweep.judged() for sweep in self.governing], axis=1)
        fixed = chains.std(axis=(0, 1)) <= 1e-7  # a reference without wobble does not move
        found = diagnose(chains[:, :, ~fixed], kinds=("rhat", "ess_bulk"))
        self.max_rhat, self.min_ess = worst_rhat(found.rhat), worst_ess(found.ess_bulk)

    def moments(self) -> list[tuple[Array, Array]]:
        """Mean and covariance of every group's items."""
        n, found = self.sweeps * LANES, []
        for centre, total, square in zip(self.centre, self.total, self.square, strict=True):
            shift = total / n
            found.append((centre + shift, (square - n * shift[:, :, None] * shift[:, None, :]) / (n - 1)))
        return found

    def _kept_rows(self) -> npt.NDArray[np.intp]:
        """Which of all draws the kept draws of the items are."""
        sweeps = self.keep_every * np.arange(1, 1 + self.n_kept // LANES) - 1
        return np.asarray((sweeps[:, None] * LANES + np.arange(LANES)).ravel(), dtype=np.intp)

    def result(self) -> JointDraws:
        """Everything summed up; draws as (sweeps x chains)."""
        mean, covariance = (list(column) for column in zip(*self.moments(), strict=True))
        links, *population = zip(*self.governing, strict=True)
        beta, beta_mean, sigma = (
            [np.concatenate(draws) for draws in zip(*sweeps, strict=True)] for sweeps in population
        )
        return JointDraws(
            mean, covariance, [kept[: self.n_kept] for kept in self.kept], beta, beta_mean, sigma,
            np.concatenate(links), self.sweeps, self.max_rhat, self.min_ess, self._kept_rows(),
        )  # fmt: skip
