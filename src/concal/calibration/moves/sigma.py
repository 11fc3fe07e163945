r"""Moves of Sigma with all items of the group carried along (`concal.calibration.moves.carrying`).

The half-t scales a are integrated out while Sigma moves, and drawn anew afterwards: given them a spread near zero could
hardly grow (1/a follows the spread within half a logarithm), and it took hundreds of sweeps to come back from there.

Groups of few items, and those with a spread that is hardly known, also move along one spread at a time
(`concal.calibration.moves.scaling`).

Few coordinates allow large steps: beta is left to its Gibbs step (moving it along as well halved the effective draws of
Sigma where half of the items had six responses and ten features).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from concal.calibration import priors
from concal.calibration.family import Family
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout, Layout
from concal.calibration.matrices import inverse, lower
from concal.calibration.moves.carrying import LEARN_EVERY, SMALL, Reference, Sketch, accepted, carry_items
from concal.calibration.moves.population import among, own_block
from concal.calibration.moves.scaling import Scaling, packed_rows
from concal.calibration.moves.strata import draw_mixing, mixing_rates
from concal.calibration.moves.units import UnitSteps, accumulators
from concal.calibration.saving import Part, Saving
from concal.calibration.state import GroupState, State, pin

Array = npt.NDArray[np.float64]
LARGEST_LOG_SD = 12.0
TAIL = 0.2
"""A learned step along one spread's logarithm, beyond which a group of any size takes such steps: a sparse period (670
items a group, 36 responses each) took 1,786 sweeps, at .15, where 3,000 had not been enough without them."""


class Proposer(Protocol):
    """Where a new Sigma comes from: steps around a reference, or along one spread (`Scaling`)."""

    def propose(self, phi: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """New phi (LANES, size) and its part of the log Metropolis ratio: proposal densities, or a Jacobian."""

    def adapt(self, yes: npt.NDArray[np.bool_]) -> None:
        """Learn from what was accepted."""


class SigmaMove(Saving):
    """Moves Sigma of every group with its items; what it learned in warm-up is part of it.

    Strata of a group share the head of their Sigma, and a reference: they move together. Families are told by the group
    that leads them.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.families = {family.lead: family for family in layout.families}
        self.references = {lead: Reference(packed_size(family)) for lead, family in self.families.items()}
        self.scalings = {lead: Scaling(family_rows(family)) for lead, family in self.families.items()}
        self.sketches = [Sketch(g.n_items, g.p) for g in layout.groups]

    def move(
        self, state: State, steps: UnitSteps, rng: np.random.Generator, *, adapting: bool, backwards: bool = False
    ) -> None:
        """Move every group; while adapting also learn. Tests that reverse time want the steps `backwards`."""
        free = [k for k, f in self.families.items() if f.groups[0].guide is None]  # guided items do not follow Sigma
        ready = [k for k in free if self.references[k].ready]
        alone: dict[int, Proposer] = {k: self.scalings[k] for k in ready if self._has_a_tail(k)}
        whole: dict[int, Proposer] = {k: self.references[k] for k in ready}
        for moving in (alone, whole) if backwards else (whole, alone):
            for k, new in self.propose(moving, state, steps, rng).items():
                yes = self._decide(k, new, state, steps, rng)
                if adapting:
                    moving[k].adapt(yes)
        for k in ready:
            draw_mixing(self.families[k], [state.groups[m] for m in self.families[k].members], rng)
        if adapting:
            for k in free:
                self._remember(self.families[k], state, steps)

    def _has_a_tail(self, k: int) -> bool:
        """Whether a group moves along single spreads: it is small, or one of them is hardly known."""
        small = sum(g.n_items for g in self.families[k].groups) < SMALL
        return small or self.scalings[k].length.max() > TAIL

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
        self, moving: Mapping[int, Proposer], state: State, steps: UnitSteps, rng: np.random.Generator
    ) -> dict[int, FamilyProposal]:
        """New Sigmas for each of the families `moving`, their items carried along side by side on the threads."""
        states, families = state.groups, {k: self.families[k] for k in moving}
        drawn = {k: propose_sigmas(f, [states[m] for m in f.members], moving[k], rng) for k, f in families.items()}
        sigma = {m: new for k, f in families.items() for m, new in zip(f.members, drawn[k][0], strict=True)}
        under = {
            m: (steps.prior_under(m, inverse(s.sigma), s.mean), steps.prior_under(m, inverse(new), s.mean))
            for m, new, s in ((m, new, states[m]) for m, new in sigma.items())
        }
        carried, found = carry_items(state, steps, self.sketches, under), {}
        for k, f in families.items():
            own = [carried[m] for m in f.members]
            parts = [place + ll for items in own for place, ll in zip(items.places, items.likelihoods, strict=True)]
            proposals = [SigmaProposal(sigma[m], carried[m].xi, carried[m].ll) for m in f.members]
            found[k] = FamilyProposal(proposals, drawn[k][1] + np.sum(parts, axis=0))
        return found

    def _decide(
        self, k: int, new: FamilyProposal, state: State, steps: UnitSteps, rng: np.random.Generator
    ) -> npt.NDArray[np.bool_]:
        yes = accepted(new.log_ratio, rng)
        for m, own in zip(self.families[k].members, new.groups, strict=True):
            s = state.groups[m]
            s.xi, s.sigma = np.where(yes, own.xi, s.xi), np.where(yes, own.sigma, s.sigma)
            pin(self.layout.groups[m], s)
            steps.item_ll[m] = np.where(yes, own.ll, steps.item_ll[m])
        return yes

    def parts(self) -> Mapping[str, Part]:
        """See `concal.calibration.saving.Saving`."""
        references: dict[str, Part] = {f"reference{k}": r for k, r in self.references.items()}
        scalings: dict[str, Part] = {f"scaling{k}": s for k, s in self.scalings.items()}
        return references | scalings | {f"sketch{k}": s for k, s in enumerate(self.sketches)}


class SigmaProposal(NamedTuple):
    """A proposed Sigma of one group for every lane, its items carried along and their log-likelihoods."""

    sigma: Array
    xi: Array
    ll: Array


class FamilyProposal(NamedTuple):
    """Proposals of all strata of a group, and the log acceptance ratio (LANES,)."""

    groups: list[SigmaProposal]
    log_ratio: Array


def propose_sigmas(
    family: Family, states: Sequence[GroupState], proposer: Proposer, rng: np.random.Generator
) -> tuple[list[Array], Array]:
    """New Sigmas of all strata of a group, and what they bring to the log acceptance ratio besides their items."""
    phi = pack_family(family, states)
    new_phi, ratio = proposer.propose(phi, rng)
    diagonals = [_lower(g.free.size)[2] for g in family.groups]
    new = unpack_family(family, new_phi)
    largest = [np.abs(values[:, d]).max(axis=1) for values, d in zip(new, diagonals, strict=True)]
    absurd = np.max(largest, axis=0) > LARGEST_LOG_SD  # would be singular in float64: stay
    if absurd.any():
        new_phi, ratio = np.where(absurd[:, None], phi, new_phi), np.where(absurd, -np.inf, ratio)
        new = unpack_family(family, new_phi)
    old = unpack_family(family, phi)
    ratio = ratio + log_density(family, new) - log_density(family, old)
    for g, was, to, d in zip(family.groups, old, new, diagonals, strict=True):
        ratio = ratio - g.n_items * (to[:, d] - was[:, d]).sum(axis=1)  # log|Sigma| / 2 per item
    return [among(g, unpack(to)) for g, to in zip(family.groups, new, strict=True)], ratio


def _head_size(family: Family) -> int:
    return int(family.head.size * (family.head.size + 1) // 2)


def packed_size(family: Family) -> int:
    """Length of `pack_family`."""
    head = _head_size(family)
    return head + sum(g.free.size * (g.free.size + 1) // 2 - head for g in family.groups)


def family_rows(family: Family) -> list[npt.NDArray[np.intp]]:
    """Places of every spread's row in `pack_family`: the head's, then every stratum's own."""
    h, at = family.head.size, _head_size(family)
    rows = packed_rows(h)
    for g in family.groups:
        own = packed_rows(g.free.size, h, at)
        rows, at = rows + own, at + sum(row.size for row in own)
    return rows


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


def pack(sigma: Array) -> Array:
    """Log-Cholesky coordinates of Sigma, (LANES, p(p+1)/2): the lower triangle by rows, the diagonal in logs."""
    L: Array = np.asarray(np.linalg.cholesky(sigma), dtype=np.float64)
    rows, cols, diagonal = _lower(L.shape[-1])
    values = np.ascontiguousarray(L[:, rows, cols])
    values[:, diagonal] = np.log(values[:, diagonal])
    return values


def unpack(phi: Array) -> Array:
    """Sigma from its log-Cholesky coordinates."""
    L = root_of(phi)
    return np.asarray(L @ np.swapaxes(L, 1, 2))


def root_of(phi: Array) -> Array:
    """The Cholesky factor of Sigma from its log-Cholesky coordinates, (LANES, p, p)."""
    p = _order(phi)
    rows, cols, diagonal = _lower(p)
    values = phi.copy()
    values[:, diagonal] = np.exp(values[:, diagonal])
    L = np.zeros((phi.shape[0], p, p))
    L[:, rows, cols] = values
    return L


def _order(phi: Array) -> int:
    """Of a matrix whose lower triangle is packed so."""
    return int(np.sqrt(2 * phi.shape[1]))


def log_density(family: Family, phi: Sequence[Array]) -> Array:
    r"""Log prior density of the strata's log-Cholesky coordinates, the half-t scales integrated out (LANES,).

    What the strata share (the head) counts once, and all of them inform its scales: with r the rates of
    `concal.calibration.moves.strata.mixing_rates`,
    :math:`\int p(\Sigma \mid a)\,p(a)\,da \propto |\Sigma|^{-(\nu + 2p)/2} \prod_k r_k^{-(\nu + p)/2}`.
    """
    total = sum((_log_powers(own) for own in phi), np.zeros(LANES))
    if len(phi) > 1:
        total = total - (len(phi) - 1) * _log_powers(np.ascontiguousarray(phi[0][:, : _head_size(family)]))
    for rate, shape in mixing_rates(family, [root_of(own) for own in phi]):
        total = total - shape * np.log(rate).sum(axis=1)
    return np.asarray(total)


def _log_powers(phi: Array) -> Array:
    """Volume d Sigma / d phi and the power of |Sigma| in its prior."""
    p = _order(phi)
    log_diagonal = phi[:, _lower(p)[2]]
    volume = ((p - np.arange(p) + 1.0) * log_diagonal).sum(axis=1)
    return volume + priors.log_sigma_power(2.0 * log_diagonal.sum(axis=1), p)


@cache
def _lower(p: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns of a lower triangle, and where its diagonal is among them."""
    rows, cols = lower(p)
    return rows, cols, np.flatnonzero(rows == cols)
