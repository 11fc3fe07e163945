"""What a calibration depends on, as one hash: its checkpoint and its place in a bank are known by it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

import concal
from concal.compiler import sources_hash
from concal.data.period import PeriodData
from concal.spec import Spec

ENGINE = 15
"""Raised when the sampler's moves or what it keeps change: an older checkpoint cannot go on the same way. Kernels and
response models, those of other packages too, are known by their source."""
OWN = "calibrate_period"
"""The engine's name among those that may calibrate a period."""
NOT_IN_THE_DRAWS = {"threads", "max_minutes", "max_sweeps"}
"""Options a run may be continued under with other values: a longer run goes the way the shorter one went."""


def fingerprint(data: PeriodData, spec: Spec, seed: int, engine: object = OWN) -> str:
    """Hash of responses, features, priors, options, seed and engine: where it is the same, the draws are.

    Parameters
    ----------
    engine
        The function that calibrates, or its name.
    """
    digest = hashlib.sha256()
    name = engine if isinstance(engine, str) else getattr(engine, "__qualname__", type(engine).__name__)
    plain: dict[str, Any] = {
        "period": data.period,
        "dimensions": data.dimensions,
        "populations": data.populations,
        "seed": seed,
        "engine": [name, ENGINE, concal.__version__],
        "calibration": spec.calibration.model_dump(mode="json", exclude=NOT_IN_THE_DRAWS),
        "groups": {name: group.model_dump(mode="json") for name, group in spec.groups.items()},
        "models": {name: repr(group.model) for name, group in data.groups.items()},
        "sources": sources_hash(_elsewhere(data)),
        "persons": data.person_ids.to_list(),
        "items": {name: [group.item_ids, group.features, group.coding] for name, group in data.groups.items()},
    }
    digest.update(json.dumps(plain, sort_keys=True).encode())
    digest.update(np.ascontiguousarray(data.population).tobytes())
    for group in data.groups.values():
        guide = () if group.guide is None else (group.guide.mean, group.guide.covariance)
        for array in (group.X, group.person, group.item, group.score, *guide):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def _elsewhere(data: PeriodData) -> tuple[str, ...]:
    """Modules of the response models that come from other packages."""
    modules = {type(group.model).__module__ for group in data.groups.values()}
    return tuple(sorted(name for name in modules if name.split(".")[0] != "concal"))
