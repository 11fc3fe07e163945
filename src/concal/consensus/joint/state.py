"""The state of the second stage's chains: items and populations as in a calibration, and a link per period."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.calibration.state import GroupState

Array = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]


@dataclass
class JointState:
    """All chains, lanes last.

    Attributes
    ----------
    sweep : int
    groups : list of GroupState
    links : (dimensions, periods, 2, LANES)
        (log A, B) of theta_ref = A theta + B.
    constants : list of (A, B), each (periods, LANES) float32
        The same per dimension as the passes read them.
    """

    sweep: int
    groups: list[GroupState]
    links: Array
    constants: list[tuple[Float32, Float32]]

    def __post_init__(self) -> None:
        self.refresh_links()

    def refresh_links(self) -> None:
        """Bring the constants up to date."""
        self.constants = [link_constants(x) for x in self.links]


def link_constants(x: Array) -> tuple[Float32, Float32]:
    """(A, B) from (log A, B): (periods, 2, LANES) -> two arrays (periods, LANES) float32."""
    return (
        np.ascontiguousarray(np.exp(x[:, 0]), dtype=np.float32),
        np.ascontiguousarray(x[:, 1], dtype=np.float32),
    )
