r"""Moves of Sigma with all items of the group carried along (`concal.calibration.moves.carrying`).

Few coordinates allow large steps: beta is left to its Gibbs step (moving it along as well halved the effective draws of
Sigma where half of the items had six responses and ten features).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from concal.calibration import kernels, priors
from concal.calibration.family import Family
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout, Layout
from concal.calibration.matrices import by_lane, inverse, lower
from concal.calibration.moves.carrying import LEARN_EVERY, SMALL, Reference, Sketch, in_turn
from concal.calibration.moves.population import among
from concal.calibration.moves.units import UnitSteps, accumulators
from concal.calibration.saving import Part, Saved, load_parts, save_parts
from concal.calibration.state import GroupState, State, pin

Array = npt.NDArray[np.float64]
LARGEST_LOG_SD = 12.0
SMALL_GROUP_MOVES = 2


class SigmaMove:
    """Moves Sigma of every group with its items; what it learned in warm-up is part of it.

    Strata of a group share the head of their Sigma, and a reference: they move together. Families are told by the group
    that leads them. Large groups move in every `every`-th sweep once the warm-up is over.
    """

    def __init__(self, layout: Layout, every: int = 1) -> None:
        self.layout, self.every = layout, every
        self.families = {family.lead: family for family in layout.families}
        self.references = {lead: Reference(packed_size(family)) for lead, family in self.families.items()}
        self.sketches = [Sketch(g.n_items, g.p) for g in layout.groups]

    def move(self, state: State, steps: UnitSteps, rng: np.random.Generator, *, adapting: bool) -> None:
        """Move the groups whose turn it is; while adapting also learn."""
        free = [k for k, f in self.families.items() if f.groups[0].guide is None]  # guided items do not follow Sigma
        size = {k: sum(g.n_items for g in self.families[k].groups) for k in free}
        now = [k for k in free if in_turn(size[k], state.sweep, self.every, adapting=adapting)]
        ready = [k for k in now if self.references[k].ready]
        small = [k for k in ready if size[k] < SMALL]
        for moving in (ready, *[small] * (SMALL_GROUP_MOVES - 1)):
            for k, new in self.propose(moving, state, steps, rng).items():
                yes = self._decide(k, new, state, steps, rng)
                if adapting:
                    self.references[k].adapt(yes)
        if adapting:
            for k in free:
                self._remember(self.families[k], state, steps)

    def _remember(self, family: Family, state: State, steps: UnitSteps) -> None:
        """What this sweep tells the reference and the sketches; now and then they are made anew."""
        reference = self.references[family.lead]
        reference.history.append(pack_family(family, [state.groups[k] for k in family.members]))
        for k in family.members:
            self.sketches[k].see(state.groups[k].xi)
        if len(reference.history) % LEARN_EVERY == 0:
            reference.learn()
            for k, g in zip(family.members, family.groups, strict=True):
                self._sketch(k, g, state.groups[k], state, steps)

    def _sketch(self, k: int, g: GroupLayout, s: GroupState, state: State, steps: UnitSteps) -> None:
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
    ) -> dict[int, FamilyProposal]:
        """New Sigmas for each of the families `moving`, their items carried along side by side on the threads."""
        groups, states = self.layout.groups, state.groups
        found = {
            k: FamilyProposal(f, [states[m] for m in f.members], self.references[k], rng)
            for k, f in ((k, self.families[k]) for k in moving)
        }
        proposals = {m: new for k in moving for m, new in zip(self.families[k].members, found[k].groups, strict=True)}
        tasks = [(k, chunk) for k in proposals for chunk in groups[k].item_chunks]
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
        for k, whole in found.items():
            own = self.families[k].members
            mine = [place + ll for (at, _), place, ll in zip(tasks, places, likelihoods, strict=True) if at in own]
            whole.log_ratio = whole.log_ratio + np.sum(mine, axis=0)
        return found

    def _decide(
        self, k: int, new: FamilyProposal, state: State, steps: UnitSteps, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        yes = np.log(rng.random(LANES)) < np.where(np.isfinite(new.log_ratio), new.log_ratio, -np.inf)
        for m, own in zip(self.families[k].members, new.groups, strict=True):
            s = state.groups[m]
            s.xi, s.sigma = np.where(yes, own.xi, s.xi), np.where(yes, own.sigma, s.sigma)
            pin(self.layout.groups[m], s)
            steps.item_ll[m] = np.where(yes, own.ll, steps.item_ll[m])
        return yes

    def save(self) -> Saved:
        """See `concal.calibration.saving.Part`."""
        return save_parts(self._parts())

    def load(self, saved: Saved) -> None:
        """See `concal.calibration.saving.Part`."""
        load_parts(self._parts(), saved)

    def _parts(self) -> dict[str, Part]:
        references: dict[str, Part] = {f"reference{k}": r for k, r in self.references.items()}
        return references | {f"sketch{k}": s for k, s in enumerate(self.sketches)}


class SigmaProposal:
    """A proposed Sigma of one group for every lane, with room for its items."""

    def __init__(self, g: GroupLayout, s: GroupState, phi: Array) -> None:
        self.sigma = among(g, unpack(phi, g.free.size))
        self.old_precision, self.precision = inverse(s.sigma), inverse(self.sigma)
        self.xi = np.empty_like(s.xi)
        self.ll = np.empty((g.n_items, LANES))


class FamilyProposal:
    """Proposed Sigmas of all strata of a group, the items carried along, and the log acceptance ratio (LANES,)."""

    def __init__(
        self, family: Family, states: Sequence[GroupState], reference: Reference, rng: np.random.Generator
    ) -> None:
        phi = pack_family(family, states)
        new_phi, ratio = reference.propose(phi, rng)
        diagonals = [_lower(g.free.size)[2] for g in family.groups]
        new = unpack_family(family, new_phi)
        largest = [np.abs(values[:, d]).max(axis=1) for values, d in zip(new, diagonals, strict=True)]
        absurd = np.max(largest, axis=0) > LARGEST_LOG_SD  # would be singular in float64: stay
        if absurd.any():
            new_phi, ratio = np.where(absurd[:, None], phi, new_phi), np.where(absurd, -np.inf, ratio)
            new = unpack_family(family, new_phi)
        old = unpack_family(family, phi)
        self.groups = [SigmaProposal(g, s, to) for g, s, to in zip(family.groups, states, new, strict=True)]
        for g, s, own, was, to, d in zip(family.groups, states, self.groups, old, new, diagonals, strict=True):
            mixing = s.sd_mixing[g.free].T
            ratio = ratio + log_density(to, own_block(g, own.precision), mixing)
            ratio = ratio - log_density(was, own_block(g, own.old_precision), mixing)
            # log|Sigma| / 2 per item
            ratio = ratio - g.n_items * (to[:, d] - was[:, d]).sum(axis=1)
        if len(states) > 1:  # every stratum counted the prior of what they share
            change = _head_density(family, states[0], new_phi) - _head_density(family, states[0], phi)
            ratio = ratio - (len(states) - 1) * change
        self.log_ratio = ratio


def _head_density(family: Family, s: GroupState, phi: Array) -> Array:
    """Log prior density of the head's log-Cholesky coordinates alone."""
    own = np.ascontiguousarray(phi[:, : _head_size(family)])
    return log_density(own, np.linalg.inv(unpack(own, family.head.size)), s.sd_mixing[family.head].T)


def _head_size(family: Family) -> int:
    return int(family.head.size * (family.head.size + 1) // 2)


def packed_size(family: Family) -> int:
    """Length of `pack_family`."""
    head = _head_size(family)
    return head + sum(g.free.size * (g.free.size + 1) // 2 - head for g in family.groups)


def pack_family(family: Family, states: Sequence[GroupState]) -> Array:
    """Log-Cholesky coordinates of all strata's Sigma, the head's once: (LANES, size)."""
    packed = [pack(own_block(g, s.sigma)) for g, s in zip(family.groups, states, strict=True)]
    return np.concatenate([packed[0], *(phi[:, _head_size(family) :] for phi in packed[1:])], axis=1)


def unpack_family(family: Family, phi: Array) -> list[Array]:
    """Log-Cholesky coordinates of each stratum's Sigma."""
    if len(family.groups) == 1:
        return [phi]
    head = _head_size(family)
    sizes = [g.free.size * (g.free.size + 1) // 2 - head for g in family.groups]
    own = np.split(phi[:, head:], np.cumsum(sizes)[:-1], axis=1)
    return [np.ascontiguousarray(np.concatenate([phi[:, :head], rest], axis=1)) for rest in own]


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
