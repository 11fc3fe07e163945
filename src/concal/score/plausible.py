r"""Plausible values: draws of abilities, each set with its own draw of items and links.

Set k takes draw k of the bank's items (all examinees the same one) and draws every examinee's ability from the
posterior at these items. So what is computed within a set carries measurement error, and what differs between sets
carries the error of items and links; `concal.score.pool` puts the two together.

A cell of the grid is drawn from the posterior, a place within it uniformly, and the result is carried to the exact mean
and covariance of the posterior, which takes out what the cells' width adds. Examinees whose posterior is narrower than
a cell, hence nearly normal, are drawn from the normal distribution with these moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from concal.score.estimate import Estimator
from concal.score.grid import Grid
from concal.score.kernels.nodes import pick
from concal.score.posterior import PERSONS, Misfit, Target
from concal.score.rows import Answered, LikelihoodRows
from concal.score.stages import posterior

Array = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]


def person_keys(person_ids: list[str], seed: int) -> Keys:
    """A number per examinee that starts a random stream of their own, whoever else is scored."""
    key = seed.to_bytes(8, "little")
    found = b"".join(blake2b(p.encode("utf-8"), digest_size=8, key=key).digest() for p in person_ids)
    return np.frombuffer(found, dtype=np.uint64)


def uniforms(keys: Keys, stream: int, n: int) -> Array:
    """Numbers in (0, 1), (persons, n): splitmix64 of the examinee's key and a counter."""
    with np.errstate(over="ignore"):
        counter = np.uint64(stream) * np.uint64(2**20) + np.arange(1, n + 1, dtype=np.uint64)
        z = keys[:, None] + counter[None] * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return np.asarray(((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


def plausible_values(
    estimator: Estimator, answered: Answered, group: npt.NDArray[np.int32], keys: Keys
) -> Iterator[Array]:
    """One set (persons, D) after the other."""
    rows = LikelihoodRows.of(estimator.items, answered)
    for k, s in enumerate(estimator.draws):
        target = estimator.target_of_draw(int(s), group)
        yield draw_abilities(estimator, rows, answered, target, estimator.grid, keys, k)


def draw_abilities(
    estimator: Estimator, rows: LikelihoodRows, answered: Answered, target: Target, grid: Grid, keys: Keys, stream: int
) -> Array:
    """Abilities (persons, D) drawn from their posteriors; the same keys and stream give the same numbers."""
    found = posterior(estimator.items, rows, answered, target, grid, estimator.workers)
    (table, nodes, prior, margin), tilt = target.on(grid, rows).blocks, target.tilts
    n, D = found.mean.shape
    u = uniforms(keys, stream, 2 + D)
    node = np.empty((n, 2), np.int64)

    def work(lo: int) -> None:
        pick(
            table, rows.dim, rows.rows, answered.start, target.group, tilt, nodes, prior, margin, u[:, :2], node, lo,
            min(lo + PERSONS, n),
        )  # fmt: skip

    estimator.workers.map(work, range(0, n, PERSONS))
    at = np.empty((n, D))
    at[:, 0] = grid.first[0, node[:, 0]]
    at[:, 1:] = grid.rest[0][:, node[:, 1]].T
    spacing = grid.spacing[0]
    jittered = at + (u[:, 2:] - 0.5) * spacing - found.mean
    root = np.linalg.cholesky(found.covariance)
    wider = np.linalg.cholesky(found.covariance + np.diag(spacing**2 / 12.0))
    narrow = Misfit.of(found, grid).any
    z = np.where(narrow[:, None], ndtri(u[:, 2:]), np.linalg.solve(wider, jittered[..., None])[..., 0])
    return np.asarray(found.mean + np.einsum("ikl,il->ik", root, z))
