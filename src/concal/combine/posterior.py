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
from concal.combine.marginal import curvature_pass, value_pass
from concal.combine.sigma_scale import log_prior, log_prior_curvature, root_directions, sigma_root

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


def _directions(L: Array) -> tuple[Array, npt.NDArray[np.bool_], npt.NDArray[np.intp]]:
    """G = L^-1 dL for every coordinate of Sigma, (k, p, p); which are scales; and each coordinate's own scale."""
    dL, own_scale = root_directions(L)
    return np.linalg.inv(L) @ dL, np.asarray(own_scale == np.arange(own_scale.size)), own_scale


def _sigma_score(L: Array, spread: Array, n: int) -> Array:
    G, diagonal, _ = _directions(L)
    unroot = np.linalg.inv(L)
    S = unroot @ spread @ unroot.T
    return np.asarray(np.einsum("iab,ba->i", G, S) - n * diagonal)


def curvature(posterior: JointPosterior, theta: Array, at: Evaluation) -> Array:
    """Second derivatives of the log density at an evaluated point, (size, size)."""
    layout = posterior.layout
    H = np.zeros((layout.size, layout.size))
    for k in range(layout.n_dimensions):
        where = layout.link(k).start
        for m in range(layout.n_periods):
            i = where + 2 * m
            H[i : i + 2, i : i + 2] -= posterior.link_precision[k, m]
    for name, group in posterior.groups.items():
        _curve_group(posterior, name, group, theta, at, H)
    fixed = ~posterior.free
    H[fixed] = 0.0
    H[:, fixed] = 0.0
    H[fixed, fixed] = -1.0
    return symmetric(H)


def _curve_group(
    posterior: JointPosterior, name: str, group: GroupFactors, theta: Array, at: Evaluation, H: Array
) -> None:
    layout = posterior.layout
    u, B, L, Omega, beta = unpack(layout, name, group, theta)
    mean, xi, C = prior_means(group, beta), at.xi[name], at.C[name]
    M, p, F = layout.n_periods, group.p, group.X.shape[1]

    def work(block: tuple[int, int]) -> tuple[Array, Array, Array]:
        links, to_sigma, to_beta = np.zeros((2 * M, 2 * M)), np.zeros((2 * M, p, p)), np.zeros((2 * M, F, p))
        curvature_pass(
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
            group.own_prior,
            group.X,
            xi,
            C,
            links,
            to_sigma,
            to_beta,
        )
        return links, to_sigma, to_beta

    links, to_sigma, to_beta = np.zeros((2 * M, 2 * M)), np.zeros((2 * M, p, p)), np.zeros((2 * M, F, p))
    for part in run_blocks(work, group.n_items):
        links += part[0]
        to_sigma += part[1]
        to_beta += part[2]
    at_links, at_sigma, at_beta = layout.link(group.dimension), layout.sigma[name], layout.beta[name]
    H[at_links, at_links] += links
    G, _, own_scale = _directions(L)
    unroot = np.linalg.inv(L)
    K = np.einsum("ba,ibc,cd->iad", unroot, G + G.transpose(0, 2, 1), unroot)  # -dOmega/dpsi
    cross = np.einsum("iab,mab->mi", K, to_sigma)
    H[at_links, at_sigma] += cross
    H[at_sigma, at_links] += cross.T
    cross = (to_beta @ Omega).reshape(2 * M, F * p)
    H[at_links, at_beta] += cross
    H[at_beta, at_links] += cross.T
    use = population_items(group)
    X, r, C = group.X[use], xi[use] - mean[use], C[use]
    H[at_sigma, at_sigma] += _sigma_curvature(L, G, own_scale, K, r, C)
    H[at_sigma, at_sigma] += log_prior_curvature(theta[at_sigma], group.prior_sd)
    H[at_beta, at_beta] -= _beta_curvature(X, Omega, C) + np.kron(group.hyperprior, np.eye(p))
    first = X.T @ r  # (F, p)
    third = (X.T @ (C[:, :, :, None] * r[:, None, None, :]).reshape(-1, p**3)).reshape(F, p, p, p)
    cross = np.einsum("ab,fbcd,icd->fai", Omega, third, K) - np.einsum("iab,fb->fai", K, first)
    H[at_beta, at_sigma] += cross.reshape(F * p, -1)
    H[at_sigma, at_beta] += cross.reshape(F * p, -1).T


def _sigma_curvature(L: Array, G: Array, own_scale: npt.NDArray[np.intp], K: Array, r: Array, C: Array) -> Array:
    p = L.shape[0]
    outer = r[:, :, None] * r[:, None, :]
    unroot = np.linalg.inv(L)
    S = unroot @ (outer + C).sum(axis=0) @ unroot.T
    direct = -(
        np.einsum("jca,icb,ab->ij", G, G, S)
        + np.einsum("jac,icb,ab->ij", G, G, S)
        + np.einsum("iac,jcb,ab->ij", G, G, S)
    )
    # the scale of a row moves everything in it: d(dL_i)/d(scale) = dL_i
    level = np.einsum("iab,ab->i", G, S)
    every = np.arange(G.shape[0])
    scales = own_scale == every
    direct[every, own_scale] += level
    direct[own_scale[~scales], every[~scales]] += level[~scales]
    tensor = (C.reshape(-1, p * p).T @ (outer + 0.5 * C).reshape(-1, p * p)).reshape(p, p, p, p)
    return np.asarray(direct + np.einsum("iab,bcda,jcd->ij", K, tensor, K))


def _beta_curvature(X: Array, Omega: Array, C: Array) -> Array:
    """Sum of X X' (x) (Omega - Omega C Omega)."""
    F, p = X.shape[1], Omega.shape[0]
    out = np.empty((F, p, F, p))
    inner = Omega - Omega @ C @ Omega
    for a in range(p):
        for b in range(a + 1):
            out[:, a, :, b] = out[:, b, :, a] = (X * inner[:, a, b, None]).T @ X
    return out.reshape(F * p, F * p)


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
