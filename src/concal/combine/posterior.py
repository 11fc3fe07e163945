"""The small posterior of the joint consensus: links and populations in one vector, items integrated out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from concal.combine.factors import GroupFactors
from concal.combine.gaussian import symmetric
from concal.combine.marginal import value_pass
from concal.combine.sigma_scale import log_prior, root_directions, sigma_root

Array = npt.NDArray[np.float64]
T = TypeVar("T")
BLOCK = 4096  # items per task; sums are formed block by block in a fixed order, so results do not depend on threads


@dataclass(frozen=True)
class Layout:
    """Where everything sits in the parameter vector: links by dimension and period, then psi and beta by group."""

    n_periods: int
    n_dimensions: int
    sigma: Mapping[str, slice]
    beta: Mapping[str, slice]
    size: int

    def link(self, dimension: int) -> slice:
        """The links of one dimension: (log A, B) period by period."""
        width = 2 * self.n_periods
        return slice(dimension * width, (dimension + 1) * width)


@dataclass(frozen=True)
class JointPosterior:
    """Everything the marginal posterior needs.

    Attributes
    ----------
    groups : dict of group -> GroupFactors
    layout : Layout
    link_mean, link_precision : (dimensions, M, 2), (dimensions, M, 2, 2)
        Prior of each period's (log A, B): the reference's wobble around zero, flat for the others.
    free : (size,) bool
        Parameters that are estimated; the others stay where they are put.
    """

    groups: Mapping[str, GroupFactors]
    layout: Layout
    link_mean: Array
    link_precision: Array
    free: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Evaluation:
    """Log density and gradient at a point, and the conditional moments of every item there."""

    value: float
    gradient: Array
    xi: Mapping[str, Array]
    C: Mapping[str, Array]


def make_layout(groups: Mapping[str, GroupFactors], n_periods: int, n_dimensions: int) -> Layout:
    """Place links and populations in one vector."""
    place = 2 * n_periods * n_dimensions
    sigma, beta = {}, {}
    for name, group in groups.items():
        k = group.p * (group.p + 1) // 2
        sigma[name] = slice(place, place + k)
        beta[name] = slice(place + k, place + k + group.X.shape[1] * group.p)
        place = beta[name].stop
    return Layout(n_periods, n_dimensions, sigma, beta, place)


def with_weights(posterior: JointPosterior, weights: Mapping[str, Array]) -> JointPosterior:
    """The same posterior with other factor weights."""
    groups = {name: replace(group, weight=weights[name]) for name, group in posterior.groups.items()}
    return replace(posterior, groups=groups)


def evaluate(posterior: JointPosterior, theta: Array, moments: Mapping[str, tuple[Array, Array]]) -> Evaluation:
    """Log density, gradient and item moments at `theta`.

    `moments` are buffers (xi, C) per group, written in place. The value is -inf where some item's precision is not
    positive definite.
    """
    layout = posterior.layout
    gradient = np.zeros(layout.size)
    value = _link_prior(posterior, theta, gradient)
    for name, group in posterior.groups.items():
        xi, C = moments[name]
        value += _evaluate_group(posterior, name, group, theta, xi, C, gradient)
        if not np.isfinite(value):
            return Evaluation(-np.inf, gradient, {}, {})
    gradient[~posterior.free] = 0.0
    return Evaluation(
        float(value), gradient, {n: m[0] for n, m in moments.items()}, {n: m[1] for n, m in moments.items()}
    )


def make_buffers(posterior: JointPosterior) -> dict[str, tuple[Array, Array]]:
    """Room for the items' conditional means and covariances."""
    return {n: (np.zeros((g.n_items, g.p)), np.zeros((g.n_items, g.p, g.p))) for n, g in posterior.groups.items()}


def unpack(layout: Layout, name: str, group: GroupFactors, theta: Array) -> tuple[Array, Array, Array, Array, Array]:
    """(log A, B) of the group's dimension, the factor L of Sigma, Omega, and beta (features, p)."""
    links = theta[layout.link(group.dimension)].reshape(-1, 2)
    L = sigma_root(theta[layout.sigma[name]], group.p)
    unroot = np.linalg.inv(L)
    beta = theta[layout.beta[name]].reshape(-1, group.p)
    return np.ascontiguousarray(links[:, 0]), np.ascontiguousarray(links[:, 1]), L, unroot.T @ unroot, beta


def prior_means(group: GroupFactors, beta: Array) -> Array:
    """X beta, or the item's own replacement prior."""
    mean = group.X @ beta
    own = group.own_prior > 0
    if own.any():
        mean[own] = group.prior_mean[group.own_prior[own] - 1]
    return np.ascontiguousarray(mean)


def _threads() -> int:
    return max(1, min(os.cpu_count() or 1, 16))


_POOLS: dict[int, ThreadPoolExecutor] = {}


def _pool() -> ThreadPoolExecutor:
    """Threads of this process (a forked child must not wait for its parent's)."""
    pid = os.getpid()
    if pid not in _POOLS:
        _POOLS.clear()
        _POOLS[pid] = ThreadPoolExecutor(_threads(), thread_name_prefix="concal-joint")
    return _POOLS[pid]


def run_blocks(work: Callable[[tuple[int, int]], T], n_items: int) -> list[T]:
    """Run compiled work over blocks of items on all cores; results in block order."""
    blocks = [(i, min(i + BLOCK, n_items)) for i in range(0, n_items, BLOCK)]
    return [work(block) for block in blocks] if len(blocks) == 1 else list(_pool().map(work, blocks))


def _link_prior(posterior: JointPosterior, theta: Array, gradient: Array) -> float:
    value = 0.0
    layout = posterior.layout
    for k in range(layout.n_dimensions):
        links = theta[layout.link(k)].reshape(-1, 2) - posterior.link_mean[k]
        pull = np.einsum("mab,mb->ma", posterior.link_precision[k], links)
        value -= 0.5 * float((pull * links).sum())
        gradient[layout.link(k)] -= pull.ravel()
    return value


def _evaluate_group(
    posterior: JointPosterior, name: str, group: GroupFactors, theta: Array, xi: Array, C: Array, gradient: Array
) -> float:
    layout = posterior.layout
    u, B, L, Omega, beta = unpack(layout, name, group, theta)
    mean = prior_means(group, beta)

    def work(block: tuple[int, int]) -> tuple[float, Array]:
        part = np.zeros((layout.n_periods, 2))
        total = value_pass(
            block[0],
            block[1],
            group.start,
            group.period,
            group.Q,
            group.h,
            group.weight,
            group.active,
            u,
            B,
            mean,
            Omega,
            group.own_prior,
            group.prior_precision,
            xi,
            C,
            part,
        )
        return float(total), part

    value = 0.0
    by_link = np.zeros((layout.n_periods, 2))
    for total, part in run_blocks(work, group.n_items):
        value += total
        by_link += part
    if not np.isfinite(value):
        return -np.inf
    gradient[layout.link(group.dimension)] += by_link.ravel()
    use = population_items(group)
    r = xi[use] - mean[use]
    spread = symmetric(r.T @ r + C[use].sum(axis=0))
    value -= float(use.sum()) * float(np.log(np.diag(L)).sum())
    gradient[layout.sigma[name]] += _sigma_score(L, spread, int(use.sum()))
    gradient[layout.beta[name]] += (group.X[use].T @ (r @ Omega)).ravel()
    prior, prior_gradient = log_prior(theta[layout.sigma[name]], group.prior_sd)
    hyper = group.hyperprior @ beta
    gradient[layout.sigma[name]] += prior_gradient
    gradient[layout.beta[name]] -= hyper.ravel()
    return value + prior - 0.5 * float((hyper * beta).sum())


def population_items(group: GroupFactors) -> npt.NDArray[np.bool_]:
    """Items that inform the group's population."""
    return np.asarray(group.active & (group.own_prior == 0))


def sigma_directions(L: Array) -> tuple[Array, npt.NDArray[np.bool_], npt.NDArray[np.intp]]:
    """G = L^-1 dL for every coordinate of Sigma, (k, p, p); which are scales; and each coordinate's own scale."""
    dL, own_scale = root_directions(L)
    return np.linalg.inv(L) @ dL, np.asarray(own_scale == np.arange(own_scale.size)), own_scale


def _sigma_score(L: Array, spread: Array, n: int) -> Array:
    G, diagonal, _ = sigma_directions(L)
    unroot = np.linalg.inv(L)
    S = unroot @ spread @ unroot.T
    return np.asarray(np.einsum("iab,ba->i", G, S) - n * diagonal)


def free_parameters(
    layout: Layout, fixed_links: Sequence[tuple[int, int]], fixed_groups: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """Mask of estimated parameters, from the (dimension, period) links and the groups that are held fixed."""
    free = np.ones(layout.size, dtype=bool)
    for k, m in fixed_links:
        i = layout.link(k).start + 2 * m
        free[i : i + 2] = False
    for name in fixed_groups:
        free[layout.sigma[name]] = False
        free[layout.beta[name]] = False
    return free
