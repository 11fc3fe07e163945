"""Exact draws from the joint posterior: Hamiltonian Monte Carlo where it is nearly standard normal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.combine.newton import Mode
from concal.combine.posterior import Evaluation, JointPosterior, evaluate, make_buffers

Array = npt.NDArray[np.float64]
Visit = Callable[[Array, Evaluation], None]


@dataclass(frozen=True)
class Chains:
    """What the sampler did.

    Attributes
    ----------
    theta : (chains, draws, size)
    acceptance : float
        Mean acceptance probability.
    step : float
    max_rhat : float
        Largest split R-hat over the parameters.
    """

    theta: Array
    acceptance: float
    step: float
    max_rhat: float


def sample_joint(
    posterior: JointPosterior,
    mode: Mode,
    visit: Visit,
    *,
    draws: int,
    rng: np.random.Generator,
    chains: int = 4,
    warmup: int = 20,
) -> Chains:
    """Draw from the marginal posterior of links and populations; `visit` sees every kept state with its items.

    The Laplace factor whitens the target, so a trajectory of two to four leapfrog steps of order one crosses it. The
    step size is tuned in a warm-up of the first chain; chains start at Laplace draws.
    """
    free = posterior.free
    back = np.asarray(np.linalg.inv(mode.root).T, dtype=np.float64)  # theta = mode + root^-T z
    kept = np.empty((chains, draws // chains, mode.theta.shape[0]))
    rates: list[float] = []
    step = 0.9 / max(1.0, (free.sum() / 50.0) ** 0.25)
    here, there = make_buffers(posterior), make_buffers(posterior)
    for chain in range(chains):
        z = np.asarray(rng.standard_normal(free.shape[0]) * free)
        at = evaluate(posterior, mode.theta + back @ z, here)
        while not np.isfinite(at.value):
            z *= 0.5
            at = evaluate(posterior, mode.theta + back @ z, here)
        n_warm = warmup if chain == 0 else max(4, warmup // 5)
        for i in range(n_warm + kept.shape[1]):
            momentum = np.asarray(rng.standard_normal(free.shape[0]) * free)
            length = int(rng.integers(2, 5))
            here, there, at, z, rate = _transition(
                posterior, mode, back, z, at, momentum, step, length, rng.random(), here, there
            )
            if chain == 0 and i < n_warm:
                step = float(np.clip(step * np.exp((rate - 0.8) / (1.0 + 0.1 * i)), 0.05, 1.4))
            if i >= n_warm:
                rates.append(rate)
                kept[chain, i - n_warm] = mode.theta + back @ z
                visit(kept[chain, i - n_warm], at)
    return Chains(kept, float(np.mean(rates)), step, _max_rhat(kept[:, :, free]))


def sample_laplace(
    posterior: JointPosterior, mode: Mode, visit: Visit, *, draws: int, rng: np.random.Generator
) -> Chains:
    """Draws from the Gaussian at the mode instead; faster, and exact only in the limit of much data."""
    back = np.asarray(np.linalg.inv(mode.root).T, dtype=np.float64)
    buffers = make_buffers(posterior)
    kept = np.empty((1, draws, mode.theta.shape[0]))
    for i in range(draws):
        theta, at = mode.theta, None
        while at is None or not np.isfinite(at.value):
            theta = mode.theta + back @ (rng.standard_normal(back.shape[0]) * posterior.free)
            at = evaluate(posterior, theta, buffers)
        kept[0, i] = theta
        visit(theta, at)
    return Chains(kept, 1.0, 0.0, 1.0)


Buffers = dict[str, tuple[Array, Array]]


def _transition(
    posterior: JointPosterior,
    mode: Mode,
    back: Array,
    z: Array,
    at: Evaluation,
    momentum: Array,
    step: float,
    length: int,
    uniform: float,
    here: Buffers,
    there: Buffers,
) -> tuple[Buffers, Buffers, Evaluation, Array, float]:
    """One Hamiltonian trajectory with its accept-reject step."""
    energy = at.value - 0.5 * float(momentum @ momentum)
    place, gradient = z, back.T @ at.gradient
    trial = at
    for _ in range(length):
        momentum = momentum + 0.5 * step * gradient
        place = place + step * momentum
        trial = evaluate(posterior, mode.theta + back @ place, there)
        if not np.isfinite(trial.value):
            return here, there, at, z, 0.0
        gradient = back.T @ trial.gradient
        momentum = momentum + 0.5 * step * gradient
    rate = float(np.exp(min(0.0, trial.value - 0.5 * float(momentum @ momentum) - energy)))
    if uniform < rate:
        return there, here, trial, place, rate
    return here, there, at, z, rate


def _max_rhat(theta: Array) -> float:
    """Largest split R-hat over parameters of (chains, draws, parameters)."""
    half = theta.shape[1] // 2
    if half < 4 or theta.shape[2] == 0:
        return float("nan")
    parts = np.concatenate([theta[:, :half], theta[:, half : 2 * half]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    return float(np.sqrt(((half - 1) / half * within + between) / np.maximum(within, 1e-300)).max())
