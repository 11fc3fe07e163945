"""Consensus draws on request: the same seed and item give the same draws, whatever else is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from concal.combine.result import Consensus
from concal.errors import DataError, first_few

Array = npt.NDArray[np.float64]


def item_draws(
    consensus: Consensus, item_ids: Sequence[str], *, draws: int = 2000, seed: int = 20262
) -> dict[str, Array]:
    """Independent draws of each item's xi from its consensus Gaussian: item id -> (draws, p).

    Every item has its own random stream, keyed by the seed and its id. For draws that keep the dependence across
    items see `Consensus.joint`.
    """
    place = {item: (name, j) for name, g in consensus.groups.items() for j, item in enumerate(g.item_ids)}
    unknown = [i for i in item_ids if i not in place]
    if unknown:
        raise DataError(f"no consensus for items {first_few(unknown)}; check the ids, or predict them from features")
    out = {}
    for item in item_ids:
        name, j = place[item]
        group = consensus.groups[name]
        root = np.linalg.cholesky(group.covariance[j])
        z = item_stream(seed, item).standard_normal((draws, root.shape[0]))
        out[item] = group.mean[j] + z @ root.T
    return out


def item_stream(seed: int, item_id: str) -> np.random.Generator:
    """A random stream of the item's own."""
    key = blake2b(item_id.encode("utf-8"), digest_size=16, key=seed.to_bytes(8, "little")).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(key, dtype=np.uint64)))
