"""Checkpoints: the whole state of a run in one file, written atomically, read without executing anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zipfile import BadZipFile

import numpy as np

from concal.errors import ConvergenceError

if TYPE_CHECKING:
    from concal.calibration.sampler import Sampler


class Checkpoint(NamedTuple):
    """Where a run is kept, and the `concal.calibration.fingerprint` of what it depends on."""

    path: Path
    identity: str


def save_checkpoint(checkpoint: Checkpoint, sampler: Sampler) -> None:
    """Write everything a later process needs to go on as if nothing had happened."""
    path = checkpoint.path
    identity = np.frombuffer(checkpoint.identity.encode(), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez(file, identity=identity, **sampler.save())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load_checkpoint(checkpoint: Checkpoint, sampler: Sampler) -> None:
    """Put a sampler where the saved one was; a checkpoint of other data or another seed is refused."""
    path = checkpoint.path
    try:
        with np.load(path, allow_pickle=False) as saved:
            found = {name: saved[name] for name in saved.files}
        identity = found.pop("identity").tobytes().decode()
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ConvergenceError(f"checkpoint {path} cannot be read ({error}); delete it to start over") from None
    if identity != checkpoint.identity:
        raise ConvergenceError(
            f"checkpoint {path} belongs to other data, spec or seed, or to another version of the engine; "
            "delete it to start over"
        )
    sampler.load(found)


def sweeps_saved(path: Path) -> int:
    """How far the run was that left a checkpoint, in sweeps; -1 where there is none that can be read."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            return int(saved["state/sweep"])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return -1
