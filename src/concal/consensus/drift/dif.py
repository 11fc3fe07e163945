r"""Differential item functioning: items that groups of examinees of equal ability do not answer alike.

A group's factors (`concal.calibration.fit.by_group`) of all periods, moved by the periods' links, are added up; then
groups are compared as drift compares periods: do an item's factors agree, and if not, in which group does it differ, by
how much in d, log a and expected score, as the responses alone tell it (`concal.consensus.drift.drift`). Abilities of a
group were estimated from items that may differ too: so each group's metric is first shifted by the weighted median over
items of

.. math:: b_j = (\hat c_{gj} - \hat c_{rj}) / a_j ,

c the intercept that the group and the rest give the item at its slope. Up to half of the items may differ one-sidedly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from concal import metric
from concal.consensus.drift.drift import compare
from concal.consensus.drift.gather import Gathered
from concal.consensus.links import InForce
from concal.consensus.result import Consensus, GroupConsensus

Array = npt.NDArray[np.float64]
LEAST_INFORMATION = 1.0
"""Information about an item's intercept that both sides must have for the item to help centre a group."""


@dataclass(frozen=True)
class GroupsOfPeriod:
    """What the groups of examinees of one period said.

    Attributes
    ----------
    evidence : polars DataFrame
        item_id, group, dimension, person_group, n_responses, Q, h (lists, row by row), on the period's own metric.
    names : tuple of str
        Groups of examinees, the one that sets the metric first.
    mean, sd : (groups, dimensions)
        Ability distributions on the period's own metric.
    sizes : (groups,)
    dimensions : tuple of str
    """

    evidence: pl.DataFrame
    names: tuple[str, ...]
    mean: Array
    sd: Array
    sizes: npt.NDArray[np.int64]
    dimensions: tuple[str, ...]


COLUMNS = (
    *("item_id", "group", "dimension", "person_group", "n_responses", "flagged", "direction", "score_shift"),
    *("score_size", "item_distance", "item_df", "item_p_value", "item_q_value", "distance", "df", "p_value"),
    *("q_value", "d_shift", "d_shift_sd", "log_a_shift", "log_a_shift_sd"),
)


def find_dif(
    periods: Mapping[str, GroupsOfPeriod], consensus: Consensus, links: InForce, *, fdr: float = 0.05
) -> pl.DataFrame:
    """Every item and group of examinees, items that differ first, by size; see `COLUMNS`.

    Parameters
    ----------
    periods : dict of period -> GroupsOfPeriod
    links : (A, B) by period and dimension
    fdr : float
        False discovery rate over items.
    """
    names = list(dict.fromkeys(name for period in periods.values() for name in period.names))
    if len(names) < 2:
        return pl.DataFrame(schema=SCHEMA)
    found = []
    for known in consensus.groups.values():
        gathered = _gather(periods, known, links, names)
        if gathered is not None:
            found.append((in_fixed_units(known), gathered))
    table = compare(found, names, fdr=fdr).items
    if not table.width:
        return pl.DataFrame(schema=SCHEMA)
    return table.rename({"period": "person_group", "drifted": "flagged"}).select(COLUMNS)


def in_fixed_units(known: GroupConsensus) -> GroupConsensus:
    """The item group with the spread that items of its response model typically have in place of its own.

    The spread says which directions of an item groups are compared along, those they know something about. A bank whose
    slopes are nearly alike would not compare slopes at all.
    """
    return replace(known, sigma=np.diag(np.square(known.model.prior.sd)))


SCHEMA = {
    name: pl.String if name in ("item_id", "group", "dimension", "person_group", "direction")
    else pl.Boolean if name == "flagged" else pl.Int64 if name in ("n_responses", "df", "item_df") else pl.Float64
    for name in COLUMNS
}  # fmt: skip


def _gather(
    periods: Mapping[str, GroupsOfPeriod], known: GroupConsensus, links: InForce, names: Sequence[str]
) -> Gathered | None:
    """Factors of the groups, summed over the periods on the reference metric and centred."""
    place = {item: j for j, item in enumerate(known.item_ids)}
    p, n_items, G = len(known.model.parameters), len(known.item_ids), len(names)
    Q, h, n = np.zeros((G, n_items, p, p)), np.zeros((G, n_items, p)), np.zeros((G, n_items), dtype=np.int64)
    for period, said in periods.items():
        own = said.evidence.filter(pl.col("group") == known.name)
        if not own.height:
            continue
        A, B = links[period, known.dimension]
        at = np.array([place[item] for item in own["item_id"]], dtype=np.intp)
        who = np.array([names.index(name) for name in own["person_group"]], dtype=np.intp)
        moved = metric.move_factor(_array(own["Q"], p, p), _array(own["h"], p), A, B)
        np.add.at(Q, (who, at), moved[0])
        np.add.at(h, (who, at), moved[1])
        np.add.at(n, (who, at), own["n_responses"].to_numpy())
    if not n.any():
        return None
    slope, centre = np.exp(known.mean[:, 1]), metric.phi_of(known.mean)
    shift = _centring(Q, h, slope, centre)
    Q, h = metric.move_factor(Q, h, 1.0, shift[:, None])
    mean, sd = _distributions(periods, links, names, known.dimension)
    who, at = np.nonzero(n > 0)
    return Gathered(Q[who, at], h[who, at], at, who, n[who, at], sd[who], mean[who])


def _centring(Q: Array, h: Array, slope: Array, centre: Array) -> Array:
    """Shift of every group's metric, (groups,); zero for the first."""
    l = (h - np.einsum("gjab,jb->gja", Q, centre))[:, :, 0]  # gradient in the intercept, where the item is
    w = Q[:, :, 0, 0]
    shift = np.zeros(Q.shape[0])
    for g in range(1, Q.shape[0]):
        rest_l, rest_w = l.sum(axis=0) - l[g], w.sum(axis=0) - w[g]
        both = (w[g] > LEAST_INFORMATION) & (rest_w > LEAST_INFORMATION)
        if both.any():
            b = (l[g][both] / w[g][both] - rest_l[both] / rest_w[both]) / slope[both]
            shift[g] = weighted_median(b, slope[both] ** 2 / (1.0 / w[g][both] + 1.0 / rest_w[both]))
    return shift


def weighted_median(values: Array, weights: Array) -> float:
    """The value with half of the weight on either side."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, 0.5 * total[-1])])


def _distributions(
    periods: Mapping[str, GroupsOfPeriod], links: InForce, names: Sequence[str], dimension: str
) -> tuple[Array, Array]:
    """Mean and SD of every group's abilities over all periods, on the reference metric."""
    total = np.zeros((len(names), 3))
    for period, said in periods.items():
        k = said.dimensions.index(dimension)
        A, B = links[period, dimension]
        mean, sd = metric.move_abilities(said.mean[:, k], said.sd[:, k], A, B)
        at = [names.index(name) for name in said.names]
        total[at] += said.sizes[:, None] * np.stack([np.ones_like(mean), mean, sd**2 + mean**2], axis=1)
    size = np.maximum(total[:, 0], 1.0)
    mean = total[:, 1] / size
    return mean, np.sqrt(np.maximum(total[:, 2] / size - mean**2, 1e-12))


def _array(column: pl.Series, *shape: int) -> Array:
    return np.array(column.to_list(), dtype=np.float64).reshape(-1, *shape)
