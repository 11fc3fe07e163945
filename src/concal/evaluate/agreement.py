r"""How well a consensus agrees with the pooled fit: the three comparisons of the validation protocol.

1. *Recovery*: correlation and RMSE of posterior means and of posterior SDs, per parameter.
2. *Exposure*: mean of :math:`SD_{consensus} / SD_{pooled}` within tertiles of responses per item and period. Counting
   the prior more than once shows as a ratio below one at low exposure.
3. *Abilities*: each period's ability mean (difference) and SD (ratio), linked period fit against pooled fit: at the
   links the consensus ended with, and at the pairwise ones found from the anchors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.calibration.result import Abilities, Calibration
from concal.consensus.links import links_in_force
from concal.consensus.result import Consensus
from concal.errors import DataError, first_few
from concal.evaluate.links import pooled_abilities
from concal.evaluate.pairs import TERTILES, compare_pairs, tertile_of
from concal.linking.result import Link
from concal.linking.transform import linked_abilities

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """Agreement of one consensus with the pooled fit.

    Attributes
    ----------
    table : polars DataFrame
        Per dimension, response model and parameter: method, dimension, model, parameter, n (pairs kept),
        share_screened, mean_r, mean_rmse, sd_r, sd_rmse, sd_ratio_low, sd_ratio_mid, sd_ratio_high.
    overall : polars DataFrame
        The same per parameter over all dimensions and models, as in the paper's table.
    pairs : polars DataFrame
        The pairs behind it, see `concal.evaluate.pairs.compare_pairs`.
    max_rhat : float
    """

    table: pl.DataFrame
    overall: pl.DataFrame
    pairs: pl.DataFrame
    max_rhat: float = field(default=1.1)


def agreement(
    consensus: Consensus, pooled: Calibration, calibrations: Iterable[Calibration] = (), *, max_rhat: float = 1.1
) -> Agreement:
    """Compare a consensus with the pooled fit of the same periods, item by item.

    Parameters
    ----------
    consensus : Consensus
        On the reference metric.
    pooled : Calibration
        The multiple-group fit of all periods with the same reference.
    calibrations : iterable of Calibration
        The periods' own fits; their R-hat enters the screen. Without them only the pooled run is screened.
    max_rhat : float
        Pairs above it are left out on both sides; `share_screened` says how many.
    """
    pairs = compare_pairs(consensus, pooled, calibrations, max_rhat=max_rhat)
    return Agreement(
        table=_summarise(pairs, ["method", "dimension", "model", "parameter"]),
        overall=_summarise(
            pairs.with_columns(
                tertile=pl.col("exposure").map_batches(
                    lambda s: pl.Series(tertile_of(s.to_numpy())), return_dtype=pl.String
                )
            ),
            ["method", "parameter"],
        ),
        pairs=pairs,
        max_rhat=max_rhat,
    )


def _summarise(pairs: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    rows = []
    for key, part in pairs.group_by(by, maintain_order=True):
        kept = part.filter("kept")
        mean, sd, pooled_mean, pooled_sd = (
            kept[name].to_numpy() for name in ("mean", "sd", "pooled_mean", "pooled_sd")
        )
        ratio = {
            f"sd_ratio_{name}": _mean(sd[chosen] / pooled_sd[chosen])
            for name in TERTILES
            for chosen in [(kept["tertile"] == name).to_numpy()]
        }
        rows.append(
            {
                **dict(zip(by, key, strict=True)),
                "n": kept.height,
                "share_screened": 1.0 - kept.height / part.height,
                "mean_r": correlation(mean, pooled_mean),
                "mean_rmse": rmse(mean, pooled_mean),
                "sd_r": correlation(sd, pooled_sd),
                "sd_rmse": rmse(sd, pooled_sd),
                **ratio,
            }
        )
    numbers = ["share_screened", "mean_r", "mean_rmse", "sd_r", "sd_rmse", *(f"sd_ratio_{t}" for t in TERTILES)]
    return pl.DataFrame(rows, schema_overrides=dict.fromkeys(numbers, pl.Float64))


def correlation(x: Array, y: Array) -> float | None:
    """Pearson's r; None where it says nothing (fewer than three pairs, or no spread)."""
    if x.size < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def rmse(x: Array, y: Array) -> float | None:
    """Root of the mean squared difference; None without pairs."""
    return float(np.sqrt(np.mean((x - y) ** 2))) if x.size else None


def _mean(x: Array) -> float | None:
    return float(np.mean(x)) if x.size else None


def ability_agreement(
    calibrations: Mapping[str, Calibration],
    links: Mapping[str, Link],
    consensus_links: pl.DataFrame,
    pooled: Calibration,
    populations: Sequence[str],
) -> pl.DataFrame:
    """Each period's ability mean and SD: linked period fit against pooled fit.

    Parameters
    ----------
    calibrations, links : dict of period -> Calibration, Link
        Periods without abilities (draws of another engine) are left out.
    consensus_links : polars DataFrame
        `Consensus.links` of the method in force.
    pooled : Calibration
        Its abilities carry `population_mean` and `population_sd`, (chain, draw, population, dimension).
    populations : sequence of str
        Periods in the order of that axis.

    Returns
    -------
    polars DataFrame
        period, dimension, mean, sd, pooled_mean, pooled_sd, mean_difference, sd_ratio at the links in force;
        pairwise_mean_difference, pairwise_sd_ratio at the periods' own links.
    """
    pooled_mean, pooled_sd = pooled_abilities(pooled, populations)
    missing = [p for p in populations if p not in links]
    if missing:
        raise DataError(f"no link for {first_few(missing)}; link every period before comparing abilities")
    in_force = links_in_force(links, consensus_links)
    rows = []
    for m, period in enumerate(populations):
        own = calibrations[period].abilities if period in calibrations else None
        if own is None:
            continue
        placed, pairwise = (_mean_and_sd(own, chosen[period]) for chosen in (in_force, links))
        for k, dimension in enumerate(calibrations[period].dimensions):
            if dimension not in pooled.dimensions:
                continue
            q = pooled.dimensions.index(dimension)
            there = float(pooled_mean[m, q]), float(pooled_sd[m, q])
            rows.append(
                {
                    "period": period,
                    "dimension": dimension,
                    "mean": float(placed[0][k]),
                    "sd": float(placed[1][k]),
                    "pooled_mean": there[0],
                    "pooled_sd": there[1],
                    "mean_difference": float(placed[0][k]) - there[0],
                    "sd_ratio": float(placed[1][k]) / there[1],
                    "pairwise_mean_difference": float(pairwise[0][k]) - there[0],
                    "pairwise_sd_ratio": float(pairwise[1][k]) / there[1],
                }
            )
    return pl.DataFrame(rows)


def _mean_and_sd(abilities: Abilities, link: Link) -> tuple[Array, Array]:
    """The period's ability mean and SD on the reference metric, (dimensions,) each."""
    moved = linked_abilities(abilities, link)
    return moved.draw_mean.mean(axis=0), moved.draw_sd.mean(axis=0)
