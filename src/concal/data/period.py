"""One period's data as the engine reads it: checked, indexed, with design matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.response import ResponseModel


@dataclass(frozen=True)
class Guide:
    """What the bank knew about a group's items before the period: a Gaussian prior each, on the bank's metric.

    Attributes
    ----------
    mean : (items, parameters) float64
    covariance : (items, parameters, parameters) float64
    """

    mean: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]


class Design(NamedTuple):
    """How the items of a group are described; see `GroupData`."""

    X: npt.NDArray[np.float64]
    features: tuple[str, ...]
    coding: str
    lacking: tuple[str, ...]


@dataclass(frozen=True)
class GroupData:
    """Items and responses of one group.

    Attributes
    ----------
    name, dimension : str
    model : ResponseModel
    item_ids : tuple of str
        Every item of the group in this period, with or without responses.
    features : tuple of str
        Design column names, the intercept ``"1"`` first.
    X : (items, features) float64
        Design matrix in the user's units.
    person, item : (responses,) int32
        Index into `PeriodData.person_ids` and into `item_ids`.
    score : (responses,) float64
        As given.
    coding : str
        Fingerprint of how the features are coded (`concal.formula.design.coding_of`).
    lacking : tuple of str
        Columns of the formula that no item has; what they feed is not among the features (`concal.data.lacking`).
    guide : Guide or None
        Priors of the items, for a guided calibration; None: the group's population model is their prior.
    """

    name: str
    dimension: str
    model: ResponseModel
    item_ids: tuple[str, ...]
    features: tuple[str, ...]
    X: npt.NDArray[np.float64]
    person: npt.NDArray[np.int32]
    item: npt.NDArray[np.int32]
    score: npt.NDArray[np.float64]
    coding: str = ""
    lacking: tuple[str, ...] = ()
    guide: Guide | None = None


@dataclass(frozen=True)
class PeriodData:
    """One period (or, pooled, several with one population of examinees each).

    Attributes
    ----------
    period : str
    dimensions : tuple of str
    person_ids : polars Series of str
    groups : dict of group name -> GroupData
    populations : tuple of str
        Populations of examinees, the reference first; a single period has one.
    population : (persons,) int32
        Index into `populations` of each examinee.
    warnings : tuple of str
        Statistical doubts the checks collected.
    """

    period: str
    dimensions: tuple[str, ...]
    person_ids: pl.Series
    groups: Mapping[str, GroupData]
    populations: tuple[str, ...]
    population: npt.NDArray[np.int32]
    warnings: tuple[str, ...] = field(default=())

    @property
    def n_responses(self) -> int:
        """Over all groups."""
        return sum(int(g.score.shape[0]) for g in self.groups.values())
