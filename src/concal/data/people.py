"""Whose responses they are: examinees that earlier periods have, and ids that only people would take for one.

Ids are text and stay as they were written. Where two differ by nothing but surrounding blanks or case, most often one
person was written in two ways and would be counted twice, so that is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import polars as pl

from concal.data.findings import Findings, some
from concal.errors import counted
from concal.spec import Spec

EarlierPersons = Mapping[str, pl.Series | Collection[str]]
"""Period -> examinees it has."""
WHY_ITEMS = (
    "periods are linked by the items they share, not by examinees: a returning examinee may have learned, so nothing "
    "tells growth from a change of metric, and responses of one person in two periods are not independent"
)
FEWEST_ROWS = 10
"""Ids 1 to 9 of a handful of examinees may well be theirs."""
_SPELLING = "only by surrounding blanks or case"


def plain(ids: pl.Series) -> pl.Series:
    """Ids without surrounding blanks and case; upper case first, so that a sharp s and SS are one."""
    return ids.str.strip_chars().str.to_uppercase().str.to_lowercase()


def doubt_twins(ids: pl.Series, what: str, then: str, found: Findings) -> None:
    """Warn of ids of one kind (`what`: person ids) that differ by their spelling alone; `then` says what follows."""
    spelt = plain(ids)
    several = spelt.is_duplicated()
    if not several.any():
        return
    twins = pl.DataFrame({"id": ids.filter(several), "plain": spelt.filter(several)}).sort("plain", "id")
    first = pl.col("id").shift(1).over("plain")
    pairs = twins.select("id", before=first).drop_nulls()
    shown = ", ".join(f"{a!r} and {b!r}" for b, a in pairs.head(5).iter_rows())
    more = f" and {pairs.height - 5:,} more" if pairs.height > 5 else ""
    found.warn(
        f"{counted(pairs.height, 'pair')} of {what} that differ {_SPELLING}: {shown}{more}; {then}: if they are "
        "the same, write them one way"
    )


def returning(persons: pl.Series, earlier: EarlierPersons | None, spec: Spec, found: Findings) -> pl.Series:
    """Which examinees an earlier period has; the message says in which, and what happens to them."""
    back = pl.Series(np.zeros(persons.len(), dtype=bool))
    counts: dict[str, int] = {}
    spelt = plain(persons)
    strangers: list[pl.DataFrame] = []
    for period, given in (earlier or {}).items():
        ids = given if isinstance(given, pl.Series) else pl.Series(list(given), dtype=pl.String)
        here = persons.is_in(ids.implode())
        if here.any():
            counts[period] = int(here.sum())
            back = back | here
        alike = pl.DataFrame({"id": persons, "plain": spelt}).filter(~here)
        then = pl.DataFrame({"then": ids, "plain": plain(ids)}).with_columns(pl.lit(period).alias("period"))
        strangers.append(alike.join(then, on="plain", how="inner"))
    if counts:
        _say_returning(persons, back, counts, spec, found)
    if strangers:
        _doubt_strangers(pl.concat(strangers), persons.filter(back), found)
    return back


def _say_returning(persons: pl.Series, back: pl.Series, counts: Mapping[str, int], spec: Spec, found: Findings) -> None:
    n = int(back.sum())
    where = ", ".join(f"{k:,} in {period!r}" for period, k in list(counts.items())[:5])
    where += f" and {len(counts) - 5} more" if len(counts) > 5 else ""
    who = f"{counted(n, 'examinee')} already appeared in an earlier period ({where}): {some(persons.filter(back))}"
    hint = _row_numbers(persons)
    whole = next((period for period, k in counts.items() if k == persons.len()), None)
    if whole is not None:
        found.error(f"{who}; all of them in {whole!r}: is this the file of {whole!r}? {WHY_ITEMS}{hint}")
    elif n == persons.len():
        found.error(f"{who}; no row is left: {WHY_ITEMS}{hint}")
    elif spec.data.returning == "error":
        found.error(f'{who}; drop their rows, or set data.returning = "earlier"{hint}')
    else:
        found.warn(f'{who}; their responses in this period are left out (data.returning = "earlier"){hint}')


def _row_numbers(persons: pl.Series) -> str:
    """What to do where a period's ids are its rows' numbers, as R and pandas write them; else nothing."""
    for first in (0, 1):
        numbers = pl.int_range(first, first + persons.len(), eager=True).cast(pl.String)
        if persons.len() >= FEWEST_ROWS and numbers.is_in(persons.implode()).all():
            return (
                f"; ids {first:,} to {first + persons.len() - 1:,} look like row numbers: if they are, other people "
                "have them in every file; give examinees ids that no other period has"
            )
    return ""


def _doubt_strangers(alike: pl.DataFrame, back: pl.Series, found: Findings) -> None:
    """Examinees an earlier period may have under another spelling, those aside that are recognised anyway."""
    alike = alike.filter(~pl.col("id").is_in(back.implode())).unique("id", keep="first", maintain_order=True).sort("id")
    if not alike.height:
        return
    shown = [f"{row['id']!r} ({row['then']!r} in {row['period']!r})" for row in alike.head(5).iter_rows(named=True)]
    more = f" and {alike.height - 5:,} more" if alike.height > 5 else ""
    found.warn(
        f"{counted(alike.height, 'examinee')} whose id differs from one of an earlier period {_SPELLING}: "
        f"{', '.join(shown)}{more}; they count as new examinees: if they are the same people, write their ids as they "
        "were written then"
    )
