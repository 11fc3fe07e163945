r"""What a bank can measure, and where: information of its items by ability, with the examinees beside it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.consensus.result import Consensus
from concal.evaluate.digest import ABILITY_EDGES, histogram
from concal.response import ResponseModel
from concal.score.information import item_information

Array = npt.NDArray[np.float64]
THETA: Array = np.linspace(-4.0, 4.0, 9)
BEST = 20
"""Items of a short adaptive test: the best at an ability say what the bank can offer there."""
BLOCK = 4096
SMALLEST = 1e-9


def information_curves(model: ResponseModel, mean: Array, covariance: Array, theta: Array) -> tuple[Array, Array]:
    r"""Information of items by ability, and the SD of its logarithm, both over the items' posteriors.

    Averages over 2p points :math:`\xi \pm \sqrt p L_k` per item (L the root of its covariance), which have the
    posterior's mean and covariance.

    Parameters
    ----------
    mean : (items, p), covariance : (items, p, p), theta : (nodes,)

    Returns
    -------
    information, spread : (items, nodes)
    """
    n, p = mean.shape
    information, spread = np.empty((n, theta.size)), np.empty((n, theta.size))
    for lo in range(0, n, BLOCK):
        some = slice(lo, lo + BLOCK)
        off = np.sqrt(p) * np.swapaxes(np.linalg.cholesky(covariance[some]), 1, 2)
        xi = mean[some, None] + np.concatenate([off, -off], axis=1)
        each = np.maximum(item_information(model, xi, theta), SMALLEST)
        information[some], spread[some] = each.mean(axis=1), np.log(each).std(axis=1)
    return information, spread


def bank_information(consensus: Consensus, curves: Mapping[str, Array], theta: Array) -> pl.DataFrame:
    """What the items of each dimension measure at each ability.

    Parameters
    ----------
    curves
        Information of every group's items, (items, nodes).

    Returns
    -------
    polars DataFrame
        dimension, theta, information (of all items), sem_best (standard error of measurement with the `BEST` most
        informative items at that ability, or all where there are fewer).
    """
    frames = []
    for dimension in consensus.dimensions:
        own = [curves[name] for name, g in consensus.groups.items() if g.dimension == dimension]
        if not own:
            continue
        every = np.concatenate(own)
        few = min(BEST, every.shape[0])
        best = np.partition(every, every.shape[0] - few, axis=0)[-few:].sum(axis=0)
        columns = {"theta": theta, "information": every.sum(axis=0), "sem_best": best**-0.5}
        frames.append(pl.DataFrame(columns).select(pl.lit(dimension).alias("dimension"), pl.all()))
    return pl.concat(frames)


def location_histogram(consensus: Consensus) -> pl.DataFrame:
    """Where the items are: dimension, from, to, count of posterior mean locations d; the end bins hold those beyond."""
    frames = []
    for dimension in consensus.dimensions:
        own = [g.mean[:, 0] for g in consensus.groups.values() if g.dimension == dimension]
        if own:
            d = np.clip(np.concatenate(own), ABILITY_EDGES[0], ABILITY_EDGES[-1])
            frames.append(histogram(d, ABILITY_EDGES, dimension=dimension))
    return pl.concat(frames)


def targeting_table(information: pl.DataFrame, locations: pl.DataFrame, abilities: pl.DataFrame) -> pl.DataFrame:
    """By dimension: where nine examinees in ten are, how many items are there, and what the bank measures there.

    Parameters
    ----------
    information, locations
        Of `bank_information` and `location_histogram`.
    abilities
        Of `concal.evaluate.digest.ability_histogram`: all periods count together.

    Returns
    -------
    polars DataFrame
        dimension, items, examinees_from, examinees_to (5 and 95 % of examinees lie below), items_there (share of the
        items located between), sem_least, sem_most (of the best items, at abilities between), thinnest_at (where the
        latter is).
    """
    rows = []
    for (dimension,), items in locations.group_by(["dimension"], maintain_order=True):
        n = int(items["count"].sum())
        row: dict[str, object] = {"dimension": dimension, "items": n}
        if abilities.height and (people := abilities.filter(dimension=dimension)).height:
            counts = people.group_by("from", "to").agg(pl.col("count").sum()).sort("from")
            below = counts["count"].cum_sum() / max(counts["count"].sum(), 1)
            low = float(counts["from"][int((below > 0.05).arg_max() or 0)])
            high = float(counts["to"][int((below >= 0.95).arg_max() or 0)])
            there = int(items.filter((pl.col("from") >= low) & (pl.col("to") <= high))["count"].sum())
            known = information.filter((pl.col("dimension") == dimension) & pl.col("theta").is_between(low, high))
            row |= {"examinees_from": low, "examinees_to": high, "items_there": there / max(n, 1)}
            if known.height:
                worst = known.sort("sem_best", descending=True).row(0, named=True)
                least = known["sem_best"].min()
                row |= {"sem_least": least, "sem_most": worst["sem_best"], "thinnest_at": worst["theta"]}
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)
