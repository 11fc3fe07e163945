"""Evenly spaced values of a sequence of unknown length, in bounded memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from concal.calibration.saving import Saved

Array = npt.NDArray[np.float64]


class Evenly:
    """Keeps every `thin`-th value it is shown; when `room` is full every second one goes and `thin` doubles."""

    def __init__(self, room: int) -> None:
        self.room, self.seen, self.thin = room, 0, 1
        self.values: list[Array] = []

    def add(self, value: Array) -> None:
        """Show the next value."""
        self.seen += 1
        if self.seen % self.thin == 0 and len(self.values) == self.room:
            self.values, self.thin = self.values[1::2], 2 * self.thin  # those at odd multiples of the old spacing go
        if self.seen % self.thin == 0:
            self.values.append(value)

    def save(self) -> Saved:
        """See `concal.calibration.saving.Part`."""
        return {"seen": self.seen, "thin": self.thin, "values": np.array(self.values)}

    def load(self, saved: Saved) -> None:
        """See `concal.calibration.saving.Part`."""
        self.seen, self.thin, self.values = int(saved["seen"]), int(saved["thin"]), list(saved["values"])
