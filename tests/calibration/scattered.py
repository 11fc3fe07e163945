"""Random states of small periods, for tests that compare a move with the model."""

from dataclasses import replace

import numpy as np
from programme import simulate_period

from concal.calibration.kernels import LANES
from concal.calibration.layout import lay_out
from concal.calibration.moves.link import prior_mean
from concal.calibration.moves.units import UnitSteps
from concal.calibration.state import initial_state, pin
from concal.calibration.workers import Workers
from concal.data.period import Guide

TAU = 0.7
MIXED = [
    ("a", "one", ("2pl", None), 12, 6),
    ("b", "one", ("gpcm", 4), 8, 5),
    ("c", "two", ("ordered_beta", None), 6, 3),
    ("d", "two", ("3pl", None), 8, 4),
]


def period(kind, seed=1):
    """A period: plain, pooled (three populations), guided (two groups with priors), equal (slopes), rating (scale)."""
    data, truth, _ = simulate_period(MIXED, 45, seed=seed, features=1)
    rng = np.random.default_rng(seed)
    if kind == "pooled":
        return replace(data, populations=("p", "q", "r"), population=(np.arange(45) % 3).astype(np.int32))
    groups = dict(data.groups)
    for name in ("a", "c") if kind == "guided" else ():
        n, p = truth[name].shape
        root = 0.3 * (np.eye(p) + 0.3 * np.tril(rng.standard_normal((n, p, p)), -1))
        groups[name] = replace(groups[name], guide=Guide(truth[name], root @ np.swapaxes(root, 1, 2)))
    if kind == "rating":
        groups["b"] = replace(groups["b"], model=replace(groups["b"].model, slopes="equal", steps="equal"))
    for name in ("a", "b") if kind == "equal" else ():
        groups[name] = replace(groups[name], model=replace(groups[name].model, slopes="equal"))
    return replace(data, groups=groups)


def spd(rng, *shape):
    """Random covariance matrices (..., n, n, LANES)."""
    root = rng.standard_normal((*shape[:-1], LANES, shape[-1], shape[-1]))
    return np.moveaxis(0.2 * root @ np.swapaxes(root, -1, -2) + 0.4 * np.eye(shape[-1]), -3, -1)


def scattered(kind, seed=1):
    """Data, layout, state and unit steps, with everything at random values that belong together."""
    data = period(kind, seed)
    layout, rng = lay_out(data), np.random.default_rng([seed, 7])
    state, steps = initial_state(layout, seed), UnitSteps(layout, seed, Workers(1))
    state.theta[:] = rng.standard_normal(state.theta.shape)
    M, D = state.mu.shape[:2]
    R = spd(rng, M, D)
    sd = np.sqrt(np.moveaxis(np.diagonal(R[0]), -1, 0))
    R[0] /= sd[:, None] * sd[None, :]
    state.R[:], state.mu[1:] = R, rng.standard_normal((M - 1, D, LANES))
    for dim in layout.guided_dimensions:
        state.link[dim] = 0.3 * rng.standard_normal((2, LANES))
    for g, s in zip(layout.groups, state.groups, strict=True):
        free, k = g.free, g.design.X.shape[1]
        s.xi = s.xi + 0.3 * rng.standard_normal(s.xi.shape)
        s.beta = s.beta + 0.3 * rng.standard_normal(s.beta.shape)
        s.beta[1:, list(g.model.shared)] = 0.0
        s.sigma[free[:, None], free] = spd(rng, free.size)
        s.sd_mixing = rng.uniform(0.5, 2.0, s.sd_mixing.shape)
        s.mean = (g.design.X @ s.beta.reshape(k, -1)).reshape(s.xi.shape)
        if g.guide is not None:
            s.mean = prior_mean(g, state.link[g.dim])
        pin(g, s)
    steps.refresh(state)
    return data, layout, state, steps
