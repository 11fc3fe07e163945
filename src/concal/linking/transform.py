"""A period's items and abilities on the reference metric, draw by draw (the rule itself is `concal.metric`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal import metric
from concal.calibration.result import Abilities
from concal.errors import LinkError
from concal.linking.result import Link

Array = npt.NDArray[np.float64]


def used_draws(link: Link, n_draws: int) -> npt.NDArray[np.int64]:
    """Which of a period's draws (chains joined) the link's rows belong to."""
    if link.draw_index is not None:
        return link.draw_index
    if link.A.shape[0] != n_draws:
        raise LinkError(f"the link of {link.period!r} has {link.A.shape[0]} draws, the period {n_draws}")
    return np.arange(n_draws)


def linked_draws(xi: npt.NDArray[np.floating], link: Link, dimension: str) -> Array:
    """Draws (draws, items, parameters) of a dimension's items on the reference metric."""
    k, draws = link.dimensions.index(dimension), used_draws(link, xi.shape[0])
    return metric.move_items(xi[draws], link.A[:, k, None], link.B[:, k, None])


@dataclass(frozen=True)
class LinkedAbilities:
    """Abilities on the reference metric.

    Attributes
    ----------
    mean, sd : (persons, dimensions)
        Posterior mean and SD of each examinee, the link's uncertainty included.
    draw_mean, draw_sd : (draws, dimensions)
        Mean and SD over the examinees, draw by draw.
    """

    mean: Array
    sd: Array
    draw_mean: Array
    draw_sd: Array


def linked_abilities(abilities: Abilities, link: Link) -> LinkedAbilities:
    """Abilities on the reference metric.

    A period keeps each examinee's mean and SD, not the draws, so the examinee's ability is taken as independent of the
    link (`concal.metric.move_uncertain`).
    """
    draw_mean = abilities.draw_mean.reshape(-1, abilities.draw_mean.shape[-1])
    draw_sd = abilities.draw_sd.reshape(-1, abilities.draw_sd.shape[-1])
    draws = used_draws(link, draw_mean.shape[0])
    mean, measured, linked = metric.move_uncertain(abilities.mean, abilities.sd, metric.link_moments(link.A, link.B))
    moved = metric.move_abilities(draw_mean[draws], draw_sd[draws], link.A, link.B)
    return LinkedAbilities(mean, np.hypot(measured, linked), *moved)
