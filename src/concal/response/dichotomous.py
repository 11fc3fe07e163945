"""What models of right or wrong share: scores 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.response.base import Array, ResponseModel, not_a_category


@dataclass(frozen=True)
class Dichotomous(ResponseModel):
    """A model of right or wrong."""

    @property
    def max_score(self) -> float:
        """One point."""
        return 1.0

    @property
    def n_categories(self) -> int:
        """Wrong and right."""
        return 2

    def bad_scores(self, score: Array) -> npt.NDArray[np.bool_]:
        """Anything but 0 and 1."""
        return not_a_category(score, 2)

    def score_rule(self) -> str:
        """For messages."""
        return "0 or 1"

    def simulate(self, theta: Array, xi: Array, rng: np.random.Generator) -> Array:
        """One Bernoulli draw per response."""
        return (rng.random(theta.shape[0]) < self.expected_score(theta, xi)).astype(np.float64)
