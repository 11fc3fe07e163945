r"""Abilities given draws of the items: what the examinees' responses say once the items are known as well as they are.

.. math:: p(\theta_i \mid y) = \int p(\theta_i \mid y_i, \xi, R)\, p(\xi)\, d\xi ,

sampled with the engine's own moves of examinees and of their distribution: in draw s of chain c the items stand where
that draw has them, every examinee moves, then (mu, R). Items do not move.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from concal.calibration.kernels import LANES
from concal.calibration.layout import Layout
from concal.calibration.moves.population import draw_abilities
from concal.calibration.moves.units import UnitSteps
from concal.calibration.result import Abilities, mixture_moments
from concal.calibration.state import State, initial_state
from concal.calibration.streams import numbers_of
from concal.calibration.trace import ability_moments
from concal.calibration.workers import Workers
from concal.data.period import PeriodData

Array = npt.NDArray[np.float64]
CLIMB = 10
"""Moves up to where an examinee's posterior is; Newton steps need fewer."""
SETTLE = 20
"""Moves with the first draw before anything is kept."""
MOVES = 3
"""With every later draw. One is not enough: examinees whom new items leave in an unlikely place stay there too often.
With items known to .3, SDs were 7.5 % too large after one move, 3.1 % after two, 1.6 % after three."""


def abilities_given(
    data: PeriodData, layout: Layout, xi: Mapping[str, npt.NDArray[np.float32]], *, seed: int, threads: int
) -> Abilities:
    """Posterior mean and SD of every examinee, and the period's ability distribution draw by draw.

    Parameters
    ----------
    data, layout
        The period.
    xi
        Draws of every group's items, (chain, draw, item, parameter) with as many chains as the engine has lanes.
    seed
        Of the examinees' moves.
    threads
        The result does not depend on it.
    """
    workers = Workers(threads)
    try:
        return _sample(data, layout, xi, seed, UnitSteps(layout, seed, workers))
    finally:
        workers.close()


def _sample(
    data: PeriodData, layout: Layout, xi: Mapping[str, npt.NDArray[np.float32]], seed: int, units: UnitSteps
) -> Abilities:
    state, n_draws = initial_state(layout, seed), next(iter(xi.values())).shape[1]
    total, square = np.zeros((2, layout.n_persons, layout.D))
    draws: dict[str, list[Array]] = {}
    for draw in range(n_draws):
        for g, s in zip(layout.groups, state.groups, strict=True):
            s.xi = np.moveaxis(xi[g.name][:, draw], 0, -1).astype(np.float64)
        units.refresh(state)
        for k in range(CLIMB + SETTLE if draw == 0 else MOVES):
            _move(layout, state, units, seed, climbing=draw == 0 and k < CLIMB)
        theta = state.theta.astype(np.float64)
        total += theta.sum(axis=-1)
        square += (theta**2).sum(axis=-1)
        drawn = ability_moments(layout, units.sums(state)) | {"R": state.R[0].copy()}
        for name, value in drawn.items():
            draws.setdefault(name, []).append(value)
    n = n_draws * LANES
    mean, sd = total / n, np.sqrt(np.maximum(square / n - (total / n) ** 2, 0.0))
    found = {name: np.moveaxis(np.stack(values), -1, 0) for name, values in draws.items()}
    return gather_abilities(data, layout, mean, sd, found)


def gather_abilities(data: PeriodData, layout: Layout, mean: Array, sd: Array, draws: Mapping[str, Array]) -> Abilities:
    """Abilities from the examinees' posterior moments and draws of their distribution (chain, draw, ...) by name."""
    own_mean, own_sd = draws["ability_mean"], draws["ability_sd"]  # (chain, draw, population, D)
    whole = mixture_moments(own_mean, own_sd, layout.population_sizes)
    counts = np.zeros((layout.n_persons, layout.D), np.int64)
    for g in layout.groups:
        counts[:, g.dim] += np.diff(g.person_start)
    return Abilities(
        person_ids=data.person_ids,
        mean=mean,
        sd=sd,
        n_responses=counts,
        draw_mean=whole[0],
        draw_sd=whole[1],
        correlation=np.ascontiguousarray(draws["R"]),
        populations=layout.populations,
        population=layout.population,
        population_mean=np.ascontiguousarray(own_mean),
        population_sd=np.ascontiguousarray(own_sd),
    )


def _move(layout: Layout, state: State, units: UnitSteps, seed: int, *, climbing: bool) -> None:
    """Every examinee once, then their distribution."""
    state.sweep += 1
    units.persons(state, climbing=climbing)
    draw_abilities(layout, state, units.sums(state), numbers_of(seed, 1, state.sweep))
