r"""Point estimates by Newton steps with the exact gradient and the expected information.

map   largest posterior density, all dimensions at once; SE from the information plus the prior's precision
ml    largest likelihood, one dimension at a time; not finite where the likelihood rises without end
wle   Warm's weighted likelihood, :math:`l' + J/(2I) = 0`, one dimension at a time
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.calibration.workers import Workers
from concal.score.items import GroupItems, ScoringItems
from concal.score.kernels.likelihoods import response_terms
from concal.score.posterior import PERSONS
from concal.score.rows import Answered, Index

Array = npt.NDArray[np.float64]
STEPS = 100
TOLERANCE = 1e-9
LONGEST = 1.0
"""Longest step, so that flat likelihoods do not throw an estimate out."""
BEYOND = 25.0
"""An estimate this far from zero on the reference metric is not finite: no reference population reaches there."""


@dataclass(frozen=True)
class GroupResponses:
    """Responses of one group of items, by examinee: item `items[which]`, encoded score y."""

    start: Index
    items: Index
    which: Index
    y: Array


class Likelihood:
    """Log-likelihood, gradient and information of some examinees at any abilities, items at given parameters."""

    def __init__(self, items: ScoringItems, answered: Answered, workers: Workers) -> None:
        self.items, self.answered, self.workers = items, answered, workers
        self.n, self.D = answered.n_persons, len(items.dimensions)
        person = np.repeat(np.arange(self.n), np.diff(answered.start))
        self.groups, self.counts = [], np.zeros((self.n, self.D), dtype=np.int64)
        for g in items.groups:
            own = np.flatnonzero((answered.item >= g.first) & (answered.item < g.first + g.n_items))
            start = np.concatenate([[0], np.cumsum(np.bincount(person[own], minlength=self.n))])
            distinct, which = np.unique(answered.item[own].astype(np.int64) - g.first, return_inverse=True)
            y = np.ascontiguousarray(g.model.encode_score(answered.score[own]), dtype=np.float64)
            self.groups.append(GroupResponses(start, distinct, which.astype(np.int64), y))
            self.counts[:, g.dim] += np.diff(start)

    def wanted(self) -> list[Index]:
        """Items needed, by group."""
        return [g.items for g in self.groups]

    def at(self, theta: Array, xi: list[Array]) -> Array:
        """(persons, D, 3): log-likelihood, gradient, information; xi by group, the items of `wanted` in order."""
        out = np.zeros((self.n, self.D, 3))
        for own, g, values in zip(self.groups, self.items.groups, xi, strict=True):
            par = np.ascontiguousarray(g.model.kernel_parameters(values))

            def work(lo: int, own: GroupResponses = own, g: GroupItems = g, par: Array = par) -> None:
                hi = min(lo + PERSONS, self.n)
                response_terms(g.model.tag, par, own.which, own.y, g.dim, theta, out, own.start, lo, hi)

            self.workers.map(work, range(0, self.n, PERSONS))
        return out

    def bias(self, theta: Array, xi: list[Array], active: npt.NDArray[np.bool_]) -> Array:
        """J summed over the items of active examinees, (persons, D); see `ResponseModel.bias_term`."""
        J = np.zeros((self.n, self.D))
        for own, g, values in zip(self.groups, self.items.groups, xi, strict=True):
            person = np.repeat(np.arange(self.n), np.diff(own.start))
            at = np.flatnonzero(active[person, g.dim])
            for lo in range(0, at.size, 4096):
                some = at[lo : lo + 4096]
                term = g.model.bias_term(theta[person[some], g.dim], values[own.which[some]])
                J[:, g.dim] += np.bincount(person[some], term, self.n)
        return J


@dataclass(frozen=True)
class Estimates:
    """Point estimates of some examinees.

    Attributes
    ----------
    theta : (persons, D)
        Infinite where the estimate is not finite, NaN where there is no response to estimate from.
    covariance : (persons, D, D)
        NaN in these cases.
    """

    theta: Array
    covariance: Array


def map_estimates(likelihood: Likelihood, xi: list[Array], start: Array, mean: Array, covariance: Array) -> Estimates:
    """Largest posterior density; mean (persons, D) and covariance (persons, D, D) of each examinee's prior."""
    precision = np.linalg.inv(covariance)
    theta, D = start.copy(), start.shape[1]

    def value(at: Array, terms: Array) -> Array:
        off = at - mean
        return np.asarray(terms[:, :, 0].sum(axis=1) - 0.5 * np.einsum("ik,ikl,il->i", off, precision, off))

    terms = likelihood.at(theta, xi)
    height = value(theta, terms)
    for _ in range(STEPS):
        gradient = terms[:, :, 1] - np.einsum("ikl,il->ik", precision, theta - mean)
        curvature = precision + terms[:, :, 2, None] * np.eye(D)
        step = np.clip(np.linalg.solve(curvature, gradient[..., None])[..., 0], -LONGEST, LONGEST)
        scale = np.ones(theta.shape[0])
        for _ in range(30):
            moved = theta + scale[:, None] * step
            terms = likelihood.at(moved, xi)
            worse = value(moved, terms) < height - 1e-12 * np.abs(height)
            if not worse.any():
                break
            scale[worse] *= 0.5
        theta, height = moved, value(moved, terms)
        if np.abs(scale[:, None] * step).max(initial=0.0) < TOLERANCE:
            break
    return Estimates(theta, np.asarray(np.linalg.inv(precision + terms[:, :, 2, None] * np.eye(D)), np.float64))


def likelihood_estimates(likelihood: Likelihood, xi: list[Array], start: Array, *, weighted: bool) -> Estimates:
    """Largest likelihood, or (weighted) Warm's estimate, dimension by dimension."""
    theta = start.copy()
    active = likelihood.counts > 0
    infinite = np.zeros(theta.shape, dtype=bool)
    longest = np.full(theta.shape, LONGEST)
    before = np.zeros(theta.shape)
    for _ in range(STEPS):
        terms = likelihood.at(theta, xi)
        slope, information = terms[:, :, 1], np.maximum(terms[:, :, 2], 1e-300)
        if weighted:
            slope = slope + likelihood.bias(theta, xi, active) / (2.0 * information)
        step = np.clip(slope / information, -longest, longest) * active
        turned = step * before < 0  # overshooting: shorter steps from here on
        longest = np.where(turned, np.maximum(0.5 * np.abs(step), 1e-12), longest)
        theta, before = theta + step, step
        beyond = np.abs(theta) > BEYOND
        infinite |= beyond & active
        active &= ~beyond & (np.abs(step) > TOLERANCE)
        if not active.any():
            break
    empty = likelihood.counts == 0
    final = np.where(infinite, 0.0, theta)
    information = likelihood.at(final, xi)[:, :, 2]
    theta = np.where(infinite, np.sign(theta) * np.inf, theta)
    theta[empty] = np.nan
    variance = np.where(infinite | empty, np.nan, 1.0 / np.maximum(information, 1e-300))
    covariance = np.where(np.eye(theta.shape[1], dtype=bool), variance[:, :, None], 0.0)
    return Estimates(theta, covariance)
