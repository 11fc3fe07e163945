"""Seeds of what has random numbers of its own under one seed of the user's."""

from __future__ import annotations

import hashlib


def seed_of(seed: int, *names: object) -> int:
    """A seed of its own for a period, or a shard of it.

    Chains that use the same numbers move together whatever their data are (common random numbers): the Monte Carlo
    errors of two periods of a bank would be nearly the same, and their average no smaller.
    """
    digest = hashlib.sha256("/".join(str(part) for part in (seed, *names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2
