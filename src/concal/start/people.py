"""Columns of the responses that sort examinees into groups: language, grade, site."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from concal.data.person_groups import FEW
from concal.errors import counted

MOST_GROUPS = 12
"""A column with more levels is more likely a school or a date than a population."""

MOST_NAMED = 5


def examinee_groups(table: pl.DataFrame, person: str, columns: Sequence[str]) -> dict[str, str]:
    """Columns that could be `data.person_group`, and the sizes of the groups in words.

    Every examinee is in one group, in all rows, and no group is so small that its ability distribution would be a
    guess.
    """
    usable = [n for n in columns if table.schema[n].is_integer() or table.schema[n] in (pl.String, pl.Boolean)]
    usable = [n for n in usable if not table[n].null_count() and 2 <= table[n].n_unique() <= MOST_GROUPS]
    if not usable:
        return {}
    examinees = table.group_by(person).agg(pl.col(usable).n_unique().name.suffix("\0"), pl.col(usable).first())
    found = {}
    for name in usable:
        sizes = examinees.group_by(name).len().sort(["len", name], descending=[True, False])
        if (examinees[f"{name}\0"] == 1).all() and int(sizes["len"].to_numpy().min()) >= FEW:
            largest = ", ".join(f"{str(group)!r} ({n:,})" for group, n in sizes.head(MOST_NAMED).iter_rows())
            more = f" and {sizes.height - MOST_NAMED} more" if sizes.height > MOST_NAMED else ""
            found[name] = f"{counted(sizes.height, 'group')}, {largest}{more}"
    return found
