"""What the sampler keeps: draws evenly spaced over the sweeps, and sums over all of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from concal.calibration import kernels
from concal.calibration.layout import Layout
from concal.calibration.matrices import lower
from concal.calibration.moments import MomentSums
from concal.calibration.moves.units import AbilitySums, UnitSteps
from concal.calibration.saving import Part, Saved, Saving
from concal.calibration.state import State
from concal.calibration.targets import Forecast, Reached, began_outside, look, stretch
from concal.spec import CalibrationSpec

Array = npt.NDArray[np.float64]
FEWEST_STORED = 100
POPULATION_ROOM = 2000
"""Draws of the population parameters a chain keeps for its diagnostics: ESS up to thousands can be told."""


class Trace(Saving):
    """Draws of a run, and what they say about convergence.

    `draws` has an array (draw, ..., chain) for everything that governs units, by the name it has in the state, and
    `xi` one per group for the items. Draws are kept every `thin` sweeps; when twice the wanted number is there, every
    second one goes and `thin` doubles. So a run of any length keeps between one and two times the wanted draws, evenly
    spaced.
    """

    saved_fields = (
        "sweeps", "thin", "kept", "next_check", "ability_total", "ability_square", "ability_count",
    )  # fmt: skip

    def __init__(self, layout: Layout, spec: CalibrationSpec) -> None:
        self.layout, self.chains = layout, spec.chains
        self.wanted = -(-spec.draws // spec.chains)
        self.per_chain = max(self.wanted, FEWEST_STORED)  # R-hat of an item needs more draws than a short result keeps
        self.averages = MomentSums(layout, spec.chains)
        self.clear()

    def clear(self) -> None:
        """Forget everything sampled so far."""
        room, C = 2 * self.per_chain, self.chains
        self.sweeps, self.thin, self.kept = 0, 1, 0
        self.next_check = self.per_chain
        self.population = Evenly(POPULATION_ROOM)
        self.xi = [np.empty((room, g.n_items, g.p, C), np.float32) for g in self.layout.groups]
        self.draws: dict[str, Array] = {}
        self.ability_total = np.zeros((self.layout.n_persons, self.layout.D))
        self.ability_square = np.zeros((self.layout.n_persons, self.layout.D))
        self.ability_count = 0
        self.reached: Reached | None = None
        self.forecast = Forecast()
        self.averages.clear()

    @property
    def due(self) -> bool:
        """Whether it is time to look at convergence."""
        return self.sweeps >= self.next_check

    def record(self, state: State, steps: UnitSteps) -> None:
        """Keep what this sweep gives."""
        self.sweeps += 1
        C = self.chains
        self.population.add(population_vectors(self.layout, state)[:, :C].copy())
        steps.workers.map(  # every sweep: sums cannot be thinned afterwards, as draws are
            lambda chunk: kernels.add_abilities(state.theta, C, self.ability_total, self.ability_square, *chunk),
            self.layout.person_chunks,
        )
        self.ability_count += C
        if self.sweeps % self.thin:
            return
        if self.kept == 2 * self.per_chain:
            self._halve()
            if self.sweeps % self.thin:
                return
        at = self.kept
        for store, s in zip(self.xi, state.groups, strict=True):
            store[at] = s.xi[..., :C]
        for name, value in (governing(state) | ability_moments(self.layout, steps.sums(state))).items():
            if name not in self.draws:
                self.draws[name] = np.empty((2 * self.per_chain, *value.shape[:-1], C))
            self.draws[name][at] = value[..., :C]
        self.kept += 1

    def _halve(self) -> None:
        """Drop every second draw: the ones at odd multiples of the old thinning.

        One draw at a time, each to a place already read: a copy of half of the draws was the peak of a large period.
        """
        half = self.kept // 2
        stores: list[npt.NDArray[np.floating]] = [*self.xi, *self.draws.values()]
        for store in stores:
            for k in range(half):
                store[k] = store[2 * k + 1]
        self.kept, self.thin = half, 2 * self.thin

    def look(self, spec: CalibrationSpec, threads: int | None = None) -> Reached:
        """Judge what was sampled."""
        self.reached = look(self, spec, threads)
        return self.reached

    def plan_next(self, spec: CalibrationSpec) -> None:
        """Next look when the targets may hold, at most twice as far as now."""
        assert self.reached is not None
        self.forecast.add(self.sweeps, self.reached, spec)
        missing = max(stretch(self.reached, spec), self.per_chain / max(self.kept, 1))
        self.next_check = int(self.sweeps * min(2.0, max(1.15, 1.05 * missing)))

    def selection(self) -> npt.NDArray[np.intp]:
        """Which kept draws the result takes: the wanted number, evenly spaced up to the last."""
        n = min(self.wanted, self.kept)
        return self.kept - 1 - ((np.arange(n)[::-1] * self.kept) // max(n, 1))

    def judged(self) -> Array:
        """(chain, draw, parameter): population parameters, evenly spaced over the sweeps; see `population_names`."""
        return np.moveaxis(np.stack(self.population.values), -1, 0)

    def began_outside(self, state: State) -> bool:
        """Whether a chain was sampled on its way to where all are now, see `concal.calibration.targets`.

        Of places alone: a slow chain of a spread near zero may go far and come back.
        """
        parts = _population_parts(self.layout, state)
        places = np.concatenate([np.full(len(values), place) for place, values in parts])
        return began_outside(self.judged()[:, :, places])

    def stored_xi(self, k: int) -> npt.NDArray[np.float32]:
        """(chain, draw, item, parameter): a view of every stored draw of group k, what convergence is judged on."""
        return np.moveaxis(self.xi[k][: self.kept], -1, 0)

    def shrink(self) -> None:
        """Let go of all draws but the result's, in place: up to half of what a large period has in memory by then."""
        chosen = self.selection()
        stores: list[npt.NDArray[np.floating]] = [*self.xi, *self.draws.values()]
        for store in stores:
            for s, at in enumerate(chosen):
                store[s] = store[at]
            store.resize((chosen.size, *store.shape[1:]), refcheck=False)
        self.kept = self.wanted = chosen.size

    def take_xi(self, k: int) -> npt.NDArray[np.float32]:
        """(chain, draw, item, parameter): the result's draws of group k; what was stored of it is let go.

        Draws are the most memory of a large period, and the result's and the stored ones need not stand side by side.
        """
        chosen, xi = self.selection(), self.xi[k]
        taken = np.empty((self.chains, chosen.size, *xi.shape[1:-1]), np.float32)
        for s, at in enumerate(chosen):
            taken[:, s] = np.moveaxis(xi[at], -1, 0)
        self.xi[k] = np.empty((0, *xi.shape[1:]), np.float32)
        return taken

    def final(self, name: str) -> Array:
        """(chain, draw, ...): the result's draws of what governs units, by its name in `draws`."""
        return np.ascontiguousarray(np.moveaxis(self.draws[name][self.selection()], -1, 0))

    def save(self) -> Saved:
        """See `concal.calibration.saving.Part`."""
        stores = {f"xi{k}": xi for k, xi in enumerate(self.xi)} | {f"draws/{n}": v for n, v in self.draws.items()}
        kept = {name: store[: self.kept] for name, store in stores.items()}
        return super().save() | kept

    def load(self, saved: Saved) -> None:
        """See `concal.calibration.saving.Part`."""
        super().load(saved)
        for k, store in enumerate(self.xi):
            store[: self.kept] = saved[f"xi{k}"]
        for name in saved:
            if name.startswith("draws/"):
                room = self.draws[name.removeprefix("draws/")] = np.empty((2 * self.per_chain, *saved[name].shape[1:]))
                room[: self.kept] = saved[name]

    def parts(self) -> Mapping[str, Part]:
        """See `concal.calibration.saving.Saving`."""
        return {"averages": self.averages, "population": self.population}


class Evenly:
    """Evenly spaced values of a sequence of unknown length, in bounded memory.

    Keeps every `thin`-th value it is shown; when `room` is full every second one goes and `thin` doubles.
    """

    def __init__(self, room: int) -> None:
        self.room, self.seen, self.thin = room, 0, 1
        self.values: list[Array] = []

    def add(self, value: Array) -> None:
        """Show the next value."""
        self.seen += 1
        if self.seen % self.thin == 0 and len(self.values) == self.room:
            self.values, self.thin = self.values[1::2], 2 * self.thin  # those at odd multiples of the old spacing go
        if self.seen % self.thin == 0:
            self.values.append(value)

    def save(self) -> Saved:
        """See `concal.calibration.saving.Part`."""
        return {"seen": self.seen, "thin": self.thin, "values": np.array(self.values)}

    def load(self, saved: Saved) -> None:
        """See `concal.calibration.saving.Part`."""
        self.seen, self.thin, self.values = int(saved["seen"]), int(saved["thin"]), list(saved["values"])


def population_vectors(layout: Layout, state: State) -> Array:
    """Population parameters that convergence is judged on, in the user's units, (parameters, LANES)."""
    return np.concatenate([values for _, values in _population_parts(layout, state)])


def _population_parts(layout: Layout, state: State) -> list[tuple[bool, Array]]:
    """The same in parts, and whether a part is places (coefficients, means, links) rather than spreads."""
    parts = []
    for g, s in zip(layout.groups, state.groups, strict=True):
        if g.guide is not None:
            continue  # its coefficients only describe the items
        beta = (g.design.to_user @ s.beta.reshape(s.beta.shape[0], -1)).reshape(s.beta.shape)[g.coefficients]
        parts += [(True, beta), (False, s.sigma[g.free[:, None], g.free][lower(g.free.size)])]
    D = layout.D
    if D > 1:
        parts.append((False, state.R[0][lower(D, -1)]))
    for m in range(1, len(layout.populations)):
        parts += [(True, state.mu[m]), (False, state.R[m][lower(D)])]
    return parts + [(True, state.link[dim]) for dim in layout.guided_dimensions]


def population_names(layout: Layout, features: dict[str, tuple[str, ...]]) -> list[str]:
    """Readable names in the order of `population_vectors`."""
    names = []
    for g in layout.groups:
        if g.guide is not None:
            continue
        parameters = g.model.parameters
        names += [f"{g.name}: beta[{features[g.name][f]},{parameters[c]}]" for f, c in np.argwhere(g.coefficients)]
        own = [parameters[c] for c in g.free]  # what belongs to the group has no spread
        names += [f"{g.name}: sigma[{own[i]},{own[j]}]" for i in range(len(own)) for j in range(i + 1)]
    D, dims = layout.D, layout.dimensions
    if D > 1:
        names += [f"correlation[{dims[i]},{dims[j]}]" for i in range(D) for j in range(i)]
    for name in layout.populations[1:]:
        names += [f"{name}: mean[{d}]" for d in dims]
        names += [f"{name}: covariance[{dims[i]},{dims[j]}]" for i in range(D) for j in range(i + 1)]
    names += [f"{what} to the bank[{dims[dim]}]" for dim in layout.guided_dimensions for what in ("log A", "B")]
    return names


def governing(state: State) -> dict[str, Array]:
    """Everything kept with a draw but items and abilities, by its name in the state, (..., LANES) each."""
    own = ("beta", "beta_mean", "sigma")
    groups = {f"group{k}/{name}": getattr(s, name) for k, s in enumerate(state.groups) for name in own}
    return groups | {"mu": state.mu, "R": state.R, "link": state.link}


def ability_moments(layout: Layout, sums: AbilitySums) -> dict[str, Array]:
    """Mean and SD of theta over each population's examinees, (populations, D, LANES) each."""
    n = layout.population_sizes[:, None, None]
    mean = sums.first / n
    square = np.moveaxis(np.diagonal(sums.second, axis1=1, axis2=2), -1, 1)
    return {"ability_mean": mean, "ability_sd": np.sqrt(np.maximum(square / n - mean**2, 0.0))}
