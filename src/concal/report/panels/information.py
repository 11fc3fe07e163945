"""An item's information by ability, with the uncertainty of its peak."""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.evaluate.targeting import THETA
from concal.report.pack import Block
from concal.report.view import View

KEY = "information"
CURVE_PARTS = 40  # of the item's largest information
LOG_STEP = 0.04  # of logarithms: the largest information, and its SD
LEAST = -5.1  # logarithm of the smallest one that is told from none


def numbers(view: View, group: str, block: Block) -> dict[str, Any]:
    """Curves as shares of each item's largest information, and that one with the SD of its logarithm."""
    information, spread = view.information[group]
    best = information.argmax(axis=1)[:, None]
    largest, sd = np.take_along_axis(information, best, axis=1), np.take_along_axis(spread, best, axis=1)
    return {
        "theta": THETA.tolist(),
        "curve": block.shares(information / largest, CURVE_PARTS),
        "largest": block.codes(np.clip(np.round((np.log(largest) - LEAST) / LOG_STEP), 0, 255)),
        "sd": block.codes(np.clip(np.round(sd / LOG_STEP), 0, 255)),
        "step": LOG_STEP,
        "least": LEAST,
    }
