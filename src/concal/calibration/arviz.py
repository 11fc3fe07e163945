r"""A calibration as ArviZ data, for its summaries and plots.

The group `posterior` holds, per item group g, ``xi_g`` (chain, draw, item, parameter), ``beta_g`` (chain, draw,
feature, parameter) and ``sigma_g`` (chain, draw, parameter, parameter), and over all groups ``correlation``,
``ability_mean`` and ``ability_sd``. Groups differ in items, parameters and features, so dimension names carry the
group: ``item_g``, ``parameter_g``, ``parameter_g_`` (columns of Sigma), ``feature_g``. A guided group also has its link
to the bank's metric, ``guide_link_g``, and, in the diagnostics, its priors: ``guide_mean_g``, ``guide_covariance_g``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import xarray as xr

    from concal.calibration.result import Calibration, GroupDraws

Variable = tuple[tuple[str, ...], npt.NDArray[Any]]


def to_xarray(calibration: Calibration) -> xr.Dataset:
    """All draws of a calibration as one dataset with named dimensions and coordinates.

    Parameters
    ----------
    calibration

    Returns
    -------
    xarray.Dataset
        The draws are shared with the calibration, not copied.
    """
    import xarray as xr

    variables: dict[str, Variable] = {}
    coords: dict[str, npt.NDArray[Any]] = {}
    for group in calibration.groups.values():
        variables |= _group_variables(group)
        coords |= _group_coords(group)
    abilities = calibration.abilities
    if abilities is not None:
        variables |= {
            "correlation": (("chain", "draw", "dimension", "dimension_"), abilities.correlation),
            "ability_mean": (("chain", "draw", "dimension"), abilities.draw_mean),
            "ability_sd": (("chain", "draw", "dimension"), abilities.draw_sd),
        }
        names = np.array(calibration.dimensions, dtype=object)
        coords |= {"dimension": names, "dimension_": names}
    chains, draws = next(iter(calibration.groups.values())).xi.shape[:2]
    coords |= {"chain": np.arange(chains), "draw": np.arange(draws)}
    return xr.Dataset(variables, coords=coords, attrs=_attributes(calibration))


def to_datatree(calibration: Calibration) -> xr.DataTree:
    """The same as the `posterior` group of a tree, which is what ArviZ's functions take.

    The group `observed` of ArviZ is not there: a calibration keeps no responses. What the run reported about itself
    (R-hat, ESS and response counts per item) is the group `diagnostics`.
    """
    import xarray as xr

    posterior = to_xarray(calibration)
    found: dict[str, Variable] = {}
    coords: dict[str, npt.NDArray[Any]] = {}
    for name, group in calibration.groups.items():
        per_item = (f"item_{name}", f"parameter_{name}")
        for kind in ("rhat", "ess_bulk", "ess_tail"):
            found[f"{kind}_{name}"] = (per_item, getattr(group, kind))
        found[f"n_responses_{name}"] = (per_item[:1], group.n_responses)
        if group.guide_mean is not None and group.guide_covariance is not None:
            found[f"guide_mean_{name}"] = (per_item, group.guide_mean)
            found[f"guide_covariance_{name}"] = ((*per_item, f"parameter_{name}_"), group.guide_covariance)
        coords |= {key: value for key, value in _group_coords(group).items() if key in per_item}
    diagnostics = xr.Dataset(found, coords=coords)
    return xr.DataTree.from_dict({"/posterior": posterior, "/diagnostics": diagnostics})


def _group_variables(group: GroupDraws) -> Mapping[str, Variable]:
    name = group.name
    item, parameter, feature = f"item_{name}", f"parameter_{name}", f"feature_{name}"
    found: dict[str, Variable] = {
        f"xi_{name}": (("chain", "draw", item, parameter), group.xi),
        f"beta_{name}": (("chain", "draw", feature, parameter), group.beta),
        f"sigma_{name}": (("chain", "draw", parameter, f"{parameter}_"), group.sigma),
    }
    if group.guide_link is not None:
        found[f"guide_link_{name}"] = (("chain", "draw", "link"), group.guide_link)
    return found


def _group_coords(group: GroupDraws) -> Mapping[str, npt.NDArray[Any]]:
    parameters = np.array(group.model.parameters, dtype=object)
    return {
        f"item_{group.name}": np.array(group.item_ids, dtype=object),
        f"feature_{group.name}": np.array(group.features, dtype=object),
        f"parameter_{group.name}": parameters,
        f"parameter_{group.name}_": parameters,
    }


def _attributes(calibration: Calibration) -> dict[str, Any]:
    """What travels along in a file: plain numbers and text only."""
    run = calibration.convergence
    return {
        "period": calibration.period,
        "inference_library": calibration.engine,
        "seed": calibration.seed,
        "converged": int(run.converged),  # netCDF has no booleans
        "sampling_time": run.seconds,
        "tuning_steps": run.warmup,
        "thin": run.thin,
    }
