r"""Moves of R, the correlation of abilities: given them, and with all examinees carried along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from concal.calibration import kernels
from concal.calibration.kernels import LANES
from concal.calibration.layout import Layout
from concal.calibration.matrices import by_lane, inverse, lanes_last
from concal.calibration.moves.carrying import LEARN_EVERY, Reference, Sketch, accepted
from concal.calibration.moves.units import UnitSteps
from concal.calibration.priors import correlation_of_z
from concal.calibration.saving import Part, Saving
from concal.calibration.state import State

Array = npt.NDArray[np.float64]
LARGEST_Z = 12.0  # Fisher's z of a correlation of 1 - 8e-11
CORRELATION_STEPS = 4
MANY, MANY_EVERY = 10_000, 2
"""Many examinees are carried along in every second sweep only, once the warm-up has learned how: it reads all responses
again, an eighth of a sweep, and their correlation was never the last to meet its target. With few examinees and flat
items it can be."""


@dataclass
class Proposal:
    """A proposed R (D, D, LANES), the abilities carried along, and the log acceptance ratio (LANES,)."""

    R: Array
    theta: npt.NDArray[np.float32]
    log_ratio: Array = field(default_factory=lambda: np.full(LANES, -np.inf))


class CorrelationMove(Saving):
    """Moves the correlation of abilities with all examinees (single-population fits with several dimensions)."""

    def __init__(self, layout: Layout) -> None:
        D = layout.D
        self.layout = layout
        self.active = D > 1 and len(layout.populations) == 1
        self.reference = Reference(D * (D - 1) // 2)
        self.sketch = Sketch(layout.n_persons if self.active else 0, D)

    def move(self, state: State, steps: UnitSteps, rng: np.random.Generator, *, adapting: bool) -> None:
        """One move of R, when it is its turn; while adapting also learn."""
        if not self.active:
            return
        every = MANY_EVERY if self.layout.n_persons >= MANY else 1
        if self.reference.ready and (adapting or state.sweep % every == 0):
            yes = self._decide(state, steps, self.propose(state, steps, rng), rng)
            if adapting:
                self.reference.adapt(yes)
        if adapting:
            self.reference.history.append(z_from_correlation(by_lane(state.R[0])))
            self.sketch.see(state.theta)
            if len(self.reference.history) % LEARN_EVERY == 0:
                self._learn(state, steps)

    def _learn(self, state: State, steps: UnitSteps) -> None:
        self.reference.learn()
        D, centre = self.layout.D, self.sketch.centre()

        def step(chunk: tuple[int, int]) -> None:
            lo, hi = chunk
            theta = np.ascontiguousarray(np.broadcast_to(centre[lo:hi, :, None], (hi - lo, D, LANES)), np.float32)
            acc = np.zeros((hi - lo, 1 + D + D * (D + 1) // 2, LANES))
            steps.person_pass(state, theta, acc, lo, hi, lo)
            self.sketch.draw(centre, acc, lo, hi)

        steps.workers.map(step, self.layout.person_chunks)
        self.sketch.forget()

    def propose(self, state: State, steps: UnitSteps, rng: np.random.Generator) -> Proposal:
        """A new R in every lane, all examinees carried along."""
        D, layout = self.layout.D, self.layout
        R = by_lane(state.R[0])
        phi = z_from_correlation(R)
        new_phi, ratio = self.reference.propose(phi, rng)
        absurd = np.abs(new_phi).max(axis=1) > LARGEST_Z  # a correlation of one in float64: stay
        new_phi, ratio = np.where(absurd[:, None], phi, new_phi), np.where(absurd, -np.inf, ratio)
        new_R, log_prior = correlation_of_z(new_phi, D)
        ratio = ratio + log_prior - correlation_of_z(phi, D)[1]
        change_log_det = np.linalg.slogdet(new_R)[1] - np.linalg.slogdet(R)[1]
        ratio = ratio - 0.5 * layout.n_persons * change_log_det
        new = Proposal(lanes_last(new_R), np.empty_like(state.theta))
        priors = self._prior(state, state.R[0]), self._prior(state, new.R)
        new_ll = np.zeros_like(steps.person_ll)

        def step(chunk: tuple[int, int]) -> Array:
            lo, hi = chunk
            change = np.empty((hi - lo, LANES))
            sketch, moved = self.sketch, new.theta[lo:hi]
            kernels.carry(D, state.theta, sketch.information, sketch.pull, *priors, moved, change, lo, hi)
            for g, s in zip(layout.groups, state.groups, strict=True):
                kernels.person_log_likelihood(
                    g.model.tag, g.person_start[lo:], g.person_item, g.person_score, moved, s.par, g.dim,
                    new_ll[lo:hi], 0, hi - lo,
                )  # fmt: skip
            return (change + new_ll[lo:hi] - steps.person_ll[lo:hi]).sum(axis=0)

        new.log_ratio = ratio + np.sum(steps.workers.map(step, layout.person_chunks), axis=0)
        return new

    def _decide(self, state: State, steps: UnitSteps, new: Proposal, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        yes = accepted(new.log_ratio, rng)
        flags = yes.astype(np.float64)[None]
        steps.workers.map(
            lambda chunk: kernels.take_lanes(state.theta, new.theta, flags, *chunk), self.layout.person_chunks
        )
        state.R[0] = np.where(yes, new.R, state.R[0])
        return yes

    def _prior(self, state: State, R: Array) -> kernels.Priors:
        """Priors of the examinees under R (D, D, LANES)."""
        pop = self.layout.population
        return kernels.Priors(inverse(R)[None], pop, state.mu, pop)

    def parts(self) -> Mapping[str, Part]:
        """See `concal.calibration.saving.Saving`."""
        return {"reference": self.reference, "sketch": self.sketch}


def z_from_correlation(R: Array) -> Array:
    """Unconstrained z of correlation matrices, the inverse of `concal.calibration.priors.correlation_of_z`."""
    L, D = np.linalg.cholesky(R), R.shape[-1]
    z = []
    for i in range(1, D):
        rest = np.ones(R.shape[:-2])
        for j in range(i):
            z.append(np.arctanh(L[..., i, j] / np.sqrt(rest)))
            rest = rest - L[..., i, j] ** 2
    return np.stack(z, axis=-1)


def log_density(z: Array, second: Array, n: int) -> tuple[Array, Array]:
    """Log density of z given sum theta theta' (LANES, D, D) of n examinees, and the correlation matrices of z."""
    R, log_prior = correlation_of_z(z, second.shape[-1])
    _, log_det = np.linalg.slogdet(R)
    trace = np.trace(np.linalg.solve(R, second), axis1=-2, axis2=-1)
    return log_prior - 0.5 * n * log_det - 0.5 * trace, R


def walk_correlation(R: Array, second: Array, n: int, rng: np.random.Generator) -> Array:
    """A few random-walk steps on R (LANES, D, D) given sum theta theta'."""
    z = z_from_correlation(R)
    value, R = log_density(z, second, n)
    scale = 2.0 / np.sqrt(max(n, 1) * z.shape[-1])
    for _ in range(CORRELATION_STEPS):
        proposal = z + scale * rng.standard_normal(z.shape)
        new_value, new_R = log_density(proposal, second, n)
        yes = np.log(rng.random(z.shape[0])) < new_value - value
        z, value = np.where(yes[:, None], proposal, z), np.where(yes, new_value, value)
        R = np.where(yes[:, None, None], new_R, R)
    return R
