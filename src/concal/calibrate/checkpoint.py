"""Checkpoints: the whole state of a run in one file, written atomically, read without executing anything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from concal.calibrate.fingerprint import ENGINE, NOT_IN_THE_DRAWS
from concal.errors import ConvergenceError

if TYPE_CHECKING:
    from concal.calibrate.sampler import Sampler


def save_checkpoint(path: Path, sampler: Sampler) -> None:
    """Write everything a later process needs to go on as if nothing had happened."""
    identity = np.frombuffer(json.dumps(_identity(sampler)).encode(), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez(file, identity=identity, **sampler.save())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load_checkpoint(path: Path, sampler: Sampler) -> None:
    """Put a sampler where the saved one was; a checkpoint of other data or another seed is refused."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            found = {name: saved[name] for name in saved.files}
        identity = json.loads(found.pop("identity").tobytes())
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ConvergenceError(f"checkpoint {path} cannot be read ({error}); delete it to start over") from None
    if identity != _identity(sampler):
        raise ConvergenceError(
            f"checkpoint {path} belongs to other data, spec or seed, or to another version of the engine; "
            "delete it to start over"
        )
    sampler.load(found)


def _identity(sampler: Sampler) -> dict[str, Any]:
    layout = sampler.layout
    checks = [int(g.item_start[-1]) + int(g.person_item[:1000].sum()) for g in layout.groups]
    score = [float(g.person_score.sum(dtype=np.float64)) for g in layout.groups]
    spec = sampler.spec.model_dump(mode="json", exclude=NOT_IN_THE_DRAWS)
    guide = [None if g.guide is None else float(g.guide.mean.sum() + g.guide.covariance.sum()) for g in layout.groups]
    data = {"persons": layout.n_persons, "checks": checks, "score": score, "guide": guide}
    return data | {"spec": spec, "seed": sampler.seed, "engine": ENGINE}
