"""What the sampler keeps: every sweep of the population parameters, thinned draws of everything else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.calibrate import kernels
from concal.calibrate.diagnostics import diagnose
from concal.calibrate.kernels import LANES
from concal.calibrate.layout import GroupLayout, Layout
from concal.calibrate.moments import MomentSums
from concal.calibrate.moves.units import UnitSteps
from concal.calibrate.state import State
from concal.calibrate.triangle import lower
from concal.calibrate.verdict import enough_items
from concal.spec import CalibrationSpec

Array = npt.NDArray[np.float64]
FEWEST_STORED = 100


class Trace:
    """Draws of a run, and what they say about convergence.

    Draws are kept every `thin` sweeps; when twice the wanted number is there, every second one goes and `thin`
    doubles. So a run of any length keeps between one and two times the wanted draws, evenly spaced.
    """

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
        self.population: list[Array] = []
        self.xi = [np.empty((room, C, g.n_items, g.p), np.float32) for g in self.layout.groups]
        self.governing = np.empty((room, C, self._governing_size()))
        D = self.layout.D
        M = len(self.layout.populations)
        self.moments = np.empty((room, C, M, 2 * D))
        self.ability_total = np.zeros((self.layout.n_persons, D))
        self.ability_square = np.zeros((self.layout.n_persons, D))
        self.ability_count = 0
        self.max_rhat, self.min_ess, self.item_share = np.inf, 0.0, 0.0
        self.checked = self.converged = False
        self.averages.clear()

    def _governing_size(self) -> int:
        D, M = self.layout.D, len(self.layout.populations)
        groups = sum(2 * g.design.X.shape[1] * g.p + g.p * g.p for g in self.layout.groups)
        return groups + M * (D + D * D) + 2 * D

    @property
    def due(self) -> bool:
        """Whether it is time to look at convergence."""
        return self.sweeps >= self.next_check

    def record(self, state: State, steps: UnitSteps) -> None:
        """Keep what this sweep gives."""
        self.sweeps += 1
        C = self.chains
        self.population.append(population_vectors(self.layout, state)[:C])
        if self.sweeps % self.thin:
            return
        if self.kept == 2 * self.per_chain:
            self._halve()
            if self.sweeps % self.thin:
                return
        at = self.kept
        for store, s in zip(self.xi, state.groups, strict=True):
            store[at] = np.moveaxis(s.xi[:, :, :C], 2, 0)
        self.governing[at] = governing_vectors(state)[:C]
        self.moments[at] = _ability_moments(self.layout, steps.sums(state))[:C]
        steps.workers.map(
            lambda chunk: kernels.add_abilities(state.theta, C, self.ability_total, self.ability_square, *chunk),
            self.layout.person_chunks,
        )
        self.ability_count += C
        self.kept += 1

    def _halve(self) -> None:
        """Drop every second draw: the ones at odd multiples of the old thinning."""
        half = self.kept // 2
        stores: list[npt.NDArray[np.floating]] = [*self.xi, self.governing, self.moments]
        for store in stores:
            store[:half] = store[1 : self.kept : 2].copy()
        self.kept, self.thin = half, 2 * self.thin

    def check(self, spec: CalibrationSpec) -> None:
        """Look at R-hat and ESS of the population parameters, then of the items."""
        chains = np.stack(self.population, axis=1)  # (chain, sweep, parameter)
        found = diagnose(chains, kinds=("rhat", "ess_bulk"))
        self.max_rhat, self.min_ess = float(np.nanmax(found.rhat)), float(np.nanmin(found.ess_bulk))
        self.checked = True
        self.converged = self.max_rhat <= spec.max_rhat and self.min_ess >= spec.min_ess and self.kept >= self.per_chain
        if self.converged:
            worst = [diagnose(xi, kinds=("rhat",)).rhat.max(axis=1) for xi in self.stored_xi()]
            good = np.concatenate(worst) <= spec.max_item_rhat
            self.item_share = float(good.mean()) if good.size else 1.0
            self.converged = enough_items(good, spec)

    def plan_next(self, spec: CalibrationSpec) -> None:
        """Next check when the targets can be expected to hold, at most twice as far as now."""
        self.next_check = int(self.sweeps * min(2.0, max(1.15, 1.05 * self._stretch(spec))))

    def _stretch(self, spec: CalibrationSpec) -> float:
        """How many times longer the run must be, from what is missing now (R-hat - 1 falls like 1 / length)."""
        by_ess = spec.min_ess / max(self.min_ess, 1.0)
        by_rhat = (self.max_rhat - 1.0) / (spec.max_rhat - 1.0)
        return max(by_ess, by_rhat, self.per_chain / max(self.kept, 1))

    def expected(self, spec: CalibrationSpec) -> int:
        """Sweeps sampling is expected to need in all."""
        if not self.checked:
            return self.next_check
        return max(self.next_check, int(self.sweeps * min(self._stretch(spec), 50.0)))

    def shortfall(self, spec: CalibrationSpec) -> str:
        """What is missing, in words."""
        population_held = self.max_rhat <= spec.max_rhat and self.min_ess >= spec.min_ess
        items = (
            f", {self.item_share:.1%} of the items within R-hat {spec.max_item_rhat} (target {spec.item_share:.1%})"
            if population_held and self.kept >= self.per_chain  # looked at only then
            else ""
        )
        return (
            f"largest population R-hat {self.max_rhat:.3f} (target {spec.max_rhat}), smallest population bulk ESS "
            f"{self.min_ess:.0f} (target {spec.min_ess:.0f}){items} after {self.sweeps} sweeps a chain"
        )

    def selection(self) -> npt.NDArray[np.intp]:
        """Which kept draws the result takes: the wanted number, evenly spaced up to the last."""
        n = min(self.wanted, self.kept)
        return self.kept - 1 - ((np.arange(n)[::-1] * self.kept) // max(n, 1))

    def stored_xi(self) -> list[npt.NDArray[np.float32]]:
        """Per group (chain, draw, item, parameter): every stored draw, what convergence is judged on."""
        return [np.swapaxes(xi[: self.kept], 0, 1) for xi in self.xi]

    def final_xi(self) -> list[npt.NDArray[np.float32]]:
        """Per group (chain, draw, item, parameter): the draws of the result."""
        chosen = self.selection()
        return [np.ascontiguousarray(np.swapaxes(xi[chosen], 0, 1)) for xi in self.xi]


def population_vectors(layout: Layout, state: State) -> Array:
    """Population parameters that convergence is judged on, in the user's units, one row per lane."""
    parts = []
    for g, s in zip(layout.groups, state.groups, strict=True):
        if g.guide is not None:
            continue  # its coefficients only describe the items
        parts.append(_by_lane(user_beta(g, s.beta.reshape(s.beta.shape[0], -1)).reshape(s.beta.shape)))
        parts.append(s.sigma[:, *lower(g.p)])
    D = layout.D
    if D > 1:
        parts.append(state.R[0][:, *lower(D, -1)])
    for m in range(1, len(layout.populations)):
        parts.append(state.mu[m].T)
        parts.append(state.R[m][:, *lower(D)])
    parts += [state.link[dim].T for dim in layout.guided_dimensions]
    return np.concatenate(parts, axis=1)


def population_names(layout: Layout, features: dict[str, tuple[str, ...]]) -> list[str]:
    """Readable names in the order of `population_vectors`."""
    names = []
    for g in layout.groups:
        if g.guide is not None:
            continue
        parameters = g.model.parameters
        names += [f"{g.name}: beta[{f},{p}]" for f in features[g.name] for p in parameters]
        names += [f"{g.name}: sigma[{parameters[i]},{parameters[j]}]" for i in range(g.p) for j in range(i + 1)]
    D, dims = layout.D, layout.dimensions
    if D > 1:
        names += [f"correlation[{dims[i]},{dims[j]}]" for i in range(D) for j in range(i)]
    for name in layout.populations[1:]:
        names += [f"{name}: mean[{d}]" for d in dims]
        names += [f"{name}: covariance[{dims[i]},{dims[j]}]" for i in range(D) for j in range(i + 1)]
    names += [f"{what} to the bank[{dims[dim]}]" for dim in layout.guided_dimensions for what in ("log A", "B")]
    return names


def user_beta(g: GroupLayout, beta: Array) -> Array:
    """Coefficients in the user's units from those of the standardised design."""
    return g.design.to_user @ beta


def governing_vectors(state: State) -> Array:
    """Everything but items and abilities, kept with a draw: beta, beta_mean, Sigma, mu, R, link; a row per lane."""
    parts = []
    for s in state.groups:
        parts += [_by_lane(s.beta), _by_lane(s.beta_mean), s.sigma.reshape(LANES, -1)]
    parts += [_by_lane(state.mu), np.moveaxis(state.R, 1, 0).reshape(LANES, -1), _by_lane(state.link)]
    return np.concatenate(parts, axis=1)


def _by_lane(values: Array) -> Array:
    """(..., LANES) to (LANES, everything else in its order)."""
    return values.reshape(-1, LANES).T


def split_governing(layout: Layout, kept: Array) -> tuple[list[tuple[Array, Array, Array]], Array, Array, Array]:
    """Undo `governing_vectors` for kept (..., size): per group (beta, beta_mean, sigma), then mu, R, link."""
    at, groups = 0, []

    def take(*shape: int) -> Array:
        nonlocal at
        size = int(np.prod(shape))
        out = kept[..., at : at + size].reshape(*kept.shape[:-1], *shape)
        at += size
        return out

    for g in layout.groups:
        k = g.design.X.shape[1]
        groups.append((take(k, g.p), take(k, g.p), take(g.p, g.p)))
    D, M = layout.D, len(layout.populations)
    return groups, take(M, D), take(M, D, D), take(D, 2)


def _ability_moments(layout: Layout, sums: Array) -> Array:
    """Mean and SD of theta over each population's examinees, (LANES, populations, 2 D)."""
    D = layout.D
    n = layout.population_sizes[:, None, None]
    mean = sums[:, :D] / n
    diagonal = [D + i * (i + 3) // 2 for i in range(D)]
    sd = np.sqrt(np.maximum(sums[:, diagonal] / n - mean**2, 0.0))
    return np.moveaxis(np.concatenate([mean, sd], axis=1), 2, 0)
