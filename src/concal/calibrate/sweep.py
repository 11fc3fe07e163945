"""One sweep's unit steps: every examinee, then every item, each with a Newton-Metropolis move in all chains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from concal.calibrate import kernels
from concal.calibrate.layout import GroupLayout, Layout
from concal.calibrate.state import GroupState, State, jacobian, kernel_parameters
from concal.response.lanes import LANES

PERSON_STREAM = 0
ITEM_STREAM = 1000  # plus 64 per group


class Workers:
    """Runs chunks on threads; the order of results, and every result, is the same for any number of threads."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def map(self, function: Callable[..., Any], tasks: Iterable[Any]) -> list[Any]:
        """Apply to every task; results in the tasks' order."""
        if self._pool is None:
            return [function(task) for task in tasks]
        return list(self._pool.map(function, tasks))

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()


class UnitSteps:
    """The unit steps of one layout, with their scratch memory and acceptance counts."""

    def __init__(self, layout: Layout, seed: int, workers: Workers) -> None:
        self.layout, self.seed, self.workers = layout, seed, workers
        self.person_accepted = np.zeros((layout.n_persons, LANES), np.float32)
        self.item_accepted = [np.zeros((g.n_items, LANES), np.float32) for g in layout.groups]
        self.person_ll = np.zeros((layout.n_persons, LANES))  # log-likelihood at the current abilities
        self.item_ll = [np.zeros((g.n_items, LANES)) for g in layout.groups]
        self.own = [np.arange(g.n_items, dtype=np.int32) for g in layout.groups]
        self.zero = [np.zeros(g.n_items, dtype=np.int32) for g in layout.groups]

    def persons(self, state: State, *, climbing: bool = False) -> None:
        """Move every examinee's abilities."""
        precision = np.ascontiguousarray(np.moveaxis(np.linalg.inv(state.R), 1, 3))
        D, pop = self.layout.D, self.layout.population
        rows = 1 + D + D * (D + 1) // 2

        def step(chunk: tuple[int, int]) -> None:
            lo, hi = chunk
            acc = np.zeros((hi - lo, rows, LANES))
            proposal = np.empty((hi - lo, D, LANES), np.float32)
            forward = np.empty((hi - lo, LANES))
            self.person_pass(state, state.theta, acc, lo, hi, 0)
            kernels.propose(
                D, state.theta, acc, precision, pop, state.mu, pop, proposal, forward, self.person_ll,
                climbing, self.seed, state.sweep, PERSON_STREAM, lo, hi,
            )  # fmt: skip
            acc[:] = 0.0
            self.person_pass(state, proposal, acc, lo, hi, lo)
            kernels.accept(
                D, state.theta, acc, precision, pop, state.mu, pop, proposal, forward, self.person_ll,
                self.person_accepted, climbing,
                self.seed, state.sweep, PERSON_STREAM, lo, hi,
            )  # fmt: skip

        self.workers.map(step, self.layout.person_chunks)

    def person_pass(self, state: State, theta: Any, acc: Any, lo: int, hi: int, first: int) -> None:
        """Accumulate over groups; `theta` starts at examinee `first`."""
        for g, s in zip(self.layout.groups, state.groups, strict=True):
            kernels.person_pass(
                g.model.tag, g.person_start[first:], g.person_item, g.person_score, theta, s.par, g.dim,
                self.layout.D, acc, lo - first, hi - first,
            )  # fmt: skip

    def items(self, state: State, *, climbing: bool = False) -> None:
        """Move every item of every group."""
        tasks = [(k, chunk) for k, g in enumerate(self.layout.groups) for chunk in g.item_chunks]
        precisions = [np.ascontiguousarray(np.moveaxis(np.linalg.inv(s.sigma), 0, 2))[None] for s in state.groups]

        def step(task: tuple[int, tuple[int, int]]) -> None:
            k, (lo, hi) = task
            g, s = self.layout.groups[k], state.groups[k]
            p = g.p
            acc = np.empty((hi - lo, 1 + p + p * (p + 1) // 2, LANES))
            proposal, forward = np.empty((hi - lo, p, LANES)), np.empty((hi - lo, LANES))
            stream = ITEM_STREAM + 64 * k
            item_accumulators(g, state.theta, s.par, s.xi[lo:hi], acc, lo, hi)
            kernels.propose(
                p, s.xi, acc, precisions[k], self.zero[k], s.mean, self.own[k], proposal, forward, self.item_ll[k],
                climbing, self.seed, state.sweep, stream, lo, hi,
            )  # fmt: skip
            new_par = kernel_parameters(g, proposal)
            item_accumulators(g, state.theta, new_par, proposal, acc, lo, hi, first=lo)
            kernels.accept(
                p, s.xi, acc, precisions[k], self.zero[k], s.mean, self.own[k], proposal, forward, self.item_ll[k],
                self.item_accepted[k], climbing, self.seed, state.sweep, stream, lo, hi,
            )  # fmt: skip

        self.workers.map(step, tasks)

    def refresh(self, state: State) -> None:
        """Kernel parameters of the items as they are now."""
        tasks = [(k, chunk) for k, g in enumerate(self.layout.groups) for chunk in g.item_chunks]

        def step(task: tuple[int, tuple[int, int]]) -> None:
            k, (lo, hi) = task
            state.groups[k].par[lo:hi] = kernel_parameters(self.layout.groups[k], state.groups[k].xi[lo:hi])

        self.workers.map(step, tasks)

    def sums(self, state: State) -> npt.NDArray[np.float64]:
        """Sums of theta and theta theta' by population, (populations, D + D(D+1)/2, LANES), added in a fixed order."""
        D = self.layout.D
        shape = (len(self.layout.populations), D + D * (D + 1) // 2, LANES)

        def step(chunk: tuple[int, int]) -> npt.NDArray[np.float64]:
            part = np.zeros(shape)
            kernels.ability_sums(state.theta, self.layout.population, part, *chunk)
            return part

        return np.sum(self.workers.map(step, self.layout.person_chunks), axis=0)

    def rescale(self, state: State, scale: npt.NDArray[np.float64], shift: npt.NDArray[np.float64]) -> None:
        """Move all abilities to scale theta + shift."""
        self.workers.map(lambda chunk: kernels.rescale(state.theta, scale, shift, *chunk), self.layout.person_chunks)

    def forget_acceptance(self) -> None:
        """Start counting anew."""
        self.person_accepted[:] = 0.0
        for counts in self.item_accepted:
            counts[:] = 0.0


def item_accumulators(
    g: GroupLayout,
    theta: npt.NDArray[np.float32],
    par: npt.NDArray[np.float32],
    xi: npt.NDArray[np.float64],
    acc: npt.NDArray[np.float64],
    lo: int,
    hi: int,
    *,
    first: int = 0,
) -> None:
    """Log-likelihood, gradient and information of items lo..hi; `par` starts at item `first`, `xi` at item lo."""
    args = (g.model.tag, g.item_start[first:], g.item_person, g.item_score, theta, g.dim, par)
    if g.p == 2:
        kernels.item_pass(*args, acc, lo - first, hi - first)
    else:
        kernels.item_pass_extras(*args, jacobian(g, xi), acc, lo - first, hi - first)


def group_log_likelihood(g: GroupLayout, s: GroupState, theta: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Log-likelihood of every item in every lane, (items, LANES) (a slow way, for tests and starting values)."""
    acc = np.empty((g.n_items, 1 + g.p + g.p * (g.p + 1) // 2, LANES))
    item_accumulators(g, theta, s.par, s.xi, acc, 0, g.n_items)
    return acc[:, 0]
