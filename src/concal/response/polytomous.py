"""What models with ordered categories share: scores 0, 1, ..., K - 1 and K - 1 centred thresholds or steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from concal.errors import SpecError
from concal.response.base import Array, ResponseModel, not_a_category


@dataclass(frozen=True)
class Polytomous(ResponseModel):
    """A model with K categories."""

    categories: int
    polytomous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.categories < 2:
            raise SpecError(f"{self.name} needs at least 2 categories, not {self.categories}")

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
