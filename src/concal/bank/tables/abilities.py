r"""Examinees of all periods on the reference metric.

With :math:`\theta` an examinee's posterior N(m, s^2) on the period's own metric and (A, B) the period's link,
theta_ref = A theta + B has mean :math:`\bar A m + \bar B`, and of its variance :math:`\bar A^2 s^2` comes from the
measurement and the variance of :math:`A m + B` from the link.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.calibration.result import Calibration
from concal.linking.result import Link

Array = npt.NDArray[np.float64]
ABILITY_COLUMNS = {
    "period": pl.String,
    "person_id": pl.String,
    "dimension": pl.String,
    "theta": pl.Float64,
    "sd": pl.Float64,
    "sd_measurement": pl.Float64,
    "sd_link": pl.Float64,
    "n_responses": pl.Int64,
}


def ability_table(calibration: Calibration, link: Link, in_force: pl.DataFrame) -> pl.DataFrame:
    """One row per examinee and dimension of a period; none where it came without examinees.

    Parameters
    ----------
    calibration
        Of the period: abilities on its own metric.
    link
        The period's own link: how A and B vary together.
    in_force
        `Consensus.links`: where A and B are, and how far they vary.
    """
    period, abilities = calibration.period, calibration.abilities
    if abilities is None:
        return pl.DataFrame(schema=ABILITY_COLUMNS)
    frames = []
    for k, dimension in enumerate(calibration.dimensions):
        row = in_force.row(by_predicate=(pl.col("period") == period) & (pl.col("dimension") == dimension), named=True)
        mean, sd = abilities.mean[:, k], abilities.sd[:, k]
        at = link.dimensions.index(dimension)
        r = _correlation(link.A[:, at], link.B[:, at])
        spread = (mean * row["A_sd"]) ** 2 + row["B_sd"] ** 2 + 2 * mean * r * row["A_sd"] * row["B_sd"]
        measured, linked = row["A_mean"] * sd, np.sqrt(np.maximum(spread, 0.0))
        frames.append(
            pl.DataFrame(
                {
                    "period": [period] * mean.size,
                    "person_id": abilities.person_ids,
                    "dimension": [dimension] * mean.size,
                    "theta": row["A_mean"] * mean + row["B_mean"],
                    "sd": np.hypot(measured, linked),
                    "sd_measurement": measured,
                    "sd_link": linked,
                    "n_responses": abilities.n_responses[:, k],
                },
                schema=ABILITY_COLUMNS,
            )
        )
    return pl.concat(frames)


def _correlation(A: Array, B: Array) -> float:
    """Of A and B over the draws of a link; 0 where one of them is fixed."""
    if A.size < 2 or np.ptp(A) == 0 or np.ptp(B) == 0:
        return 0.0
    return float(np.corrcoef(A, B)[0, 1])
