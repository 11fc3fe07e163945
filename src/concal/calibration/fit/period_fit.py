"""The fit of a period's items, as tables that are kept with its calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.calibration.fit.by_group import GroupEvidence, group_evidence
from concal.calibration.fit.cells import Responses
from concal.calibration.fit.dependence import Residuals, dependent_pairs
from concal.calibration.fit.items import ItemFit, item_fit
from concal.calibration.layout import GroupLayout, Layout
from concal.calibration.others import Told
from concal.data.period import GroupData, PeriodData

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PeriodFit:
    """Do the items of a period fit? On the period's own metric; scores are divided by the largest.

    Attributes
    ----------
    items : polars DataFrame
        item_id, group, dimension, n_responses, mean_score, infit, infit_p, outfit, outfit_p, chi_square, df,
        chi_square_p, falling_p (of a score that falls with the ability), p_value (of all together), misfit
        (root-mean-square difference of observed and expected mean scores over the ability bins, beyond chance and
        beyond what other parameters could make up).
    bins : polars DataFrame
        item_id, group, bin, theta, n_responses, observed, se, expected: mean scores of a fifth of the item's examinees
        each, ordered by what their other responses say of their ability.
    pairs : polars DataFrame
        item_id, other_id, dimension, n_common, q3, t, p_value, q_value: the pairs that stand out most.
    n_pairs : int
        Pairs that were tested.
    groups : polars DataFrame
        item_id, group, dimension, person_group, n_responses, Q, h, place and the response table bin_mean, bin_sd,
        cell_score, cell_count: what each group of examinees says about an item (`concal.calibration.fit.by_group`),
        arrays row by row; without columns where there is one group.
    """

    items: pl.DataFrame
    bins: pl.DataFrame
    pairs: pl.DataFrame
    n_pairs: int
    groups: pl.DataFrame = field(default_factory=pl.DataFrame)


def fit_period(
    data: PeriodData,
    layout: Layout,
    xi: Mapping[str, Array],
    told: Mapping[str, Told],
    theta_sd: Array,
    draw: Mapping[str, Array] | None = None,
) -> PeriodFit:
    """Fit of every item and dependence of pairs, from the items' posterior means and what other responses told.

    Parameters
    ----------
    xi : dict of group -> (items, p)
    told : dict of group -> Told
        Abilities without the response itself.
    theta_sd : (persons, dimensions)
        Posterior SDs of the abilities, with all responses.
    draw : dict of group -> (items, p), optional
        One draw of the items' posteriors, for the p-values; without it the items are taken as known.
    """
    items, bins, groups = [], [], []
    residuals: dict[int, list[Residuals]] = {}
    ids: dict[int, list[str]] = {}
    for g in layout.groups:
        group = data.groups[g.name]
        item = np.repeat(np.arange(g.n_items), np.diff(g.item_start))
        mean, sd = (values.astype(np.float64) for values in told[g.name])
        answers = Responses(item, group.score[np.lexsort((group.person, group.item))], mean, sd)
        drawn = None if draw is None else draw[g.name]
        found, z = item_fit(g.model, xi[g.name], answers, draw=drawn)
        items.append(_item_frame(group, found, _mean_scores(g, answers)))
        bins.append(_bin_frame(group, found))
        if len(layout.populations) > 1:
            who = layout.population[g.item_person].astype(np.intp)
            said = group_evidence(g.model, xi[g.name], answers, who, len(layout.populations))
            groups.append(_group_frame(group, said, layout.populations))
        v = np.maximum(theta_sd[g.item_person, g.dim] ** 2, np.finfo(np.float64).tiny)
        known = ids.setdefault(g.dim, [])
        b = np.sqrt(np.maximum(sd**2 / v - 1.0, 0.0)).astype(np.float32)
        at = Residuals((item + len(known)).astype(np.int32), g.item_person, z.astype(np.float32), b)
        residuals.setdefault(g.dim, []).append(at)
        known.extend(group.item_ids)
    pairs, tested = [], 0
    for dim in list(residuals):
        joined = Residuals(*(np.concatenate(column) for column in zip(*residuals.pop(dim), strict=True)))
        frame, n = _pair_frame(joined, ids[dim], layout.dimensions[dim], layout.n_persons)
        pairs.append(frame)
        tested += n
    both = pl.concat(pairs).sort("p_value", maintain_order=True)
    by_group = pl.concat(groups) if groups else pl.DataFrame()
    return PeriodFit(pl.concat(items), pl.concat(bins), both, tested, by_group)


def _mean_scores(g: GroupLayout, answers: Responses) -> Array:
    with np.errstate(invalid="ignore"):
        return np.bincount(answers.item, answers.score, g.n_items) / np.diff(g.item_start) / g.model.max_score


def _item_frame(group: GroupData, found: ItemFit, mean_score: Array) -> pl.DataFrame:
    n = len(group.item_ids)
    beyond = found.misfit**2 - found.misfit_variance
    counts = np.maximum(found.n_in_bin.sum(axis=1), 1)
    size = np.nansum(np.where(found.n_in_bin > 0, beyond * found.n_in_bin, 0.0), axis=1) / counts
    names = ("infit", "infit_p", "outfit", "outfit_p", "chi_square", "df", "chi_square_p", "falling_p", "p_value")
    columns = {name: getattr(found, name) for name in names}
    return pl.DataFrame(
        {
            "item_id": pl.Series(group.item_ids, dtype=pl.String),
            "group": pl.Series([group.name] * n, dtype=pl.String),
            "dimension": pl.Series([group.dimension] * n, dtype=pl.String),
            "n_responses": found.n_responses,
            "mean_score": mean_score,
            **columns,
            "misfit": np.sqrt(np.maximum(size, 0.0)),
        }
    ).with_columns(pl.col(pl.Float64).fill_nan(None))


def _group_frame(group: GroupData, said: GroupEvidence, names: tuple[str, ...]) -> pl.DataFrame:
    """Items that a group of examinees answered, item by item."""
    item, who = np.nonzero(said.n)
    n = item.size
    lists, short = pl.List(pl.Float64), pl.List(pl.Float32)  # the kernels read tables in single precision
    tables = said.table._asdict().items()
    return pl.DataFrame(
        {
            "item_id": pl.Series(group.item_ids, dtype=pl.String).gather(item),
            "group": pl.Series([group.name] * n, dtype=pl.String),
            "dimension": pl.Series([group.dimension] * n, dtype=pl.String),
            "person_group": pl.Series(names, dtype=pl.String).gather(who),
            "n_responses": said.n[item, who],
            "Q": pl.Series(said.Q[item, who].reshape(n, -1).tolist(), dtype=lists),
            "h": pl.Series(said.h[item, who].tolist(), dtype=lists),
            "place": pl.Series(said.place[item, who].tolist(), dtype=lists),
            **{name: pl.Series(values[item, who].reshape(n, -1).tolist(), dtype=short) for name, values in tables},
        }
    )


def _bin_frame(group: GroupData, found: ItemFit) -> pl.DataFrame:
    """Bins that hold anybody, item by item."""
    item, place = np.nonzero(found.n_in_bin)
    return pl.DataFrame(
        {
            "item_id": pl.Series(group.item_ids, dtype=pl.String).gather(item),
            "group": pl.Series([group.name] * item.size, dtype=pl.String),
            "bin": place.astype(np.int64) + 1,
            "theta": found.theta[item, place],
            "n_responses": found.n_in_bin[item, place],
            "observed": found.observed[item, place],
            "se": found.se[item, place],
            "expected": found.expected[item, place],
        }
    )


def _pair_frame(residuals: Residuals, ids: list[str], dimension: str, n_persons: int) -> tuple[pl.DataFrame, int]:
    found = dependent_pairs(residuals, len(ids), n_persons)
    names = pl.Series(ids, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "item_id": names.gather(found.first),
            "other_id": names.gather(found.second),
            "dimension": pl.Series([dimension] * found.first.size, dtype=pl.String),
            "n_common": found.n_common,
            "q3": found.q3,
            "t": found.t,
            "p_value": found.p_value,
            "q_value": found.q_value,
        }
    )
    return frame, found.tested
