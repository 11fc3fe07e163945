"""What groups of a layout have in common: strata the population of d and log a, equal slopes and steps a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from concal.calibration.standardise import Standardisation, standardised
from concal.names import split_stratum

if TYPE_CHECKING:
    from concal.calibration.layout import GroupLayout

HEAD = 2  # d and log a


@dataclass(frozen=True)
class Family:
    """Strata that share the population of d and log a; most often one group, alone.

    `members` are positions among the layout's groups, the first one leads: what they share is counted with it.
    """

    members: tuple[int, ...]
    groups: tuple[GroupLayout, ...]

    @property
    def lead(self) -> int:
        """The first member."""
        return self.members[0]

    @cached_property
    def head(self) -> npt.NDArray[np.intp]:
        """Coordinates whose population they share; a slope that belongs to the group has none."""
        return self.groups[0].free[self.groups[0].free < HEAD]

    @property
    def n_spread(self) -> int:
        """Coordinates with a spread in all: the head once, and every stratum's steps."""
        return int(self.head.size + sum(g.free.size - self.head.size for g in self.groups))

    @cached_property
    def design(self) -> Standardisation:
        """Design of all their items."""
        return standardised(np.concatenate([g.design.X for g in self.groups]), self.groups[0].design.to_user)


@dataclass(frozen=True)
class Common:
    """A coordinate that all items of some groups have in common (`ResponseModel.shared`): it has one value.

    `members` are positions among the layout's groups, the first one leads.
    """

    coordinate: int
    members: tuple[int, ...]


def families(groups: Sequence[GroupLayout]) -> tuple[Family, ...]:
    """Strata by the group they belong to; items with priors of their own (a guide) follow no population."""
    found: dict[tuple[str, bool], list[int]] = {}
    for k, g in enumerate(groups):
        alone = g.guide is not None
        found.setdefault((g.name if alone else split_stratum(g.name)[0], alone), []).append(k)
    return tuple(Family(tuple(ks), tuple(groups[k] for k in ks)) for ks in found.values())


def in_common(groups: Sequence[GroupLayout]) -> tuple[Common, ...]:
    """What belongs to groups as a whole: a slope to all strata, a step to those with as many categories.

    Whose it is, does not depend on the population the items follow (`GroupLayout.owner`).
    """
    found: dict[tuple[int, str], list[int]] = {}
    for k, g in enumerate(groups):
        for c in g.model.shared:
            found.setdefault((c, split_stratum(g.owner)[0] if c < HEAD else g.owner), []).append(k)
    return tuple(Common(c, tuple(ks)) for (c, _), ks in found.items())
