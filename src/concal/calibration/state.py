"""The state of the chains: everything a sweep changes, and nothing else (so it is what a checkpoint saves)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.calibration.family import in_common
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout, Layout
from concal.calibration.matrices import lanes_last
from concal.calibration.saving import Part, Saving
from concal.calibration.streams import numbers_of
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]


@dataclass
class GroupState(Saving):
    """One group's items and population model; the last axis is the lane (chain).

    Attributes
    ----------
    xi : (items, p, LANES) float64
    beta : (features, p, LANES) float64
        On the standardised design.
    beta_mean : (features, p, LANES) float64
        Conditional mean the last beta was drawn around.
    sigma : (p, p, LANES) float64
    sd_mixing : (p, LANES) float64
        Auxiliary scales of the half-t prior on sqrt(diag(Sigma)).
    mean : (items, p, LANES) float64
        Prior means of the items: X beta, or what the guide says.
    par : (items, rows, LANES) float32
        Kernel parameters of xi.
    """

    xi: Array
    beta: Array
    beta_mean: Array
    sigma: Array
    sd_mixing: Array
    mean: Array
    par: npt.NDArray[np.float32]

    saved_fields = ("xi", "beta", "beta_mean", "sigma", "sd_mixing", "mean", "par")


@dataclass
class State(Saving):
    """All chains.

    `theta` is (persons, D, LANES) float32; `mu` (populations, D, LANES) and `R` (populations, D, D, LANES) the ability
    distributions, the first population's fixed to mean zero and unit variances. `link` (D, 2, LANES) is (log A, B) from
    the period's metric to that of a guide.
    """

    sweep: int
    theta: npt.NDArray[np.float32]
    mu: Array
    R: Array
    groups: list[GroupState]
    link: Array

    saved_fields = ("sweep", "theta", "mu", "R", "link")

    def parts(self) -> Mapping[str, Part]:
        """See `concal.calibration.saving.Saving`."""
        return {f"group{k}": s for k, s in enumerate(self.groups)}


def kernel_parameters(group: GroupLayout, xi: Array) -> npt.NDArray[np.float32]:
    """Rows the kernels read, (items, rows, LANES) float32, from xi (items, p, LANES)."""
    with np.errstate(over="ignore", invalid="ignore"):  # an absurd proposal is refused: its likelihood is not finite
        rows = group.model.kernel_parameters(xi.transpose(0, 2, 1))
        return np.ascontiguousarray(rows.transpose(0, 2, 1), dtype=np.float32)


def jacobian(group: GroupLayout, xi: Array) -> Array:
    """d psi / d extras for every item and lane, (items, q, q, LANES), q the number of extras."""
    if group.p == 2:
        return np.empty((xi.shape[0], 0, 0, LANES))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(group.model.extras_jacobian(xi.transpose(0, 2, 1)).transpose(0, 2, 3, 1))


PINNED = 1e-10
"""Variance, for the steps of single items, of a coordinate that belongs to the group; `pin` makes it exactly zero."""


def pinned(sigma: Array, model: ResponseModel) -> Array:
    """Sigma (..., p, p) without the spread of coordinates that belong to the group."""
    out = np.array(sigma)
    for c in model.shared:
        out[..., c, :] = out[..., :, c] = 0.0
        out[..., c, c] = PINNED
    return out


def pin(g: GroupLayout, s: GroupState) -> None:
    """Put every item's share of a group's coordinate where the group has it."""
    for c in g.model.shared:
        s.xi[:, c] = s.mean[:, c] = s.beta[0, c]


def level_shared(layouts: Sequence[GroupLayout], groups: Sequence[GroupState]) -> None:
    """Give all parts of a group the coordinates that belong to the group, where the first has them."""
    for common in in_common(layouts):
        c, lead = common.coordinate, groups[common.members[0]]
        for k in common.members:
            groups[k].beta[0, c] = groups[k].beta_mean[0, c] = lead.beta[0, c]
    for g, s in zip(layouts, groups, strict=True):
        pin(g, s)
        s.par = kernel_parameters(g, s.xi)


def initial_state(layout: Layout, seed: int) -> State:
    """Chains that start far apart: a population of its own for each, and items scattered around it.

    Means lie one typical spread of the items apart, spreads differ by half, correlations by .4: wider than what a
    posterior leaves open, so that chains which agree have come from different places.
    """
    rng = numbers_of(seed, 0)
    groups = []
    for g in layout.groups:
        centre, sd = np.array(g.model.prior.mean)[:, None], np.array(g.model.prior.sd)[:, None]
        k = g.design.X.shape[1]
        beta = np.zeros((k, g.p, LANES))
        beta[0] = centre + sd * rng.standard_normal((g.p, LANES))
        variance = (sd * np.exp(0.5 * rng.standard_normal((g.p, LANES)))) ** 2
        sigma = lanes_last(pinned(np.einsum("pl,pq->lpq", variance, np.eye(g.p)), g.model))
        mean = np.repeat(beta[:1], g.n_items, axis=0)
        if g.guide is not None:
            mean = np.repeat(g.guide.mean[:, :, None], LANES, axis=2)
        xi = mean + 0.3 * sd * rng.standard_normal((g.n_items, g.p, LANES))
        groups.append(GroupState(xi, beta, beta.copy(), sigma, np.ones((g.p, LANES)), mean, kernel_parameters(g, xi)))
    level_shared(layout.groups, groups)
    M, D = len(layout.populations), layout.D
    theta = (0.1 * rng.standard_normal((layout.n_persons, D, LANES))).astype(np.float32)
    L = np.eye(D) + np.tril(0.4 * rng.standard_normal((LANES, D, D)), -1)
    L /= np.sqrt((L**2).sum(axis=2, keepdims=True))  # rows of length one: of a correlation matrix
    R = np.repeat(lanes_last(L @ np.swapaxes(L, 1, 2))[None], M, axis=0)
    return State(0, theta, np.zeros((M, D, LANES)), R, groups, np.zeros((D, 2, LANES)))
