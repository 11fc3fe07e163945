"""Averaged likelihoods of a run of many chunks: every row made once for each of the common grids."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from concal.calibration.workers import Workers
from concal.score.grid import Grid
from concal.score.rows import LikelihoodRows

Array = npt.NDArray[np.float64]
MOST_KEPT = 50_000_000
"""Numbers of a table that is kept (400 MB); the rows of larger ones are made when they are asked for."""


@dataclass(frozen=True)
class _Kept:
    """Rows of all items' atoms on one grid, those that were asked for filled in."""

    table: Array
    made: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SoftTables:
    """Log-likelihoods averaged over every item's posterior, as `Target.rows_at` asks for them.

    An average takes as much work as `concal.score.items.POINTS` likelihoods. The rows of atoms are therefore kept: a
    later chunk finds those of the common grid, and of the finer ones some of its examinees need, made. Rows of scores
    that are no atoms, and of grids with other ends (wider ones, and those of one's own), are rarely asked for again.

    Attributes
    ----------
    grid : Grid
        The common grid; finer ones have the same ends.
    n_atoms : int
        Of all items of the bank.
    """

    grid: Grid
    n_atoms: int
    workers: Workers
    _kept: dict[int, _Kept] = field(default_factory=dict)

    def rows_at(self, rows: LikelihoodRows, nodes: Array) -> Array:
        """The table (n_rows, Q) of some rows at nodes (D, Q)."""
        Q = nodes.shape[1]
        ends = [0, -1]
        if self.n_atoms * Q > MOST_KEPT or not np.array_equal(nodes[:, ends], self.grid.nodes[0][:, ends]):
            return rows.soft_table(nodes, self.workers)
        if Q not in self._kept:
            self._kept[Q] = _Kept(np.empty((self.n_atoms, Q)), np.zeros(self.n_atoms, dtype=bool))
        kept = self._kept[Q]
        atom = np.concatenate([g.atom for g in rows.groups])
        known = (atom >= 0) & kept.made[atom]
        out = np.empty((rows.n_rows, Q))
        out[known] = kept.table[atom[known]]
        new = np.flatnonzero(~known)
        if new.size:
            out[new] = rows.some(new).soft_table(nodes, self.workers)
            fresh = new[atom[new] >= 0]
            kept.table[atom[fresh]] = out[fresh]
            kept.made[atom[fresh]] = True
        return out
