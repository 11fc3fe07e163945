r"""Strata of one group: items with different numbers of categories and one population of d and log a.

With h = (d, log a) and the steps e of the items with K categories,

.. math:: h_j \sim N(X_j B, S), \qquad e_j \mid h_j \sim N(X_j C_K + G_K (h_j - X_j B),\; S_K) .

(B, S) belong to the group, (C, G, S_K) to the stratum. That is each stratum's N(X beta, Sigma) with the head of beta
and Sigma in common. The prior of Sigma (`concal.calibration.priors`) falls apart along the same line: the
head has the prior of two coordinates, whatever K, and what is left is the stratum's own,

.. math:: S \mid a \sim IW(\nu + 1, \Psi_h), \quad S_K \mid a \sim IW(\nu + p_K - 1, \Psi_e), \quad
          G_K \mid S_K, a \sim MN(0, S_K, \Psi_h^{-1}), \quad \Psi = 2 \nu\, diag(1/a) .

A group whose items all have the same number of categories is one stratum and drawn as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration.family import HEAD, Family
from concal.calibration.kernels import LANES
from concal.calibration.layout import GroupLayout
from concal.calibration.matrices import by_lane, inverse
from concal.calibration.moves.population import among, draw_beta, draw_sigma, inverse_wishart, own_block, regress
from concal.calibration.priors import mixing_rate, mixing_shape, sigma_given_mixing
from concal.calibration.state import GroupState

Array = npt.NDArray[np.float64]


def draw_family(family: Family, states: Sequence[GroupState], tau: float, rng: np.random.Generator) -> None:
    """Draw (beta, Sigma, the half-t scales) of the strata given their items; `states` are the members'."""
    if len(family.members) == 1:
        draw_beta(family.groups[0], states[0], tau, rng)
        draw_sigma(family.groups[0], states[0], rng)
    else:
        _draw_betas(family, states, tau, rng)
        _draw_sigmas(family, states, rng)
    draw_mixing(family, states, rng)


class Steps(NamedTuple):
    """A stratum with its Sigma taken apart, lane by lane: G (LANES, q, h) and S_K; `at` are the steps' coordinates."""

    g: GroupLayout
    s: GroupState
    head: npt.NDArray[np.intp]
    G: Array
    sigma: Array
    at: npt.NDArray[np.intp]


def steps_of(family: Family, g: GroupLayout, s: GroupState) -> Steps:
    """Regression of a stratum's steps on its d and log a, as Sigma has it."""
    at, sigma = g.free[g.free >= HEAD], by_lane(s.sigma)
    S, cross = sigma[:, family.head[:, None], family.head], sigma[:, at[:, None], family.head]
    G = np.swapaxes(np.linalg.solve(S, np.swapaxes(cross, 1, 2)), 1, 2)
    return Steps(g, s, family.head, G, sigma[:, at[:, None], at] - G @ np.swapaxes(cross, 1, 2), at)


def shared_information(family: Family, states: Sequence[GroupState]) -> Array:
    r""":math:`S^{-1} + \sum_K G_K' S_K^{-1} G_K`, (LANES, h, h): what all strata say about the head's prior."""
    head = family.head
    total = by_lane(inverse(states[0].sigma)[head[:, None], head])
    for g, s in zip(family.groups[1:], states[1:], strict=True):
        steps = steps_of(family, g, s)
        total = total + np.swapaxes(steps.G, 1, 2) @ np.linalg.solve(steps.sigma, steps.G)
    return total


def mixing_rates(family: Family, roots: Sequence[npt.NDArray[np.floating]]) -> list[tuple[Array, float]]:
    """Rates (LANES, q) and shape of the half-t scales' conditionals: the head's, then every stratum's own steps'.

    `roots` are Cholesky factors of the strata's Sigma over the items' own coordinates, lane by lane (LANES, p, p). The
    diagonal of an inverse is a sum of squares of theirs: positive, however near to singular Sigma is.
    """
    h = family.head.size
    squares = [np.linalg.inv(root) ** 2 for root in roots]
    information = squares[0][:, :h, :h].sum(axis=1)  # the head's own precision, then what every stratum adds
    for square in squares:
        information = information + square[:, h:, :h].sum(axis=1)
    found = [(_rate(family.groups[0], family.head, information), mixing_shape(family.n_spread))]
    for g, square in zip(family.groups, squares, strict=True):
        own = square[:, h:, h:].sum(axis=1)
        found.append((_rate(g, g.free[h:], own), mixing_shape(g.free.size)))
    return found


def _rate(g: GroupLayout, at: npt.NDArray[np.intp], information: Array) -> Array:
    return mixing_rate(information, np.array(g.model.prior.sd)[at])


def draw_mixing(family: Family, states: Sequence[GroupState], rng: np.random.Generator) -> None:
    """Draw the half-t scales of the strata given their Sigma."""
    roots = [np.linalg.cholesky(own_block(g, s.sigma)) for g, s in zip(family.groups, states, strict=True)]
    rates = mixing_rates(family, roots)
    (shared, *steps) = [(rate / rng.standard_gamma(shape, size=rate.shape)).T for rate, shape in rates]
    for g, s, drawn in zip(family.groups, states, steps, strict=True):
        s.sd_mixing = s.sd_mixing.copy()
        s.sd_mixing[family.head], s.sd_mixing[g.free[family.head.size :]] = shared, drawn


def unit_rate(family: Family, states: Sequence[GroupState]) -> Array:
    """Minus the coefficient of s^-2 in the log density under d -> s d: what the half-t prior says of d's spread."""
    rates = sigma_given_mixing(states[0].sd_mixing[:1].T)[1]
    return np.asarray(0.5 * (rates * shared_information(family, states)[:, :1, :1])[:, 0, 0])


def _draw_betas(family: Family, states: Sequence[GroupState], tau: float, rng: np.random.Generator) -> None:
    """B of all items, then C of every stratum.

    B is proposed from what d and log a say; the steps, with C integrated out under its prior, hardly object.
    """
    head, first, prior = family.head, states[0], family.groups[0].beta_prior(tau)
    items = np.concatenate([s.xi[:, head] for s in states])
    _, proposed = regress(family.design, items, by_lane(first.sigma[head[:, None], head]), prior[head], rng)
    old, change = first.beta[:, head], np.zeros(LANES)
    parts = [steps_of(family, g, s) for g, s in zip(family.groups, states, strict=True)]
    for steps in parts:
        change += _log_marginal(steps, proposed, tau) - _log_marginal(steps, old, tau)
    B = np.where(np.log(rng.random(LANES)) < change, proposed, old)
    for steps in parts:
        g, s = steps.g, steps.s
        s.beta = s.beta.copy()
        s.beta[:, head] = B
        if steps.at.size:
            own = g.beta_prior(tau)[steps.at]
            s.beta[:, steps.at] = regress(g.design, _rest(steps, B), steps.sigma, own, rng)[1]
        s.beta_mean = s.beta.copy()
        s.mean = g.predicted(s.beta)


def _rest(steps: Steps, B: Array) -> Array:
    """What d and log a leave of the steps, (items, q, LANES): X C plus noise of covariance S_K."""
    xi = steps.s.xi
    residual = xi[:, steps.head] - np.einsum("jf,fal->jal", steps.g.design.X, B)
    return xi[:, steps.at] - np.einsum("lqa,jal->jql", steps.G, residual)


def _log_marginal(steps: Steps, B: Array, tau: float) -> Array:
    """Log density of a stratum's steps given B, with C under its prior integrated out; up to a constant, (LANES,)."""
    if not steps.at.size:
        return np.zeros(LANES)
    g, prior = steps.g, steps.g.beta_prior(tau)[steps.at]
    rest = np.moveaxis(_rest(steps, B), 2, 0) - prior.mean  # (LANES, items, q)
    root = np.sqrt(prior.precision)
    values, Q = np.linalg.eigh(np.linalg.inv(steps.sigma * np.outer(root, root)))
    rotated = (rest * root) @ Q
    target = (g.design.vectors.T @ g.design.X.T) @ rotated
    explained = (values[:, None, :] * target) ** 2 / (g.design.singular[None, :, None] * values[:, None, :] + 1.0)
    return np.asarray(0.5 * (explained.sum(axis=(1, 2)) - (values[:, None, :] * rotated**2).sum(axis=(1, 2))))


def _draw_sigmas(family: Family, states: Sequence[GroupState], rng: np.random.Generator) -> None:
    """S of all items, (G, S_K) of every stratum."""
    head = family.head
    n_head, n = head.size, sum(g.n_items for g in family.groups)
    df, prior = sigma_given_mixing(states[0].sd_mixing[head].T)
    residuals = [by_lane(s.xi - s.mean) for s in states]
    scatter = sum((np.swapaxes(r[:, :, head], 1, 2) @ r[:, :, head] for r in residuals), prior)
    S = inverse_wishart(df + n, scatter, rng)
    for g, s, r in zip(family.groups, states, residuals, strict=True):
        at = g.free[g.free >= HEAD]
        block = np.zeros((LANES, g.free.size, g.free.size))
        block[:, :n_head, :n_head] = S
        if at.size:
            G, own = _draw_steps(r[:, :, head], r[:, :, at], prior, s.sd_mixing[at].T, rng)
            block[:, n_head:, :n_head] = G @ S
            block[:, :n_head, n_head:] = np.swapaxes(G @ S, 1, 2)
            block[:, n_head:, n_head:] = own + G @ S @ np.swapaxes(G, 1, 2)
        s.sigma = among(g, block)


def _draw_steps(h: Array, e: Array, prior: Array, mixing: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """G and S_K given the residuals of d and log a (LANES, items, h) and of the steps (LANES, items, q)."""
    (n, n_head), q, (df, rates) = h.shape[1:], e.shape[2], sigma_given_mixing(mixing)
    M = np.swapaxes(h, 1, 2) @ h + prior
    cross = np.swapaxes(e, 1, 2) @ h
    centre = np.swapaxes(np.linalg.solve(M, np.swapaxes(cross, 1, 2)), 1, 2)
    left = np.swapaxes(e, 1, 2) @ e - centre @ np.swapaxes(cross, 1, 2)
    left = 0.5 * (left + np.swapaxes(left, 1, 2))
    sigma = inverse_wishart(df + n_head + n, left + rates, rng)
    noise = np.linalg.cholesky(sigma) @ rng.standard_normal((LANES, q, n_head))
    # M = C C': rows of noise C^-1 have covariance M^-1
    return centre + noise @ np.linalg.inv(np.linalg.cholesky(M)), sigma
