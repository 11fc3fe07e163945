"""The likelihood of items and links, from quadratics that stand for the factors of all periods."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration import kernels
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout
from concal.calibration.state import kernel_parameters
from concal.calibration.workers import Workers
from concal.consensus.joint.arrange import CHUNK_FACTORS, GroupTables
from concal.consensus.joint.relocate import relocate
from concal.consensus.joint.state import JointState

Array = npt.NDArray[np.float64]


MOST_MISSED = 0.15
"""Root mean square of a log-likelihood that quadratics may miss at one to two of an item's posterior SDs. In an
operational bank (8,500 items each of 2pl, gpcm and ordered_beta, two periods; tables weighed against quadratics by
importance sampling) items that miss .10 to .15 differ by .02 SD in place and 1 % in SD, those of .15 to .20 by .03 SD
and 1 to 3 %, those of .3 to .5 by .06 to .11 SD and 6 %. Less than 1 % of its 2pl and gpcm items miss more, and a third
of its ordered_beta items; 3pl items of the programmes in docs/evidence/validation.md miss .15, single ones .5."""

AFFORDED = 10_000
"""Tables, of those that quadratics miss most, that are looked at in any case: in a small bank all of them. There a few
sparse items decide how much slopes are thought to differ, and that again where these items are. In a bank of 40 2pl
items and two periods of 400 examinees one item of 53 responses, missed by .12, had a log a of 1.30 (SD .21) instead of
.77 (.45), and the SD of log a was .50 instead of .42 (pooled fit: .69 (.41), .40)."""


class Sums(NamedTuple):
    """Room for quadratics of items: matrices (items, p (p + 1) / 2, LANES) and vectors (items, p, LANES)."""

    total: Array
    shift: Array


def no_sums(n: int, p: int) -> Sums:
    """Zeros."""
    return Sums(np.zeros((n, p * (p + 1) // 2, LANES)), np.zeros((n, p, LANES)))


class ByTables:
    """Some items of a group, judged by their tables and what these leave."""

    def __init__(self, g: GroupLayout, tables: GroupTables, items: npt.NDArray[np.intp]) -> None:
        self.g, self.items, self.tables, self.rest = g, items, tables.of_items(items), no_sums(items.size, g.p)
        self._listed: list[int] = items.tolist()

    def _within(self, lo: int, hi: int) -> tuple[int, int]:
        """Which of them are among items lo..hi of the group."""
        return bisect_left(self._listed, lo), bisect_left(self._listed, hi)

    def see_through(self, link: tuple[Any, Any], lo: int, hi: int) -> None:
        """Add up what the tables leave, for those of items lo..hi."""
        t, (first, last) = self.tables, self._within(lo, hi)
        if first < last:
            kernels.sum_by_item(self.g.p, t.start, t.period, t.Q, t.h, *link, *self.rest, first, last)

    def judge(self, link: tuple[Any, Any], x: Any, total: Any, lo: int, hi: int) -> None:
        """Put the log-likelihood of those of items lo..hi into their rows of `total` (0..hi-lo)."""
        t, (first, last) = self.tables, self._within(lo, hi)
        if first == last:
            return
        own = self.items[first:last]
        xi, rest = np.ascontiguousarray(x[own]), Sums(*(part[first:last] for part in self.rest))
        par, value = kernel_parameters(self.g, xi), np.empty((last - first, LANES))
        kernels.item_quadratics_value(self.g.p, *rest, par, xi, value, 0, last - first)
        kernels.add_table_values(
            self.g.model.tag, t.start[first:], t.period, *t.tables, *link, par, value, 0, last - first
        )
        total[own - lo] = value


class Factors:
    """`concal.calibration.moves.units.ItemLikelihood` of factors; and what they say about the links given the items.

    `weights` (one array per group) is how much each factor counts for the links; for the items all count in full. Items
    whose tables the quadratics miss by too much (`MOST_MISSED`) are judged by the tables themselves (`by_tables`), and
    the quadratics only aim their proposals; links always come from quadratics.
    """

    def __init__(self, groups: Sequence[GroupLayout], tables: Sequence[GroupTables]) -> None:
        self.groups, self.tables = groups, tables
        self.weights = [np.ones(t.n_factors) for t in tables]
        self.Q, self.h = [t.Q for t in tables], [t.h for t in tables]
        self.missed = [np.zeros(g.n_items) for g in groups]
        self.sums_of = [no_sums(g.n_items, g.p) for g in groups]
        self.by_tables: dict[int, ByTables] = {}

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
        """Decide which items are judged by the tables themselves: those missed most, and all missed by much."""
        missed, ends = np.concatenate(self.missed), np.cumsum([g.n_items for g in self.groups])
        n_tables = np.concatenate([np.diff(t.start) for t in self.tables])
        order = np.argsort(-missed, kind="stable")
        chosen = missed > MOST_MISSED
        chosen[order] |= np.cumsum(n_tables[order]) <= AFFORDED
        parts = [np.flatnonzero(part) for part in np.split(chosen, ends[:-1])]
        self.by_tables = {k: ByTables(self.groups[k], self.tables[k], j) for k, j in enumerate(parts) if j.size}

    def see_through(self, state: JointState, workers: Workers) -> None:
        """Add up every item's factors at the links as they are."""
        tasks = [(k, chunk) for k, g in enumerate(self.groups) for chunk in g.item_chunks]

        def work(task: tuple[int, tuple[int, int]]) -> None:
            k, (lo, hi) = task
            g, t = self.groups[k], self.tables[k]
            link = state.constants[g.dim]
            kernels.sum_by_item(g.p, t.start, t.period, self.Q[k], self.h[k], *link, *self.sums_of[k], lo, hi)
            if k in self.by_tables:
                self.by_tables[k].see_through(link, lo, hi)

        workers.map(work, tasks)

    def parameters(self, k: int, xi: Any, lo: int, hi: int) -> npt.NDArray[np.float32]:
        """See `ItemLikelihood`: quadratics read a alone."""
        with np.errstate(over="ignore"):  # an absurd proposal is refused: its likelihood is not finite
            return np.exp(xi[lo:hi, 1:2]).astype(np.float32)

    def jacobian(self, k: int, xi: Any, lo: int, hi: int) -> Array:
        """See `ItemLikelihood`: quadratics are in the extras themselves."""
        return np.empty((hi - lo, 0, 0, LANES))

    def accumulate(
        self, state: JointState, k: int, x: Any, par: Any, jacobian: Any, acc: Any, lo: int, hi: int
    ) -> None:
        """See `ItemLikelihood`."""
        kernels.item_quadratics(self.groups[k].p, *self.sums_of[k], par, x, acc, lo, hi)
        if k in self.by_tables:
            self.by_tables[k].judge(state.constants[self.groups[k].dim], x, acc[:, 0], lo, hi)

    def log_likelihood(self, state: JointState, k: int, x: Any, par: Any, total: Any, lo: int, hi: int) -> None:
        """See `ItemLikelihood`."""
        kernels.item_quadratics_value(self.groups[k].p, *self.sums_of[k], par, x, total, lo, hi)
        if k in self.by_tables:
            self.by_tables[k].judge(state.constants[self.groups[k].dim], x, total, lo, hi)

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
