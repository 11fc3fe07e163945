"""The likelihood of items and links, from quadratics that stand for the factors of all periods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibrate import kernels
from concal.calibrate.kernels import LANES
from concal.calibrate.layout import GroupLayout
from concal.calibrate.workers import Workers
from concal.combine.joint.arrange import CHUNK_FACTORS, GroupTables
from concal.combine.joint.relocate import relocate
from concal.combine.joint.state import JointState

Array = npt.NDArray[np.float64]


MOST_MISSED = 0.1
"""Root mean square of a log-likelihood that quadratics may miss at one to two posterior SDs. On the programmes of
docs/evidence/validation.md 2pl, gpcm, grm and beta miss .03 to .09 (2pl then differs from exact products by .005 SD in
place and .2 % in SD), ordered_beta .09 to .13, 3pl .15 and up to .5 for single items."""


class Sums(NamedTuple):
    """Room for quadratics of a group's items: matrices (items, p (p + 1) / 2, LANES) and vectors (items, p, LANES)."""

    total: Array
    shift: Array


def no_sums(g: GroupLayout) -> Sums:
    """Zeros."""
    return Sums(np.zeros((g.n_items, g.p * (g.p + 1) // 2, LANES)), np.zeros((g.n_items, g.p, LANES)))


class Factors:
    """`concal.calibrate.moves.units.ItemLikelihood` of factors; and what they say about the links given the items.

    `weights` (one array per group) is how much each factor counts for the links; for the items all count in full. Where
    quadratics miss too much of a group's tables (`MOST_MISSED`), its items are judged by the tables themselves, and the
    quadratics only aim their proposals; links always come from quadratics.
    """

    def __init__(self, groups: Sequence[GroupLayout], tables: Sequence[GroupTables], weights: list[Array]) -> None:
        self.groups, self.tables, self.weights = groups, tables, weights
        self.Q, self.h = [t.Q for t in tables], [t.h for t in tables]
        self.missed = [np.zeros(g.n_items) for g in groups]
        self.sums_of = [no_sums(g) for g in groups]
        self.remainders: dict[int, Sums] = {}

    def relocate(self, k: int, mean: Array, covariance: Array, link: Array, workers: Workers) -> None:
        """Let the quadratics of group k stand for its tables at items N(mean, covariance); link (periods, 2)."""
        model, tables = self.groups[k].model, self.tables[k]
        self.Q[k], self.h[k], self.missed[k] = relocate(model, tables, mean, covariance, link, workers)

    def sums(self, k: int, link: Array) -> tuple[Array, Array]:
        """Factors of every item of group k added up on the reference metric, at links (periods, 2) = (log A, B)."""
        t = self.tables[k]
        log_A, B = link[t.period].T
        Q, h = metric.move_factor(self.Q[k], self.h[k], np.exp(log_A), B)
        return t.sum_by_item(Q), t.sum_by_item(h)

    def judge(self) -> None:
        """Decide which groups' items are judged by the tables themselves."""
        for k, g in enumerate(self.groups):
            if np.sqrt(np.mean(self.missed[k] ** 2)) > MOST_MISSED:
                self.remainders[k] = no_sums(g)

    def see_through(self, state: JointState, workers: Workers) -> None:
        """Add up every item's factors at the links as they are."""
        tasks = [(k, chunk) for k, g in enumerate(self.groups) for chunk in g.item_chunks]

        def work(task: tuple[int, tuple[int, int]]) -> None:
            k, (lo, hi) = task
            g, t = self.groups[k], self.tables[k]
            where = (*state.constants[g.dim], *self.sums_of[k], lo, hi)
            kernels.sum_by_item(g.p, t.start, t.period, self.Q[k], self.h[k], *where)
            if k in self.remainders:
                rest = (*state.constants[g.dim], *self.remainders[k], lo, hi)
                kernels.sum_by_item(g.p, t.start, t.period, t.Q, t.h, *rest)

        workers.map(work, tasks)

    def accumulate(
        self, state: JointState, k: int, x: Any, par: Any, jacobian: Any, acc: Any, lo: int, hi: int
    ) -> None:
        """See `ItemLikelihood`."""
        kernels.item_quadratics(self.groups[k].p, *self.sums_of[k], par, x, acc, lo, hi)
        if k in self.remainders:
            value = np.empty((hi - lo, LANES))
            self.log_likelihood(state, k, x, par, value, lo, hi)
            acc[:, 0] = value

    def log_likelihood(self, state: JointState, k: int, x: Any, par: Any, total: Any, lo: int, hi: int) -> None:
        """See `ItemLikelihood`."""
        g, t = self.groups[k], self.tables[k]
        kernels.item_quadratics_value(g.p, *self.remainders.get(k, self.sums_of[k]), par, x, total, lo, hi)
        if k in self.remainders:
            link = state.constants[g.dim]
            kernels.add_table_values(g.model.tag, t.start, t.period, *t.tables, *link, par, total, lo, hi)

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
