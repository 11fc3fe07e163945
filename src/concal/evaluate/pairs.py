"""(item, parameter) pairs of a consensus and the pooled fit, side by side, with the R-hat screen."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.calibration.result import Calibration
from concal.consensus.result import Consensus, GroupConsensus
from concal.errors import DataError, first_few

Array = npt.NDArray[np.float64]
TERTILES = ("low", "mid", "high")


def compare_pairs(
    consensus: Consensus, pooled: Calibration, calibrations: Iterable[Calibration] = (), *, max_rhat: float = 1.1
) -> pl.DataFrame:
    """Every (item, parameter) pair that consensus and pooled fit have in common and that somebody answered.

    Parameters
    ----------
    consensus : Consensus
    pooled : Calibration
        The multiple-group fit of all periods.
    calibrations : iterable of Calibration
        The periods' own fits, for the screen.
    max_rhat : float
        A pair is kept when its R-hat is at most this in the pooled run and in every period run that has the item.

    Returns
    -------
    polars DataFrame
        method, item_id, group, dimension, model, parameter, source, n_responses, exposure (responses per period that
        saw the item), tertile (of exposure, within dimension and model), mean, sd, pooled_mean, pooled_sd, worst_rhat,
        kept.
    """
    worst = _worst_rhat(pooled, calibrations)
    frames = [
        _group_pairs(consensus.method, group, pooled, worst[name])
        for name, group in consensus.groups.items()
        if name in pooled.groups
    ]
    frames = [frame for frame in frames if frame.height]
    if not frames:
        raise DataError(
            "consensus and pooled fit have no answered item in common: groups "
            f"{first_few(list(consensus.groups))} against {first_few(list(pooled.groups))}"
        )
    table = pl.concat(frames).with_columns(kept=pl.col("worst_rhat").le(max_rhat) & pl.col("worst_rhat").is_not_nan())
    return table.with_columns(
        tertile=pl.col("exposure")
        .map_batches(lambda s: pl.Series(tertile_of(s.to_numpy())), return_dtype=pl.String)
        .over("dimension", "model")
    )


def tertile_of(exposure: Array) -> list[str]:
    """Low, mid or high by the thirds of the distribution; ties stay together.

    >>> tertile_of(np.array([1.0, 5.0, 9.0]))
    ['low', 'mid', 'high']
    """
    low, high = np.quantile(exposure, [1 / 3, 2 / 3]) if exposure.size else (0.0, 0.0)
    return [TERTILES[int(k)] for k in (exposure > low).astype(int) + (exposure > high).astype(int)]


def _worst_rhat(pooled: Calibration, calibrations: Iterable[Calibration]) -> dict[str, dict[str, Array]]:
    """Group -> item -> largest R-hat of each parameter over the pooled run and the period runs; NaN stays NaN."""
    worst: dict[str, dict[str, Array]] = {
        name: dict(zip(group.item_ids, group.rhat, strict=True)) for name, group in pooled.groups.items()
    }
    for calibration in calibrations:
        for name, group in calibration.groups.items():
            known = worst.setdefault(name, {})
            for item, rhat in zip(group.item_ids, group.rhat, strict=True):
                if item in known and known[item].shape == rhat.shape:
                    known[item] = np.maximum(known[item], rhat)  # NaN wins, and does not pass the screen
    return worst


def _group_pairs(method: str, group: GroupConsensus, pooled: Calibration, worst: dict[str, Array]) -> pl.DataFrame:
    other = pooled.groups[group.name]
    if other.model.parameters != group.model.parameters:
        raise DataError(
            f"group {group.name!r} has parameters {', '.join(group.model.parameters)} in the consensus and "
            f"{', '.join(other.model.parameters)} in the pooled fit; evaluate periods of one specification"
        )
    place = {item: k for k, item in enumerate(other.item_ids)}
    here = [k for k, item in enumerate(group.item_ids) if item in place and group.n_periods[k] > 0]
    there = [place[group.item_ids[k]] for k in here]
    draws = other.flat("xi")[:, there]
    p = len(group.model.parameters)
    ids = [group.item_ids[k] for k in here]
    exposure = group.n_responses[here] / np.maximum(group.n_periods[here], 1)
    return pl.DataFrame(
        {
            "method": [method] * (len(here) * p),
            "item_id": np.repeat(np.array(ids, dtype=object), p).tolist(),
            "group": [group.name] * (len(here) * p),
            "dimension": [group.dimension] * (len(here) * p),
            "model": [group.model.kind] * (len(here) * p),
            "parameter": list(group.model.parameters) * len(here),
            "source": np.repeat(group.source[here], p).tolist(),
            "n_responses": np.repeat(group.n_responses[here], p),
            "exposure": np.repeat(exposure, p),
            "mean": group.mean[here].ravel(),
            "sd": group.sd[here].ravel(),
            "pooled_mean": draws.mean(axis=0).ravel(),
            "pooled_sd": draws.std(axis=0, ddof=1).ravel(),
            "worst_rhat": np.array([worst[item] for item in ids]).reshape(-1),
        },
        schema_overrides={"source": pl.String, "item_id": pl.String},
    )
