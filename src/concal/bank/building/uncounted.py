"""Examinees who count in no period any more: left out of one for another that went, or came back without them.

Who was left out is stored with a period, their responses are not. So a version can say whom it misses, and only the
period's file can bring them back. It also says which exclusions of groups of examinees leave nobody out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from concal.bank.building.periods import Periods
from concal.bank.store.manifest import Act
from concal.bank.tables.responses import read_persons, read_returning
from concal.consensus.result import Consensus
from concal.data.findings import some
from concal.errors import counted, first_few


def with_uncounted(consensus: Consensus, periods: Periods) -> Consensus:
    """The consensus of these periods, saying whom it misses and who counts though they were to be left out."""
    said = [_in_words(period, missing) for period, missing in uncounted(periods).items()]
    said += [_lapsed(name, acts) for name, period in periods.items() if (acts := period.lapsed())]
    return replace(consensus, warnings=(*consensus.warnings, *said))


def uncounted(periods: Periods) -> dict[str, pl.Series]:
    """By period, examinees who were left out of it and whom no period has; one period's examinees in memory at a time.

    The others' examinees are read only while somebody is looked for.
    """
    found = {name: ids for name, period in periods.items() if (ids := read_returning(period.reader)).len()}
    for other in periods.values():
        if not found:
            break
        here = read_persons(other.reader).implode()
        left = {period: ids.filter(~ids.is_in(here)) for period, ids in found.items()}
        found = {period: ids for period, ids in left.items() if ids.len()}
    return found


def _lapsed(period: str, acts: Sequence[Act]) -> str:
    """Of exclusions that leave nobody out: the period came back without the group, or with it renamed."""
    said = first_few([f"{act.item} for {act.person_group}" for act in acts])
    return (
        f"{counted(len(acts), 'exclusion')} of groups of examinees in {period!r} without effect: {said}; no such group "
        "answered the item there now: exclude it for the group as it is called now, or undo it (--undo)"
    )


def _in_words(period: str, missing: pl.Series) -> str:
    return (
        f"{counted(missing.len(), 'examinee')} of period {period!r} in no period of the bank: {some(missing)}; their "
        f"responses were left out of {period!r} because another period had them, which is gone or came back without "
        f"them: add {period!r} again from its file to count them (replace, --replace)"
    )
