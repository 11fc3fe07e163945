"""Consensus draws on request: the same seed and item give the same draws, whatever else is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from concal.consensus.result import Consensus
from concal.errors import DataError, first_few
from concal.names import split_stratum
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
SLOPE = 1  # its coordinate: a slope in common belongs to all numbers of categories of the group, steps to one


def item_draws(
    consensus: Consensus, item_ids: Sequence[str], *, draws: int = 2000, seed: int = 20262
) -> dict[str, Array]:
    """Independent draws of each item's xi from its consensus Gaussian: item id -> (draws, p).

    Every item has its own random stream, keyed by the seed and its id. Coordinates that belong to the group (equal
    slopes or steps) have the group's, and are the same for all its items in every draw. For draws that keep the
    dependence across items see `Consensus.joint`.
    """
    place = {item: (name, j) for name, g in consensus.groups.items() for j, item in enumerate(g.item_ids)}
    unknown = [i for i in item_ids if i not in place]
    if unknown:
        raise DataError(f"no consensus for items {first_few(unknown)}; check the ids, or predict them from features")
    out = {}
    for item in item_ids:
        name, j = place[item]
        group = consensus.groups[name]
        z = item_normals(seed, item, name, group.model, draws)
        out[item] = with_noise(group.mean[j], group.covariance[j], group.model.shared, z)
    return out


def item_normals(seed: int, item_id: str, group: str, model: ResponseModel, n: int) -> Array:
    """Standard normals behind n draws of an item, (n, p); of a coordinate in common the group's."""
    z = _stream(seed, item_id).standard_normal((n, len(model.parameters)))
    for c in model.shared:
        owner = split_stratum(group)[0] if c == SLOPE else group
        z[:, c] = _stream(seed, f"{model.parameters[c]} of the group {owner}").standard_normal(n)
    return z


def with_noise(mean: Array, covariance: Array, shared: Sequence[int], z: Array) -> Array:
    """N(mean, covariance) made of standard normals z, all (..., p); coordinates in common depend on their own z alone.

    So items whose z agree in the shared coordinates agree there.
    """
    order = [*shared, *(c for c in range(mean.shape[-1]) if c not in shared)]
    root = np.linalg.cholesky(covariance[..., order, :][..., order])
    out = np.empty(np.broadcast_shapes(mean.shape, z.shape))
    out[..., order] = mean[..., order] + np.einsum("...ab,...b->...a", root, z[..., order])
    return out


def _stream(seed: int, name: str) -> np.random.Generator:
    """A random stream of the item's or group's own."""
    key = blake2b(name.encode("utf-8"), digest_size=16, key=seed.to_bytes(8, "little")).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(key, dtype=np.uint64)))
