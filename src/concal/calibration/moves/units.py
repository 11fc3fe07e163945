"""Moves of the units: every examinee, every item, each with a Newton-Metropolis step in all chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from concal.calibration import kernels
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout, Layout
from concal.calibration.matrices import inverse, symmetric
from concal.calibration.moments import MomentSums
from concal.calibration.moves.link import prior_precision
from concal.calibration.saving import Saved
from concal.calibration.state import State, jacobian, kernel_parameters, pin
from concal.calibration.workers import Workers

PERSON_STREAM = 0
ITEM_STREAM = 1000  # plus 64 per group


class ItemLikelihood(Protocol):
    """What is known of the items besides their priors: responses, or the factors that stand for them."""

    def parameters(self, k: int, xi: Any, lo: int, hi: int) -> npt.NDArray[np.float32]:
        """What the passes read of items lo..hi of group k at xi (items, p, LANES): `par`, (items, rows, LANES)."""

    def jacobian(self, k: int, xi: Any, lo: int, hi: int) -> npt.NDArray[np.float64]:
        """d psi / d extras of items lo..hi, for those passes that take gradients by psi; else empty."""

    def accumulate(self, state: Any, k: int, x: Any, par: Any, jacobian: Any, acc: Any, lo: int, hi: int) -> None:
        """Log-likelihood, gradient and information of items lo..hi of group k into rows 0..hi-lo of `acc`.

        x (items, p, LANES), par and jacobian are the whole group's.
        """

    def log_likelihood(self, state: Any, k: int, x: Any, par: Any, total: Any, lo: int, hi: int) -> None:
        """The log-likelihood alone, into `total` (rows 0..hi-lo)."""


class Responses:
    """The likelihood of the items given the abilities as they are, with the observations that hold coordinates."""

    def __init__(self, layout: Layout) -> None:
        self.groups = layout.groups

    def parameters(self, k: int, xi: Any, lo: int, hi: int) -> npt.NDArray[np.float32]:
        """See `ItemLikelihood`."""
        return kernel_parameters(self.groups[k], xi[lo:hi])

    def jacobian(self, k: int, xi: Any, lo: int, hi: int) -> npt.NDArray[np.float64]:
        """See `ItemLikelihood`."""
        return jacobian(self.groups[k], xi[lo:hi])

    def accumulate(self, state: State, k: int, x: Any, par: Any, jacobian: Any, acc: Any, lo: int, hi: int) -> None:
        """See `ItemLikelihood`."""
        g = self.groups[k]
        args = (g.model.tag, g.item_start, g.item_person, g.item_score, state.theta, g.dim, par)
        if g.p == 2:
            kernels.item_pass(*args, acc, lo, hi)
        else:
            kernels.item_pass_extras(*args, jacobian[lo:hi], acc, lo, hi)
        for m, mean, precision in g.held:
            off = x[lo:hi, m] - mean
            acc[:, 0] -= 0.5 * precision * off**2
            acc[:, 1 + m] -= precision * off
            acc[:, 1 + g.p + m * (m + 3) // 2] += precision

    def log_likelihood(self, state: State, k: int, x: Any, par: Any, total: Any, lo: int, hi: int) -> None:
        """See `ItemLikelihood`."""
        g = self.groups[k]
        args = (g.model.tag, g.item_start, g.item_person, g.item_score, state.theta, g.dim, par)
        kernels.item_log_likelihood(*args, total, lo, hi)
        for m, mean, precision in g.held:
            total -= 0.5 * precision * (x[lo:hi, m] - mean) ** 2


class AbilitySums(NamedTuple):
    """Sums over each population's examinees: of theta (populations, D, LANES), of theta theta' (..., D, D, LANES)."""

    first: npt.NDArray[np.float64]
    second: npt.NDArray[np.float64]


class UnitSteps:
    """The unit steps of one layout, with their scratch memory and acceptance counts."""

    def __init__(self, layout: Layout, seed: int, workers: Workers, likelihood: ItemLikelihood | None = None) -> None:
        self.layout, self.seed, self.workers = layout, seed, workers
        self.likelihood = likelihood or Responses(layout)
        self.item_accepted = [np.zeros((g.n_items, LANES), np.float32) for g in layout.groups]
        self.person_ll = np.zeros((layout.n_persons, LANES))  # log-likelihood at the current abilities
        self.item_ll = [np.zeros((g.n_items, LANES)) for g in layout.groups]
        self.own = [np.arange(g.n_items, dtype=np.int32) for g in layout.groups]
        self.zero = [np.zeros(g.n_items, dtype=np.int32) for g in layout.groups]

    def persons(self, state: State, *, climbing: bool = False) -> None:
        """Move every examinee's abilities."""
        pop, D = self.layout.population, self.layout.D
        prior = kernels.Priors(inverse(state.R), pop, state.mu, pop)
        how = kernels.Step(climbing, False, self.seed, state.sweep, PERSON_STREAM)
        rows = 1 + D + D * (D + 1) // 2

        def step(chunk: tuple[int, int]) -> None:
            lo, hi = chunk
            acc = np.zeros((hi - lo, rows, LANES))
            proposal = np.empty((hi - lo, D, LANES), np.float32)
            forward = np.empty((hi - lo, LANES))
            self.person_pass(state, state.theta, acc, lo, hi, 0)
            kernels.propose(D, state.theta, acc, prior, proposal, forward, self.person_ll, how, lo, hi)
            acc[:] = 0.0
            self.person_pass(state, proposal, acc, lo, hi, lo)
            accepted = np.zeros((hi - lo, LANES), np.float32)  # nobody asks how often examinees move
            kernels.accept(D, state.theta, acc, prior, proposal, forward, self.person_ll, accepted, how, lo, hi)

        self.workers.map(step, self.layout.person_chunks)

    def person_pass(self, state: State, theta: Any, acc: Any, lo: int, hi: int, first: int) -> None:
        """Accumulate over groups; `theta` starts at examinee `first`."""
        for g, s in zip(self.layout.groups, state.groups, strict=True):
            kernels.person_pass(
                g.model.tag, g.person_start[first:], g.person_item, g.person_score, theta, s.par, g.dim,
                self.layout.D, acc, lo - first, hi - first,
            )  # fmt: skip

    def items(self, state: Any, *, climbing: bool = False, moments: MomentSums | None = None) -> None:
        """Move every item of every group; `moments` also takes in where the items were before."""
        groups, states = self.layout.groups, state.groups
        tasks = [(k, chunk) for k, g in enumerate(groups) for chunk in g.item_chunks]
        priors = [self.prior(k, state) for k in range(len(groups))]
        how = [
            kernels.Step(climbing, not climbing, self.seed, state.sweep, ITEM_STREAM + 64 * k)
            for k in range(len(groups))
        ]
        jacobians = self.jacobians({k: s.xi for k, s in enumerate(states)})
        proposal = [np.empty_like(s.xi) for s in states]
        forward = [np.empty_like(ll) for ll in self.item_ll]

        def propose(task: tuple[int, tuple[int, int]]) -> None:
            k, (lo, hi) = task
            g, s = groups[k], states[k]
            acc = accumulators(g, hi - lo)
            self.likelihood.accumulate(state, k, s.xi, s.par, jacobians[k], acc, lo, hi)
            if moments is not None:
                kernels.add_moments(g.p, s.xi, acc, moments.sums[k], lo, hi)
            kernels.propose(
                g.p, s.xi, acc, priors[k], proposal[k][lo:hi], forward[k][lo:hi], self.item_ll[k], how[k], lo, hi
            )

        def accept(task: tuple[int, tuple[int, int]]) -> None:
            k, (lo, hi) = task
            g, s = groups[k], states[k]
            acc = accumulators(g, hi - lo)
            self.likelihood.accumulate(state, k, proposal[k], new_par[k], new_jacobians[k], acc, lo, hi)
            kernels.accept(
                g.p, s.xi, acc, priors[k], proposal[k][lo:hi], forward[k][lo:hi], self.item_ll[k],
                self.item_accepted[k][lo:hi], how[k], lo, hi,
            )  # fmt: skip

        self.workers.map(propose, tasks)
        if moments is not None:
            moments.count += moments.chains
        proposed = dict(enumerate(proposal))
        new_par, new_jacobians = self.parameters(proposed), self.jacobians(proposed)
        self.workers.map(accept, tasks)
        for g, s in zip(groups, states, strict=True):
            pin(g, s)

    def prior(self, k: int, state: Any) -> kernels.Priors:
        """Priors of a group's items: means of their own, and one precision for all or (guided) one each."""
        g, s = self.layout.groups[k], state.groups[k]
        if g.guide is not None:
            return kernels.Priors(prior_precision(g, state.link[g.dim]), self.own[k], s.mean, self.own[k])
        return self.prior_under(k, inverse(s.sigma), s.mean)

    def prior_under(self, k: int, precision: npt.NDArray[np.float64], mean: npt.NDArray[np.float64]) -> kernels.Priors:
        """Priors of a group's items with this Sigma^-1 (p, p, LANES) and these means."""
        return kernels.Priors(precision[None], self.zero[k], mean, self.own[k])

    def parameters(self, xi: Mapping[int, npt.NDArray[np.float64]]) -> dict[int, npt.NDArray[np.float32]]:
        """Kernel parameters of whole groups, by group index."""
        return self._by_group(self.likelihood.parameters, xi)

    def jacobians(self, xi: Mapping[int, npt.NDArray[np.float64]]) -> dict[int, npt.NDArray[np.float64]]:
        """Jacobians of whole groups, by group index; an empty one for a model without extras."""
        return self._by_group(self.likelihood.jacobian, xi)

    def _by_group(self, find: Callable[..., Any], xi: Mapping[int, npt.NDArray[np.float64]]) -> dict[int, Any]:
        """Found block by block, side by side."""
        tasks = [(k, block) for k in xi for block in self.layout.groups[k].item_blocks]
        blocks: dict[int, list[Any]] = {}
        for (k, _), part in zip(tasks, self.workers.map(lambda t: find(t[0], xi[t[0]], *t[1]), tasks), strict=True):
            blocks.setdefault(k, []).append(part)
        return {k: parts[0] if len(parts) == 1 else np.concatenate(parts) for k, parts in blocks.items()}

    def refresh(self, state: Any) -> None:
        """Kernel parameters of the items as they are now."""
        for k, par in self.parameters({k: s.xi for k, s in enumerate(state.groups)}).items():
            state.groups[k].par = par

    def sums(self, state: State) -> AbilitySums:
        """Sums over each population's examinees, added in a fixed order."""
        D = self.layout.D
        shape = (len(self.layout.populations), D + D * (D + 1) // 2, LANES)

        def step(chunk: tuple[int, int]) -> npt.NDArray[np.float64]:
            part = np.zeros(shape)
            kernels.ability_sums(state.theta, self.layout.population, part, *chunk)
            return part

        rows = np.sum(self.workers.map(step, self.layout.person_chunks), axis=0)
        return AbilitySums(rows[:, :D], symmetric(rows[:, D:], D))

    def rescale(self, state: State, scale: npt.NDArray[np.float64], shift: npt.NDArray[np.float64]) -> None:
        """Move all abilities to scale theta + shift."""
        self.workers.map(lambda chunk: kernels.rescale(state.theta, scale, shift, *chunk), self.layout.person_chunks)

    def save(self) -> Saved:
        """See `concal.calibration.saving.Part`."""
        return {f"accepted{k}": counts for k, counts in enumerate(self.item_accepted)}

    def load(self, saved: Saved) -> None:
        """See `concal.calibration.saving.Part`."""
        self.item_accepted = [saved[f"accepted{k}"] for k in range(len(self.item_accepted))]

    def forget_acceptance(self) -> None:
        """Start counting anew."""
        for counts in self.item_accepted:
            counts[:] = 0.0


def accumulators(g: GroupLayout, n: int) -> npt.NDArray[np.float64]:
    """Room for n items' log-likelihood, gradient and information."""
    return np.empty((n, 1 + g.p + g.p * (g.p + 1) // 2, LANES))
