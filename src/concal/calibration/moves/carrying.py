r"""What moves that carry units along have in common: a reference to propose from, a sketch of every unit's likelihood.

Where units have few responses, Gibbs steps creep: items follow Sigma and Sigma follows the items. Here a proposal for
the governing parameters phi takes every unit along at a fixed *standardised place* under a Gaussian sketch of its
likelihood (see `kernels.carry`). Were the likelihoods Gaussian, this would sample phi from its marginal posterior with
all units integrated out: it is centred for well-observed units and non-centred for empty ones, unit by unit.

Proposals are autoregressive around the mean and covariance (m, S) of phi learned in warm-up,

.. math:: \phi' = m + \sqrt{1 - \epsilon^2} (\phi - m) + \epsilon w^{-1/2} S^{1/2} z ,

with w drawn from its conditional given phi under a Student-t reference t(m, S). That leaves t(m, S) invariant: the
better it is known the larger the steps, and steps grow in the tails, where a variance comes close to zero. Epsilon
adapts in warm-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration import kernels
from concal.calibration.kernels import LANES
from concal.calibration.matrices import lower
from concal.calibration.moves.units import UnitSteps
from concal.calibration.saving import Saved, Saving

Array = npt.NDArray[np.float64]
TARGET_ACCEPTANCE = 0.35
LEARN_EVERY = 30  # twice in a warm-up, and the steps then adapt to what was learned
TAIL_DF = 4.0
SMALL = 300  # units: few say least about what governs them, and carrying them costs next to nothing


class Reference(Saving):
    """The Student-t reference t(m, S) of phi and the step epsilon, learned in warm-up and then frozen."""

    saved_fields = ("mean", "factor", "inverse", "epsilon", "ready", "trials")

    def __init__(self, size: int) -> None:
        self.history: list[Array] = []
        self.mean = np.zeros(size)
        self.factor: npt.NDArray[np.floating] = np.zeros((size, size))  # of S, and its inverse
        self.inverse: npt.NDArray[np.floating] = np.zeros((size, size))
        self.epsilon, self.ready, self.trials = 0.5, False, 0

    def learn(self, which: npt.NDArray[np.bool_] | None = None) -> None:
        """Mean and covariance of the later half of what was seen (or of `which` of it), shrunk a little."""
        # one memory order, whether the history was gathered here or read from a checkpoint: sums round alike
        recent = np.concatenate(self.history[len(self.history) // 2 :], axis=0)
        recent = np.ascontiguousarray(recent if which is None else recent[:, which])
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

    def forget(self) -> None:
        """Start a new history, and let the step adapt as quickly as at first."""
        self.history, self.trials = [], 0

    def save(self) -> Saved:
        """See `concal.calibration.saving.Part`."""
        return super().save() | {"history": np.array(self.history)}

    def load(self, saved: Saved) -> None:
        """See `concal.calibration.saving.Part`."""
        super().load(saved)
        self.history = list(saved["history"])

    def adapt(self, yes: npt.NDArray[np.bool_]) -> None:
        """Larger steps when accepted often, smaller when not."""
        self.trials += 1
        rate = 1.5 / np.sqrt(self.trials + 10.0)
        self.epsilon = float(np.clip(self.epsilon * np.exp(rate * (yes.mean() - TARGET_ACCEPTANCE)), 0.02, 1.0))


class Sketch(Saving):
    """Gaussian sketch of every unit's likelihood: information (units, n(n+1)/2) and pull h = Q m (units, n)."""

    saved_fields = ("information", "pull", "total", "count")

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


class Carried(NamedTuple):
    """A group's items where they were taken along to, their log-likelihoods there and, chunk by chunk (LANES,), what
    they bring to the Metropolis ratio: log prior ratios with log Jacobians (`places`), and `likelihoods`.
    """

    xi: Array
    ll: Array
    places: list[Array]
    likelihoods: list[Array]


def carry_items(
    state: Any,
    steps: UnitSteps,
    sketches: Sequence[Sketch] | Mapping[int, Sketch],
    under: Mapping[int, tuple[kernels.Priors, kernels.Priors]],
) -> dict[int, Carried]:
    """Items of the groups `under` names, from the first of their priors to the second, side by side on the threads."""
    groups, tasks = steps.layout.groups, [(k, chunk) for k in under for chunk in steps.layout.groups[k].item_chunks]
    xi = {k: np.empty_like(state.groups[k].xi) for k in under}
    ll = {k: np.empty((groups[k].n_items, LANES)) for k in under}

    def carry(task: tuple[int, tuple[int, int]]) -> Array:
        k, (lo, hi) = task
        change, sketch = np.empty((hi - lo, LANES)), sketches[k]
        old = state.groups[k].xi
        kernels.carry(groups[k].p, old, sketch.information, sketch.pull, *under[k], xi[k][lo:hi], change, lo, hi)
        return np.asarray(change.sum(axis=0))

    def compare(task: tuple[int, tuple[int, int]]) -> Array:
        k, (lo, hi) = task
        steps.likelihood.log_likelihood(state, k, xi[k], par[k], ll[k][lo:hi], lo, hi)
        return np.asarray((ll[k][lo:hi] - steps.item_ll[k][lo:hi]).sum(axis=0))

    places = steps.workers.map(carry, tasks)
    par = steps.parameters(xi)
    likelihoods = steps.workers.map(compare, tasks)
    found = {k: Carried(xi[k], ll[k], [], []) for k in under}
    for (k, _), place, likelihood in zip(tasks, places, likelihoods, strict=True):
        found[k].places.append(place)
        found[k].likelihoods.append(likelihood)
    return found


def accepted(log_ratio: Array, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Metropolis decision in every lane; a ratio that is not finite is refused."""
    return np.asarray(np.log(rng.random(LANES)) < np.where(np.isfinite(log_ratio), log_ratio, -np.inf))
