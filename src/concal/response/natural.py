"""Item parameters as people write them down (a, d, c, ...), to and from xi."""

from __future__ import annotations

from typing import Any

import numpy as np

from concal.errors import DataError, first_few
from concal.response.base import Array, ResponseModel


def xi_from_natural(model: ResponseModel, frame: Any) -> Array:
    """Xi of every row of a table of natural parameters.

    Parameters
    ----------
    model : ResponseModel
        Its `natural_parameters` name the columns that must be there; other columns are left alone.
    frame : data frame or mapping of column name to values
        pandas, polars, Arrow or a dict. An ``item_id`` column, where present, names the rows in messages.

    Returns
    -------
    (n, p) array
        One row of xi per row of the table.

    Examples
    --------
    >>> from concal.response import make_model
    >>> xi_from_natural(make_model("3pl"), {"a": [1.0], "d": [0.5], "c": [0.5]})
    array([[0.5, 0. , 0. ]])
    """
    names = _names(frame)
    missing = [name for name in model.natural_parameters if name not in names]
    if missing:
        raise DataError(
            f"the table of {model.name} parameters lacks the column(s) {first_few(missing)}; "
            f"it needs {', '.join(model.natural_parameters)} and has {first_few(names, 12)}"
        )
    columns = {name: _numbers(frame[name], name) for name in model.natural_parameters}
    lengths = {name: values.shape[0] for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns of different length: {lengths}; give one value per item in each")
    with np.errstate(all="ignore"):
        xi = model.from_natural(columns)
    bad = np.flatnonzero(~np.isfinite(xi).all(axis=-1))
    if bad.size:
        ids = np.asarray(frame["item_id"])[bad].tolist() if "item_id" in names else bad.tolist()
        what = "items" if "item_id" in names else "rows"
        raise DataError(
            f"{bad.size} {what} with impossible {model.name} parameters: {first_few(ids)}; "
            f"the rule is: {model.natural_rule()}"
        )
    return xi


def natural_from_xi(model: ResponseModel, xi: Array) -> dict[str, Array]:
    """Natural parameters by name, each with the shape xi has without its last axis.

    Examples
    --------
    >>> from concal.response import make_model
    >>> natural_from_xi(make_model("gpcm", 3), np.array([[0.5, 0.0, -1.0]]))["c_2"]
    array([1.])
    """
    xi = np.asarray(xi, dtype=np.float64)
    if xi.shape[-1] != len(model.parameters):
        raise DataError(
            f"{model.name} has {len(model.parameters)} parameters ({', '.join(model.parameters)}), "
            f"but xi has {xi.shape[-1]} columns"
        )
    natural = model.to_natural(xi)
    return {name: natural[..., k] for k, name in enumerate(model.natural_parameters)}


def _names(frame: Any) -> list[str]:
    names = getattr(frame, "column_names", None)  # Arrow tables call them so; their `columns` are the values
    if names is None:
        names = getattr(frame, "columns", None)
    return [str(name) for name in (frame if names is None else names)]


def _numbers(values: Any, name: str) -> Array:
    try:
        return np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise DataError(f"column {name!r} holds something that is not a number; give numbers only") from None
