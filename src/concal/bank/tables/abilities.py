"""Examinees of all periods on the reference metric.

What is not known of an examinee is measurement error and the link (`concal.metric.move_uncertain`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.calibration.result import Calibration
from concal.consensus.result import Consensus
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


def ability_table(calibration: Calibration, link: Link, consensus: Consensus) -> pl.DataFrame:
    """One row per examinee and dimension of a period; none where it came without examinees.

    Parameters
    ----------
    calibration
        Of the period: abilities on its own metric.
    link
        The period's own link: how A and B vary together where the consensus has no draws of its links.
    consensus
        Where A and B are, and how far they vary.
    """
    period, abilities = calibration.period, calibration.abilities
    if abilities is None:
        return pl.DataFrame(schema=ABILITY_COLUMNS)
    frames = []
    for k, dimension in enumerate(calibration.dimensions):
        placed = _link_in_force(consensus, link, dimension)
        mean, measured, linked = metric.move_uncertain(abilities.mean[:, k], abilities.sd[:, k], placed)
        frames.append(
            pl.DataFrame(
                {
                    "period": [period] * mean.size,
                    "person_id": abilities.person_ids,
                    "dimension": [dimension] * mean.size,
                    "theta": mean,
                    "sd": np.hypot(measured, linked),
                    "sd_measurement": measured,
                    "sd_link": linked,
                    "n_responses": abilities.n_responses[:, k],
                },
                schema=ABILITY_COLUMNS,
            )
        )
    return pl.concat(frames)


def _link_in_force(consensus: Consensus, link: Link, dimension: str) -> metric.LinkMoments:
    """A period's link as the consensus ended with it."""
    same = (pl.col("period") == link.period) & (pl.col("dimension") == dimension)
    row = consensus.links.row(by_predicate=same, named=True)
    sd_A, sd_B = row["A_sd"], row["B_sd"]
    together = _correlation(*_draws(consensus, link, dimension)) * sd_A * sd_B
    return metric.LinkMoments(row["A_mean"], row["B_mean"], sd_A**2, sd_B**2, together)


def _draws(consensus: Consensus, link: Link, dimension: str) -> tuple[Array, Array]:
    """A and B draw by draw: those of the joint method, or those of the period's own link."""
    if consensus.joint_links is None:
        at = link.dimensions.index(dimension)
        return link.A[:, at], link.B[:, at]
    log_A, B = consensus.joint_links[:, consensus.periods.index(link.period), consensus.dimensions.index(dimension)].T
    return np.exp(log_A), B


def _correlation(A: Array, B: Array) -> float:
    """Of A and B over the draws of a link; 0 where one of them is fixed."""
    if A.size < 2 or np.ptp(A) == 0 or np.ptp(B) == 0:
        return 0.0
    return float(np.corrcoef(A, B)[0, 1])
