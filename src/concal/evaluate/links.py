"""Links of the method in force, with the spread of the linked draws; and those a pooled fit has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.calibration.result import Calibration
from concal.errors import DataError, first_few
from concal.linking.result import Link

Array = npt.NDArray[np.float64]


def constants(table: pl.DataFrame, period: str, dimension: str) -> tuple[float, float]:
    """(A, B) of a period and dimension at the mean, from `Consensus.links`."""
    row = table.row(by_predicate=(pl.col("period") == period) & (pl.col("dimension") == dimension), named=True)
    return row["A_mean"], row["B_mean"]


def links_in_force(links: Mapping[str, Link], table: pl.DataFrame) -> dict[str, Link]:
    """The periods' links with their draws moved so that their means are those a consensus ended with.

    A period's draws and those of its own link belong together draw by draw, and that dependence is what the
    uncertainty of its abilities rests on; where the period lies is the consensus' to say.

    Parameters
    ----------
    links : dict of period -> Link
    table : polars DataFrame
        `Consensus.links`.
    """
    return {period: _placed(link, table) for period, link in links.items()}


def _placed(link: Link, table: pl.DataFrame) -> Link:
    found = [constants(table, link.period, dimension) for dimension in link.dimensions]
    wanted = metric.Constants(*np.array(found, dtype=np.float64).T)
    own = metric.Constants(link.A.mean(axis=0), link.B.mean(axis=0))
    moved = metric.compose(metric.compose(wanted, metric.invert(own)), metric.Constants(link.A, link.B))
    return replace(link, A=moved.A, B=moved.B)


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
