"""Which grid serves whom.

Everyone is integrated on the common grid first. Examinees whose posterior is narrower than its spacing, or beyond its
ends, are integrated again on finer or wider ones, and the last few on grids of their own that follow what was found.
With many sets of items what the first one found out about the grids serves the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from concal.calibration.workers import Workers
from concal.score.grid import Grid
from concal.score.items import ScoringItems
from concal.score.posterior import Misfit, Moments, Target, Windows, integrate
from concal.score.rows import Answered, Index, LikelihoodRows

FEW = 50
"""So many examinees are integrated on grids of their own; more than that on a finer or wider common one first."""
OWN_NODES, OWN_REACH = 40, 8.0
"""Grids of one's own: spacing .4 posterior SDs, eight of them to either side."""
ROUNDS = 12
"""Most grids tried for one examinee."""


@dataclass(frozen=True)
class Stage:
    """Examinees on a grid that serves them, with the rows they need and where to look on it."""

    persons: Index
    answered: Answered
    rows: LikelihoodRows
    grid: Grid
    windows: Windows | None = None

    @classmethod
    def of(cls, items: ScoringItems, answered: Answered, persons: Index, grid: Grid) -> Stage:
        """Some of the examinees."""
        own = answered.of(persons)
        return cls(persons, own, LikelihoodRows.of(items, own), grid)


class Posteriors:
    """Posterior moments of the same examinees at one item set after the other.

    The first set finds the grid that serves each examinee: the common one, a finer or a wider one. Later sets start
    there, and look where the posterior was. Examinees a set finds badly served move on; the last few are integrated on
    grids of their own every time.

    Parameters
    ----------
    items, answered
        The bank, and all responses.
    rows
        Rows of all of them.
    grid
        The common grid.
    """

    def __init__(
        self, items: ScoringItems, rows: LikelihoodRows, answered: Answered, grid: Grid, workers: Workers
    ) -> None:
        self._items, self._answered, self._workers = items, answered, workers
        self._stages = [Stage(np.arange(answered.n_persons), answered, rows, grid)]

    def at(self, target: Target, *, last: bool = False) -> Moments:
        """Moments at one item set; after the `last` one nothing is remembered."""
        n, D = self._answered.n_persons, target.mean.shape[1]
        found = Moments(np.empty((n, D)), np.empty((n, D, D)))
        stages, done, alone = list(self._stages), [], []
        for stage in stages:  # grows while it is gone through
            own = target.of(stage.persons)
            f = own.on(stage.grid, stage.rows)
            part = integrate(stage.rows, stage.answered, own, f, self._workers, stage.windows)
            found.put(stage.persons, part)
            bad = Misfit.of(part, stage.grid)
            left = np.flatnonzero(bad.any)
            # a posterior at the edge may look narrow because the edge cuts it: first wider, then finer
            next_grid = stage.grid.wider() if bad.short.sum() > FEW else stage.grid.finer()
            if left.size > FEW and next_grid is not None:
                stages.append(Stage.of(self._items, self._answered, stage.persons[left], next_grid))
                keep = np.flatnonzero(~bad.any)
            else:
                alone += stage.persons[left].tolist()
                keep = np.arange(stage.persons.size)
            if not last and keep.size:
                done.append(self._remembered(stage, keep, part))
        if not last:
            self._stages = done
        for person in alone:
            found.put(np.array([person]), _own_grid(self._items, self._answered, target, found, person, self._workers))
        return found

    def _remembered(self, stage: Stage, keep: Index, part: Moments) -> Stage:
        """A stage as the next set will find it: those who stay, and where their posteriors were."""
        if keep.size == stage.persons.size:
            return stage if stage.windows is not None else replace(stage, windows=Windows.around(part, stage.grid))
        stays = Stage.of(self._items, self._answered, stage.persons[keep], stage.grid)
        return replace(stays, windows=Windows.around(part.of(keep), stage.grid))


def posterior(
    items: ScoringItems, rows: LikelihoodRows, answered: Answered, target: Target, grid: Grid, workers: Workers
) -> Moments:
    """Moments of all examinees: on the common grid, on finer or wider ones, and the last few on grids of their own."""
    return Posteriors(items, rows, answered, grid, workers).at(target, last=True)


def _own_grid(
    items: ScoringItems, answered: Answered, target: Target, found: Moments, person: int, workers: Workers
) -> Moments:
    """One examinee on a grid that follows the posterior: eight SDs to either side of the mean found last."""
    one = answered.of(np.array([person]))
    rows, g = LikelihoodRows.of(items, one), target.group[person : person + 1]
    own = target.of(np.array([person]))
    own = replace(own, group=np.zeros(1, np.int32), mean=target.mean[g], covariance=target.covariance[g])
    prior_sd = np.sqrt(np.diagonal(own.covariance[0]))
    centre, sd = found.mean[person], np.sqrt(np.maximum(found.variance[person], (1e-4 * prior_sd) ** 2))
    for _ in range(ROUNDS):
        nodes = np.linspace(centre - OWN_REACH * sd, centre + OWN_REACH * sd, OWN_NODES, axis=1)
        grid = Grid.of_nodes(nodes[None])
        better = integrate(rows, one, own, own.on(grid, rows), workers)
        if not Misfit.of(better, grid).any[0]:
            break
        centre = better.mean[0]
        # at an edge the SD found is too small, on a coarse grid too large or zero
        sd = np.clip(np.sqrt(np.maximum(better.variance[0], 0.0)), 0.1 * sd, 2.0 * sd)
    return better
