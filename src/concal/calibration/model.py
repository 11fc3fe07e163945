r"""The model a calibration samples, on one page: the log joint density of everything, plainly.

.. math:: \log p = \sum_{ij} \log p(y_{ij} \mid a_j(\theta_{i} - d_j), e_j)
          + \sum_j \log p(\xi_j) + \sum_g \log p(\beta_g, \Sigma_g, a_g)
          + \sum_i \log N(\theta_i; \mu_{m(i)}, R_{m(i)}) + \sum_{m>0} \log p(\mu_m, R_m)

Examinee i belongs to population m(i): one for the period, one per group of its examinees, or one per period of a pooled
fit. The first has mean zero and a correlation matrix for R. Items have :math:`\xi_j \sim N(X_j\beta_g, \Sigma_g)`; with
equal slopes :math:`\log a` is the group's own :math:`\beta_{1,\log a}` and has no spread. Items of a guided group have
priors :math:`N(m_j, S_j)` on the bank's metric, :math:`\theta_{bank} = A\theta + B`, with (log A, B) flat:

.. math:: \log p(\xi_j) = \log A + \log N\big((A d_j + B,\ \log a_j - \log A,\ e_j)';\ m_j, S_j\big) .

Strata of a group (items with different numbers of categories) have the head of beta, Sigma and a, that of d and
log a, in common; its prior counts once, and densities are with respect to the head and the rest of each Sigma.

Nothing here is fast. Every move of the sampler is tested against it; the priors are in `concal.calibration.priors`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration import priors
from concal.calibration.family import HEAD
from concal.calibration.standardise import group_rows, standardise
from concal.calibration.state import State
from concal.data.period import GroupData, PeriodData
from concal.names import split_stratum

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """One group: xi (items, p), beta (features, p) on the standardised design, Sigma (p, p), a (p,)."""

    xi: Array
    beta: Array
    sigma: Array
    sd_mixing: Array


@dataclass(frozen=True)
class Point:
    """A value of everything: theta (persons, D), mu (populations, D), R (populations, D, D), link (D, 2), groups."""

    theta: Array
    mu: Array
    R: Array
    link: Array
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, state: State, lane: int) -> Point:
        """Where one chain is."""
        own = ("xi", "beta", "sigma", "sd_mixing")
        groups = (Group(*(getattr(s, name)[..., lane].astype(float) for name in own)) for s in state.groups)
        theta = state.theta[..., lane].astype(float)
        return cls(theta, state.mu[..., lane], state.R[..., lane], state.link[..., lane], tuple(groups))


def log_joint(data: PeriodData, tau: float, at: Point) -> float:
    """Log density of responses, items, populations and abilities, up to a constant."""
    total, known = log_abilities(data, at), set[str]()
    whole = group_rows({name: group.X for name, group in data.groups.items() if group.guide is None})
    for group, value in zip(data.groups.values(), at.groups, strict=True):
        dim = data.dimensions.index(group.dimension)
        total += log_responses(group, value, at.theta[:, dim])
        if group.guide is not None:
            total += log_guided(group, value, *at.link[dim])  # its beta and Sigma only describe the items
        else:
            total += log_items(group, value, whole[group.name]) + log_population(group, value, tau)
            if (base := split_stratum(group.name)[0]) in known:  # what strata share was there already
                total -= log_population(group, value, tau, range(HEAD))
            known.add(base)
    return total


def log_responses(group: GroupData, value: Group, theta: Array) -> float:
    """Log-likelihood, with the observations that hold coordinates which the scores leave open."""
    total = group.model.log_likelihood(group.score, theta[group.person], value.xi[group.item]).sum()
    for name, (mean, sd) in group.model.held(group.score, len(group.item_ids)).items():
        gap = value.xi[:, group.model.parameters.index(name)] - mean
        total += -0.5 * (gap**2).sum() / sd**2
    return float(total)


def log_items(group: GroupData, value: Group, whole: Array) -> float:
    """Log density of the items under their population, over the coordinates every item has its own number of.

    `whole` are the design rows of all strata of the group, which say how columns are standardised.
    """
    own = own_coordinates(group)
    gap = (value.xi - standardise(group.X, whole).X @ value.beta)[:, own]
    sigma = value.sigma[np.ix_(own, own)]
    return float(-0.5 * np.einsum("ja,ab,jb->", gap, np.linalg.inv(sigma), gap) - len(gap) * _half_log_det(sigma))


def log_guided(group: GroupData, value: Group, log_A: float, B: float) -> float:
    """Log density of the items under the bank's priors, through the link."""
    assert group.guide is not None
    gap = metric.move_items(value.xi, np.exp(log_A), B) - group.guide.mean
    return float(len(gap) * log_A - 0.5 * np.einsum("ja,jab,jb->", gap, np.linalg.inv(group.guide.covariance), gap))


def log_population(group: GroupData, value: Group, tau: float, of: range | None = None) -> float:
    """Log prior density of beta, Sigma and its mixing variables; of a shared coordinate, of its intercept.

    `of`: of these coordinates alone, the others integrated out.
    """
    some = of or range(len(group.model.parameters))
    own, shared = [c for c in own_coordinates(group) if c in some], [c for c in group.model.shared if c in some]
    sigma, mixing = value.sigma[np.ix_(own, own)], value.sd_mixing[own]
    beta = priors.BetaPrior.of(group.model.prior, tau)
    total = beta[own].log_density(value.beta[:, own]) + beta[shared].log_density(value.beta[:1, shared])
    total += priors.log_sigma(2.0 * _half_log_det(sigma), np.diagonal(np.linalg.inv(sigma)), mixing)
    return float(total + priors.log_mixing(mixing, np.array(group.model.prior.sd)[own]))


def log_abilities(data: PeriodData, at: Point) -> float:
    """Log density of all abilities, and of the populations after the first."""
    total = 0.0
    for m in range(len(data.populations)):
        gap = at.theta[data.population == m] - at.mu[m]
        total += -0.5 * np.einsum("id,de,ie->", gap, np.linalg.inv(at.R[m]), gap) - len(gap) * _half_log_det(at.R[m])
        total += priors.log_population(at.mu[m], at.R[m]) if m else 0.0
    return float(total)


def own_coordinates(group: GroupData) -> list[int]:
    """Coordinates every item has its own number of."""
    return [c for c in range(len(group.model.parameters)) if c not in group.model.shared]


def _half_log_det(matrix: Array) -> float:
    return 0.5 * float(np.linalg.slogdet(matrix)[1])
