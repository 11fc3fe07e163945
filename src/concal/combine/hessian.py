"""Exact second derivatives of the joint consensus's small posterior."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.combine.factors import GroupFactors
from concal.combine.gaussian import symmetric
from concal.combine.marginal import curvature_pass
from concal.combine.posterior import (
    Evaluation,
    JointPosterior,
    population_items,
    prior_means,
    run_blocks,
    sigma_directions,
    unpack,
)
from concal.combine.sigma_scale import log_prior_curvature

Array = npt.NDArray[np.float64]


def hessian(posterior: JointPosterior, theta: Array, at: Evaluation) -> Array:
    """Second derivatives of the log density at an evaluated point, (size, size)."""
    layout = posterior.layout
    H = np.zeros((layout.size, layout.size))
    for k in range(layout.n_dimensions):
        where = layout.link(k).start
        for m in range(layout.n_periods):
            i = where + 2 * m
            H[i : i + 2, i : i + 2] -= posterior.link_precision[k, m]
    for name, group in posterior.groups.items():
        _add_group(posterior, name, group, theta, at, H)
    fixed = ~posterior.free
    H[fixed] = 0.0
    H[:, fixed] = 0.0
    H[fixed, fixed] = -1.0
    return symmetric(H)


def _add_group(
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
    G, _, own_scale = sigma_directions(L)
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
