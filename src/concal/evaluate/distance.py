r"""How far a consensus is from the pooled fit, and how much of it the links', how much the items'.

A pooled fit takes every item as invariant; a link from purified anchors, or a protected one, does not. Where items
drift the two therefore put the periods on slightly different metrics, and everything follows. So the consensus is made
once more with the links held at those of the pooled fit. With :math:`\hat\xi` the pooled means and s the pooled SDs,

.. math:: \frac{\xi - \hat\xi}{s} = \frac{\xi - \xi_{\text{at pooled links}}}{s}
          + \frac{\xi_{\text{at pooled links}} - \hat\xi}{s} :

the first part is the links', the second the items'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.version import Version
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.combine import Evidence, consensus_of
from concal.consensus.factors.period import Placed
from concal.consensus.links import in_force, links_in_force
from concal.consensus.result import Consensus

Array = npt.NDArray[np.float64]


def consensus_at(bank: Version, links: pl.DataFrame, method: str) -> Consensus:
    """The consensus of a bank's periods with their links held at those given (`concal.evaluate.links.pooled_links`).

    Links are taken as known, so only the means are comparable.
    """
    spec = bank.consensus_spec.model_copy(update={"method": method})
    placed = [_held(period, links) for period in bank.placed()]
    evidence = Evidence(
        lambda: placed,
        lambda: sum_periods(placed, spec.half_life),
        lambda: ((bank.calibration(p), links_in_force({p: bank.link(p)}, links)[p]) for p in bank.period_names),
    )
    return consensus_of(evidence, spec)


def _held(period: Placed, links: pl.DataFrame) -> Placed:
    if period.period == period.reference:
        return period
    constants = in_force(links)
    found = np.array([constants[period.period, dimension] for dimension in period.factors.dimensions])
    mean = np.stack([np.log(found[:, 0]), found[:, 1]], axis=1)
    return replace(
        period, link_mean=mean, link_covariance=np.zeros_like(period.link_covariance), linked=True, held=True
    )


def split_distance(pairs: pl.DataFrame, at_pooled: Mapping[str, Consensus]) -> pl.DataFrame:
    """Root mean square distances from the pooled means in pooled SDs, over the pairs that passed the screen.

    Parameters
    ----------
    pairs : polars DataFrame
        See `concal.evaluate.pairs.compare_pairs`; several methods.
    at_pooled : dict of method -> Consensus
        The same methods at the pooled links.

    Returns
    -------
    polars DataFrame
        method, parameter, n, distance (all of it), by_links (what the links make of it), by_items (what is left at the
        pooled links).
    """
    rows = []
    for (method, parameter), part in pairs.filter("kept").group_by(["method", "parameter"], maintain_order=True):
        if method not in at_pooled:
            continue
        means = _means(at_pooled[str(method)], str(parameter))
        there = np.array([means[item] for item in part["item_id"]])
        mean, pooled, sd = (part[name].to_numpy() for name in ("mean", "pooled_mean", "pooled_sd"))
        rows.append(
            {
                "method": method,
                "parameter": parameter,
                "n": part.height,
                "distance": _rms((mean - pooled) / sd),
                "by_links": _rms((mean - there) / sd),
                "by_items": _rms((there - pooled) / sd),
            }
        )
    numbers = dict.fromkeys(("distance", "by_links", "by_items"), pl.Float64)
    return pl.DataFrame(rows, schema={"method": pl.String, "parameter": pl.String, "n": pl.Int64, **numbers})


def _means(consensus: Consensus, parameter: str) -> dict[str, float]:
    """Posterior means of one parameter, by item."""
    found: dict[str, float] = {}
    for group in consensus.groups.values():
        if parameter in group.model.parameters:
            column = group.mean[:, group.model.parameters.index(parameter)]
            found |= dict(zip(group.item_ids, column.tolist(), strict=True))
    return found


def _rms(x: Array) -> float:
    return float(np.sqrt(np.mean(x**2)))
