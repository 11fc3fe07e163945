r"""Posterior moments of abilities by quadrature on one grid.

.. math:: p(\theta_i | y_i) \propto N(\theta; \mu, R) \prod_j P_j(y_{ij} | \theta)

Which grid serves whom is the business of `concal.score.stages`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from concal.calibration.kernels import LANES
from concal.calibration.workers import Workers
from concal.score.grid import Grid, as_blocks
from concal.score.kernels.posterior import moments
from concal.score.kernels.sets import misfit
from concal.score.rows import Answered, Index, LikelihoodRows

Array = npt.NDArray[np.float64]
PERSONS = 256
"""Examinees a thread takes at a time."""
AROUND = 6.5
"""Posterior SDs to either side of the mean that later draws of the items look at first."""


@dataclass(frozen=True)
class Moments:
    """Posterior of some examinees.

    Attributes
    ----------
    mean : (persons, D), covariance : (persons, D, D)
    """

    mean: Array
    covariance: Array

    @property
    def variance(self) -> Array:
        """(persons, D)."""
        return np.asarray(np.diagonal(self.covariance, axis1=1, axis2=2))

    def of(self, persons: Index | npt.NDArray[np.bool_]) -> Moments:
        """Of some examinees."""
        return Moments(self.mean[persons], self.covariance[persons])

    def put(self, persons: Index, better: Moments) -> None:
        """Take over what was found again for some examinees."""
        self.mean[persons], self.covariance[persons] = better.mean, better.covariance


@dataclass(frozen=True)
class Integrand:
    """What is integrated: likelihood rows on a grid, the prior's weights there and the logs of its margins."""

    grid: Grid
    table: Array
    prior: Array
    margin: Array

    @property
    def blocks(self) -> tuple[Array, Array, Array, Array]:
        """Table, nodes, prior and margin with nodes as blocks of lanes, as the kernels read them."""
        return as_blocks(self.table), as_blocks(self.grid.nodes), as_blocks(self.prior), as_blocks(self.margin)


@dataclass(frozen=True)
class Windows:
    """Where on the common grid the posteriors of some examinees lie: (persons, D, 2), blocks of nodes from and to.

    They save work and change nothing: `concal.score.kernels.posterior` makes them grow where they are too small.
    """

    blocks: npt.NDArray[np.int32]

    @classmethod
    def whole(cls, n: int, grid: Grid) -> Windows:
        """All nodes, for everybody."""
        _, D, Q = grid.nodes.shape
        return cls(np.tile(np.array([0, Q // LANES], np.int32), (n, D, 1)))

    @classmethod
    def around(cls, found: Moments, grid: Grid) -> Windows:
        """Nodes within some SDs of the means found at another draw of the items."""
        reach, last = AROUND * np.sqrt(np.maximum(found.variance, 0.0)), grid.nodes.shape[2] // LANES
        at = np.stack([found.mean - reach, found.mean + reach], axis=2) - grid.nodes[0, :, :1]
        block = np.nan_to_num(at / grid.spacing[0][:, None] / LANES)
        begin = np.clip(np.floor(block[..., 0]), 0, last - 1)
        return cls(np.stack([begin, np.clip(np.ceil(block[..., 1]), begin + 1, last)], axis=2).astype(np.int32))


def integrate(
    rows: LikelihoodRows,
    answered: Answered,
    of: Target,
    f: Integrand,
    workers: Workers,
    windows: Windows | None = None,
) -> Moments:
    """Moments on one grid, of which only the windows are looked at where there are some."""
    tilt, n, D = of.tilts, answered.n_persons, f.grid.nodes.shape[1]
    mean, second = np.empty((n, D)), np.empty((n, D, D))
    window = (windows or Windows.whole(n, f.grid)).blocks
    (table, nodes, prior, margin), rest = f.blocks, as_blocks(f.grid.rest)

    def work(lo: int) -> None:
        moments(
            table, rows.dim, rows.rows, answered.start, of.group, tilt, nodes, prior, margin, rest, window, mean,
            second, lo, min(lo + PERSONS, n),
        )  # fmt: skip

    with np.errstate(all="ignore"):
        workers.map(work, range(0, n, PERSONS))
    return Moments(mean, second)


@dataclass(frozen=True)
class Misfit:
    """Whose posterior a grid (the same for all) is too coarse or too short for, (persons,) each."""

    coarse: npt.NDArray[np.bool_]
    short: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, found: Moments, grid: Grid) -> Misfit:
        """Of what was found on a grid."""
        n = found.mean.shape[0]
        flags = cls(np.empty(n, np.bool_), np.empty(n, np.bool_))
        misfit(found.mean, found.covariance, grid.nodes[0], flags.coarse, flags.short)
        return flags

    @property
    def any(self) -> npt.NDArray[np.bool_]:
        """Whose posterior the grid does not fit."""
        return self.coarse | self.short


@dataclass(frozen=True)
class Target:
    """A posterior to integrate: the prior of each examinee, and likelihood rows at any nodes.

    Attributes
    ----------
    group : (persons,) int32
        Which prior each examinee has.
    mean : (groups, D), covariance : (groups, D, D)
    rows_at
        The table of some rows at nodes (D, Q).
    tilt : (persons, D) or None
        An examinee's prior is their group's times exp(tilt'theta): N(mean + covariance tilt, covariance).
    """

    group: npt.NDArray[np.int32]
    mean: Array
    covariance: Array
    rows_at: Callable[[LikelihoodRows, Array], Array]
    tilt: Array | None = None

    @property
    def tilts(self) -> Array:
        """(persons, D), zero where no prior is tilted."""
        return np.zeros((self.group.size, self.mean.shape[1])) if self.tilt is None else self.tilt

    def of(self, persons: Index) -> Target:
        """Of some examinees."""
        return replace(self, group=self.group[persons], tilt=None if self.tilt is None else self.tilt[persons])

    def on(self, grid: Grid, rows: LikelihoodRows) -> Integrand:
        """What is integrated on a common grid."""
        prior = self.mean, self.covariance
        return Integrand(grid, self.rows_at(rows, grid.nodes[0]), grid.weights(*prior), grid.margins(*prior))
