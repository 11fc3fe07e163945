"""Design columns as the sampler reads them: centred and scaled, alike in all strata of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concal.names import split_stratum

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Standardisation:
    r"""Design columns centred and scaled for the sampler: X_s = X T, so beta_user = T beta_s."""

    X: Array
    to_user: Array  # T, (features, features)
    singular: Array  # eigenvalues of X_s' X_s
    vectors: Array  # its eigenvectors, by columns

    def prior_precision(self, tau: float) -> Array:
        """Of coefficients with precision tau here, in the user's units: (features, features)."""
        back = np.linalg.inv(self.to_user)
        return np.asarray(tau * back.T @ back)


def standardise(X: Array, among: Array | None = None) -> Standardisation:
    """Centre and scale every column but the intercept (the first); a column that does not vary becomes zero.

    A column in which most items have the same value (a category against the others, a number within a category) is
    scaled by half of its range, which is its SD where two values are as frequent; by its SD, a prior would allow a rare
    category the larger effects the rarer it is. `among` are the rows that say how: those of all items of the group,
    where X has some of them.
    """
    every = X if among is None else among
    centre, scale = every.mean(axis=0), every.std(axis=0)
    most = (every == np.median(every, axis=0)).mean(axis=0) >= 0.5
    scale = np.where(most, 0.5 * np.ptp(every, axis=0), scale)
    flat = scale <= 1e-12 * np.maximum(1.0, np.abs(centre))
    scale[flat] = 1.0
    centre[0], scale[0], flat[0] = 0.0, 1.0, False
    to_user = np.diag(1.0 / scale)
    to_user[0] = -centre / scale
    to_user[0, 0] = 1.0
    Xs = X @ to_user
    Xs[:, flat] = 0.0
    return standardised(Xs, to_user)


def standardised(Xs: Array, to_user: Array) -> Standardisation:
    """Columns that are centred and scaled already."""
    singular, vectors = np.linalg.eigh(Xs.T @ Xs)
    return Standardisation(Xs, to_user, singular, vectors)


def group_rows(X: Mapping[str, Array]) -> dict[str, Array]:
    """Design rows of the whole group of every stratum, from those of the strata."""
    whole: dict[str, list[Array]] = {}
    for name, rows in X.items():
        whole.setdefault(split_stratum(name)[0], []).append(rows)
    joined = {name: np.concatenate(rows) if len(rows) > 1 else rows[0] for name, rows in whole.items()}
    return {name: joined[split_stratum(name)[0]] for name in X}
