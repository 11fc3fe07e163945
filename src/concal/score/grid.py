r"""Nodes of the quadrature and the prior's weights on them.

The trapezoidal rule on equally spaced nodes is exact for a normal density of SD sigma up to
:math:`2 e^{-2\pi^2\sigma^2/h^2}`: 5e-9 at h = sigma. The common grid has h = .31 of the smallest prior SD and
reaches seven prior SDs; examinees known better than h get a grid of their own (`concal.score.posterior`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.calibration.kernels import LANES
from concal.errors import DataError

Array = npt.NDArray[np.float64]
REACH = 7.0
"""Prior SDs the common grid reaches: 3e-12 of the prior lies beyond. At six, one examinee in two thousand (15 items
each) is so near the edge that it takes another grid."""
SPACING = 0.31
MOST_NODES = 1_000_000
MOST_DIMENSIONS = 3
"""The grid has Q^D nodes: 48, 2,304, 110,592 and then millions."""


@dataclass(frozen=True)
class Grid:
    """Nodes of one or several groups of examinees.

    Attributes
    ----------
    nodes : (groups, D, Q)
    spacing : (groups, D)
    first : (groups, Q), rest : (groups, D - 1, Q^(D-1))
        As the kernels read them; the last dimension varies fastest. The rest is filled up to whole lanes.
    """

    nodes: Array
    spacing: Array
    first: Array
    rest: Array

    @classmethod
    def of_nodes(cls, nodes: Array) -> Grid:
        """From nodes (groups, D, Q), equally spaced."""
        G, D, Q = nodes.shape
        R = Q ** (D - 1)
        rest = np.zeros((G, D - 1, whole_lanes(R)))
        for k in range(1, D):
            shape = [G] + [Q if l == k else 1 for l in range(1, D)]
            full = [G] + [Q] * (D - 1)
            rest[:, k - 1, :R] = np.broadcast_to(nodes[:, k].reshape(shape), full).reshape(G, -1)
        return cls(nodes, nodes[:, :, 1] - nodes[:, :, 0], np.ascontiguousarray(nodes[:, 0]), rest)

    def finer(self) -> Grid | None:
        """The same reach at half the spacing; None where that would be too many nodes."""
        return self._doubled(self.nodes[:, :, 0], self.nodes[:, :, -1])

    def wider(self) -> Grid | None:
        """Twice the reach at the same spacing; None where that would be too many nodes."""
        low, high = self.nodes[:, :, 0], self.nodes[:, :, -1]
        more = 0.5 * (high - low + self.spacing)
        return self._doubled(low - more, high + more)

    def _doubled(self, low: Array, high: Array) -> Grid | None:
        _, D, Q = self.nodes.shape
        if (2 * Q) ** D > MOST_NODES:
            return None
        return Grid.of_nodes(np.moveaxis(np.linspace(low, high, 2 * Q), 0, 2).copy())

    def margins(self, mean: Array, covariance: Array) -> Array:
        """Log-densities of the priors' margins, (groups, D, Q), up to a constant."""
        sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        return np.asarray(-0.5 * ((self.nodes - mean[:, :, None]) / sd[:, :, None]) ** 2)

    def weights(self, mean: Array, covariance: Array) -> Array:
        """Densities of N(mean, covariance) by group times the cells' volume, (groups, Q, rest); zero in the fill."""
        G, D, Q = self.nodes.shape
        root = np.linalg.cholesky(covariance)
        log_volume = np.log(self.spacing).sum(axis=1) - np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        R = Q ** (D - 1)
        out = np.zeros((G, Q, self.rest.shape[2]))
        for g in range(G):
            x = np.empty((D, Q, R))
            x[0] = self.first[g][:, None] - mean[g, 0]
            for k in range(1, D):
                x[k] = self.rest[g, k - 1, :R][None] - mean[g, k]
            z = np.linalg.solve(root[g], x.reshape(D, -1))
            log_density = log_volume[g] - 0.5 * D * np.log(2 * np.pi) - 0.5 * (z * z).sum(axis=0)
            out[g, :, :R] = np.exp(log_density).reshape(Q, R)
        return out


def whole_lanes(n: int) -> int:
    """The next multiple of the kernels' lanes."""
    return -(-n // LANES) * LANES


def as_blocks(values: Array) -> Array:
    """An array over nodes (its last axis, whole lanes) as the kernels read it: (..., blocks, LANES)."""
    return values.reshape(*values.shape[:-1], values.shape[-1] // LANES, LANES)


def common_grid(mean: Array, covariance: Array) -> Grid:
    """One grid for priors N(mean, covariance), mean (groups, D): the same nodes for every group."""
    G, D = mean.shape
    if D > MOST_DIMENSIONS:
        raise DataError(
            f"scoring integrates over at most {MOST_DIMENSIONS} dimensions at once; this bank has {D}. Use "
            'method = "ml" or "wle", which take one dimension at a time'
        )
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    low, high = (mean - REACH * sd).min(axis=0), (mean + REACH * sd).max(axis=0)
    Q = whole_lanes(int(np.ceil(((high - low) / (SPACING * sd.min(axis=0))).max())) + 1)
    nodes = np.linspace(low, high, Q, axis=1)
    return Grid.of_nodes(np.broadcast_to(nodes, (G, D, Q)).copy())
