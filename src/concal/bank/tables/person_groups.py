"""Ability distributions of the periods' examinees, and of groups of them, on the reference metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from concal.calibration.result import Abilities, Calibration
from concal.linking.result import Link
from concal.linking.transform import linked_abilities

ALL = "all"
"""In place of a group's name: all examinees of a period."""
GROUP_COLUMNS = {
    "period": pl.String,
    "dimension": pl.String,
    "person_group": pl.String,
    "n_persons": pl.Int64,
    "mean": pl.Float64,
    "mean_sd": pl.Float64,
    "sd": pl.Float64,
    "sd_sd": pl.Float64,
}


def group_table(calibrations: Mapping[str, Calibration], links: Mapping[str, Link]) -> pl.DataFrame:
    """Each period's ability distribution, and those of its groups: mean and SD with their posterior SDs.

    A single examinee has no SD.

    Parameters
    ----------
    calibrations : dict of period -> Calibration
        Periods without abilities (draws of another engine) are left out.
    links : dict of period -> Link
        In force (`concal.consensus.links.links_in_force`); the posterior SDs have the link's part in them.
    """
    rows = []
    for period, calibration in calibrations.items():
        if calibration.abilities is None:
            continue
        for name, abilities in {ALL: calibration.abilities, **by_group(calibration.abilities)}.items():
            moved = linked_abilities(abilities, links[period])
            several = abilities.person_ids.len() > 1  # one examinee has no SD
            rows += [
                {
                    "period": period,
                    "dimension": dimension,
                    "person_group": name,
                    "n_persons": int((abilities.n_responses[:, k] > 0).sum()),
                    "mean": float(moved.draw_mean[:, k].mean()),
                    "mean_sd": float(moved.draw_mean[:, k].std()),
                    "sd": float(moved.draw_sd[:, k].mean()) if several else None,
                    "sd_sd": float(moved.draw_sd[:, k].std()) if several else None,
                }
                for k, dimension in enumerate(calibration.dimensions)
            ]
    return pl.DataFrame(rows, schema=GROUP_COLUMNS)


def by_group(abilities: Abilities) -> dict[str, Abilities]:
    """The groups of a period's examinees, where it has some."""
    place, mean, sd = abilities.population, abilities.population_mean, abilities.population_sd
    if place is None or mean is None or sd is None or len(abilities.populations) < 2:
        return {}
    return {
        name: replace(
            abilities,
            person_ids=abilities.person_ids.filter(pl.Series(place == g)),
            mean=abilities.mean[place == g],
            sd=abilities.sd[place == g],
            n_responses=abilities.n_responses[place == g],
            draw_mean=mean[:, :, g],
            draw_sd=sd[:, :, g],
        )
        for g, name in enumerate(abilities.populations)
    }
