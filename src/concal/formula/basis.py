r"""What features turn into: categories, centred and scaled values, splines, polynomials, each with a stored state.

A state is plain JSON data. It is learned once, from the first item table that shows the feature, and reused by every
later period, so that a column of the design matrix means the same in all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Array = npt.NDArray[np.float64]
State = dict[str, Any]


def level_text(column: pl.Series) -> pl.Series:
    """Levels as text; 1, 1.0 and "1" are the same level, whichever way a file spelled them."""
    if column.dtype.is_float():
        whole = column.is_finite() & (column == column.floor()) & (column.abs() < 2**53)
        as_whole = column.cast(pl.Int64, strict=False).cast(pl.String)
        text = pl.when(whole).then(as_whole).otherwise(column.cast(pl.String))
        return pl.select(text.alias(column.name)).to_series()
    if column.dtype == pl.Boolean:
        return column.cast(pl.Int8).cast(pl.String)
    return column.cast(pl.String)


def learn_levels(levels: pl.Series) -> State:
    """Levels in sorted order (numbers by value), the first is the reference; with their shares among the items."""
    counts = levels.drop_nulls().value_counts()
    number = counts.to_series(0).cast(pl.Float64, strict=False)
    order = counts.with_columns(number.alias("_number")).sort("_number", counts.columns[0], nulls_last=True)
    if number.null_count():
        order = counts.sort(counts.columns[0])
    shares = order["count"] / order["count"].sum()
    return {"kind": "category", "levels": order.to_series(0).to_list(), "shares": shares.to_list()}


def code_levels(levels: pl.Series, state: State) -> Array:
    """One column per level, (items, levels); a level that is not in the state gets the shares (the population mean)."""
    known = state["levels"]
    index = levels.replace_strict(known, list(range(len(known))), default=-1, return_dtype=pl.Int64).to_numpy()
    rows = np.vstack([np.eye(len(known)), np.asarray(state["shares"], dtype=np.float64)])
    coded: Array = rows[index]  # -1 picks the last row
    return coded


def learn_scale(x: Array) -> State:
    """Mean and standard deviation (n - 1) of a feature."""
    return {"kind": "moments", "mean": float(x.mean()), "sd": float(x.std(ddof=1)) if x.size > 1 else 0.0}


def learn_spline(x: Array, df: int, degree: int) -> State:
    """Knots of a B-spline with `df` columns: inner ones at equal quantiles, the outer ones at the ends of the data."""
    inner = np.quantile(x, np.linspace(0, 1, df - degree + 2)[1:-1]) if df > degree else np.empty(0)
    return {"kind": "spline", "degree": degree, "ends": [float(x.min()), float(x.max())], "knots": inner.tolist()}


def spline_basis(x: Array, state: State) -> Array:
    """B-spline columns without the first one (the intercept is elsewhere), (items, df); constant beyond the ends."""
    from scipy.interpolate import BSpline

    low, high = state["ends"]
    degree = state["degree"]
    knots = np.concatenate([np.repeat(low, degree + 1), state["knots"], np.repeat(high, degree + 1)])
    full = BSpline.design_matrix(np.clip(x, low, high), knots, degree).toarray()
    basis: Array = full[:, 1:]
    return basis


def learn_polynomial(x: Array, degree: int) -> State:
    r"""Recurrence of the polynomials orthonormal on the data.

    .. math:: p_{k+1} = (x - \alpha_k) p_k - (n_k / n_{k-1}) p_{k-1}, \quad n_k = |p_k|^2
    """
    alpha, norm = [], []
    before, here = np.zeros_like(x), np.ones_like(x)
    for k in range(degree + 1):
        norm.append(float(here @ here))
        alpha.append(float((x * here) @ here / norm[k]) if norm[k] > 0 else 0.0)
        ratio = norm[k] / norm[k - 1] if k and norm[k - 1] > 0 else 0.0
        before, here = here, (x - alpha[k]) * here - ratio * before
    return {"kind": "polynomial", "alpha": alpha[:degree], "norm": norm}


def polynomial_basis(x: Array, state: State) -> Array:
    """Columns of degree 1, 2, .., (items, degree)."""
    alpha, norm = state["alpha"], state["norm"]
    columns = []
    before, here = np.zeros_like(x), np.ones_like(x)
    for k, shift in enumerate(alpha):
        ratio = norm[k] / norm[k - 1] if k else 0.0
        before, here = here, (x - shift) * here - ratio * before
        columns.append(here / np.sqrt(norm[k + 1]))
    return np.column_stack(columns)
