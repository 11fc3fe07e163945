r"""Examinees: :math:`\theta_i \sim N(\mu_m, S_m R S_m)` per period; the first period is standard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.errors import SpecError
from concal.simulate.plan import Plan

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Examinees:
    """Who comes in each period.

    Attributes
    ----------
    mean, sd : (periods, dimensions)
        Of the population new examinees come from; with groups of examinees, of the first one.
    correlation : (dimensions, dimensions)
    person : list of (examinees,) arrays
        Number of each examinee in the programme; the same number in two periods is the same person.
    theta : list of (examinees, dimensions) arrays
    """

    mean: Array
    sd: Array
    correlation: Array
    person: list[Index]
    theta: list[Array]


def group_of(person: Index, plan: Plan) -> Index:
    """Number of every examinee's group, from 0; a person stays in one."""
    return person % plan.person_groups


def simulate_examinees(plan: Plan, n_dimensions: int) -> Examinees:
    """Draw abilities for every period."""
    rng = plan.rng("periods")
    mean = plan.ability_shift * rng.normal(size=(plan.periods, n_dimensions))
    sd = np.exp(plan.ability_spread * rng.normal(size=(plan.periods, n_dimensions)))
    mean[0], sd[0] = 0.0, 1.0
    correlation = np.full((n_dimensions, n_dimensions), plan.correlation)
    np.fill_diagonal(correlation, 1.0)
    if np.linalg.eigvalsh(correlation)[0] <= 1e-9:
        raise SpecError(
            f"simulate: correlation = {plan.correlation} between all {n_dimensions} dimensions is impossible; "
            f"it must be above {-1.0 / (n_dimensions - 1):.3f}"
        )
    root = np.linalg.cholesky(correlation)
    person: list[Index] = []
    theta: list[Array] = []
    known = 0
    for m in range(plan.periods):
        rng = plan.rng("abilities", m)
        new = mean[m] + sd[m] * (rng.normal(size=(plan.examinees, n_dimensions)) @ root.T)
        number = known + np.arange(plan.examinees, dtype=np.int64)
        new += plan.group_shift * group_of(number, plan)[:, None]
        if m:
            back = rng.permutation(plan.examinees)[: round(plan.overlap * plan.examinees)]
            new[: back.size], number[: back.size] = theta[-1][back], person[-1][back]
        known += plan.examinees
        person.append(number)
        theta.append(new)
    return Examinees(mean, sd, correlation, person, theta)
