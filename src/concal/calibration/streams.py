"""Random numbers of what has its own under one seed of the user's: periods, shards, sweeps."""

from __future__ import annotations

import hashlib

import numpy as np


def seed_of(seed: int, *names: object) -> int:
    """A seed of its own for a period, or a shard of it.

    Chains that use the same numbers move together whatever their data are (common random numbers): the Monte Carlo
    errors of two periods of a bank would be nearly the same, and their average no smaller.
    """
    digest = hashlib.sha256("/".join(str(part) for part in (seed, *names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


def numbers_of(seed: int, purpose: int, sweep: int = 0) -> np.random.Generator:
    """Random numbers of all chains together in one sweep: a function of what they are for, as those of units are."""
    return np.random.Generator(
        np.random.Philox(key=np.array([seed, purpose], dtype=np.uint64), counter=[0, 0, sweep, 0])
    )
