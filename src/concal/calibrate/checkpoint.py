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

_GROUP = ("xi", "beta", "beta_mean", "sigma", "sd_mixing", "mean", "par")
_TRACE_SCALARS = (
    "sweeps", "thin", "kept", "next_check", "ability_count", "max_rhat", "min_ess", "item_share",
    "checked", "converged",
)  # fmt: skip
_REFERENCE = ("epsilon", "ready", "trials")


def save_checkpoint(path: Path, sampler: Sampler) -> None:
    """Write everything a later process needs to go on as if nothing had happened."""
    arrays, scalars = _collect(sampler)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez(file, header=np.frombuffer(json.dumps(scalars).encode(), np.uint8), **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load_checkpoint(path: Path, sampler: Sampler) -> None:
    """Put a sampler where the saved one was; a checkpoint of other data or another seed is refused."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in saved.files}
        scalars = json.loads(arrays.pop("header").tobytes())
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ConvergenceError(f"checkpoint {path} cannot be read ({error}); delete it to start over") from None
    if scalars["identity"] != _identity(sampler):
        raise ConvergenceError(
            f"checkpoint {path} belongs to other data, spec or seed, or to another version of the engine; "
            "delete it to start over"
        )
    _restore(sampler, arrays, scalars)


def _identity(sampler: Sampler) -> dict[str, Any]:
    layout = sampler.layout
    checks = [int(g.item_start[-1]) + int(g.person_item[:1000].sum()) for g in layout.groups]
    score = [float(g.person_score.sum(dtype=np.float64)) for g in layout.groups]
    spec = sampler.spec.model_dump(mode="json", exclude=NOT_IN_THE_DRAWS)
    guide = [None if g.guide is None else float(g.guide.mean.sum() + g.guide.covariance.sum()) for g in layout.groups]
    data = {"persons": layout.n_persons, "checks": checks, "score": score, "guide": guide}
    return data | {"spec": spec, "seed": sampler.seed, "engine": ENGINE}


def _transports(sampler: Sampler) -> list[tuple[str, Any, Any]]:
    items, abilities = sampler.moves.sigma, sampler.moves.correlation
    named = [(f"t{k}", r, s) for k, (r, s) in enumerate(zip(items.references, items.sketches, strict=True))]
    return [*named, ("ta", abilities.reference, abilities.sketch)]


def _collect(sampler: Sampler) -> tuple[dict[str, Any], dict[str, Any]]:
    state, trace, steps = sampler.state, sampler.trace, sampler.moves.units
    arrays: dict[str, Any] = {"theta": state.theta, "mu": state.mu, "R": state.R, "link": state.link}
    scalars: dict[str, Any] = {
        "identity": _identity(sampler),
        "sweep": state.sweep,
        "warmup_end": sampler.warmup_end,
        "seconds": sampler.seconds,
        "averages": trace.averages.count,
        "trace": {name: getattr(trace, name) for name in _TRACE_SCALARS},
        "transport": {},
    }
    for k, s in enumerate(state.groups):
        arrays |= {f"g{k}_{name}": getattr(s, name) for name in _GROUP}
        arrays[f"g{k}_accepted"] = steps.item_accepted[k]
        arrays[f"g{k}_draws"] = trace.xi[k][: trace.kept]
        arrays[f"g{k}_averages"] = trace.averages.sums[k]
    arrays |= {"governing": trace.governing[: trace.kept], "moments": trace.moments[: trace.kept]}
    arrays |= {"ability_total": trace.ability_total, "ability_square": trace.ability_square}
    if trace.population:
        arrays["population"] = np.stack(trace.population)
    for name, reference, sketch in _transports(sampler):
        scalars["transport"][name] = {key: getattr(reference, key) for key in _REFERENCE} | {"count": sketch.count}
        arrays |= {
            f"{name}_mean": reference.mean,
            f"{name}_factor": reference.factor,
            f"{name}_inverse": reference.inverse,
        }
        if reference.history:
            arrays[f"{name}_history"] = np.stack(reference.history)
        arrays |= {f"{name}_{key}": getattr(sketch, key) for key in ("information", "pull", "total")}
    return arrays, scalars


def _restore(sampler: Sampler, arrays: dict[str, Any], scalars: dict[str, Any]) -> None:
    state, trace, steps = sampler.state, sampler.trace, sampler.moves.units
    state.sweep, state.theta, state.mu, state.R = scalars["sweep"], arrays["theta"], arrays["mu"], arrays["R"]
    state.link = arrays["link"]
    sampler.warmup_end, sampler.seconds = scalars["warmup_end"], scalars["seconds"]
    trace.averages.count = scalars["averages"]
    for name, value in scalars["trace"].items():
        setattr(trace, name, value)
    for k, s in enumerate(state.groups):
        for name in _GROUP:
            setattr(s, name, arrays[f"g{k}_{name}"])
        steps.item_accepted[k][:] = arrays[f"g{k}_accepted"]
        trace.xi[k][: trace.kept] = arrays[f"g{k}_draws"]
        trace.averages.sums[k][:] = arrays[f"g{k}_averages"]
    trace.governing[: trace.kept], trace.moments[: trace.kept] = arrays["governing"], arrays["moments"]
    trace.ability_total, trace.ability_square = arrays["ability_total"], arrays["ability_square"]
    trace.population = list(arrays["population"]) if "population" in arrays else []
    for name, reference, sketch in _transports(sampler):
        saved = scalars["transport"][name]
        for key in _REFERENCE:
            setattr(reference, key, saved[key])
        sketch.count = saved["count"]
        for key in ("mean", "factor", "inverse"):
            setattr(reference, key, arrays[f"{name}_{key}"])
        reference.history = list(arrays[f"{name}_history"]) if f"{name}_history" in arrays else []
        for key in ("information", "pull", "total"):
            setattr(sketch, key, arrays[f"{name}_{key}"])
