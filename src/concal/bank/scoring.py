"""What scoring needs of a version: items, joint draws, and the ability distributions of its periods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.acts import Acts
from concal.bank.store.folder import FolderReader
from concal.bank.tables.calibration import read_ability_groups
from concal.consensus.result import Consensus
from concal.names import split_stratum
from concal.response import ResponseModel
from concal.score.items import ScoringItems
from concal.score.prior import Abilities, Population
from concal.score.score import ScoringBank
from concal.score.split import SplitItems
from concal.spec import GroupSpec, Spec

if TYPE_CHECKING:
    from concal.bank.reading.contents import Contents

Array = npt.NDArray[np.float64]


def scoring_bank(version: Contents, *, joint: bool) -> ScoringBank:
    """Read a version for scoring; without `joint` the (large) joint draws are left out."""
    consensus = version.consensus(joint=joint)
    spec = as_calibrated(version.spec, consensus)
    items = ScoringItems.of(consensus, spec.consensus.seed, version.max_scores())
    abilities = period_abilities(version, consensus, joint=joint)
    return ScoringBank(items, abilities, spec, split_items(version, consensus), version.unconverged())


def as_calibrated(spec: Spec, consensus: Consensus) -> Spec:
    """The spec with every group of the consensus, under the response model its items were calibrated by.

    Since then a group may have left the spec, or got another number of categories from a period that was retracted:
    scores are read as scores of the items that are known.
    """
    groups = dict(spec.groups)
    for name, found in consensus.groups.items():
        base, categories = split_stratum(name)
        known, model = groups.get(base), found.model
        if known is not None and _is(known.of(categories), model):
            continue
        groups[base] = GroupSpec(
            model=model.name,
            dimension=found.dimension,
            categories=model.n_categories if model.polytomous and categories is None else None,
            slopes=model.slopes,
            steps=getattr(model, "steps", None),
            max_score=None if known is None else known.max_score,
        )
    return spec.model_copy(update={"groups": groups})


def _is(group: GroupSpec, model: ResponseModel) -> bool:
    """Whether a group of the spec has this response model; without a number of categories it has none."""
    return not (group.polytomous and group.categories is None) and group.response_model == model


def split_items(version: Contents, consensus: Consensus) -> SplitItems:
    """Which items ids mean that were split: in every period, and in one that would be added next."""
    acts = Acts.of(version.snapshot)
    if not any(act.kind == "split" for act in acts.acts):
        return SplitItems(periods={name: {} for name in version.period_names})
    there = {item for group in consensus.groups.values() for item in group.item_ids}
    periods = {name: version.meanings(name, there) for name in version.period_names}
    return SplitItems(acts.meanings(None, there), periods)


def period_abilities(version: Contents, consensus: Consensus, *, joint: bool) -> Abilities:
    """Ability distributions on the reference metric: N(B, A R A) of every period, or those of its groups."""
    D, names = len(consensus.dimensions), consensus.periods
    correlation = np.stack([_correlation(version.period_files(name), D) for name in names])
    A, B = np.ones((len(names), D)), np.zeros((len(names), D))
    for row in consensus.links.iter_rows(named=True):
        at = names.index(row["period"]), consensus.dimensions.index(row["dimension"])
        A[at], B[at] = row["A_mean"], row["B_mean"]
    found = [population for name in names for population in _populations(version, name, consensus.dimensions)]
    own = [names.index(population.period) for population in found]
    links = consensus.joint_links[:, own] if joint and consensus.joint_links is not None else None
    return Abilities.of_links(found, correlation[own], A[own], B[own], links)


def _populations(version: Contents, period: str, dimensions: Sequence[str]) -> list[Population]:
    """A period's examinees on its own metric: N(0, R), or its groups, the first of which sets the metric."""
    D, groups = len(dimensions), read_ability_groups(version.period_files(period))
    if groups is None:
        persons = version.snapshot.periods[period].info.get("n_persons") or 1
        return [Population(period, None, float(persons), np.zeros(D), np.ones(D))]
    own = [groups.dimensions.index(d) for d in dimensions]
    return [
        Population(period, name, float(size), groups.mean[k, own], groups.sd[k, own])
        for k, (name, size) in enumerate(zip(groups.names, groups.sizes, strict=True))
    ]


def _correlation(reader: FolderReader, D: int) -> Array:
    """R averaged over a period's draws; dimensions of draws that came without abilities are taken as unrelated."""
    if "ability_draws" not in reader:
        return np.eye(D)
    column = reader.frame("ability_draws", ["correlation"])["correlation"]
    values = column.explode().cast(pl.Float64).to_numpy().reshape(-1, D, D)
    return np.asarray(values.mean(axis=0))
