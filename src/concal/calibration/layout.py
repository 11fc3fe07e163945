"""A period's responses laid out for the passes: by examinee and by item, and cut into chunks for threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from concal.calibration.family import Common, Family, families, in_common
from concal.calibration.priors import BetaPrior
from concal.calibration.standardise import Standardisation, group_rows, standardise
from concal.data.period import GroupData, Guide, PeriodData
from concal.errors import ConvergenceError, first_few
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
CHUNK_PERSONS = 2048
CHUNK_RESPONSES, CHUNK_ITEMS = 60_000, 1024
BLOCK_ITEMS = 256
CHUNKS = 8  # at least, so that a small period keeps every thread busy; fixed, so that sums round alike on any number
FEWEST_PERSONS, FEWEST_RESPONSES = 200, 4000  # in a chunk: below, handing it over costs more than it saves


@dataclass(frozen=True)
class GroupLayout:
    """One group's responses in both orders (CSR), with its standardised design.

    `part_of` names the group where this is part of one: items that follow a population of their own, but have equal
    slopes or steps in common with the others.
    """

    name: str
    model: ResponseModel
    dim: int
    n_items: int
    design: Standardisation
    person_start: npt.NDArray[np.int64]
    person_item: npt.NDArray[np.int32]
    person_score: npt.NDArray[np.float32]
    item_start: npt.NDArray[np.int64]
    item_person: npt.NDArray[np.int32]
    item_score: npt.NDArray[np.float32]
    item_chunks: tuple[tuple[int, int], ...]  # about as many responses each
    item_blocks: tuple[tuple[int, int], ...]  # as many items each, for what costs the same whatever the responses
    guide: Guide | None = None
    held: tuple[tuple[int, float, float], ...] = ()  # coordinate, mean, precision; see `ResponseModel.held`
    part_of: str | None = None

    @cached_property
    def p(self) -> int:
        """Coordinates of xi."""
        return len(self.model.parameters)

    @property
    def owner(self) -> str:
        """The group to which equal slopes and steps belong."""
        return self.name if self.part_of is None else self.part_of

    @cached_property
    def free(self) -> npt.NDArray[np.intp]:
        """Coordinates every item has its own number of; the others are the group's (`ResponseModel.shared`)."""
        return np.array([c for c in range(self.p) if c not in self.model.shared], dtype=np.intp)

    @cached_property
    def coefficients(self) -> npt.NDArray[np.bool_]:
        """Which numbers of beta (features, p) there are: of a coordinate that belongs to the group, the intercept."""
        exist = np.zeros((self.design.X.shape[1], self.p), dtype=bool)
        exist[0], exist[:, self.free] = True, True
        return exist

    def predicted(self, beta: Array) -> Array:
        """X beta of every item, (items, p, LANES); beta (features, p, LANES) on the standardised design."""
        return (self.design.X @ beta.reshape(beta.shape[0], -1)).reshape(self.n_items, *beta.shape[1:])

    def beta_prior(self, tau: float) -> BetaPrior:
        """Prior of its coefficients."""
        return BetaPrior.of(self.model.prior, tau)

    @cached_property
    def guide_precision(self) -> Array:
        """Precisions of the guide's priors, (items, p, p)."""
        assert self.guide is not None
        return np.asarray(np.linalg.inv(self.guide.covariance))


@dataclass(frozen=True)
class Layout:
    """A period laid out; chunks never depend on the number of threads."""

    dimensions: tuple[str, ...]
    n_persons: int
    n_responses: int
    populations: tuple[str, ...]
    population: npt.NDArray[np.int32]
    population_sizes: npt.NDArray[np.int64]
    groups: tuple[GroupLayout, ...]
    person_chunks: tuple[tuple[int, int], ...]

    @property
    def D(self) -> int:
        """Number of dimensions."""
        return len(self.dimensions)

    @cached_property
    def guided_dimensions(self) -> list[int]:
        """Dimensions with at least one guided group."""
        return sorted({g.dim for g in self.groups if g.guide is not None})

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Groups by the population of d and log a they share."""
        return families(self.groups)

    @cached_property
    def in_common(self) -> tuple[Common, ...]:
        """Slopes and steps that belong to groups as a whole."""
        return in_common(self.groups)


def lay_out(data: PeriodData) -> Layout:
    """Index a period for the passes; what cannot be identified is refused here, before sampling."""
    _refuse_unidentified(data)
    n = len(data.person_ids)
    dimension = {name: k for k, name in enumerate(data.dimensions)}
    whole = group_rows({name: g.X for name, g in data.groups.items() if g.guide is None})
    groups = tuple(
        _lay_out_group(g, dimension[g.dimension], n, whole.get(name, g.X)) for name, g in data.groups.items()
    )
    sizes = np.bincount(data.population, minlength=len(data.populations)).astype(np.int64)
    step = min(max(-(-n // CHUNKS), FEWEST_PERSONS), CHUNK_PERSONS)
    chunks = tuple((lo, min(lo + step, n)) for lo in range(0, n, step))
    return Layout(
        data.dimensions, n, data.n_responses, data.populations, data.population.astype(np.int32), sizes, groups, chunks
    )


def _lay_out_group(group: GroupData, dim: int, n_persons: int, whole: Array) -> GroupLayout:
    score = group.model.encode_score(group.score).astype(np.float32)
    n_items = len(group.item_ids)
    by_person = np.lexsort((group.item, group.person))
    by_item = np.lexsort((group.person, group.item))
    person_start = np.concatenate([[0], np.cumsum(np.bincount(group.person, minlength=n_persons))]).astype(np.int64)
    item_start = np.concatenate([[0], np.cumsum(np.bincount(group.item, minlength=n_items))]).astype(np.int64)
    chunk = min(max(-(-group.score.size // CHUNKS), FEWEST_RESPONSES), CHUNK_RESPONSES)
    return GroupLayout(
        group.name,
        group.model,
        dim,
        n_items,
        standardise(group.X, whole),
        person_start,
        np.ascontiguousarray(group.item[by_person], dtype=np.int32),
        score[by_person],
        item_start,
        np.ascontiguousarray(group.person[by_item], dtype=np.int32),
        score[by_item],
        runs(item_start, chunk, CHUNK_ITEMS),
        tuple((lo, min(lo + BLOCK_ITEMS, n_items)) for lo in range(0, n_items, BLOCK_ITEMS)),
        group.guide,
        _held(group),
    )


def _held(group: GroupData) -> tuple[tuple[int, float, float], ...]:
    names = group.model.parameters
    found = group.model.held(group.score, len(group.item_ids))
    return tuple((names.index(name), mean, sd**-2) for name, (mean, sd) in found.items())


def runs(start: npt.NDArray[np.int64], responses: int, most: int) -> tuple[tuple[int, int], ...]:
    """Runs of units with about so many responses each, at least one unit and at most `most`; start (units + 1,)."""
    found, lo, n = [], 0, start.shape[0] - 1
    while lo < n:
        hi = int(np.searchsorted(start, start[lo] + responses, side="right")) - 1
        found.append((lo, min(max(hi, lo + 1), lo + most, n)))
        lo = found[-1][1]
    return tuple(found)


def _refuse_unidentified(data: PeriodData) -> None:
    loaded = {g.dimension for g in data.groups.values() if len(g.item_ids)}
    empty = [d for d in data.dimensions if d not in loaded]
    if empty:
        raise ConvergenceError(
            f"period {data.period!r}: no item loads on dimension {first_few(empty)}; "
            "add items of that dimension or take it out of bank.dimensions"
        )
    for m, name in enumerate(data.populations):
        if not np.any(data.population == m):
            raise ConvergenceError(f"no examinee in population {name!r}")
