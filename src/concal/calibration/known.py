r"""Priors for a guided calibration, from what a bank knows about the items of a period.

Tests are often routed by the bank's own estimates: the able meet the hard items because the bank knows that they are
hard. A period alone does not, and with everybody answering about half of the items right its posterior lies elsewhere
than that of all periods together. The likelihood is the same; but the factors that stand for it are measured where the
period's posterior lies. So items get priors from the bank, which put them in their places, and whose information never
enters the factors.

An item the bank has answers for has the prior :math:`N(m_j, 4 C_j)` with the consensus' mean and covariance. Four times
the variance, because items depend on each other in ways that priors one by one do not show: taken at their word,
hundreds of them would hold what they share too tightly, and an item that drifted too. Any other item gets the
population's prediction :math:`N(X\beta^*, \Sigma^* + X V^* X')`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from concal.data.period import GroupData, Guide, PeriodData
from concal.response import ResponseModel

Array = npt.NDArray[np.float64]
INFLATION = 4.0


class KnownItems(Protocol):
    """Items of one group with a Gaussian each; see `concal.consensus.result.GroupConsensus`."""

    @property
    def dimension(self) -> str: ...  # noqa: D102
    @property
    def model(self) -> ResponseModel: ...  # noqa: D102
    @property
    def item_ids(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def mean(self) -> Array: ...  # noqa: D102
    @property
    def covariance(self) -> Array: ...  # noqa: D102


class KnownGroup(KnownItems, Protocol):
    """What a guided calibration reads of a consensus group: its items and their population."""

    @property
    def features(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def coding(self) -> str: ...  # noqa: D102
    @property
    def n_periods(self) -> npt.NDArray[np.int64]: ...  # noqa: D102
    @property
    def beta(self) -> Array: ...  # noqa: D102
    @property
    def beta_covariance(self) -> Array | None: ...  # noqa: D102
    @property
    def sigma(self) -> Array: ...  # noqa: D102


def guide_period(data: PeriodData, known: Mapping[str, KnownGroup]) -> PeriodData:
    """The period with priors for the items of every group the bank has in the same form.

    A group that is new to the bank, or whose response model or features changed, is calibrated under its own population
    as ever: the bank learns the population of a form from periods that were calibrated so.
    """
    groups = {
        name: replace(g, guide=_guide(g, known[name])) if name in known and _same_form(g, known[name]) else g
        for name, g in data.groups.items()
    }
    return replace(data, groups=groups)


def _same_form(group: GroupData, known: KnownGroup) -> bool:
    if group.model.shared:
        return False  # priors one by one would give items slopes of their own
    same: Any = (group.model, group.dimension, group.features, group.coding)
    return bool(same == (known.model, known.dimension, known.features, known.coding))


def _guide(group: GroupData, known: KnownGroup) -> Guide:
    n, p = len(group.item_ids), known.sigma.shape[0]
    mean = group.X @ known.beta
    covariance = np.repeat(known.sigma[None], n, axis=0)
    if known.beta_covariance is not None:
        V = known.beta_covariance.reshape(known.beta.shape * 2)
        covariance = covariance + np.einsum("nf,fagb,ng->nab", group.X, V, group.X, optimize=True)
    place = {item: j for j, item in enumerate(known.item_ids) if known.n_periods[j] > 0}
    rows = np.array([place.get(item, -1) for item in group.item_ids], dtype=np.intp)
    met = rows >= 0
    mean[met] = known.mean[rows[met]]
    covariance[met] = INFLATION * known.covariance[rows[met]]
    return Guide(np.asarray(mean), np.asarray(covariance).reshape(n, p, p))
