"""Items' posterior as a mixture over draws of links and population, accumulated draw by draw."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.combine.gaussian import symmetric
from concal.combine.posterior import (
    Evaluation,
    JointPosterior,
    evaluate,
    make_buffers,
    prior_means,
    unpack,
    with_weights,
)

Array = npt.NDArray[np.float64]


class ItemMixture:
    """Running moments of every item, and one joint draw of all items per visited state.

    Given a state (links and population) items are independent Gaussians; over states they share links and
    population, which is where their dependence comes from. Their moments may come from other factors than the states
    do: `items` has those (of the last tilting pass). Factors weighted down as drifting keep the links clean but count
    in full here, as they would in a pooled analysis.
    """

    def __init__(
        self, posterior: JointPosterior, rng: np.random.Generator, keep: int, items: JointPosterior | None = None
    ) -> None:
        self.posterior = posterior
        items = items or posterior
        base = {n: g.age for n, g in items.groups.items()}
        down = any(bool((base[n] != g.weight).any()) for n, g in items.groups.items())
        self.full = with_weights(items, base) if down or items is not posterior else None
        self.buffers = make_buffers(posterior) if self.full is not None else {}
        self.rng = rng
        self.count = 0
        self.mean = {n: np.zeros((g.n_items, g.p)) for n, g in posterior.groups.items()}
        self.square = {n: np.zeros((g.n_items, g.p, g.p)) for n, g in posterior.groups.items()}
        self.inner = {n: np.zeros((g.n_items, g.p, g.p)) for n, g in posterior.groups.items()}
        self.kept = {n: np.zeros((keep, g.n_items, g.p), dtype=np.float32) for n, g in posterior.groups.items()}

    def visit(self, theta: Array, at: Evaluation) -> None:
        """Take in one state with its items' conditional moments."""
        if self.full is not None:
            again = evaluate(self.full, theta, self.buffers)
            at = again if np.isfinite(again.value) else at
        self.count += 1
        for name, group in self.posterior.groups.items():
            xi, C = at.xi[name], at.C[name]
            idle = ~group.active
            if idle.any():
                _, _, L, _, beta = unpack(self.posterior.layout, name, group, theta)
                xi[idle] = prior_means(group, beta)[idle]
                C[idle] = L @ L.T
                own = idle & (group.own_prior > 0)
                if own.any():
                    C[own] = np.linalg.inv(group.prior_precision[group.own_prior[own] - 1])
            step = xi - self.mean[name]
            self.mean[name] += step / self.count
            self.square[name] += step[:, :, None] * (xi - self.mean[name])[:, None, :]
            self.inner[name] += C
            if self.count <= self.kept[name].shape[0]:
                z = self.rng.standard_normal(xi.shape)
                root = np.linalg.cholesky(C)
                self.kept[name][self.count - 1] = xi + np.matmul(root, z[:, :, None])[:, :, 0]

    def moments(self, name: str) -> tuple[Array, Array]:
        """Mean and covariance of every item of a group over all visited states."""
        outer = self.square[name] / max(self.count - 1, 1)
        return self.mean[name], symmetric(self.inner[name] / self.count + outer)

    def draws(self) -> dict[str, npt.NDArray[np.float32]]:
        """Joint draws, group -> (draws, items, p)."""
        return {name: kept[: self.count] for name, kept in self.kept.items()}
