"""Linking plain tables of item parameters, for people who only want that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from concal.errors import DataError, LinkError, first_few
from concal.linking.criteria import CURVE_METHODS, MOMENT_METHODS, Anchors, Array, make_loss, make_quadrature
from concal.linking.joint import solve_joint
from concal.linking.solve import Criterion, solve
from concal.response import ResponseModel, make_model, model_class
from concal.response.natural import xi_from_natural

_MAX_CATEGORIES = 64
_METHODS = (*CURVE_METHODS, "haebara_joint", *MOMENT_METHODS)


@dataclass(frozen=True)
class LinkConstants:
    """theta_ref = A theta + B, and the anchors (item ids) that said so.

    `converged` is False where Newton's method gave up and the derivative-free method found the minimum.
    """

    A: float
    B: float
    converged: bool
    anchors: tuple[str, ...]


def link_parameters(
    ref: Any,
    foc: Any,
    *,
    method: str = "haebara",
    loss: str = "pseudo_huber",
    delta: float = 0.05,
    power: float = 2.0,
    eps: float = 0.0,
    weights: str | npt.ArrayLike | None = None,
    nodes: npt.ArrayLike | None = None,
    node_weights: npt.ArrayLike | None = None,
    grid_metric: str | None = None,
    model: str | ResponseModel = "2pl",
    categories: int | None = None,
) -> LinkConstants:
    r"""Constants of :math:`\theta_{ref} = A\theta_{foc} + B` from two tables of item parameters.

    Parameters
    ----------
    ref, foc : data frames (polars, pandas, Arrow) or dicts of columns
        ``item_id`` and the model's natural parameters: ``a``, ``d`` (and ``c`` for 3pl, ``c_1``... for gpcm and
        grm). Items are matched on ``item_id``; items of one table only are left alone.
    method : {"haebara", "stocking_lord", "haebara_joint", "mean_mean", "mean_sigma", "log_mean_mean"}
        "haebara_joint" estimates one common item per anchor along with the link; see Notes.
    loss : {"pseudo_huber", "squared", "power"}
        With `delta`; or ``(z^2 + eps)^(power / 2)`` with `power` and `eps`. All curve methods use it.
    weights : column name, or array with one weight per row of `foc`
        Default: equal weights. A column found in both tables enters as the harmonic mean of the two.
    nodes, node_weights : arrays
        Quadrature; default 61 nodes on [-6, 6] with normal weights.
    grid_metric : {"ref", "focal", "symmetric", "own"}
        On whose metric the nodes live; "symmetric" adds both criteria. Default "ref"; for "haebara_joint" it is always
        "own", each table's nodes on that table's metric. Moment methods have no nodes.
    model : str or ResponseModel
    categories : int
        Of a polytomous model; default as many as the columns of `ref` say.

    Returns
    -------
    LinkConstants

    Notes
    -----
    "haebara_joint" takes neither table as given. With :math:`\xi_j` the common items on the reference metric,

    .. math::

        \min_{A, B, \xi} \sum_k w_k \sum_j \omega_j \bigl[
            \rho\{E(t_k; \xi_j) - E_j^{ref}(t_k)\} + \rho\{E(A t_k + B; \xi_j) - E_j^{foc}(t_k)\}\bigr]

    over their d and a; further coordinates stay at the mean of the two tables, for curves hardly determine them. The
    link of the reversed tables is the inverse. It is solved by Newton's method alone, which raises a
    `LinkError` where it finds no minimum.

    Examples
    --------
    >>> ref = {"item_id": ["i", "j", "k"], "a": [1.0, 0.8, 1.4], "d": [-1.0, 0.2, 1.1]}
    >>> foc = {"item_id": ["k", "j", "i"], "a": [2.8, 1.6, 2.0], "d": [0.3, -0.15, -0.75]}
    >>> constants = link_parameters(ref, foc)
    >>> round(constants.A, 6), round(constants.B, 6)
    (2.0, 0.5)
    """
    if method not in _METHODS:
        raise LinkError(f"unknown linking method {method!r}; known: {', '.join(_METHODS)}")
    metric = _grid_metric(method, grid_metric)
    rows_ref, rows_foc = _rows(ref, "ref"), _rows(foc, "foc")
    anchors = sorted(rows_ref.keys() & rows_foc.keys())
    if len(anchors) < 2:
        raise LinkError(
            f"a link needs at least 2 anchors, but {len(anchors)} item ids match: `ref` has {len(rows_ref)} items "
            f"({first_few(list(rows_ref))}), `foc` has {len(rows_foc)} ({first_few(list(rows_foc))})"
        )
    in_ref, in_foc = np.array([rows_ref[i] for i in anchors]), np.array([rows_foc[i] for i in anchors])
    response = _model(model, categories, ref)
    xi_ref, xi_foc = _xi(response, ref, in_ref, anchors, "ref"), _xi(response, foc, in_foc, anchors, "foc")
    omega = _weights(weights, ref, foc, in_ref, in_foc, len(rows_foc))
    used = np.flatnonzero(omega > 0)
    if used.size < 2:
        raise LinkError(f"a link needs at least 2 anchors with a positive weight, got {used.size} of {len(anchors)}")
    block = Anchors(response, response, xi_ref[None, used], xi_foc[None, used], omega[used])
    rho, quadrature = make_loss(loss, delta, power, eps), make_quadrature(nodes, node_weights)
    if method == "haebara_joint":
        (A, B), converged = solve_joint(block, rho, quadrature), True
    else:
        answer = solve([block], Criterion(method, rho, quadrature, metric), exact=True)
        A, B, converged = float(answer.A[0]), float(answer.B[0]), bool(answer.newton[0])
    if not (np.isfinite(A) and np.isfinite(B) and A > 0):
        raise LinkError(
            f"no link found from the anchors {first_few(anchors)}: A = {A}, B = {B}; check their parameters"
        )
    return LinkConstants(A, B, converged, tuple(anchors[k] for k in used))


def _grid_metric(method: str, grid_metric: str | None) -> str:
    joint = method == "haebara_joint"
    known = ("own",) if joint else ("ref", "focal", "symmetric")
    if grid_metric is None:
        return known[0]
    if grid_metric not in known:
        raise LinkError(f"unknown grid_metric {grid_metric!r} of {method}; known: {', '.join(known)}")
    return grid_metric


def _rows(frame: Any, side: str) -> dict[str, int]:
    try:
        ids = np.asarray(frame["item_id"]).tolist()
    except (KeyError, TypeError, IndexError):
        raise LinkError(f"the table `{side}` has no column 'item_id'") from None
    except Exception as error:  # every data frame library has an error of its own for a missing column
        raise LinkError(f"the table `{side}` has no readable column 'item_id': {error}") from None
    missing = [k for k, item in enumerate(ids) if item is None or item != item]
    if missing:
        raise LinkError(f"the table `{side}` has rows without an item_id: {first_few(missing)}")
    rows = {str(item): k for k, item in enumerate(ids)}
    if len(rows) < len(ids):
        twice = sorted(item for item, n in Counter(map(str, ids)).items() if n > 1)
        raise LinkError(f"the table `{side}` repeats item ids: {first_few(twice)}; keep one row of each")
    return rows


def _model(model: str | ResponseModel, categories: int | None, frame: Any) -> ResponseModel:
    """The model; the number of categories of a polytomous one from the columns where it is not given."""
    if not isinstance(model, str):
        return model
    if categories is not None or not model_class(model).polytomous:
        return make_model(model, categories)
    names = set(_columns(frame))
    for k in range(_MAX_CATEGORIES, 2, -1):
        found = make_model(model, k)
        if names.issuperset(found.natural_parameters):
            return found
    wanted = ", ".join(make_model(model, 4).natural_parameters)
    raise LinkError(
        f"cannot tell the number of categories of {model!r} from the columns {first_few(sorted(names), 12)}; "
        f"name them as in {wanted} (4 categories), or give categories"
    )


def _columns(frame: Any) -> list[str]:
    names = getattr(frame, "column_names", None)
    if names is None:
        names = getattr(frame, "columns", None)
    return [str(n) for n in (frame if names is None else names)]


def _xi(model: ResponseModel, frame: Any, rows: npt.NDArray[np.int64], anchors: Sequence[str], side: str) -> Array:
    names = set(_columns(frame))
    columns = {n: np.asarray(frame[n])[rows] for n in model.natural_parameters if n in names}
    try:
        return xi_from_natural(model, {"item_id": np.asarray(anchors), **columns})
    except DataError as error:
        raise LinkError(f"the table `{side}`: {error}") from None


def _weights(
    weights: str | npt.ArrayLike | None,
    ref: Any,
    foc: Any,
    in_ref: npt.NDArray[np.int64],
    in_foc: npt.NDArray[np.int64],
    n_foc: int,
) -> Array:
    if weights is None:
        return np.ones(in_foc.size)
    if isinstance(weights, str):
        found = [
            np.asarray(frame[weights], dtype=np.float64)[rows]
            for frame, rows in ((ref, in_ref), (foc, in_foc))
            if weights in _columns(frame)
        ]
        if not found:
            raise LinkError(f"neither table has a column {weights!r} to weight the anchors by")
        if len(found) == 1:
            omega = found[0]
        else:
            total = found[0] + found[1]
            omega = np.divide(2.0 * found[0] * found[1], total, out=np.zeros_like(total), where=total != 0)
    else:
        given = np.asarray(weights, dtype=np.float64).ravel()
        if given.size != n_foc:
            raise LinkError(f"weights must have one entry per row of `foc` ({n_foc}), got {given.size}")
        omega = given[in_foc]
    if not (np.isfinite(omega).all() and (omega >= 0).all()):
        raise LinkError("anchor weights must be finite and not negative")
    return np.asarray(omega)
