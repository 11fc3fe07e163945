"""ArviZ files (netCDF, Zarr): draws in, and a bank's or a period's draws out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from concal.bank.exchange.draws import calibration_from_draws
from concal.bank.store.files import check_room
from concal.calibration.arviz import to_datatree
from concal.calibration.result import Calibration
from concal.consensus.result import Consensus
from concal.data.read import Table
from concal.errors import BankError, DataError, first_few
from concal.spec import Spec

if TYPE_CHECKING:
    import xarray


def read_arviz(
    source: Any,
    period: str,
    spec: Spec,
    *,
    items: Table | None = None,
    design_states: Mapping[str, Any] | None = None,
) -> tuple[Calibration, dict[str, Any]]:
    """A period from an ArviZ file (``.nc``, ``.zarr``) or an xarray Dataset or DataTree.

    The group `posterior` (or the file itself) has the variables of `concal.bank.exchange.draws`; item ids are the
    coordinate ``item_g`` of group g. Counts ``n_responses_g`` may be in any group of the file.
    """
    datasets = _datasets(source)
    draws: dict[str, Any] = {}
    ids: dict[str, Sequence[str]] = {}
    persons: Sequence[str] | None = None
    for data in datasets:
        for name, variable in data.data_vars.items():
            draws.setdefault(str(name), _ordered(variable))
        for name in data.coords:
            text = str(name)
            if text.startswith("item_") and spec.group(text.removeprefix("item_")) is not None:
                ids.setdefault(text.removeprefix("item_"), [str(v) for v in data.coords[name].values])
            if text == "person":
                persons = [str(v) for v in data.coords[name].values]
    if not ids:
        names = [str(c) for d in datasets for c in d.coords]
        raise DataError(
            f"no item ids: the draws need a coordinate 'item_g' for each group g ({first_few(list(spec.groups))}); "
            f"found coordinates {first_few(sorted(set(names)))}"
        )
    engine = next((str(d.attrs["inference_library"]) for d in datasets if "inference_library" in d.attrs), "arviz")
    return calibration_from_draws(
        period,
        draws,
        spec,
        item_ids=ids,
        items=items,
        design_states=design_states,
        person_ids=persons,
        engine=engine,
    )


def _datasets(source: Any) -> list[xarray.Dataset]:
    """Every dataset of a file or tree, the posterior first."""
    import xarray as xr

    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise DataError(f"there is no file {str(path)!r}")
        try:
            zarr = path.is_dir() or path.suffix == ".zarr"
            options: dict[str, Any] = {"engine": "zarr", "consolidated": False} if zarr else {"engine": "h5netcdf"}
            with xr.open_datatree(path, **options) as opened:
                source = opened.load()
        except ImportError as error:
            raise BankError(f"ArviZ files need further packages ({error}): pip install 'concal[arviz]'") from None
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise DataError(f"{str(path)!r} is not an ArviZ netCDF or Zarr file ({str(error)[:200]})") from None
    if isinstance(source, xr.Dataset):
        return [source]
    if hasattr(source, "to_datatree"):
        source = source.to_datatree()
    if not isinstance(source, xr.DataTree):
        raise DataError(f"draws must be an ArviZ file, a Dataset or a DataTree, not {type(source).__name__}")
    nodes = sorted(source.subtree, key=lambda node: node.path != "/posterior")
    return [node.to_dataset() for node in nodes if node.data_vars]


def _ordered(variable: Any) -> npt.NDArray[Any]:
    if {"chain", "draw"} <= set(variable.dims):
        variable = variable.transpose("chain", "draw", ...)
    return np.asarray(variable)


def write_arviz(calibration: Calibration, to: Path) -> Path:
    """A period's draws as netCDF (``.nc``) or Zarr (``.zarr``); reading it back gives the same draws."""
    import xarray as xr

    tree = to_datatree(calibration)
    abilities = calibration.abilities
    if abilities is not None:
        people = {
            "theta_mean": (("person", "dimension"), abilities.mean),
            "theta_sd": (("person", "dimension"), abilities.sd),
        }
        ids = np.array(abilities.person_ids.to_list(), dtype=object)
        names = np.array(calibration.dimensions, dtype=object)
        tree["persons"] = xr.DataTree(xr.Dataset(people, coords={"person": ids, "dimension": names}))
    return _write_tree(tree, to)


def write_consensus_draws(data: xarray.Dataset, to: Path) -> Path:
    """Consensus draws as the posterior of an ArviZ file."""
    import xarray as xr

    return _write_tree(xr.DataTree.from_dict({"/posterior": data}), to)


def _write_tree(tree: Any, to: Path) -> Path:
    if to.suffix == ".zarr":
        tree.to_zarr(to, mode="w", consolidated=False)
    else:  # HDF5 may bring the process down when the disk is full
        check_room(to, int(sum(node.to_dataset(inherit=False).nbytes for node in tree.subtree)))
        tree.to_netcdf(to, engine="h5netcdf")
    return to


def item_dataset(consensus: Consensus, draws: Mapping[str, npt.NDArray[np.float64]]) -> xarray.Dataset:
    """Consensus draws of some items as one dataset; parameters an item does not have are NaN."""
    import xarray as xr

    place = {item: name for name, g in consensus.groups.items() for item in g.item_ids if item in draws}
    names = list(dict.fromkeys(p for item in draws for p in consensus.groups[place[item]].model.parameters))
    n_draws = len(next(iter(draws.values()))) if draws else 0
    xi = np.full((1, n_draws, len(draws), len(names)), np.nan)
    for j, (item, values) in enumerate(draws.items()):
        columns = [names.index(p) for p in consensus.groups[place[item]].model.parameters]
        xi[0, :, j, columns] = values.T
    return xr.Dataset(
        {"xi": (("chain", "draw", "item", "parameter"), xi)},
        coords={
            "chain": [0],
            "draw": np.arange(n_draws),
            "item": np.array(list(draws), dtype=object),
            "parameter": np.array(names, dtype=object),
            "group": ("item", np.array([place[item] for item in draws], dtype=object)),
        },
        attrs={"reference": consensus.reference, "method": consensus.method},
    )
