r"""One spread at a time: row k of Sigma's Cholesky factor times e^delta, which scales SD k and leaves correlations.

A spread the responses hardly tell from zero has a long tail towards it on the logarithmic scale. Steps in all
coordinates of Sigma at once must be small, and take hundreds of sweeps to come back from there; a step along the tail
alone can be as long as the tail is wide. In log-Cholesky coordinates the map's Jacobian is :math:`e^{k \delta}`: the k
off-diagonal numbers of the row are scaled, the logarithm of its diagonal is shifted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from concal.calibration.kernels import LANES
from concal.calibration.matrices import lower
from concal.calibration.moves.carrying import TARGET_ACCEPTANCE
from concal.calibration.saving import Saving

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
START, SHORTEST, LONGEST = 0.5, 0.05, 3.0
"""Of a step's SD: a spread known to a few percent, and one that may be anything below e^3 times its bound."""


class Scaling(Saving):
    """Steps along single spreads, their lengths learned in warm-up; wide ones are moved more often.

    `rows` are the places of each row in the packed coordinates, its diagonal last.
    """

    saved_fields = ("length", "trials")

    def __init__(self, rows: Sequence[Index]) -> None:
        self.rows = rows
        self.length = np.full(len(rows), START)
        self.trials = np.zeros(len(rows))
        self.row = 0

    def propose(self, phi: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """New phi (LANES, size) and the log Jacobian of the way there."""
        self.row = int(rng.choice(len(self.rows), p=self.length**2 / (self.length**2).sum()))
        *beside, diagonal = self.rows[self.row]
        delta, new = self.length[self.row] * rng.standard_normal(LANES), phi.copy()
        new[:, beside] *= np.exp(delta)[:, None]
        new[:, diagonal] += delta
        return new, len(beside) * delta

    def adapt(self, yes: npt.NDArray[np.bool_]) -> None:
        """Longer steps when accepted often, shorter when not."""
        self.trials[self.row] += 1
        rate = 3.0 / np.sqrt(self.trials[self.row] + 5.0)
        longer = self.length[self.row] * np.exp(rate * (yes.mean() - TARGET_ACCEPTANCE))
        self.length[self.row] = np.clip(longer, SHORTEST, LONGEST)

    def forget(self) -> None:
        """Let lengths adapt anew."""
        self.length[:], self.trials[:] = START, 0


def packed_rows(size: int, first: int = 0, offset: int = 0) -> list[Index]:
    """Rows `first` and later of a packed lower triangle; `offset` is the place of row `first`'s beginning."""
    rows = lower(size)[0]
    start = first * (first + 1) // 2
    return [np.flatnonzero(rows == k) - start + offset for k in range(first, size)]
