"""From theta to the scores people are told: a linear transformation, rounding, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from concal.spec import ReportedScore

Array = npt.NDArray[np.float64]


def reported_scores(
    reporting: Mapping[str, ReportedScore], dimensions: Sequence[str], theta: Array, covariance: Array
) -> dict[str, Array]:
    r"""Columns score_NAME and se_score_NAME.

    With w the weights of the dimensions, :math:`slope \cdot w'\theta + intercept`, rounded and then held within the
    bounds; its SE is :math:`slope \sqrt{w' C w}`, before rounding and bounds. Not a number where theta is not finite.
    """
    columns = {}
    for name, rule in reporting.items():
        weights = rule.weights or {name: 1.0}
        w = np.array([weights.get(d, 0.0) for d in dimensions])
        used = w != 0.0
        value = rule.slope * (theta[:, used] @ w[used]) + rule.intercept
        value = np.where(np.isfinite(value), value, np.nan)
        se = abs(rule.slope) * np.sqrt(np.einsum("k,ikl,l->i", w[used], covariance[:, used][:, :, used], w[used]))
        if rule.round is not None:
            value = rule.round * np.floor(value / rule.round + 0.5)
        columns[f"score_{name}"] = np.clip(value, rule.min, rule.max)
        columns[f"se_score_{name}"] = se
    return columns
