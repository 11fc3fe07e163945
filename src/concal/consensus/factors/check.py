"""What a calibration must bring, and what its users should be told."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from concal.calibration.result import Calibration, GroupDraws
from concal.consensus.gaussian import effective_covariance_draws
from concal.errors import DataError, counted, first_few
from concal.names import split_stratum

Array = npt.NDArray[np.float64]
COLLAPSED = 0.4
"""5 % quantile of a population SD over its median, below which it cannot be told from zero: .09 of a half-normal, whose
mode is zero; .66 of an SD that is known to a quarter of itself."""
SHRUNK = 5
"""Effective draws for every p + 2, below which they are called few: at five of them the correction for their number
(`precision_shrinkage`) takes a fifth of the precision away, with fewer it grows fast and says more than the draws."""


def check_calibration(calibration: Calibration) -> None:
    """Refuse draws that no factors can be made of, naming period and group."""
    period = calibration.period
    for name, group in calibration.groups.items():
        where = f"period {period!r}, group {name!r}"
        p, s = len(group.model.parameters), group.n_draws
        if s <= p + 2:
            raise DataError(
                f"{where}: {s} draws are too few for items with {p} parameters ({first_few(group.item_ids)}); "
                f"at least {p + 3} are needed, some hundreds are sensible"
            )
        if name not in calibration.beta_prior_precision:
            raise DataError(f"{where}: the population model's hyperprior is missing from beta_prior_precision")
        shape = (*group.xi.shape[:2], len(group.features), p)
        if group.beta.shape != shape or group.sigma.shape != (*group.xi.shape[:2], p, p):
            raise DataError(
                f"{where}: the population model is missing or has the wrong shape: beta {group.beta.shape} "
                f"instead of {shape}, sigma {group.sigma.shape}"
            )
        if not (np.isfinite(group.beta).all() and np.isfinite(group.sigma).all()):
            raise DataError(f"{where}: draws of the population model are not finite; recalibrate the period")
        if np.linalg.eigvalsh(group.flat("sigma")).min() <= 0:
            raise DataError(f"{where}: some draws of Sigma are not positive definite; recalibrate the period")
        if group.n_items and not np.all(group.X[:, 0] == 1.0):
            raise DataError(f"{where}: the first design column must be the intercept")
        if group.dimension not in calibration.dimensions:
            raise DataError(f"{where}: dimension {group.dimension!r} is not one of {calibration.dimensions}")


def collapsed(groups: Mapping[str, GroupDraws]) -> list[str]:
    """Parameters whose population SD the period cannot tell from zero, a warning for each group of the spec.

    Draws with an SD near zero pin the items to their prediction and say little about the items' likelihood. Guided
    items follow no population. Strata of a group share the spread of d and log a, which is named once.
    """
    found: dict[str, list[str]] = {}
    for group in groups.values():
        if group.guide_mean is None:
            base, categories = split_stratum(group.name)
            named = found.setdefault(base, [])
            for name in _collapsed(group):
                own = categories is not None and name in group.model.extras
                label = f"{name} ({categories} categories)" if own else name
                named.extend([] if label in named else [label])
    return [
        f"group {name!r}: the items' spread of {', '.join(parameters)} cannot be told from zero in this period; what "
        "the consensus says of them rests on the other periods (take longer periods, or merge groups)"
        for name, parameters in found.items()
        if parameters
    ]


def _collapsed(group: GroupDraws) -> list[str]:
    sd = np.sqrt(np.diagonal(group.sigma, axis1=-2, axis2=-1).reshape(-1, len(group.model.parameters)))
    low, middle = np.quantile(sd, [0.05, 0.5], axis=0)
    return [name for name, small in zip(group.model.parameters, low < COLLAPSED * middle, strict=True) if small]


def effective_draws(group: GroupDraws, n_draws: int, warnings: list[str]) -> Array:
    """Effective number of draws of every item (harmonic over its coordinates); doubts go to `warnings`."""
    ess = np.asarray(group.ess_bulk, dtype=np.float64)
    known = np.where(np.isfinite(ess) & (ess > 0), np.minimum(ess, n_draws), np.nan)
    unknown = np.isnan(known).all(axis=1)
    if unknown.any():
        warnings.append(
            f"group {group.name!r}: {counted(int(unknown.sum()), 'item')} without an effective sample size; "
            f"their {n_draws} draws are taken as independent"
        )
    known[unknown] = n_draws
    harmonic = 1.0 / np.nanmean(1.0 / known, axis=1)
    p = len(group.model.parameters)
    poor = np.flatnonzero(effective_covariance_draws(n_draws, harmonic) < SHRUNK * (p + 2))
    if poor.size:
        names = [group.item_ids[j] for j in poor]
        warnings.append(
            f"group {group.name!r}: {counted(len(names), 'item')} with too few effective draws for a stable covariance "
            f"({first_few(names)})"
        )
    return np.asarray(np.maximum(harmonic, 2.0))
