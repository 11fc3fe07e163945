"""Small synthetic consensus, pooled fit and links whose comparison is known beforehand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from concal.calibration.result import Abilities, Calibration, Convergence, GroupDraws
from concal.consensus.result import Consensus, GroupConsensus
from concal.linking.result import Link, identity_link
from concal.response import make_model

CHAINS, DRAWS = 4, 250
PERIODS = ("2026Q1", "2026Q2")


@dataclass(frozen=True)
class World:
    truth: pl.DataFrame
    consensus: Consensus
    pooled: Calibration
    calibrations: dict[str, Calibration]
    links: dict[str, Link]


def standard_draws(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draws with mean 0 and SD 1 exactly along the first two axes."""
    z = rng.normal(size=shape)
    z -= z.mean(axis=(0, 1))
    return z / z.std(axis=(0, 1), ddof=1)  # flat ddof differs by a constant that callers do not see


def calibration(period, groups, abilities=None, seconds=1.0):
    return Calibration(
        period=period,
        dimensions=("reading", "writing"),
        groups=groups,
        abilities=abilities,
        convergence=Convergence(True, 100, 50, 1, seconds, 1.01, 500.0, 1.0),
        tau=0.01,
        beta_prior_precision={},
        seed=1,
    )


def group_draws(name, dimension, model, ids, mean, sd, rng, rhat=None, n_responses=None):
    n, p = mean.shape
    z = standard_draws(rng, (CHAINS, DRAWS, n, p))
    return GroupDraws(
        name=name,
        dimension=dimension,
        model=model,
        item_ids=tuple(ids),
        features=("1",),
        X=np.ones((n, 1)),
        xi=(mean + sd * z).astype(np.float32),
        beta=np.zeros((CHAINS, DRAWS, 1, p)),
        sigma=np.broadcast_to(np.eye(p), (CHAINS, DRAWS, p, p)).copy(),
        n_responses=np.full(n, 50) if n_responses is None else n_responses,
        rhat=np.full((n, p), 1.0) if rhat is None else rhat,
        ess_bulk=np.full((n, p), 400.0),
        ess_tail=np.full((n, p), 400.0),
    )


def make_world(n: int = 60, *, seed: int = 1, shift: float = 0.05, ratio: float = 0.9) -> World:
    """Consensus means are the pooled means plus `shift`, its SDs are `ratio` times the pooled SDs."""
    rng = np.random.default_rng(seed)
    described = {"vocabulary": ("reading", make_model("2pl")), "essay": ("writing", make_model("gpcm", 4))}
    pooled_groups, consensus_groups, period_groups, truth = {}, {}, {}, []
    for name, (dimension, model) in described.items():
        p = len(model.parameters)
        ids = [f"{name}-{k:03d}" for k in range(n)]
        value = rng.normal(0, [1.0, 0.3, *[0.5] * (p - 2)], (n, p))
        sd = rng.uniform(0.1, 0.3, (n, p))
        mean = value + sd * rng.normal(size=(n, p))
        counts = np.arange(1, n + 1) * 10
        pooled_groups[name] = group_draws(name, dimension, model, ids, mean, sd, rng, n_responses=counts)
        truth += [(ids[j], model.parameters[k], value[j, k]) for j in range(n) for k in range(p)]
        consensus_groups[name] = GroupConsensus(
            name=name,
            dimension=dimension,
            model=model,
            item_ids=(*ids, f"{name}-new"),
            features=("1",),
            X=np.ones((n + 1, 1)),
            mean=np.vstack([mean + shift, np.zeros((1, p))]),
            covariance=np.vstack([np.eye(p) * ((ratio * sd) ** 2)[:, None, :], np.eye(p)[None]]),
            source=np.array([*["consensus"] * (n - 1), "fallback", "predicted"]),
            n_responses=np.array([*counts, 0]),
            n_periods=np.array([*[2] * n, 0]),
            beta=np.zeros((1, p)),
            sigma=np.eye(p),
        )
        period_groups[name] = group_draws(name, dimension, model, ids, mean, sd * 1.4, rng)
    names = pl.Series("person_id", ["a", "b", "c"])
    per_draw = (CHAINS, DRAWS, 2)
    own = Abilities(
        names,
        np.zeros((3, 2)),
        np.full((3, 2), 0.3),
        np.full((3, 2), 10, dtype=np.int64),
        np.zeros(per_draw),
        np.ones(per_draw),
        np.broadcast_to(np.eye(2), (CHAINS, DRAWS, 2, 2)),
    )
    together = replace(
        own,
        populations=PERIODS,
        population_mean=np.zeros((CHAINS, DRAWS, 2, 2)) + np.array([[0.0, 0.0], [0.4, -0.2]]),
        population_sd=np.ones((CHAINS, DRAWS, 2, 2)) * np.array([[1.0, 1.0], [1.1, 0.8]]),
    )
    in_force = pl.DataFrame(
        [
            {"period": period, "dimension": k, "A_mean": A, "A_sd": 0.0, "B_mean": B, "B_sd": 0.0}
            for period, A, B in ((PERIODS[0], 1.0, 0.0), (PERIODS[1], 1.21, 0.45))
            for k in ("reading", "writing")
        ]
    )
    A, B = np.full((CHAINS * DRAWS, 2), 1.1), np.full((CHAINS * DRAWS, 2), 0.5)
    return World(
        truth=pl.DataFrame(truth, schema=["item_id", "parameter", "value"], orient="row"),
        consensus=Consensus("analytic", PERIODS[0], ("reading", "writing"), PERIODS, consensus_groups, links=in_force),
        pooled=calibration("pooled", pooled_groups, together, seconds=30.0),
        calibrations={p: calibration(p, period_groups, own) for p in PERIODS},
        links={
            PERIODS[0]: identity_link(PERIODS[0], ("reading", "writing"), CHAINS * DRAWS),
            PERIODS[1]: Link(PERIODS[1], PERIODS[0], ("reading", "writing"), A, B, pl.DataFrame()),
        },
    )
