"""Links as a pooled fit has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.calibration.result import Calibration
from concal.errors import DataError, first_few

Array = npt.NDArray[np.float64]


def pooled_links(
    calibrations: Mapping[str, Calibration], pooled: Calibration, populations: Sequence[str]
) -> pl.DataFrame:
    r"""The links the pooled fit implies: period, dimension, A_mean, B_mean.

    The same examinees have mean m and SD s on the period's own metric, and :math:`\mu`, :math:`\sigma` in the pooled
    fit (posterior means), so :math:`A = \sigma/s` and :math:`B = \mu - A m`.

    Parameters
    ----------
    calibrations : dict of period -> Calibration
        Periods without abilities (draws of another engine) are left out.
    pooled : Calibration
        Its abilities carry `population_mean` and `population_sd`, (chain, draw, population, dimension).
    populations : sequence of str
        Periods in the order of that axis.
    """
    mean, sd = pooled_abilities(pooled, populations)
    rows = []
    for m, period in enumerate(populations):
        own = calibrations[period].abilities if period in calibrations else None
        if own is None:
            continue
        m_own, s_own = own.draw_mean.mean(axis=(0, 1)), own.draw_sd.mean(axis=(0, 1))
        for k, dimension in enumerate(calibrations[period].dimensions):
            if dimension in pooled.dimensions:
                q = pooled.dimensions.index(dimension)
                A = float(sd[m, q] / s_own[k])
                B = float(metric.shift_to(mean[m, q], A, m_own[k]))
                rows.append({"period": period, "dimension": dimension, "A_mean": A, "B_mean": B})
    return pl.DataFrame(rows)


def pooled_abilities(pooled: Calibration, populations: Sequence[str]) -> tuple[Array, Array]:
    """Posterior means of every period's ability mean and SD in the pooled fit, (populations, dimensions) each."""
    abilities = pooled.abilities
    if abilities is None or abilities.population_mean is None or abilities.population_sd is None:
        raise DataError("the pooled fit has no ability distribution per period; fit it with concal.fit_pooled")
    if abilities.population_mean.shape[2] != len(populations):
        raise DataError(
            f"the pooled fit has {abilities.population_mean.shape[2]} populations, but {len(populations)} periods were "
            f"named ({first_few(populations)}); fit it with concal.fit_pooled"
        )
    return abilities.population_mean.mean(axis=(0, 1)), abilities.population_sd.mean(axis=(0, 1))
