"""Deal a period's examinees to shards: disjoint, at random within their groups, and the same way in every run."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from concal.data.period import PeriodData
from concal.errors import DataError, counted
from concal.spec import Spec

LEAST_EXAMINEES = 200
"""Fewer examinees fix origin and unit of a shard's metric only to .07 and .05 SD, and its population model hardly."""
LEAST_RESPONSES = 10.0
"""Mean responses per item and shard: with 8 a shard missed its targets after 20,000 sweeps, with 16 four shards
converged after 1,231 to 2,731 (benchmarks/shards.py, sparse)."""


def with_shards(data: PeriodData, spec: Spec, asked: int | None, *, guided: bool = False) -> Spec:
    """The spec with the number of shards this period is to have: as asked, as the spec says, or by its size.

    Parameters
    ----------
    data
        The checked period.
    spec
        With ``calibration.shards`` and ``calibration.max_responses_per_shard``.
    asked
        A number for this period alone.
    guided
        Its items will have priors from the bank.

    Raises
    ------
    DataError
        When the period cannot be dealt to so many.
    """
    options = spec.calibration
    if asked is not None:
        used = of_shards(spec, asked)
    elif options.max_responses_per_shard is not None:
        wanted = -(-data.n_responses // options.max_responses_per_shard)
        used = of_shards(spec, max(options.shards, min(wanted, most_shards(data))))
    else:
        used = spec
    refuse_shards(data, used.calibration.shards, guided)
    return used


def of_shards(spec: Spec, n: int) -> Spec:
    """The spec with this number of shards, whatever a period's size is."""
    options = spec.calibration.model_dump() | {"shards": n, "max_responses_per_shard": None}
    return Spec.parse({**spec.model_dump(), "calibration": options})


def refuse_shards(data: PeriodData, n: int, guided: bool) -> None:
    """A `DataError` for shards that would be too small, with the number that would do, or that cannot be at all."""
    if n < 1:
        raise DataError(f"shards = {n}: must be one or more")
    if n == 1:
        return
    if guided:
        raise DataError(
            'with [calibration] prior = "bank" a period cannot be dealt to shards: every shard would use what the bank '
            "knows again; take that option away"
        )
    most = most_shards(data)
    small = {name: k for name, k in zip(data.populations, _group_sizes(data), strict=True) if k < n}
    if small and len(data.populations) > 1:
        said = [f"{name!r} ({counted(k, 'examinee')})" for name, k in list(small.items())[:5]]
        more = f" and {len(small) - 5:,} more" if len(small) > 5 else ""
        groups = "1 group of examinees has" if len(small) == 1 else f"{len(small):,} groups of examinees have"
        raise DataError(
            f"period {data.period!r}: {n} shards, but {groups} fewer: {', '.join(said)}{more}; every shard needs some "
            f"of each group: use {counted(most, 'shard')} at most, merge small groups, or leave their examinees out"
        )
    if n > most:
        raise DataError(
            f"period {data.period!r}: {n} shards would be too small ({data.person_ids.len():,} examinees and "
            f"{data.n_responses:,} responses to {_n_items(data):,} items); use {counted(most, 'shard')} at most"
        )


def deal(data: PeriodData, n: int) -> list[PeriodData]:
    """The period as `n` periods of disjoint examinees, dealt by a hash of their ids; every shard lists all items.

    Every shard has examinees of every group of them, as evenly as can be.
    """
    refuse_shards(data, n, any(group.guide is not None for group in data.groups.values()))
    if n == 1:
        return [data]
    shard = shard_of(data, n)
    return [_shard(data, shard == k) for k in range(n)]


def most_shards(data: PeriodData) -> int:
    """How many shards a period can be dealt to, at least one."""
    by_persons = data.person_ids.len() // LEAST_EXAMINEES
    by_responses = int(data.n_responses / (LEAST_RESPONSES * max(1, _n_items(data))))
    return max(1, min(by_persons, by_responses, *_group_sizes(data)))


def _group_sizes(data: PeriodData) -> list[int]:
    return np.bincount(data.population, minlength=len(data.populations)).tolist()


def _n_items(data: PeriodData) -> int:
    return sum(len(group.item_ids) for group in data.groups.values())


def shard_of(data: PeriodData, n: int) -> npt.NDArray[np.int64]:
    """Number of the shard of every examinee: in turn, group by group, in the order of the hashes of their ids."""
    digests = (hashlib.sha256(str(person).encode()).digest()[:8] for person in data.person_ids.to_list())
    hashes = np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)
    order = np.lexsort((hashes, data.population))
    sizes = _group_sizes(data)
    turn = np.concatenate([np.arange(size) for size in sizes]) % n
    shard = np.empty(len(turn), dtype=np.int64)
    shard[order] = turn
    return shard


def _shard(data: PeriodData, member: npt.NDArray[np.bool_]) -> PeriodData:
    place = np.cumsum(member) - 1
    groups = {}
    for name, group in data.groups.items():
        kept = member[group.person]
        groups[name] = replace(
            group,
            person=place[group.person[kept]].astype(np.int32),
            item=group.item[kept],
            score=group.score[kept],
        )
    return replace(
        data, person_ids=data.person_ids.filter(member), groups=groups, population=data.population[member], warnings=()
    )
