r"""What items and tests measure: information, standard error of measurement, reliability, with bands.

.. math:: I_j(\theta) = E[l_j'^2], \qquad I(\theta) = \sum_j I_j(\theta), \qquad SEM(\theta) = I(\theta)^{-1/2}

for the items of one dimension. Conditional reliability is :math:`\sigma^2 / (\sigma^2 + 1/I(\theta))` with the ability
SD of the prior; marginal reliability :math:`\sigma^2 / (\sigma^2 + E[1/I(\theta)])` with the expectation over it.
Every quantity is computed at each draw of the items (joint draws where there are some): its value is the mean, its band
the 5 % and 95 % quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.errors import BankError, DataError, counted, first_few
from concal.response import ResponseModel
from concal.score.items import GroupItems, ScoringItems
from concal.score.prior import Abilities, mixture

Array = npt.NDArray[np.float64]
NODES = np.linspace(-4.0, 4.0, 33)
"""Abilities where nothing else is asked for."""
BAND = (0.05, 0.95)
"""Quantiles over the draws that bands reach."""
BLOCK = 2_000_000
"""Numbers (draws, items, nodes) computed at a time."""


@dataclass(frozen=True)
class Information:
    """Information of a set of items.

    Attributes
    ----------
    curves : polars DataFrame
        dimension, theta, information, information_low, information_high, sem, sem_low, sem_high, reliability,
        reliability_low, reliability_high: a row per dimension and theta.
    tests : polars DataFrame
        dimension, n_items, and the marginal reliability with its band: a row per dimension.
    items : polars DataFrame
        item_id, dimension, the largest information, where it is (at_theta) and its band.
    draws : str
        "joint draws" or "independent draws".
    """

    curves: pl.DataFrame
    tests: pl.DataFrame
    items: pl.DataFrame
    draws: str


def information(
    items: ScoringItems,
    abilities: Abilities,
    *,
    ids: Sequence[str] | None = None,
    theta: npt.ArrayLike | None = None,
    draws: int = 100,
) -> Information:
    """Information of some items (default: all) taken together as one test, from `draws` draws or all there are."""
    nodes = NODES if theta is None else np.atleast_1d(np.asarray(theta, dtype=np.float64))
    if nodes.ndim != 1 or not nodes.size or not np.isfinite(nodes).all():
        raise DataError("theta must be one or several finite numbers")
    wanted = _wanted(items, ids)
    which = items.spread_draws(min(draws, items.n_draws))
    D, S = len(items.dimensions), which.size
    total = np.zeros((D, S, nodes.size))
    best = []
    for g, own in zip(items.groups, wanted, strict=True):
        curves = _curves(items, g, own, which, nodes)
        total[g.dim] += curves.sum(axis=1)
        best.append(_largest(items, g, own, curves, nodes))
    mean, sd = _population(abilities)
    curves_table, tests = [], []
    for k, name in enumerate(items.dimensions):
        n = sum(int(own.size) for g, own in zip(items.groups, wanted, strict=True) if g.dim == k)
        if n:
            curves_table.append(_curve_table(name, nodes, total[k], sd[k]))
            tests.append(_test_row(items, wanted, which, k, n, mean[k], sd[k]))
    if not tests:
        raise DataError("no items: name some, or leave the list away")
    return Information(pl.concat(curves_table), pl.DataFrame(tests), pl.concat(best), items.draws_kind)


def item_information(model: ResponseModel, xi: Array, nodes: Array) -> Array:
    """Information of items xi (..., p) at nodes, (..., nodes): the models' own expected information.

    It does not depend on the score, so any score the model takes will do.
    """
    flat = xi.reshape(-1, xi.shape[-1])
    score = model.atoms[0] if model.atoms else 0.5 * model.max_score
    n, q = flat.shape[0], nodes.size
    found = model.derivatives(np.full(n * q, score), np.tile(nodes, n), np.repeat(flat, q, axis=0))
    return np.asarray(found.theta_information.reshape(*xi.shape[:-1], q))


def _wanted(items: ScoringItems, ids: Sequence[str] | None) -> list[npt.NDArray[np.int64]]:
    if ids is None:
        return [np.arange(g.n_items) for g in items.groups]
    place = {item: k for k, item in enumerate(items.item_ids)}
    unknown = [item for item in ids if item not in place]
    if unknown:
        raise BankError(
            f"{counted(len(unknown), 'item')} not in the bank: {first_few(unknown)}; `concal items` lists all"
        )
    at = np.array(sorted({place[item] for item in ids}), dtype=np.int64)
    return [at[(at >= g.first) & (at < g.first + g.n_items)] - g.first for g in items.groups]


def _curves(
    items: ScoringItems, g: GroupItems, own: npt.NDArray[np.int64], which: npt.NDArray[np.int64], nodes: Array
) -> Array:
    """Information of a group's items at every draw, (draws, items, nodes)."""
    out = np.empty((which.size, own.size, nodes.size))
    step = max(1, BLOCK // (which.size * nodes.size))
    for lo in range(0, own.size, step):
        some = own[lo : lo + step]
        xi = np.stack([items.group_draw(g, int(s), some) for s in which])
        out[:, lo : lo + step] = item_information(g.model, xi, nodes)
    return out


def _largest(
    items: ScoringItems, g: GroupItems, own: npt.NDArray[np.int64], curves: Array, nodes: Array
) -> pl.DataFrame:
    """Where an item measures best, and how well."""
    mean = curves.mean(axis=0)
    at = mean.argmax(axis=1) if own.size else np.zeros(0, np.int64)
    there = np.take_along_axis(curves, np.broadcast_to(at[None, :, None], (curves.shape[0], own.size, 1)), axis=2)[
        ..., 0
    ]
    return pl.DataFrame(
        {
            "item_id": pl.Series([items.item_ids[g.first + int(j)] for j in own], dtype=pl.String),
            "dimension": pl.Series([items.dimensions[g.dim]] * own.size, dtype=pl.String),
            "at_theta": nodes[at],
            "information": there.mean(axis=0),
            **_band(there, "information"),
        }
    )


def _population(abilities: Abilities) -> tuple[Array, Array]:
    """Mean and SD of the abilities of all periods."""
    mean, covariance = mixture(abilities.persons / abilities.persons.sum(), abilities.mean, abilities.covariance)
    return mean, np.sqrt(np.diagonal(covariance))


def _band(values: Array, name: str) -> dict[str, Array]:
    low, high = np.quantile(values, BAND, axis=0) if values.shape[1:] != (0,) else (np.zeros(0), np.zeros(0))
    return {f"{name}_low": low, f"{name}_high": high}


def _curve_table(dimension: str, nodes: Array, total: Array, sd: float) -> pl.DataFrame:
    sem = total**-0.5
    reliability = sd**2 / (sd**2 + 1.0 / total)
    return pl.DataFrame(
        {
            "dimension": pl.Series([dimension] * nodes.size, dtype=pl.String),
            "theta": nodes,
            "information": total.mean(axis=0),
            **_band(total, "information"),
            "sem": sem.mean(axis=0),
            **_band(sem, "sem"),
            "reliability": reliability.mean(axis=0),
            **_band(reliability, "reliability"),
        }
    )


def _test_row(
    items: ScoringItems, wanted: Sequence[npt.NDArray[np.int64]], which: npt.NDArray[np.int64], k: int, n: int,
    mean: float, sd: float,
) -> dict[str, object]:  # fmt: skip
    """Marginal reliability: the error variance averaged over the population, by Gauss-Hermite nodes."""
    x, w = np.polynomial.hermite_e.hermegauss(21)
    nodes, weight = mean + sd * x, w / w.sum()
    total = np.zeros((which.size, nodes.size))
    for g, own in zip(items.groups, wanted, strict=True):
        if g.dim == k and own.size:
            total += _curves(items, g, own, which, nodes).sum(axis=1)
    reliability = sd**2 / (sd**2 + (weight / total).sum(axis=1))
    low, high = np.quantile(reliability, BAND)
    return {
        "dimension": items.dimensions[k],
        "n_items": n,
        "reliability": float(reliability.mean()),
        "reliability_low": float(low),
        "reliability_high": float(high),
    }
