"""What linking a period gives: theta_ref = A theta + B for every draw and dimension, and which anchors said so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.shown import doubts, shown

Array = npt.NDArray[np.float64]


@shown
@dataclass(frozen=True)
class Link:
    """The link of one period to the reference metric.

    Attributes
    ----------
    period, reference : str
    dimensions : tuple of str
    A, B : (draws, dimensions) float64
        theta_ref = A theta + B, draw s of the period with draw s of the reference.
    anchors : polars DataFrame
        One row per candidate anchor: item_id, dimension, group, n_responses (both), weight, kept, dropped_by
        (null, "responses", "rhat", "purification"), round, residual, drift_probability, displacement,
        displacement_sd, influence_A, influence_B. With ``purify = "score"`` the residual is the change of the item's
        mean score in units of its uncertainty, with ``"paper"`` it is d_ref - (A d + B); positive in either: easier.
    path : dict of dimension -> tuple of str
        Periods the link went through, e.g. ("2026Q2", "2026Q1") or ("2026Q4", "consensus", "2026Q1").
    converged : dict of dimension -> float
        Share of draws solved by Newton; the others were solved by the safe method.
    diagnostics : polars DataFrame
        Per dimension: mean, SD and correlation of A and B, anchors kept, effective number of anchors.
    methods : polars DataFrame
        How (A, B) at the posterior means moves between linking methods.
    warnings : tuple of str
    draw_index : (draws,) int64 or None
        Which of the period's draws (chains joined) the rows belong to; None: all of them, in order.
    """

    period: str
    reference: str
    dimensions: tuple[str, ...]
    A: Array
    B: Array
    anchors: pl.DataFrame
    path: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    converged: Mapping[str, float] = field(default_factory=dict)
    diagnostics: pl.DataFrame = field(default_factory=pl.DataFrame)
    methods: pl.DataFrame = field(default_factory=pl.DataFrame)
    warnings: tuple[str, ...] = ()
    draw_index: npt.NDArray[np.int64] | None = None

    def moments(self) -> tuple[Array, Array]:
        """Mean (dimensions, 2) and covariance (dimensions, 2, 2) of (log A, B) over the draws."""
        values = np.stack([np.log(self.A), self.B], axis=-1)
        mean = values.mean(axis=0)
        rest = values - mean
        return mean, np.einsum("ski,skj->kij", rest, rest) / max(len(values) - 1, 1)

    def anchors_in_words(self) -> str:
        """How many of the candidates are anchors."""
        if not self.anchors.height:
            return "none: the reference"
        return f"{self.anchors['kept'].sum()} of {self.anchors.height} candidates kept"

    def _facts(self) -> dict[str, object]:
        found: dict[str, object] = {"link": f"{self.period} to {self.reference}", "anchors": self.anchors_in_words()}
        for k, name in enumerate(self.dimensions):
            A, B = self.A[:, k], self.B[:, k]
            found[name] = f"A = {A.mean():.3f} (SD {A.std():.3f}), B = {B.mean():.3f} (SD {B.std():.3f})"
        return {**found, "warnings": doubts(self.warnings)}


def identity_link(period: str, dimensions: tuple[str, ...], n_draws: int) -> Link:
    """The reference's link to itself: (A, B) = (1, 0) in every draw."""
    shape = (n_draws, len(dimensions))
    return Link(period, period, dimensions, np.ones(shape), np.zeros(shape), pl.DataFrame())
