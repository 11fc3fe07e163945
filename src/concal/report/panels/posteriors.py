"""Every parameter's posterior, period by period, beside the consensus."""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.report.pack import Block
from concal.report.panels.seen import seen_items
from concal.report.view import View

KEY = "posteriors"


def numbers(view: View, group: str, block: Block) -> dict[str, Any]:
    """By period, of the items seen there: mean and SD on the reference metric, and the item's worst R-hat."""
    return {
        "periods": {
            own.period: {
                "mean": block.rounded(own.mean),
                "sd": block.rounded(np.sqrt(np.diagonal(own.covariance, axis1=1, axis2=2))),
                "rhat": block.rounded(own.factors.worst_rhat[own.rows]),
            }
            for own in seen_items(view, group)
        }
    }
