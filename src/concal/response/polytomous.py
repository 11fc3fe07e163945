"""What models with ordered categories share: scores 0, 1, ..., K - 1 and K - 1 centred thresholds or steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from concal.errors import SpecError, first_few
from concal.response.base import Array, ResponseModel, Slopes, not_a_category

HELD_SD = 1.0
"""Logits, or logs of gaps: weak beside twenty responses, strong enough that no step wanders off."""


@dataclass(frozen=True)
class Polytomous(ResponseModel):
    """A model with K categories."""

    categories: int
    steps: Slopes = field(default="free", kw_only=True)  # every item's own, or the same for the group: a rating scale
    polytomous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.categories < 2:
            raise SpecError(f"{self.name} needs at least 2 categories, not {self.categories}")

    @property
    def shared(self) -> tuple[int, ...]:
        """With equal steps they belong to the group."""
        steps = range(2, len(self.parameters)) if self.steps == "equal" else ()
        return (*super().shared, *steps)

    def doubts(self, score: Array, n_items: int) -> tuple[str, ...]:
        """Categories that nobody used."""
        unused = self._unused(score)
        if not unused or not score.size or self.categories == 2:
            return ()
        return (
            f"no score of {first_few(unused, 12)} among {self.categories} categories: the steps around rest on their "
            "prior until somebody uses them",
        )

    def held(self, score: Array, n_items: int) -> dict[str, tuple[float, float]]:
        """All steps, where none of the items uses some category: one observation of where a typical item has them.

        An unused category at an end leaves d and all steps open, for they can move together; one in between the two
        steps beside it.
        """
        if not self._unused(score):
            return {}
        return {name: (mean, HELD_SD) for name, mean in zip(self.extras, self.prior.mean[2:], strict=True)}

    def _unused(self, score: Array) -> list[int]:
        """Categories without a score; scores that are none are left to `bad_scores`."""
        return [k for k in range(self.categories) if not (score == k).any()]

    @property
    def max_score(self) -> float:
        """The top category."""
        return float(self.categories - 1)

    @property
    def n_categories(self) -> int:
        """K."""
        return self.categories

    def bad_scores(self, score: Array) -> npt.NDArray[np.bool_]:
        """Anything but the whole numbers 0..K-1."""
        return not_a_category(score, self.categories)

    def score_rule(self) -> str:
        """For messages."""
        return f"a whole number from 0 to {self.categories - 1}"

    @property
    def natural_extras(self) -> tuple[str, ...]:
        """All K - 1 thresholds or steps (none for two categories, where the only one is zero)."""
        return tuple(f"c_{k}" for k in range(1, self.categories)) if self.categories > 2 else ()
