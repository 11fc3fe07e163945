"""Person variables that plausible values are conditioned on: read, checked and coded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.data.findings import some
from concal.data.read import Table, check_columns, id_text, read_table
from concal.errors import DataError, counted, first_few

Array = npt.NDArray[np.float64]
MOST_LEVELS = 200
"""Of one categorical variable; more is an id, or numbers read as text."""


def covariate_matrix(source: Table, person_ids: pl.Series, person_column: str) -> Array:
    """Design matrix (persons, 1 + columns): an intercept, numbers standardised, text and flags as categories.

    Parameters
    ----------
    source
        A row per examinee: person_id and the variables; rows of people who are not scored are left out.
    person_ids
        Whom to code, in this order.
    person_column
        Name of the id's column.
    """
    table = read_table(source, text_only=False, what="covariates", notes=[])
    check_columns(table, [person_column], "covariates")
    table = table.with_columns(id_text(table[person_column], "covariates").alias(person_column))
    names = [name for name in table.columns if name != person_column]
    if not names:
        raise DataError(f"covariates: there is no column beside {person_column!r}")
    wanted = pl.DataFrame({person_column: person_ids})
    own = table.join(wanted, on=person_column, how="semi")
    twice = own.filter(own[person_column].is_duplicated())[person_column].unique(maintain_order=True)
    if twice.len():
        raise DataError(f"covariates: {counted(twice.len(), 'examinee')} with several rows: {some(twice)}; keep one")
    rows = wanted.join(own, on=person_column, how="left", maintain_order="left")
    lost = rows.filter(pl.any_horizontal(pl.col(names).is_null()))[person_column]
    if lost.len():
        raise DataError(
            f"covariates: {counted(lost.len(), 'examinee')} without a row or with empty values: {some(lost)}; fill "
            "them in, or make missingness a category of its own"
        )
    X = np.column_stack([np.ones(rows.height), *(column for name in names for column in _coded(rows[name]))])
    if X.shape[0] <= X.shape[1] + 10:
        raise DataError(f"covariates: {counted(X.shape[0], 'examinee')} are too few for {X.shape[1]} coefficients")
    if np.linalg.matrix_rank(X) < X.shape[1]:
        raise DataError(f"covariates: {first_few(names)} determine each other or do not vary; leave some out")
    return X


def _coded(column: pl.Series) -> list[Array]:
    """One standardised number, or an indicator for every category but the first."""
    if column.dtype.is_numeric():
        values = column.cast(pl.Float64).to_numpy()
        if not np.isfinite(values).all():
            raise DataError(f"covariates: {column.name!r} has values that are not finite")
        spread = values.std()
        return [(values - values.mean()) / (spread if spread > 0 else 1.0)]
    levels = column.cast(pl.String).unique().sort().to_list()
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"covariates: {column.name!r} is text with {len(levels):,} different values; numbers must be numbers, and "
            f"categories at most {MOST_LEVELS}"
        )
    return [(column.cast(pl.String) == level).to_numpy().astype(np.float64) for level in levels[1:]]
