r"""Whom an examinee is taken to be one of: ability distributions on the reference metric.

A period's abilities are N(0, R) on its own metric: on the reference metric they have mean B, SDs A and correlation R.
A period with groups of examinees is several such populations, each with a mean and SDs of its own. "All periods", a
period of several groups, and a group of several periods are the normal distribution with the mean and covariance of
their mixture, each population weighted by its examinees. Where the bank has joint draws, every draw of the items brings
its own links and with them its own priors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.errors import DataError, counted, first_few
from concal.spec import nearest

Array = npt.NDArray[np.float64]
ALL = "all periods"


@dataclass(frozen=True)
class Prior:
    """A normal ability distribution on the reference metric.

    Attributes
    ----------
    mean : (D,)
    covariance : (D, D)
    """

    mean: npt.ArrayLike
    covariance: npt.ArrayLike

    def arrays(self, dimensions: Sequence[str]) -> tuple[Array, Array]:
        """Mean and covariance, checked."""
        D = len(dimensions)
        mean, covariance = np.asarray(self.mean, np.float64), np.asarray(self.covariance, np.float64)
        if mean.shape != (D,) or covariance.shape != (D, D):
            raise DataError(
                f"the prior has a mean of shape {mean.shape} and a covariance of shape {covariance.shape}; the bank's "
                f"dimensions are {', '.join(dimensions)}, so they must be ({D},) and ({D}, {D})"
            )
        finite = np.isfinite(mean).all() and np.isfinite(covariance).all()
        if not finite or not np.allclose(covariance, covariance.T) or np.linalg.eigvalsh(covariance)[0] <= 0:
            raise DataError("the prior's covariance must be finite, symmetric and positive definite")
        return mean, covariance


class Population(NamedTuple):
    """Examinees of one period, or one group of them, on the period's own metric."""

    period: str
    group: str | None
    persons: float
    mean: Array
    sd: Array


@dataclass(frozen=True)
class Abilities:
    """The bank's ability distributions on the reference metric, at the links' means and per joint draw.

    Attributes
    ----------
    periods : tuple of str, groups : tuple of str or None
        The period of every population, and the group of its examinees where the period has several.
    persons : (populations,) float64
        Examinees behind each.
    mean : (populations, D), covariance : (populations, D, D)
    draw_mean : (draws, populations, D) or None, draw_covariance : (draws, populations, D, D) or None
        The same at the links of every joint draw.
    links : (draws, populations, D, 2) or None
        (log A, B) of the joint draws.
    """

    periods: tuple[str, ...]
    groups: tuple[str | None, ...]
    persons: Array
    mean: Array
    covariance: Array
    draw_mean: Array | None = None
    draw_covariance: Array | None = None
    links: Array | None = None

    @classmethod
    def of_links(
        cls, populations: Sequence[Population], correlation: Array, A: Array, B: Array, links: Array | None = None
    ) -> Abilities:
        """From populations on their own metrics, each with the correlation (D, D) and link (D,) of its period.

        Arrays have a row per population: correlation (populations, D, D), A and B (populations, D), and the joint
        draws of the links (draws, populations, D, 2).
        """
        own_mean, own_sd = (np.stack([getattr(p, name) for p in populations]) for name in ("mean", "sd"))
        periods, groups = tuple(p.period for p in populations), tuple(p.group for p in populations)
        persons = np.array([p.persons for p in populations], np.float64)

        def placed(A: Array, B: Array) -> tuple[Array, Array]:
            mean, sd = metric.move_abilities(own_mean, own_sd, A, B)
            return mean, _scaled(correlation, sd)

        if links is None:
            return cls(periods, groups, persons, *placed(A, B))
        drawn = placed(np.exp(links[..., 0]), links[..., 1])
        return cls(periods, groups, persons, *placed(A, B), *drawn, links)

    def those_named(self, name: str) -> npt.NDArray[np.bool_]:
        """Populations of a period, or of a group of examinees in whichever periods have it, or "all"."""
        if name == "all":
            return np.ones(len(self.periods), dtype=bool)
        own = self.periods if name in self.periods else self.groups
        return np.array([given == name for given in own])

    @property
    def names(self) -> list[str]:
        """Names of periods, then of groups of examinees."""
        return list(dict.fromkeys([*self.periods, *(g for g in self.groups if g is not None)]))


def _scaled(correlation: Array, sd: Array) -> Array:
    """Covariances from correlations (..., D, D) and SDs (..., D)."""
    return np.asarray(sd[..., :, None] * correlation * sd[..., None, :])


@dataclass(frozen=True)
class Priors:
    """The priors of some examinees.

    Attributes
    ----------
    names : tuple of str
    group : (persons,) int32
        Which of them each examinee has.
    mean : (groups, D), covariance : (groups, D, D)
    draw_mean, draw_covariance : (draws, groups, ...) or None
    links : (draws, groups, 2 D) or None
        (log A, B) of the period that gives the prior, draw by draw; zero where no single period does.
    """

    names: tuple[str, ...]
    group: npt.NDArray[np.int32]
    mean: Array
    covariance: Array
    draw_mean: Array | None = None
    draw_covariance: Array | None = None
    links: Array | None = None


def priors_of(
    wanted: Sequence[str | Prior], group: npt.NDArray[np.int32], abilities: Abilities, dimensions: Sequence[str]
) -> Priors:
    """Resolve names of periods or groups ("all": everybody) and given distributions; `group` points into `wanted`."""
    means, covariances, drawn, links = [], [], [], []
    for prior in wanted:
        if isinstance(prior, Prior):
            mean, covariance = prior.arrays(dimensions)
            weights = None
        else:
            weights = _weights(prior, abilities)
            mean, covariance = mixture(weights, abilities.mean, abilities.covariance)
        means.append(mean)
        covariances.append(covariance)
        drawn.append(_drawn(weights, mean, covariance, abilities))
        links.append(_links(prior, abilities))
    names = tuple("given" if isinstance(p, Prior) else ALL if p == "all" else p for p in wanted)
    joint = abilities.links is not None
    return Priors(
        names,
        group,
        np.stack(means),
        np.stack(covariances),
        np.stack([d[0] for d in drawn], axis=1) if joint else None,
        np.stack([d[1] for d in drawn], axis=1) if joint else None,
        np.stack(links, axis=1) if joint else None,
    )


def _weights(name: str, abilities: Abilities) -> Array:
    own = abilities.those_named(name)
    if not own.any():
        raise DataError(
            f"prior: the bank has no period and no group of examinees {name!r}{nearest(name, abilities.names)}; name "
            "one, say 'all', or give a distribution"
        )
    weights = np.where(own, abilities.persons, 0.0)
    return np.asarray(weights / weights.sum())


def mixture(weights: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Mean and covariance of a mixture: weights (n,), mean (..., n, D), covariance (..., n, D, D)."""
    centre = np.einsum("m,...mk->...k", weights, mean)
    off = mean - centre[..., None, :]
    spread = np.einsum("m,...mkl->...kl", weights, covariance + off[..., :, None] * off[..., None, :])
    return centre, spread


def _drawn(weights: Array | None, mean: Array, covariance: Array, abilities: Abilities) -> tuple[Array, Array]:
    if abilities.draw_mean is None or abilities.draw_covariance is None:
        return mean, covariance
    S = abilities.draw_mean.shape[0]
    if weights is None:  # a given distribution is known: it does not move with the links
        return np.broadcast_to(mean, (S, *mean.shape)), np.broadcast_to(covariance, (S, *covariance.shape))
    return mixture(weights, abilities.draw_mean, abilities.draw_covariance)


def _links(prior: str | Prior, abilities: Abilities) -> Array:
    if abilities.links is None:
        return np.zeros(0)
    S, _, D, _ = abilities.links.shape
    if isinstance(prior, Prior) or prior == "all":
        return np.zeros((S, 2 * D))
    own = np.flatnonzero(abilities.those_named(prior))
    if len({abilities.periods[k] for k in own}) > 1:
        return np.zeros((S, 2 * D))
    return np.asarray(abilities.links[:, own[0]].reshape(S, 2 * D))


def named_priors(
    column: Sequence[str | None], person_ids: Sequence[str], abilities: Abilities
) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Distinct names of a column and each examinee's place among them; missing or unknown names are an error."""
    lost = [p for p, name in zip(person_ids, column, strict=True) if name is None]
    if lost:
        raise DataError(
            f"{counted(len(lost), 'examinee')} without a prior in their column: {first_few(lost)}; fill it in"
        )
    names = sorted(set(map(str, column)))
    unknown = [name for name in names if not abilities.those_named(name).any()]
    if unknown:
        raise DataError(
            f"{counted(len(unknown), 'prior')} named that is no period and no group of the bank: {first_few(unknown)}; "
            f"it has {first_few(abilities.names, 12)}"
        )
    place = {name: k for k, name in enumerate(names)}
    return names, np.array([place[str(name)] for name in column], dtype=np.int32)
