"""What combining periods gives: for every item of the bank, the posterior of the pooled analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.response import ResponseModel
from concal.shown import doubts, shown

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupConsensus:
    """Consensus of one item group on the reference metric.

    Attributes
    ----------
    name, dimension : str
    model : ResponseModel
    item_ids : tuple of str
    features : tuple of str
    coding : str
        Fingerprint of how the features are coded.
    X : (items, features) float64
    mean : (items, parameters) float64
    covariance : (items, parameters, parameters) float64
    source : (items,) array of str
        "consensus", "fallback" (not identified beyond the population model) or "predicted" (nobody answered it).
    n_responses : (items,) int64
        Over all periods.
    n_periods : (items,) int64
    beta : (features, parameters), beta_covariance : (features * parameters, same) or None
        beta*, vectorised feature-major (feature varies slowest).
    sigma : (parameters, parameters)
        Sigma*.
    """

    name: str
    dimension: str
    model: ResponseModel
    item_ids: tuple[str, ...]
    features: tuple[str, ...]
    X: Array
    mean: Array
    covariance: Array
    source: npt.NDArray[np.str_]
    n_responses: npt.NDArray[np.int64]
    n_periods: npt.NDArray[np.int64]
    beta: Array
    sigma: Array
    beta_covariance: Array | None = None
    coding: str = ""

    PER_ITEM: ClassVar[tuple[str, ...]] = (*("X", "mean", "covariance", "source"), *("n_responses", "n_periods"))

    @property
    def sd(self) -> Array:
        """Posterior SDs, (items, parameters)."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))


@shown
@dataclass(frozen=True)
class Consensus:
    """The bank's posterior.

    Attributes
    ----------
    method : "joint", "analytic" or "paper"
    reference : str
    dimensions : tuple of str
    periods : tuple of str
    groups : dict of group name -> GroupConsensus
    links : polars DataFrame
        Per period and dimension the mean and SD of A and B the method ended with.
    fallback_share : float
    joint : dict of group -> (draws, items, parameters) or None
        Joint draws across items (method "joint" only), float32.
    joint_links : (draws, periods, dimensions, 2) or None
        (log A, B) of the same draws.
    warnings : tuple of str
    """

    method: str
    reference: str
    dimensions: tuple[str, ...]
    periods: tuple[str, ...]
    groups: Mapping[str, GroupConsensus]
    links: pl.DataFrame = field(default_factory=pl.DataFrame)
    fallback_share: float = 0.0
    joint: Mapping[str, npt.NDArray[np.float32]] | None = None
    joint_links: Array | None = None
    warnings: tuple[str, ...] = ()

    def _facts(self) -> dict[str, object]:
        sources = [str(s) for g in self.groups.values() for s in g.source]
        kinds = [
            f"{sources.count(kind):,} {kind}" for kind in ("consensus", "fallback", "predicted") if kind in sources
        ]
        return {
            "method": self.method,
            "periods": f"{', '.join(self.periods)}; reference {self.reference}",
            "groups": ", ".join(f"{len(g.item_ids):,} {name} ({g.model.kind})" for name, g in self.groups.items()),
            "items": ", ".join(kinds),
            "joint draws": len(next(iter(self.joint.values()))) if self.joint else None,
            "warnings": doubts(self.warnings),
        }
