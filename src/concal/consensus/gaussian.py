"""Small-matrix algebra of the consensus, batched over items: precisions, log-Cholesky coordinates, corrections."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def inverse(x: Array) -> Array:
    """Inverse of symmetric matrices over leading axes, symmetric to the last bit."""
    return symmetric(np.asarray(np.linalg.inv(x), dtype=np.float64))


def symmetric(x: Array) -> Array:
    """(x + x') / 2 over the last two axes."""
    return np.asarray(0.5 * (x + np.swapaxes(x, -1, -2)))


def times(x: Array, v: Array) -> Array:
    """Matrix times vector over leading axes: (..., p, p) and (..., p) -> (..., p)."""
    return np.asarray(np.matmul(x, v[..., None])[..., 0])


def solve_positive(x: Array, y: Array) -> Array:
    """x^-1 y of many small positive definite matrices: (n, p, p) and (n, p, q) -> (n, p, q).

    Gaussian elimination written out over p with the matrices last, a vector operation per entry: for p of 2 to 6 an
    order of magnitude faster than one call of LAPACK per matrix.
    """
    w, z = np.moveaxis(x, 0, -1).copy(), np.moveaxis(y, 0, -1).copy()
    solve_in_place(w, z)
    return np.ascontiguousarray(np.moveaxis(z, -1, 0))


def solve_in_place(w: Array, z: Array) -> None:
    """The same of (p, p, ...) and (p, ...) or (p, q, ...): z becomes w^-1 z; on w's diagonal the pivots are left."""
    p = len(w)
    for i in range(p):
        for k in range(i + 1, p):
            ratio = w[k, i] / w[i, i]
            w[k, i:] -= ratio * w[i, i:]
            z[k] -= ratio * z[i]
    for i in reversed(range(p)):
        for k in range(i + 1, p):
            z[i] -= w[i, k] * z[k]
        z[i] /= w[i, i]


def inverse_positive(x: Array) -> Array:
    """Inverse of many small positive definite matrices, see `solve_positive`."""
    return symmetric(solve_positive(x, np.broadcast_to(np.eye(x.shape[-1]), x.shape)))


def square_and_log_det(x: Array, v: Array) -> tuple[Array, Array]:
    """v' x^-1 v and log |x| of many small positive definite matrices (n, p, p) and vectors (n, p), by elimination."""
    w, z = np.moveaxis(x, 0, -1).copy(), np.moveaxis(v, 0, -1).copy()
    for i in range(len(w)):
        for k in range(i + 1, len(w)):
            ratio = w[k, i] / w[i, i]
            w[k, i + 1 :] -= ratio * w[i, i + 1 :]
            z[k] -= ratio * z[i]
    pivots = np.einsum("iin->in", w)
    return (z * z / pivots).sum(axis=0), np.log(pivots).sum(axis=0)


class Units(NamedTuple):
    """Coordinates in which given precisions are the identity: precision^-1 = root root', unroot root = 1."""

    root: Array
    unroot: Array

    def rows(self, which: npt.NDArray[np.integer]) -> Units:
        """Those of some of the matrices, in the shape of `which`."""
        return Units(self.root[which], self.unroot[which])

    def precision(self, x: Array) -> Array:
        """Precisions x (..., p, p) in these units."""
        return symmetric(np.swapaxes(self.root, -1, -2) @ x @ self.root)


def units_of(precision: Array) -> Units:
    """Units in which positive definite matrices (..., p, p) are the identity."""
    L = np.linalg.cholesky(precision)
    return Units(np.swapaxes(np.linalg.inv(L), -1, -2), np.swapaxes(L, -1, -2))


def sum_by(index: npt.NDArray[np.integer], values: Array, size: int) -> Array:
    """Sums (size, ...) of the rows of `values` that have the same index."""
    sums = np.empty((size, *values.shape[1:]))
    for entry in np.ndindex(values.shape[1:]):
        sums[:, *entry] = np.bincount(index, values[:, *entry], size)
    return sums


def all_positive(x: Array) -> npt.NDArray[np.bool_]:
    """Which symmetric matrices (..., p, p) are positive definite, by the pivots of elimination."""
    w = np.moveaxis(x, (-2, -1), (0, 1)).copy()
    positive = np.ones(w.shape[2:], dtype=bool)
    for i in range(len(w)):
        positive &= w[i, i] > 0
        pivot = np.where(positive, w[i, i], 1.0)
        for k in range(i + 1, len(w)):
            w[k, i:] -= w[k, i] / pivot * w[i, i:]
    return positive


def raise_eigenvalues(x: Array, unit: Array, floor: float) -> Array:
    """Matrices x (n, p, p) with eigenvalues below `floor`, in units of the positive definite `unit`, raised to it."""
    raised = symmetric(x)
    low = ~all_positive(raised - floor * unit)
    units = units_of(unit[low])
    values, vectors = np.linalg.eigh(units.precision(raised[low]))
    basis = np.swapaxes(units.unroot, -1, -2) @ vectors
    raised[low] = symmetric((basis * np.maximum(values, floor)[..., None, :]) @ np.swapaxes(basis, -1, -2))
    return raised


def positive_part(C: Array) -> Array:
    """Symmetric matrices (..., k, k) with their negative eigenvalues set to zero."""
    found = symmetric(C)
    low = ~all_positive(found)
    values, vectors = np.linalg.eigh(found[low])
    found[low] = (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return found


def widen(P: Array, shift: Array, G: Array, C: Array) -> tuple[Array, Array]:
    r"""Gaussian factors with further uncertainty G C G' in where they lie: precisions (..., k, k), shifts (..., k).

    .. math:: (P^{-1} + G C G')^{-1} = P - P G (I + C G'PG)^{-1} C G'P ,

    which needs no inverse of P; the shift loses the same share.
    """
    PG = P @ G
    inner = np.linalg.solve(np.eye(C.shape[-1]) + C @ (np.swapaxes(G, -1, -2) @ PG), C)
    lost = PG @ inner
    return symmetric(P - lost @ np.swapaxes(PG, -1, -2)), shift - times(lost, times(np.swapaxes(G, -1, -2), shift))


def effective_covariance_draws(n_draws: int, ess: Array) -> Array:
    r"""Effective number of draws behind a covariance, from the effective sample size of the mean.

    For draws whose autocorrelation falls geometrically, second moments decorrelate faster than the draws; with
    :math:`r = ess / S` their effective number is :math:`S \cdot 2 r / (1 + r^2)`.
    """
    r = np.clip(ess / n_draws, 1e-12, 1.0)
    return np.asarray(n_draws * 2.0 * r / (1.0 + r * r))


def precision_shrinkage(n: Array, p: int) -> Array:
    r"""Factor (n - p - 2) / (n - 1) that takes the finite-draw bias out of an inverted p x p sample covariance.

    Where fewer than p + 3 effective draws exist the factor stays at its smallest usable value, 1 / (p + 2).
    """
    n = np.maximum(n, p + 3.0)
    return np.asarray((n - p - 2.0) / (n - 1.0))


def log_cholesky(sigma: Array) -> Array:
    r"""Log-Cholesky coordinates of covariances (..., p, p): row by row of L, the diagonal on the log scale.

    The order is L_11, L_21, L_22, L_31, ... in every period.
    """
    root = np.linalg.cholesky(sigma)
    p = sigma.shape[-1]
    rows, columns = np.tril_indices(p)
    coordinates = root[..., rows, columns].copy()
    on_diagonal = rows == columns
    coordinates[..., on_diagonal] = np.log(coordinates[..., on_diagonal])
    return np.asarray(coordinates)


def cholesky_factor(coordinates: Array, p: int) -> Array:
    """Lower factor L from log-Cholesky coordinates."""
    rows, columns = np.tril_indices(p)
    root = np.zeros((*coordinates.shape[:-1], p, p))
    root[..., rows, columns] = coordinates
    i = np.arange(p)
    root[..., i, i] = np.exp(root[..., i, i])
    return root


def from_log_cholesky(coordinates: Array, p: int) -> Array:
    """Covariance from log-Cholesky coordinates (positive definite by construction)."""
    root = cholesky_factor(coordinates, p)
    return np.asarray(root @ np.swapaxes(root, -1, -2))


def feature_quadratic(X: Array, V: Array, p: int) -> Array:
    """Covariance of X_j beta for every item: (items, F) and (F p, F p), feature-major, -> (items, p, p)."""
    n, F = X.shape
    blocks = V.reshape(F, p, F, p)
    out = np.empty((n, p, p))
    for a in range(p):
        for b in range(a + 1):
            out[:, a, b] = out[:, b, a] = np.einsum("jf,jf->j", X @ np.ascontiguousarray(blocks[:, a, :, b]), X)
    return out
