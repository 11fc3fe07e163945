"""Groups of examinees (language, grade, site): each has an ability distribution of its own in the calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.findings import Findings, some
from concal.data.linkage import Linkage, linkage
from concal.data.people import doubt_twins
from concal.data.period import PeriodData
from concal.errors import counted
from concal.spec import Spec

FEW = 50
"""Examinees of a group below which its mean and SD are hardly known."""


def groups_of(
    persons: pl.Series, told: pl.DataFrame | None, period: str, spec: Spec, found: Findings
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Names of the groups, the one that sets the metric first, and the group of every examinee.

    Parameters
    ----------
    persons
        Examinees of the period.
    told
        person_id, person_group as the responses say it; None: they do not, and the period is one population.

    Notes
    -----
    The metric is set by ``data.reference_group`` where it takes part, else by the largest group.
    """
    nobody = (period,), np.zeros(persons.len(), dtype=np.int32)
    wanted = spec.data.reference_group
    if told is None:
        if wanted is not None:
            found.warn(
                f"the responses have no column {spec.data.person_group}, so nobody is in the group {wanted!r} that is "
                "to set the metric (data.reference_group); all examinees set it"
            )
        return nobody
    told = told.filter(pl.col("person_id").is_in(persons.implode())).unique(maintain_order=True)
    empty = told.filter(pl.col("person_group").is_null() | (pl.col("person_group") == ""))["person_id"]
    if empty.len():
        found.error(
            f"responses: {counted(empty.len(), 'examinee')} without a {spec.data.person_group}: {some(empty)}; every "
            "examinee belongs to a group, or the column is left out"
        )
    several = told.filter(pl.col("person_id").is_duplicated())["person_id"].unique(maintain_order=True)
    if several.len():
        found.error(
            f"responses: {counted(several.len(), 'examinee')} in several groups ({spec.data.person_group}): "
            f"{some(several)}; give each one"
        )
    if empty.len() or several.len():
        return nobody
    sizes = told.group_by("person_group").len().sort(["len", "person_group"], descending=[True, False])
    names = sizes["person_group"].to_list()
    if wanted in names:
        names = [wanted, *(name for name in names if name != wanted)]
    elif wanted is not None:
        there = ", ".join(f"{name!r} ({n:,})" for name, n in sizes.head(5).iter_rows())
        more = f" and {sizes.height - 5} more" if sizes.height > 5 else ""
        found.warn(
            f"no examinee is in the group {wanted!r} that is to set the metric (data.reference_group); the largest "
            f"sets it, {names[0]!r}: there are {there}{more}"
        )
    doubt_twins(
        pl.Series(names), f"groups of examinees ({spec.data.person_group})", "each has abilities of its own", found
    )
    few = sizes.filter(pl.col("len") < FEW)["person_group"]
    if few.len():
        found.warn(
            f"{counted(few.len(), 'examinee group')} with fewer than {FEW} examinees: {some(few)}; their means and SDs "
            "are hardly known: merge small groups"
        )
    n = dict(sizes.iter_rows())
    if n[names[0]] < min(FEW, sizes["len"][0]):
        found.warn(
            f"the group {names[0]!r} sets the metric with {counted(n[names[0]], 'examinee')}: its mean and SD, hardly "
            "known, are the origin and unit of everything in the period; the largest group, "
            f"{sizes['person_group'][0]!r} ({sizes['len'][0]:,}), would be better"
        )
    place = pl.DataFrame({"person_group": names, "at": pl.int_range(len(names), dtype=pl.Int32, eager=True)})
    order = pl.DataFrame({"person_id": persons}).join(told, on="person_id", how="left", maintain_order="left")
    at = order.join(place, on="person_group", how="left", maintain_order="left")["at"]
    return tuple(names), at.to_numpy().astype(np.int32)


def refuse_untied(data: PeriodData, spec: Spec, found: Findings) -> None:
    """In every dimension groups hang together with the one that sets the metric, by items that both answered.

    Populations of a period differ in their means, so that of groups without a common item only the priors say who is
    abler. Unlike periods, which are linked draw by draw, they are calibrated at once: any common item ties them, and
    fewer than ``linking.min_anchors`` are a doubt.
    """
    if len(data.populations) < 2:
        return
    reference = data.populations[0]
    items = _items_of_groups(data)
    wide = linkage(items, reference, spec.linking.min_anchors)
    if not wide.unlinked:
        return
    plan = linkage(items, reference, 1)
    for dimension in data.dimensions:
        untied = [name for d, name in plan.unlinked if d == dimension]
        if (dimension, reference) not in plan.n_items:
            if untied:
                _refuse_reference(dimension, untied, plan, spec, found)
        elif untied:
            _refuse_groups(dimension, untied, plan, spec, found)
        else:
            _doubt_few(dimension, [name for d, name in wide.unlinked if d == dimension], plan, wide.min_anchors, found)


def _items_of_groups(data: PeriodData) -> dict[str, dict[str, list[str]]]:
    """Group of examinees -> dimension -> items that it answered."""
    items: dict[str, dict[str, list[str]]] = {name: {} for name in data.populations}
    for group in data.groups.values():
        answered = np.zeros((len(data.populations), len(group.item_ids)), dtype=bool)
        answered[data.population[group.person], group.item] = True
        ids = np.array(group.item_ids, dtype=object)
        for name, mine in zip(data.populations, answered, strict=True):
            items[name].setdefault(group.dimension, []).extend(ids[mine].tolist())
    return items


def _refuse_reference(dimension: str, others: Sequence[str], plan: Linkage, spec: Spec, found: Findings) -> None:
    sizes = [f"{name!r} ({counted(plan.n_items[dimension, name], 'item')})" for name in others]
    found.error(
        f"nobody of {plan.reference!r}, the group of examinees ({spec.data.person_group}) that sets the metric, "
        f"answered an item of dimension {dimension!r}: {_listed(sizes)}; nothing ties their abilities to it: give it "
        "such items, or let a group that has them set the metric (data.reference_group)"
    )


def _refuse_groups(dimension: str, untied: Sequence[str], plan: Linkage, spec: Spec, found: Findings) -> None:
    said = []
    for name in untied:
        n = counted(plan.n_items[dimension, name], "item")
        among = {b: k for (d, a, b), k in plan.shared.items() if d == dimension and a == name and k}
        said.append(f"{name!r} ({n}" + "".join(f"; {k:,} with {b!r}" for b, k in list(among.items())[:2]) + ")")
    found.error(
        f"{counted(len(untied), 'group')} of examinees ({spec.data.person_group}) without an item of dimension "
        f"{dimension!r} in common with {plan.reference!r}, which sets the metric, or with groups that have one: "
        f"{_listed(said)}; nothing tells how able they are from how hard their items are: give them items in common, "
        "or a bank of their own; leave the column out only where chance has decided who is in which group"
    )


def _doubt_few(dimension: str, weak: Sequence[str], plan: Linkage, enough: int, found: Findings) -> None:
    """Groups tied by few items, those aside whose items are all common."""
    weakest = {name: plan.weakest[dimension, name] for name in weak}
    few = {name: n for name, n in weakest.items() if n < plan.n_items[dimension, name]}
    if few:
        found.warn(
            f"dimension {dimension!r}: {counted(len(few), 'group')} of examinees tied to {plan.reference!r}, "
            f"which sets the metric, by fewer than {enough} items (linking.min_anchors): "
            f"{_listed([f'{name!r} ({n})' for name, n in few.items()])}; their means and SDs are hardly known: give "
            "the groups more items in common"
        )


def _listed(said: Sequence[str]) -> str:
    return ", ".join(said[:5]) + (f" and {len(said) - 5:,} more" if len(said) > 5 else "")
