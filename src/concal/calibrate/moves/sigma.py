r"""Moves of Sigma with all items of the group carried along (`concal.calibrate.moves.carrying`).

Few coordinates allow large steps: beta is left to its Gibbs step (moving it along as well halved the effective draws of
Sigma where half of the items had six responses and ten features).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from concal.calibrate import kernels, priors
from concal.calibrate.kernels import LANES
from concal.calibrate.layout import GroupLayout, Layout
from concal.calibrate.matrices import by_lane, inverse, lower
from concal.calibrate.moves.carrying import LEARN_EVERY, Reference, Sketch
from concal.calibrate.moves.population import among
from concal.calibrate.moves.units import UnitSteps, accumulators
from concal.calibrate.saving import Part, Saved, load_parts, save_parts
from concal.calibrate.state import GroupState, State, pin

Array = npt.NDArray[np.float64]
LARGEST_LOG_SD = 12.0
SMALL_GROUP, SMALL_GROUP_MOVES = 300, 2  # few items say least about Sigma, and moving them costs next to nothing


class SigmaMove:
    """Moves Sigma of every group with its items; what it learned in warm-up is part of it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.references = [Reference(g.free.size * (g.free.size + 1) // 2) for g in layout.groups]
        self.sketches = [Sketch(g.n_items, g.p) for g in layout.groups]

    def move(self, state: State, steps: UnitSteps, rng: np.random.Generator, *, adapting: bool) -> None:
        """Move every group; while adapting also learn."""
        free = [k for k, g in enumerate(self.layout.groups) if g.guide is None]  # guided items do not follow Sigma
        ready = [k for k in free if self.references[k].ready]
        small = [k for k in ready if self.layout.groups[k].n_items < SMALL_GROUP]
        for moving in (ready, *[small] * (SMALL_GROUP_MOVES - 1)):
            for k, new in self.propose(moving, state, steps, rng).items():
                yes = self._decide(k, new, state, steps, rng)
                if adapting:
                    self.references[k].adapt(yes)
        if adapting:
            for k in free:
                g, s = self.layout.groups[k], state.groups[k]
                self.references[k].history.append(pack(own_block(g, s.sigma)))
                self.sketches[k].see(s.xi)
                if len(self.references[k].history) % LEARN_EVERY == 0:
                    self._learn(k, g, s, state, steps)

    def _learn(self, k: int, g: GroupLayout, s: GroupState, state: State, steps: UnitSteps) -> None:
        self.references[k].learn()
        sketch = self.sketches[k]
        centre = sketch.centre()
        xi = {k: np.ascontiguousarray(np.broadcast_to(centre[:, :, None], s.xi.shape))}
        par, jacobian = steps.parameters(xi)[k], steps.jacobians(xi)[k]

        def step(chunk: tuple[int, int]) -> None:
            lo, hi = chunk
            acc = accumulators(g, hi - lo)
            steps.likelihood.accumulate(state, k, xi[k], par, jacobian, acc, lo, hi)
            sketch.draw(centre, acc, lo, hi)

        steps.workers.map(step, g.item_chunks)
        sketch.forget()

    def propose(
        self, moving: list[int], state: State, steps: UnitSteps, rng: np.random.Generator
    ) -> dict[int, SigmaProposal]:
        """A new Sigma for each of the groups `moving`, their items carried along side by side on the threads."""
        groups, states = self.layout.groups, state.groups
        proposals = {k: SigmaProposal(groups[k], states[k], self.references[k], rng) for k in moving}
        tasks = [(k, chunk) for k in moving for chunk in groups[k].item_chunks]
        under = {
            k: [steps.prior_under(k, P, states[k].mean) for P in (new.old_precision, new.precision)]
            for k, new in proposals.items()
        }

        def carry(task: tuple[int, tuple[int, int]]) -> Array:
            k, (lo, hi) = task
            g, s, new, sketch = groups[k], states[k], proposals[k], self.sketches[k]
            change = np.empty((hi - lo, LANES))
            kernels.carry(g.p, s.xi, sketch.information, sketch.pull, *under[k], new.xi[lo:hi], change, lo, hi)
            return change.sum(axis=0)

        def compare(task: tuple[int, tuple[int, int]]) -> Array:
            k, (lo, hi) = task
            new = proposals[k]
            steps.likelihood.log_likelihood(state, k, new.xi, par[k], new.ll[lo:hi], lo, hi)
            return (new.ll[lo:hi] - steps.item_ll[k][lo:hi]).sum(axis=0)

        places = steps.workers.map(carry, tasks)
        par = steps.parameters({k: new.xi for k, new in proposals.items()})
        likelihoods = steps.workers.map(compare, tasks)
        for k, new in proposals.items():
            mine = [place + ll for (at, _), place, ll in zip(tasks, places, likelihoods, strict=True) if at == k]
            new.log_ratio = new.log_ratio + np.sum(mine, axis=0)
        return proposals

    def _decide(
        self, k: int, new: SigmaProposal, state: State, steps: UnitSteps, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        s = state.groups[k]
        yes = np.log(rng.random(LANES)) < np.where(np.isfinite(new.log_ratio), new.log_ratio, -np.inf)
        s.xi, s.sigma = np.where(yes, new.xi, s.xi), np.where(yes, new.sigma, s.sigma)
        pin(self.layout.groups[k], s)
        steps.item_ll[k] = np.where(yes, new.ll, steps.item_ll[k])
        return yes

    def save(self) -> Saved:
        """See `concal.calibrate.saving.Part`."""
        return save_parts(self._parts())

    def load(self, saved: Saved) -> None:
        """See `concal.calibrate.saving.Part`."""
        load_parts(self._parts(), saved)

    def _parts(self) -> dict[str, Part]:
        references: dict[str, Part] = {f"reference{k}": r for k, r in enumerate(self.references)}
        return references | {f"sketch{k}": s for k, s in enumerate(self.sketches)}


class SigmaProposal:
    """A proposed Sigma for every lane, the items carried along, and the log acceptance ratio (LANES,)."""

    def __init__(self, g: GroupLayout, s: GroupState, reference: Reference, rng: np.random.Generator) -> None:
        phi, p = pack(own_block(g, s.sigma)), g.free.size
        new_phi, ratio = reference.propose(phi, rng)
        diagonal = _lower(p)[2]
        absurd = np.abs(new_phi[:, diagonal]).max(axis=1) > LARGEST_LOG_SD  # would be singular in float64: stay
        new_phi, ratio = np.where(absurd[:, None], phi, new_phi), np.where(absurd, -np.inf, ratio)
        self.sigma = among(g, unpack(new_phi, p))
        self.old_precision, self.precision = inverse(s.sigma), inverse(self.sigma)
        mixing = s.sd_mixing[g.free].T
        ratio = ratio + log_density(new_phi, own_block(g, self.precision), mixing)
        ratio = ratio - log_density(phi, own_block(g, self.old_precision), mixing)
        # log|Sigma| / 2 per item
        self.log_ratio = ratio - g.n_items * (new_phi[:, diagonal] - phi[:, diagonal]).sum(axis=1)
        self.xi = np.empty_like(s.xi)
        self.ll = np.empty((g.n_items, LANES))


def own_block(g: GroupLayout, sigma: Array) -> Array:
    """The part of Sigma (p, p, LANES), or of its inverse, that speaks of the items' own coordinates, lane by lane."""
    return by_lane(sigma[g.free[:, None], g.free])


def pack(sigma: Array) -> Array:
    """Log-Cholesky coordinates of Sigma, (LANES, p(p+1)/2): the lower triangle by rows, the diagonal in logs."""
    L: Array = np.asarray(np.linalg.cholesky(sigma), dtype=np.float64)
    rows, cols, diagonal = _lower(L.shape[-1])
    values = np.ascontiguousarray(L[:, rows, cols])
    values[:, diagonal] = np.log(values[:, diagonal])
    return values


def unpack(phi: Array, p: int) -> Array:
    """Sigma from its log-Cholesky coordinates."""
    rows, cols, diagonal = _lower(p)
    values = phi.copy()
    values[:, diagonal] = np.exp(values[:, diagonal])
    L = np.zeros((LANES, p, p))
    L[:, rows, cols] = values
    return L @ np.swapaxes(L, 1, 2)


def log_density(phi: Array, inverse: npt.NDArray[np.floating], sd_mixing: Array) -> Array:
    """Log prior density of phi (up to a constant), given Sigma^-1 and the half-t scales."""
    p = sd_mixing.shape[1]
    log_diagonal = phi[:, _lower(p)[2]]
    volume = ((p - np.arange(p) + 1.0) * log_diagonal).sum(axis=1)  # d Sigma / d phi
    diagonal = np.diagonal(inverse, axis1=1, axis2=2)
    return volume + priors.log_sigma(2.0 * log_diagonal.sum(axis=1), diagonal.T, sd_mixing.T)


@cache
def _lower(p: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns of a lower triangle, and where its diagonal is among them."""
    rows, cols = lower(p)
    return rows, cols, np.flatnonzero(rows == cols)
