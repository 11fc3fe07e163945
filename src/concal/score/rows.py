"""Likelihood rows: every distinct (item, score) of some examinees evaluated once at the nodes.

Scores with a probability of their own (a model's atoms) are shared by all who gave them; other scores have a row each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.calibration.kernels import LANES
from concal.calibration.workers import Workers
from concal.score.items import GroupItems, ScoringItems, posterior_points
from concal.score.kernels.likelihoods import log_rows, soft_rows

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
BLOCK = 512
"""Rows a thread takes at a time."""


@dataclass(frozen=True)
class Answered:
    """Responses of some examinees, one examinee after the other.

    Attributes
    ----------
    start : (persons + 1,) int64
    item : (responses,) int32
        Place among all items of the bank.
    score : (responses,) float64
    """

    start: Index
    item: npt.NDArray[np.int32]
    score: Array

    @property
    def n_persons(self) -> int:
        """How many examinees."""
        return self.start.size - 1

    def part(self, lo: int, hi: int) -> Answered:
        """Examinees lo..hi."""
        a, b = self.start[lo], self.start[hi]
        return Answered(self.start[lo : hi + 1] - a, self.item[a:b], self.score[a:b])

    def of(self, persons: Index) -> Answered:
        """Some examinees, in the order given."""
        counts = np.diff(self.start)[persons]
        start = np.concatenate([[0], np.cumsum(counts)])
        at = np.arange(start[-1]) - np.repeat(start[:-1] - self.start[persons], counts)
        return Answered(start, self.item[at], self.score[at])


@dataclass(frozen=True)
class GroupRows:
    """The rows of one group: `at` in the table, for item `items[which]` and encoded score `y`.

    `atom` is a row's place in the table of all items' atoms (`ScoringItems.first_atom`), -1 where the score is none.
    """

    group: GroupItems
    at: slice
    items: Index
    which: Index
    y: Array
    atom: Index

    def some(self, rows: Index, first: int) -> GroupRows:
        """Some of the rows, standing from `first` on in a table of their own."""
        kept, which = np.unique(self.which[rows], return_inverse=True)
        at = slice(first, first + rows.size)
        return GroupRows(self.group, at, self.items[kept], which.astype(np.int64), self.y[rows], self.atom[rows])


@dataclass(frozen=True)
class LikelihoodRows:
    """Which rows some examinees need, and which row each response reads.

    Attributes
    ----------
    rows : (responses,) int32
    dim : (n_rows,) int64
    groups : tuple of GroupRows
    """

    rows: npt.NDArray[np.int32]
    dim: Index
    groups: tuple[GroupRows, ...]

    @classmethod
    def of(cls, items: ScoringItems, answered: Answered) -> LikelihoodRows:
        """Find the distinct (item, score) of the responses; rows are ordered by group, item and score."""
        n_atoms = int(items.first_atom[-1])
        place = atom_rows(items, answered.item, answered.score)
        loose = np.flatnonzero(place < 0)
        used = np.zeros(n_atoms, dtype=bool)
        used[place[place >= 0]] = True
        atoms = np.flatnonzero(used)
        row_item = np.concatenate([np.searchsorted(items.first_atom, atoms, side="right") - 1, answered.item[loose]])
        edges = np.array([g.first for g in items.groups] + [len(items.item_ids)])
        row_group = np.searchsorted(edges, row_item, side="right") - 1
        order = np.argsort(row_group, kind="stable")
        final = np.empty(order.size, np.int64)
        final[order] = np.arange(order.size)
        lookup = np.zeros(n_atoms, np.int64)
        lookup[atoms] = final[: atoms.size]
        rows = np.empty(place.size, np.int32)
        rows[place >= 0] = lookup[place[place >= 0]]
        rows[loose] = final[atoms.size :]
        groups, first = [], 0
        for k, g in enumerate(items.groups):
            own = order[row_group[order] == k]
            score = np.empty(own.size)
            from_atom = own < atoms.size
            values = np.asarray(g.model.atoms, dtype=np.float64)
            kept = atoms[own[from_atom]]
            score[from_atom] = values[kept - items.first_atom[row_item[own[from_atom]]]]
            score[~from_atom] = answered.score[loose[own[~from_atom] - atoms.size]]
            distinct, which = np.unique(row_item[own] - g.first, return_inverse=True)
            encoded = np.ascontiguousarray(g.model.encode_score(score), dtype=np.float64)
            at, atom = slice(first, first + own.size), np.full(own.size, -1, np.int64)
            atom[from_atom] = kept
            groups.append(GroupRows(g, at, distinct, which.astype(np.int64), encoded, atom))
            first += own.size
        dims = [np.full(r.y.size, r.group.dim, dtype=np.int64) for r in groups]
        return cls(rows, np.concatenate(dims) if dims else np.zeros(0, np.int64), tuple(groups))

    @property
    def n_rows(self) -> int:
        """How many."""
        return self.dim.size

    def some(self, keep: Index) -> LikelihoodRows:
        """Some rows, in increasing order; responses are left behind."""
        groups: list[GroupRows] = []
        first = 0
        for g in self.groups:
            own = keep[(keep >= g.at.start) & (keep < g.at.stop)] - g.at.start
            groups.append(g.some(own, first))
            first += own.size
        return LikelihoodRows(np.zeros(0, np.int32), self.dim[keep], tuple(groups))

    @property
    def items(self) -> list[Index]:
        """Items needed, by group."""
        return [g.items for g in self.groups]

    def table(self, nodes: Array, xi: Sequence[Array], workers: Workers) -> Array:
        """Log-likelihoods (n_rows, Q) at nodes (D, Q), items at xi (by group, the items of `items` in order)."""
        out = np.empty((self.n_rows, nodes.shape[1]))
        for rows, values in zip(self.groups, xi, strict=True):
            model = rows.group.model
            par = np.ascontiguousarray(model.kernel_parameters(np.asarray(values, dtype=np.float64)))
            here, at = out[rows.at], np.ascontiguousarray(nodes[rows.group.dim])

            def fill(lo: int, rows: GroupRows = rows, par: Array = par, here: Array = here, at: Array = at) -> None:
                hi = min(lo + BLOCK, rows.y.size)
                log_rows(rows.group.model.tag, par, rows.which, rows.y, at, here, lo, hi)

            workers.map(fill, range(0, rows.y.size, BLOCK))
        return out

    def mean_table(self, nodes: Array, workers: Workers) -> Array:
        """Log-likelihoods with items at their posterior means."""
        return self.table(nodes, [rows.group.mean[rows.items] for rows in self.groups], workers)

    def soft_table(self, nodes: Array, workers: Workers) -> Array:
        """Log of the likelihoods averaged over every item's posterior."""
        out = np.empty((self.n_rows, nodes.shape[1]))
        for rows in self.groups:
            at = np.ascontiguousarray(nodes[rows.group.dim])
            workers.map(_soft_block(rows, at, out[rows.at]), range(0, rows.items.size, BLOCK // 8))
        return out


def _soft_block(rows: GroupRows, nodes: Array, out: Array) -> Callable[[int], None]:
    """What fills the rows of a block of items; rows of one item stand together only among atoms, so look them up."""
    order = np.argsort(rows.which, kind="stable")
    edges = np.searchsorted(rows.which[order], np.arange(rows.items.size + 1))

    def fill(lo: int) -> None:
        hi = min(lo + BLOCK // 8, rows.items.size)
        items = rows.items[lo:hi]
        points = posterior_points(rows.group.mean[items], rows.group.covariance[items])
        par, blocks = _in_lanes(rows.group.model.kernel_parameters(points))
        own = order[edges[lo] : edges[hi]]
        values, n = np.empty((own.size, nodes.size)), own.size
        soft_rows(rows.group.model.tag, par, blocks, rows.which[own] - lo, rows.y[own], nodes, values, 0, n)
        out[own] = values

    return fill


def _in_lanes(par: Array) -> tuple[npt.NDArray[np.float32], int]:
    """Parameters (items, points, K) as (items * blocks, K, LANES) float32, and the number of blocks."""
    items, points, K = par.shape
    blocks = points // LANES
    lanes = par.reshape(items, blocks, LANES, K).swapaxes(2, 3).astype(np.float32)
    return np.ascontiguousarray(lanes).reshape(items * blocks, K, LANES), blocks


def atom_rows(items: ScoringItems, item: npt.NDArray[np.int32], score: Array) -> Index:
    """Row of each (item, score) in the table of all atoms, -1 where the score is no atom."""
    place = np.full(item.size, -1, dtype=np.int64)
    for g in items.groups:
        atoms = np.asarray(g.model.atoms, dtype=np.float64)
        if not atoms.size:
            continue
        own = np.flatnonzero((item >= g.first) & (item < g.first + g.n_items)) if len(items.groups) > 1 else slice(None)
        given = score[own]
        k = np.minimum(np.searchsorted(atoms, given), atoms.size - 1)
        place[own] = np.where(atoms[k] == given, items.first_atom[item[own]] + k, -1)
    return place
