"""Expected-score curves: the consensus, each period beside it with its uncertainty, and the scores observed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from concal.evaluate.digest import score_curves, scores_by_ability
from concal.report.pack import Block
from concal.report.panels.seen import Seen, seen_items
from concal.report.view import THETA, View
from concal.response import ResponseModel

KEY = "curves"
Array = npt.NDArray[np.float64]
CURVE_PARTS = 127  # steps of a curve: half of one is a pixel
SPREAD_STEP = 0.06  # of the root of the SD of a curve's logit: finer where it is small


def numbers(view: View, group: str, block: Block) -> dict[str, Any]:
    """The consensus' curves, and by period those of the items seen there, with observed scores."""
    known = view.consensus.groups[group]
    periods = {
        own.period: {
            **_curves(own.factors.model, own.mean, own.covariance, block),
            **_observed(own, block),
        }
        for own in seen_items(view, group)
    }
    return {**_curves(known.model, known.mean, known.covariance, block), "step": SPREAD_STEP, "periods": periods}


def _curves(model: ResponseModel, mean: Array, covariance: Array, block: Block) -> dict[str, Any]:
    """Curves at the nodes, and the roots of the SDs of their logits."""
    curve, spread = score_curves(model, mean, covariance, THETA)
    return {
        "curve": block.shares(curve, CURVE_PARTS),
        "spread": block.codes(np.clip(np.round(np.sqrt(spread) / SPREAD_STEP), 0, 255)),
    }


def _observed(own: Seen, block: Block) -> dict[str, Any]:
    """Mean scores of groups of examinees, to a hundredth; abilities as shares of the range curves are drawn on.

    An item with fewer responses than bins uses the first ones; the page leaves the others out.
    """
    found = scores_by_ability(own.factors, own.A, own.B)
    if found is None:
        return {}
    theta, score = found[0][own.rows], found[1][own.rows]
    share = (theta - THETA[0]) / (THETA[-1] - THETA[0])
    return {
        "bins": theta.shape[1],
        "bin_theta": block.shares(np.nan_to_num(share), 100),
        "bin_score": block.shares(np.nan_to_num(score), 100),
    }
