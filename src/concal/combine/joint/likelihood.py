"""The likelihood of items and links, from quadratics that stand for the factors of all periods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibrate import kernels
from concal.calibrate.layout import GroupLayout
from concal.calibrate.workers import Workers
from concal.combine.joint.arrange import CHUNK_FACTORS, GroupTables
from concal.combine.joint.relocate import relocate
from concal.combine.joint.state import JointState
from concal.response.lanes import LANES

Array = npt.NDArray[np.float64]


class Factors:
    """`concal.calibrate.sweep.ItemLikelihood` of factors; and what they say about the links given the items.

    `weights` (one array per group) is how much each factor counts for the links; for the items all count in full.
    """

    def __init__(self, groups: Sequence[GroupLayout], tables: Sequence[GroupTables], weights: list[Array]) -> None:
        self.groups, self.tables, self.weights = groups, tables, weights
        self.Q, self.h = [t.Q for t in tables], [t.h for t in tables]
        self.total = [np.zeros((g.n_items, g.p * (g.p + 1) // 2, LANES)) for g in groups]
        self.shift = [np.zeros((g.n_items, g.p, LANES)) for g in groups]

    def relocate(self, k: int, mean: Array, covariance: Array, link: Array, workers: Workers) -> None:
        """Let the quadratics of group k stand for its tables at items N(mean, covariance); link (periods, 2)."""
        self.Q[k], self.h[k] = relocate(self.groups[k].model, self.tables[k], mean, covariance, link, workers)

    def sums(self, k: int, link: Array) -> tuple[Array, Array]:
        """Factors of every item of group k added up on the reference metric, at links (periods, 2) = (log A, B)."""
        t = self.tables[k]
        log_A, B = link[t.period].T
        Q, h = metric.move_factor(self.Q[k], self.h[k], np.exp(log_A), B)
        return t.sum_by_item(Q), t.sum_by_item(h)

    def see_through(self, state: JointState, workers: Workers) -> None:
        """Add up every item's factors at the links as they are."""
        tasks = [(k, chunk) for k, g in enumerate(self.groups) for chunk in g.item_chunks]

        def work(task: tuple[int, tuple[int, int]]) -> None:
            k, (lo, hi) = task
            g, t = self.groups[k], self.tables[k]
            link = state.constants[g.dim]
            kernels.sum_by_item(
                g.p, t.start, t.period, self.Q[k], self.h[k], *link, self.total[k], self.shift[k], lo, hi
            )

        workers.map(work, tasks)

    def accumulate(
        self, state: JointState, k: int, x: Any, par: Any, jacobian: Any, acc: Any, lo: int, hi: int
    ) -> None:
        """See `ItemLikelihood`."""
        kernels.item_quadratics(self.groups[k].p, self.total[k], self.shift[k], par, x, acc, lo, hi)

    def log_likelihood(self, state: JointState, k: int, x: Any, par: Any, total: Any, lo: int, hi: int) -> None:
        """See `ItemLikelihood`."""
        kernels.item_quadratics_value(self.groups[k].p, self.total[k], self.shift[k], par, x, total, lo, hi)

    def link_sums(self, state: JointState, dim: int, workers: Workers) -> Array:
        """S_AA, S_AB, S_BB, s_A, s_B of every period of one dimension given the items, (periods, 5, LANES)."""
        sizes = [(k, t.n_factors) for k, t in enumerate(self.tables) if self.groups[k].dim == dim]
        tasks = [(k, lo, min(lo + CHUNK_FACTORS, n)) for k, n in sizes for lo in range(0, n, CHUNK_FACTORS)]

        def work(task: tuple[int, int, int]) -> Array:
            k, lo, hi = task
            t, s = self.tables[k], state.groups[k]
            part = np.zeros((state.links.shape[1], 5, LANES))
            kernels.sum_by_period(
                self.groups[k].p, t.item, t.period, self.weights[k], self.Q[k], self.h[k], s.par, s.xi, part, lo, hi
            )
            return part

        return np.asarray(np.sum(workers.map(work, tasks), axis=0))
