r"""Moves of what a group has in common: one slope for all its items.

With equal slopes log a = lambda belongs to the group. Its prior is that of an intercept, and given
everything else its log density is the sum of the items' log-likelihoods. A Newton-Metropolis step in lambda alone, in
every chain: the derivatives are sums of those the items' own steps use. All responses of the group speak of lambda, so
a chain that begins away from it is hundreds of its SDs away: proposals have tails, or no chain could come back
(`concal.calibration.moves.climb`). The unit of the abilities, which lambda follows, is moved by
`concal.calibration.moves.expansion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration.moves.carrying import accepted
from concal.calibration.moves.climb import LONGEST, draw_around, log_around
from concal.calibration.moves.units import UnitSteps, accumulators
from concal.calibration.priors import BetaPrior
from concal.calibration.state import pin

Array = npt.NDArray[np.float64]


class Place(NamedTuple):
    """A value of lambda in every lane: per stratum the kernel parameters and items' log-likelihoods; slope and
    information of all items.
    """

    value: Array
    par: list[npt.NDArray[np.float32]]
    ll: list[Array]
    slope: Array
    information: Array


def move_shared(steps: UnitSteps, state: Any, taus: Sequence[float], rng: np.random.Generator) -> None:
    """One step of every coordinate that belongs to a group; its prior counts once, whatever the items' populations."""
    for common in steps.layout.in_common:
        lead, c = common.members[0], common.coordinate
        _move(steps, state, common.members, c, steps.layout.groups[lead].beta_prior(taus[lead])[c], rng)


def _move(
    steps: UnitSteps, state: Any, members: tuple[int, ...], c: int, prior: BetaPrior, rng: np.random.Generator
) -> None:
    old = place_at(steps, state, members, c, state.groups[members[0]].beta[0, c].copy(), prior)
    noise = draw_around(1, rng)[0]
    new = place_at(steps, state, members, c, _newton(old) + noise / np.sqrt(old.information), prior)
    yes = accepted(log_ratio(old, new, prior), rng)
    for i, k in enumerate(members):
        s = state.groups[k]
        s.beta[0, c] = s.beta_mean[0, c] = np.where(yes, new.value, old.value)
        pin(steps.layout.groups[k], s)
        s.par = np.where(yes, new.par[i], old.par[i])
        steps.item_ll[k] = np.where(yes, new.ll[i], old.ll[i])


def log_ratio(old: Place, new: Place, prior: BetaPrior) -> Array:
    """Log acceptance ratio of the step from `old` to `new`, (LANES,)."""
    forth = (new.value - _newton(old)) * np.sqrt(old.information)
    back = (old.value - _newton(new)) * np.sqrt(new.information)
    ratio = sum(ll.sum(axis=0) for ll in new.ll) - sum(ll.sum(axis=0) for ll in old.ll)
    ratio = ratio - 0.5 * prior.precision * ((new.value - prior.mean) ** 2 - (old.value - prior.mean) ** 2)
    ratio = ratio + 0.5 * (np.log(new.information) - np.log(old.information))
    return np.asarray(ratio + log_around(back[None]) - log_around(forth[None]))


def _newton(at: Place) -> Array:
    return at.value + np.clip(at.slope / at.information, -LONGEST, LONGEST)


def place_at(steps: UnitSteps, state: Any, members: tuple[int, ...], c: int, value: Array, prior: BetaPrior) -> Place:
    """What the responses and the prior say of a value (LANES,) of coordinate c of some groups."""
    xi = {k: state.groups[k].xi.copy() for k in members}
    for items in xi.values():
        items[:, c] = value
    par, jacobians = steps.parameters(xi), steps.jacobians(xi)

    def part(task: tuple[int, tuple[int, int]]) -> tuple[Array, Array, Array]:
        k, (lo, hi) = task
        g = steps.layout.groups[k]
        acc = accumulators(g, hi - lo)
        steps.likelihood.accumulate(state, k, xi[k], par[k], jacobians[k], acc, lo, hi)
        return acc[:, 0].copy(), acc[:, 1 + c].sum(axis=0), acc[:, 1 + g.p + c * (c + 3) // 2].sum(axis=0)

    tasks = [(k, chunk) for k in members for chunk in steps.layout.groups[k].item_chunks]
    ll, slope, information = zip(*steps.workers.map(part, tasks), strict=True)
    return Place(
        value,
        [par[k] for k in members],
        [np.concatenate([at for at, (of, _) in zip(ll, tasks, strict=True) if of == k]) for k in members],
        np.sum(slope, axis=0) - prior.precision * (value - prior.mean),
        np.sum(information, axis=0) + prior.precision,
    )
