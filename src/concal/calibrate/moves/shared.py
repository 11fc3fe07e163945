r"""Moves of what a group has in common: one slope for all its items.

With equal slopes log a = lambda belongs to the group. Its prior is that of an intercept, N(0, 1 / tau), and given
everything else its log density is the sum of the items' log-likelihoods. A Newton-Metropolis step in lambda alone, in
every chain: the derivatives are sums of those the items' own steps use. The unit of the abilities, which lambda
follows, is moved by `concal.calibrate.moves.expansion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibrate.kernels import LANES
from concal.calibrate.layout import GroupLayout
from concal.calibrate.moves.units import UnitSteps, accumulators
from concal.calibrate.state import GroupState, pin

Array = npt.NDArray[np.float64]


class Place(NamedTuple):
    """A value of lambda in every lane: items, kernel parameters, their log-likelihoods, slope and information."""

    value: Array
    xi: Array
    par: npt.NDArray[np.float32]
    ll: Array
    slope: Array
    information: Array


def move_shared(steps: UnitSteps, state: Any, taus: Sequence[float], rng: np.random.Generator) -> None:
    """One step of every coordinate that belongs to a group."""
    for k, (g, s, tau) in enumerate(zip(steps.layout.groups, state.groups, taus, strict=True)):
        for c in g.model.shared:
            _move(steps, state, k, g, s, c, tau, rng)


def _move(
    steps: UnitSteps, state: Any, k: int, g: GroupLayout, s: GroupState, c: int, tau: float, rng: np.random.Generator
) -> None:
    old = place_at(steps, state, k, g, s, c, s.beta[0, c].copy(), tau)
    noise = rng.standard_normal(LANES)
    new = place_at(steps, state, k, g, s, c, _newton(old) + noise / np.sqrt(old.information), tau)
    ratio = log_ratio(old, new, tau)
    yes = np.log(rng.random(LANES)) < np.where(np.isfinite(ratio), ratio, -np.inf)
    s.beta[0, c] = s.beta_mean[0, c] = np.where(yes, new.value, old.value)
    pin(g, s)
    s.par = np.where(yes, new.par, old.par)
    steps.item_ll[k] = np.where(yes, new.ll, old.ll)


def log_ratio(old: Place, new: Place, tau: float) -> Array:
    """Log acceptance ratio of the step from `old` to `new`, (LANES,)."""
    forth = (new.value - _newton(old)) * np.sqrt(old.information)
    back = (old.value - _newton(new)) * np.sqrt(new.information)
    ratio = new.ll.sum(axis=0) - old.ll.sum(axis=0) - 0.5 * tau * (new.value**2 - old.value**2)
    return ratio + 0.5 * (np.log(new.information) - np.log(old.information) - back**2 + forth**2)


def _newton(at: Place) -> Array:
    return at.value + np.clip(at.slope / at.information, -0.5, 0.5)


def place_at(
    steps: UnitSteps, state: Any, k: int, g: GroupLayout, s: GroupState, c: int, value: Array, tau: float
) -> Place:
    """What the responses and the prior say of a value (LANES,) of coordinate c of group k."""
    xi = s.xi.copy()
    xi[:, c] = value
    par, jacobian = steps.parameters({k: xi})[k], steps.jacobians({k: xi})[k]

    def part(chunk: tuple[int, int]) -> tuple[Array, Array, Array]:
        lo, hi = chunk
        acc = accumulators(g, hi - lo)
        steps.likelihood.accumulate(state, k, xi, par, jacobian, acc, lo, hi)
        return acc[:, 0].copy(), acc[:, 1 + c].sum(axis=0), acc[:, 1 + g.p + c * (c + 3) // 2].sum(axis=0)

    ll, slope, information = zip(*steps.workers.map(part, g.item_chunks), strict=True)
    return Place(
        value, xi, par, np.concatenate(ll), np.sum(slope, axis=0) - tau * value, np.sum(information, axis=0) + tau
    )
