r"""Statistics over plausible values, pooled by Rubin's rules.

A statistic Q with sampling variance U is computed in every set. With M draws of items and links and m sets at each
(m = 1: Rubin's rules; more: their nested form),

.. math:: T = \bar U + (1 + 1/M) B + (1 - 1/m) W, \qquad
          \frac{1}{\nu} = \frac{((1 + 1/M) B / T)^2}{M - 1} + \frac{((1 - 1/m) W / T)^2}{M (m - 1)},

B the variance of the draws' means of Q, W the mean variance within a draw. Sets at the same draw differ by measurement
error alone, so with m > 1 what items and links add to the variance of Q is B - W/m.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import t as student

from concal.errors import DataError, first_few

Array = npt.NDArray[np.float64]
Statistic = Callable[[pl.DataFrame], dict[str, tuple[float, float]]]
"""From one set of plausible values (a row per examinee) to estimates with their sampling variances, by name."""


def pool(values: pl.DataFrame, statistic: Statistic) -> pl.DataFrame:
    """Pool a statistic over the sets of a table of plausible values.

    Parameters
    ----------
    values
        person_id, pv, item_draw, theta columns, and whatever else the statistic reads.
    statistic
        See `mean_of`, `variance_of`, `correlation_of`, `regression_of`, or a function of one's own.

    Returns
    -------
    polars DataFrame
        name, estimate, se, df, low, high (95 %), and shares of the variance: share_sampling (that of examinees),
        share_imputation (measurement, items and links together), share_items (items and links; null with one set
        per draw).
    """
    sets = values.partition_by("pv", maintain_order=True)
    if len(sets) < 2:
        raise DataError(f"pooling needs at least two sets of plausible values, found {len(sets)}")
    found = [statistic(one) for one in sets]
    draws = np.array([one["item_draw"][0] for one in sets])
    rows = [_pooled(name, [f[name] for f in found], draws) for name in found[0]]
    return pl.DataFrame(rows, infer_schema_length=None)


def _pooled(name: str, found: Sequence[tuple[float, float]], draws: npt.NDArray[np.int64]) -> dict[str, object]:
    Q, U = (np.array(column) for column in zip(*found, strict=True))
    parts = [Q[draws == d] for d in np.unique(draws)]
    M, m = len(parts), len(parts[0])
    if M < 2 or any(len(p) != m for p in parts):
        raise DataError("plausible values need two or more draws of the items with as many sets at each")
    B = float(np.var([p.mean() for p in parts], ddof=1))
    W = float(np.mean([p.var(ddof=1) for p in parts])) if m > 1 else 0.0
    between, within = (1 + 1 / M) * B, (1 - 1 / m) * W
    T = float(U.mean()) + between + within
    inverse = (between / T) ** 2 / (M - 1) + ((within / T) ** 2 / (M * (m - 1)) if m > 1 else 0.0)
    df = 1 / inverse if inverse > 0 else np.inf
    half = float(student.ppf(0.975, df)) * np.sqrt(T)
    return {
        "name": name,
        "estimate": float(Q.mean()),
        "se": float(np.sqrt(T)),
        "df": float(df),
        "low": float(Q.mean() - half),
        "high": float(Q.mean() + half),
        "share_sampling": float(U.mean()) / T,
        "share_imputation": (between + within) / T,
        "share_items": max(B - W / m, 0.0) * (1 + 1 / M) / T if m > 1 else None,
    }


def mean_of(*columns: str) -> Statistic:
    """Means of columns."""

    def statistic(one: pl.DataFrame) -> dict[str, tuple[float, float]]:
        x = {c: _numbers(one, c) for c in columns}
        return {f"mean({c})": (float(v.mean()), float(v.var(ddof=1) / v.size)) for c, v in x.items()}

    return statistic


def variance_of(*columns: str) -> Statistic:
    """Variances of columns; their sampling variance from the fourth moment."""

    def statistic(one: pl.DataFrame) -> dict[str, tuple[float, float]]:
        found = {}
        for c in columns:
            v = _numbers(one, c)
            squares = (v - v.mean()) ** 2
            found[f"variance({c})"] = (float(v.var(ddof=1)), float(squares.var(ddof=1) / v.size))
        return found

    return statistic


def correlation_of(left: str, right: str) -> Statistic:
    """Correlation of two columns; its sampling variance (1 - r^2)^2 / (n - 1)."""

    def statistic(one: pl.DataFrame) -> dict[str, tuple[float, float]]:
        r = float(np.corrcoef(_numbers(one, left), _numbers(one, right))[0, 1])
        return {f"correlation({left}, {right})": (r, (1 - r * r) ** 2 / (one.height - 1))}

    return statistic


def regression_of(outcome: str, *predictors: str) -> Statistic:
    """Coefficients of a least-squares regression with an intercept, and its residual variance's square root."""

    def statistic(one: pl.DataFrame) -> dict[str, tuple[float, float]]:
        y = _numbers(one, outcome)
        X = np.column_stack([np.ones(y.size), *(_numbers(one, p) for p in predictors)])
        inverse = np.linalg.inv(X.T @ X)
        b = inverse @ (X.T @ y)
        s2 = float(((y - X @ b) ** 2).sum() / (y.size - X.shape[1]))
        names = ["intercept", *predictors]
        return {n: (float(b[k]), s2 * float(inverse[k, k])) for k, n in enumerate(names)}

    return statistic


def _numbers(one: pl.DataFrame, column: str) -> Array:
    if column not in one.columns:
        raise DataError(f"there is no column {column!r}; there are {first_few(one.columns, 12)}")
    return one[column].cast(pl.Float64).to_numpy()
