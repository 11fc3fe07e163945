r"""Moves of what governs the units with the units carried along: for Sigma and for the correlation of abilities.

Where units have few responses, Gibbs steps creep: items follow Sigma and Sigma follows the items. Here a proposal for
the governing parameters phi takes every unit along at a fixed *standardised place* under a Gaussian sketch of its
likelihood (see `kernels.carry`). Were the likelihoods Gaussian, this would sample phi from its marginal posterior with
all units integrated out: it is centred for well-observed units and non-centred for empty ones, unit by unit.

Proposals are autoregressive around the mean and covariance (m, S) of phi learned in warm-up,

.. math:: \phi' = m + \sqrt{1 - \epsilon^2} (\phi - m) + \epsilon w^{-1/2} S^{1/2} z ,

with w drawn from its conditional given phi under a Student-t reference t(m, S). That leaves t(m, S) invariant: the
better it is known the larger the steps, and steps grow in the tails, where a variance comes close to zero. Epsilon
adapts in warm-up. Few
coordinates allow large steps: beta is left to its Gibbs step (moving it along as well halved the effective draws of
Sigma where half of the items had six responses and ten features).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from concal.calibrate import kernels
from concal.calibrate.layout import GroupLayout, Layout
from concal.calibrate.population import NU, among, correlation_from_z, z_from_correlation
from concal.calibrate.state import GroupState, State, pin
from concal.calibrate.sweep import UnitSteps, accumulators
from concal.calibrate.triangle import lower
from concal.response.lanes import LANES

Array = npt.NDArray[np.float64]
TARGET_ACCEPTANCE = 0.35
LEARN_EVERY = 40
TAIL_DF = 4.0
LARGEST_Z = 12.0  # Fisher's z of a correlation of 1 - 8e-11
LARGEST_LOG_SD = 12.0
SMALL_GROUP, SMALL_GROUP_MOVES = 300, 2  # few items say least about Sigma, and moving them costs next to nothing


class Reference:
    """The Student-t reference t(m, S) of phi and the step epsilon, learned in warm-up and then frozen."""

    def __init__(self, size: int) -> None:
        self.history: list[Array] = []
        self.mean = np.zeros(size)
        self.factor: npt.NDArray[np.floating] = np.zeros((size, size))  # of S, and its inverse
        self.inverse: npt.NDArray[np.floating] = np.zeros((size, size))
        self.epsilon, self.ready, self.trials, self.accepted = 0.5, False, 0, 0.0

    def learn(self) -> None:
        """Mean and covariance of the later half of what was seen, shrunk a little to its diagonal."""
        # one memory order, whether the history was gathered here or read from a checkpoint: sums round alike
        recent = np.ascontiguousarray(np.concatenate(self.history[len(self.history) // 2 :], axis=0))
        self.mean = recent.mean(axis=0)
        S = np.atleast_2d(np.cov(recent.T))
        n, k = recent.shape
        shrink = k / (k + n / 4.0)
        S = (1.0 - shrink) * S + shrink * np.diag(np.diag(S)) + 1e-10 * np.eye(k)
        self.factor = np.linalg.cholesky(S)
        self.inverse = np.linalg.inv(self.factor)
        self.ready = True

    def propose(self, phi: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """New phi (LANES, size) and log t(phi) - log t(phi'), the reference's part of the Metropolis ratio."""
        k = phi.shape[1]
        old = (((phi - self.mean) @ self.inverse.T) ** 2).sum(axis=1)
        weight = rng.standard_gamma((TAIL_DF + k) / 2.0, size=LANES) / ((TAIL_DF + old) / 2.0)
        noise = rng.standard_normal(phi.shape) @ self.factor.T / np.sqrt(weight)[:, None]
        new_phi = self.mean + np.sqrt(1.0 - self.epsilon**2) * (phi - self.mean) + self.epsilon * noise
        new = (((new_phi - self.mean) @ self.inverse.T) ** 2).sum(axis=1)
        return new_phi, 0.5 * (TAIL_DF + k) * (np.log1p(new / TAIL_DF) - np.log1p(old / TAIL_DF))

    def adapt(self, yes: npt.NDArray[np.bool_]) -> None:
        """Larger steps when accepted often, smaller when not."""
        self.trials += 1
        rate = 1.5 / np.sqrt(self.trials + 10.0)
        self.epsilon = float(np.clip(self.epsilon * np.exp(rate * (yes.mean() - TARGET_ACCEPTANCE)), 0.02, 1.0))


class Sketch:
    """Gaussian sketch of every unit's likelihood: information (units, n(n+1)/2) and pull h = Q m (units, n)."""

    def __init__(self, units: int, n: int) -> None:
        self.n = n
        self.information = np.zeros((units, n * (n + 1) // 2), np.float32)
        self.pull = np.zeros((units, n), np.float32)
        self.total, self.count = np.zeros((units, n)), 0

    def see(self, x: npt.NDArray[np.floating]) -> None:
        """Add the lanes of x (units, n, LANES) to the mean the sketch is drawn at."""
        self.total += x.mean(axis=2)
        self.count += 1

    def centre(self) -> Array:
        """Where the likelihood is expanded."""
        return self.total / max(self.count, 1)

    def draw(self, centre: Array, acc: Array, lo: int, hi: int) -> None:
        """From accumulators at the centre (averaged over lanes): h = Q centre + gradient."""
        mean, n = acc.mean(axis=2), self.n
        Q = np.zeros((hi - lo, n, n))
        rows, cols = lower(n)
        Q[:, rows, cols] = Q[:, cols, rows] = mean[:, 1 + n :]
        self.information[lo:hi] = mean[:, 1 + n :]
        self.pull[lo:hi] = np.einsum("uij,uj->ui", Q, centre[lo:hi]) + mean[:, 1 : 1 + n]

    def forget(self) -> None:
        """Start a new mean."""
        self.total[:], self.count = 0.0, 0


class ItemTransport:
    """Moves Sigma of every group with its items."""

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
            for k, yes in zip(moving, self._move_groups(moving, state, steps, rng), strict=True):
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

    def _move_groups(
        self, moving: list[int], state: State, steps: UnitSteps, rng: np.random.Generator
    ) -> list[npt.NDArray[np.bool_]]:
        """One move of Sigma in each of the groups `moving`, their items' chunks side by side on the threads."""
        groups, states = self.layout.groups, state.groups
        proposals = {k: SigmaProposal(groups[k], states[k], self.references[k], rng) for k in moving}
        tasks = [(k, chunk) for k in moving for chunk in groups[k].item_chunks]

        def carry(task: tuple[int, tuple[int, int]]) -> Array:
            k, (lo, hi) = task
            g, s, new, sketch = groups[k], states[k], proposals[k], self.sketches[k]
            change = np.empty((hi - lo, LANES))
            kernels.carry(
                g.p, s.xi, sketch.information, sketch.pull, new.old_precision, s.mean, new.precision, s.mean,
                steps.zero[k], steps.own[k], new.xi[lo:hi], change, lo, hi,
            )  # fmt: skip
            return change.sum(axis=0)

        def compare(task: tuple[int, tuple[int, int]]) -> Array:
            k, (lo, hi) = task
            new = proposals[k]
            steps.likelihood.log_likelihood(state, k, new.xi, par[k], new.ll[lo:hi], lo, hi)
            return (new.ll[lo:hi] - steps.item_ll[k][lo:hi]).sum(axis=0)

        places = steps.workers.map(carry, tasks)
        par = steps.parameters({k: new.xi for k, new in proposals.items()})
        likelihoods = steps.workers.map(compare, tasks)
        accepted = []
        for k, new in proposals.items():
            mine = [place + ll for (at, _), place, ll in zip(tasks, places, likelihoods, strict=True) if at == k]
            ratio = new.log_ratio + np.sum(mine, axis=0)
            yes = np.log(rng.random(LANES)) < np.where(np.isfinite(ratio), ratio, -np.inf)
            states[k].xi = np.where(yes, new.xi, states[k].xi)
            states[k].sigma = np.where(yes[:, None, None], new.sigma, states[k].sigma)
            pin(groups[k], states[k])
            steps.item_ll[k] = np.where(yes, new.ll, steps.item_ll[k])
            accepted.append(yes)
        return accepted


class SigmaProposal:
    """A proposed Sigma for every lane, with the part of the log acceptance ratio that no item enters."""

    def __init__(self, g: GroupLayout, s: GroupState, reference: Reference, rng: np.random.Generator) -> None:
        phi, p = pack(own_block(g, s.sigma)), g.free.size
        new_phi, ratio = reference.propose(phi, rng)
        diagonal = _lower(p)[2]
        absurd = np.abs(new_phi[:, diagonal]).max(axis=1) > LARGEST_LOG_SD  # would be singular in float64: stay
        new_phi, ratio = np.where(absurd[:, None], phi, new_phi), np.where(absurd, -np.inf, ratio)
        self.sigma = among(g, unpack(new_phi, p))
        inverse, new_inverse = np.linalg.inv(s.sigma), np.linalg.inv(self.sigma)
        mixing = s.sd_mixing[:, g.free]
        ratio = ratio + log_density(new_phi, own_block(g, new_inverse), mixing)
        ratio = ratio - log_density(phi, own_block(g, inverse), mixing)
        # log|Sigma| / 2 per item
        self.log_ratio = ratio - g.n_items * (new_phi[:, diagonal] - phi[:, diagonal]).sum(axis=1)
        self.old_precision, self.precision = _lanes_last(inverse), _lanes_last(new_inverse)
        self.xi = np.empty_like(s.xi)
        self.ll = np.empty((g.n_items, LANES))


class AbilityTransport:
    """Moves the correlation of abilities with all examinees (single-population fits with several dimensions)."""

    def __init__(self, layout: Layout) -> None:
        D = layout.D
        self.layout = layout
        self.active = D > 1 and len(layout.populations) == 1
        self.reference = Reference(D * (D - 1) // 2)
        self.sketch = Sketch(layout.n_persons if self.active else 0, D)

    def move(self, state: State, steps: UnitSteps, rng: np.random.Generator, *, adapting: bool) -> None:
        """One move of R; while adapting also learn."""
        if not self.active:
            return
        if self.reference.ready:
            yes = self._move(state, steps, rng)
            if adapting:
                self.reference.adapt(yes)
        if adapting:
            self.reference.history.append(z_from_correlation(state.R[0]))
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

    def _move(self, state: State, steps: UnitSteps, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        D, layout = self.layout.D, self.layout
        phi = z_from_correlation(state.R[0])
        new_phi, ratio = self.reference.propose(phi, rng)
        absurd = np.abs(new_phi).max(axis=1) > LARGEST_Z  # a correlation of one in float64: stay
        new_phi, ratio = np.where(absurd[:, None], phi, new_phi), np.where(absurd, -np.inf, ratio)
        R, log_prior = correlation_from_z(new_phi, D)
        ratio = ratio + log_prior - correlation_from_z(phi, D)[1]
        change_log_det = np.linalg.slogdet(R)[1] - np.linalg.slogdet(state.R[0])[1]
        ratio = ratio - 0.5 * layout.n_persons * change_log_det
        precision, new_precision = _lanes_last(np.linalg.inv(state.R[0])), _lanes_last(np.linalg.inv(R))
        moved = np.empty_like(state.theta)
        new_ll = np.zeros_like(steps.person_ll)

        def step(chunk: tuple[int, int]) -> Array:
            lo, hi = chunk
            change = np.empty((hi - lo, LANES))
            kernels.carry(
                D, state.theta, self.sketch.information, self.sketch.pull, precision, state.mu, new_precision,
                state.mu, layout.population, layout.population, moved[lo:hi], change, lo, hi,
            )  # fmt: skip
            for g, s in zip(layout.groups, state.groups, strict=True):
                kernels.person_log_likelihood(
                    g.model.tag, g.person_start[lo:], g.person_item, g.person_score, moved[lo:hi], s.par, g.dim,
                    new_ll[lo:hi], 0, hi - lo,
                )  # fmt: skip
            return (change + new_ll[lo:hi] - steps.person_ll[lo:hi]).sum(axis=0)

        ratio = ratio + np.sum(steps.workers.map(step, layout.person_chunks), axis=0)
        yes = np.log(rng.random(LANES)) < np.where(np.isfinite(ratio), ratio, -np.inf)
        flags = yes.astype(np.float64)[None]
        steps.workers.map(lambda chunk: kernels.take_lanes(state.theta, moved, flags, *chunk), layout.person_chunks)
        state.R[0] = np.where(yes[:, None, None], R, state.R[0])
        return yes


def own_block(g: GroupLayout, sigma: npt.NDArray[np.floating]) -> Array:
    """The part of Sigma, or of its inverse, that speaks of the items' own coordinates."""
    return np.ascontiguousarray(sigma[:, g.free[:, None], g.free], dtype=np.float64)


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
    trace = (NU / sd_mixing * np.diagonal(inverse, axis1=1, axis2=2)).sum(axis=1)
    # |Sigma|^-(NU + 2p)/2, then d Sigma / d phi
    return ((p - np.arange(p) + 1.0 - NU - 2 * p) * log_diagonal).sum(axis=1) - trace


@cache
def _lower(p: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns of a lower triangle, and where its diagonal is among them."""
    rows, cols = lower(p)
    return rows, cols, np.flatnonzero(rows == cols)


def _lanes_last(matrices: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return np.ascontiguousarray(np.moveaxis(matrices, 0, 2))[None]
