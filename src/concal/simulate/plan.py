"""What a simulated programme is made of: every option with its default, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

from concal.errors import SpecError
from concal.spec import Spec

Selection = Literal["random", "popularity", "adaptive", "adaptive_within"]
Direction = Literal["easier", "harder", "both"]


@dataclass(frozen=True)
class Plan:
    """Options of a simulated programme.

    Attributes
    ----------
    periods : int
        Number of periods, named by quarters from 2026Q1.
    items : int
        Items the bank holds over all periods together.
    examinees : int
        Examinees per period.
    responses_per_examinee : int
        Items each examinee answers.
    seed : int
        The same seed gives the same programme.
    selection : {"random", "popularity", "adaptive", "adaptive_within"}
        How items are chosen. Adaptive looks at scores given so far in the programme, never at true values;
        "adaptive_within" at those of the same period only, so that a period alone explains its own choices.
    turnover : float
        Share of the active items replaced by new ones from each period to the next.
    new_item_exposure : float
        How often an item is shown in its first period, relative to later (the first period's items excepted).
    exposure_spread : float
        SD of the log of items' popularity: 0 is even, 1 has a heavy tail.
    ability_shift, ability_spread : float
        SD over periods of the ability mean, and of the log ability SD (the first period is standard).
    correlation : float
        Between every two dimensions.
    drift_share : float
        Share of the items that drift: their d jumps once, at a period after their first.
    drift_size : float
        How far, on the reference metric.
    drift_direction : {"easier", "harder", "both"}
        Which way.
    log_a : float
        Added to every item's log a: -1.5 makes a programme of flat items.
    overlap : float
        Share of a period's examinees who come back from the period before, with the ability they had.
    person_groups : int
        Groups of examinees (column `person_group` of the responses), as many in each; 1: no such column.
    group_shift : float
        How much higher the ability mean of each group is than that of the group before it.
    """

    periods: int = 4
    items: int = 600
    examinees: int = 2000
    responses_per_examinee: int = 30
    seed: int = 1
    selection: Selection = "popularity"
    turnover: float = 0.1
    new_item_exposure: float = 0.2
    exposure_spread: float = 1.0
    ability_shift: float = 0.3
    ability_spread: float = 0.1
    correlation: float = 0.6
    drift_share: float = 0.0
    drift_size: float = 0.5
    drift_direction: Direction = "both"
    log_a: float = 0.0
    overlap: float = 0.0
    person_groups: int = 1
    group_shift: float = 0.5

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                raise SpecError(f"simulate: {name} = {value!r} must lie between {low:g} and {high:g}")
        for field in fields(self):
            if field.type == "int" and not isinstance(getattr(self, field.name), int | np.integer):
                raise SpecError(f"simulate: {field.name} = {getattr(self, field.name)!r} must be a whole number")
        for name, kind in (("selection", Selection), ("drift_direction", Direction)):
            if getattr(self, name) not in get_args(kind):
                raise SpecError(f"simulate: {name} = {getattr(self, name)!r}; choose {', '.join(get_args(kind))}")
        if self.n_active < self.responses_per_examinee:
            raise SpecError(
                f"simulate: {self.items} items over {self.periods} periods leave {self.n_active} active at a time, but "
                f"each examinee answers {self.responses_per_examinee}; bring more items or fewer responses"
            )

    @property
    def n_active(self) -> int:
        """Items in use in any one period: n (1 + turnover (M - 1)) = items."""
        return self.items - self.n_new * (self.periods - 1)

    @property
    def n_new(self) -> int:
        """Items that enter (and retire) from one period to the next."""
        return round(self.turnover * self.items / (1.0 + self.turnover * (self.periods - 1)))

    @property
    def period_names(self) -> tuple[str, ...]:
        """Quarters from 2026Q1."""
        return tuple(f"{2026 + m // 4}Q{m % 4 + 1}" for m in range(self.periods))

    def rng(self, purpose: str, *where: int) -> np.random.Generator:
        """A stream of its own for every purpose, so that one option does not reshuffle everything else."""
        return np.random.default_rng([self.seed, *purpose.encode(), *where])


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("periods", 1, 1000),
    ("items", 1, 10_000_000),
    ("examinees", 1, 100_000_000),
    ("responses_per_examinee", 1, 10_000),
    ("seed", 0, 2**63 - 1),
    ("turnover", 0, 1),
    ("new_item_exposure", 1e-6, 1),
    ("exposure_spread", 0, 5),
    ("ability_shift", 0, 5),
    ("ability_spread", 0, 2),
    ("correlation", -0.99, 0.99),
    ("drift_share", 0, 1),
    ("drift_size", 0, 10),
    ("log_a", -3, 2),
    ("overlap", 0, 1),
    ("person_groups", 1, 26),
    ("group_shift", -5, 5),
)


def demo_spec() -> Spec:
    """Two dimensions and three formats: the programme of ``concal demo``."""
    return Spec.parse(
        {
            "bank": {"name": "Simulated English test", "dimensions": ["comprehension", "production"]},
            "groups": {
                "vocabulary": {
                    "model": "2pl",
                    "dimension": "comprehension",
                    "features": "~ log_frequency + length + C(cefr)",
                },
                "summary": {"model": "gpcm", "categories": 4, "dimension": "production", "features": "~ length"},
                "dictation": {
                    "model": "ordered_beta",
                    "dimension": "comprehension",
                    "features": "~ log_frequency + length",
                },
            },
        }
    )
