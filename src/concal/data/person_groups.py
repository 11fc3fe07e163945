"""Groups of examinees (language, grade, site): each has an ability distribution of its own in the calibration."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.findings import Findings, some
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
    few = sizes.filter(pl.col("len") < FEW)["person_group"]
    if few.len():
        found.warn(
            f"{counted(few.len(), 'examinee group')} with fewer than {FEW} examinees: {some(few)}; their means and SDs "
            "are hardly known: merge small groups"
        )
    place = pl.DataFrame({"person_group": names, "at": pl.int_range(len(names), dtype=pl.Int32, eager=True)})
    order = pl.DataFrame({"person_id": persons}).join(told, on="person_id", how="left", maintain_order="left")
    at = order.join(place, on="person_group", how="left", maintain_order="left")["at"]
    return tuple(names), at.to_numpy().astype(np.int32)
