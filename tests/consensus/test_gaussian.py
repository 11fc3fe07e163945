"""Small-matrix algebra written out over the batch, against LAPACK matrix by matrix."""

from __future__ import annotations

import numpy as np
import pytest

from concal.consensus.gaussian import (
    all_positive,
    inverse_positive,
    solve_positive,
    square_and_log_det,
    sum_by,
    units_of,
)


@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_solves_like_lapack(p: int) -> None:
    rng = np.random.default_rng(p)
    root = rng.normal(size=(50, p, p)) * 10.0 ** rng.uniform(-3, 3, size=(50, p, 1))
    x = root @ np.swapaxes(root, 1, 2) + 1e-3 * np.eye(p)
    y = rng.normal(size=(50, p, 4))
    kept = x.copy(), y.copy()
    np.testing.assert_allclose(x @ solve_positive(x, y), y, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(x, kept[0])
    np.testing.assert_array_equal(y, kept[1])
    assert solve_positive(x[:0], y[:0]).shape == (0, p, 4)


@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_positive_as_the_eigenvalues_say(p: int) -> None:
    rng = np.random.default_rng(p)
    x = rng.normal(size=(400, p, p)) + 1.5 * np.eye(p)
    x = x + np.swapaxes(x, 1, 2)
    expected = np.array([np.linalg.eigvalsh(one)[0] > 0 for one in x])
    assert 0 < expected.sum() < len(x)
    np.testing.assert_array_equal(all_positive(x), expected)


@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_inverses_lengths_determinants_and_units_like_lapack(p: int) -> None:
    rng = np.random.default_rng(p)
    root = rng.normal(size=(50, p, p))
    x, v = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(p), rng.normal(size=(50, p))
    np.testing.assert_allclose(inverse_positive(x), np.linalg.inv(x), rtol=1e-8, atol=1e-10)
    square, log_det = square_and_log_det(x, v)
    np.testing.assert_allclose(square, [a @ np.linalg.solve(m, a) for m, a in zip(x, v, strict=True)], rtol=1e-8)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(x)[1], atol=1e-10)
    units = units_of(x)
    np.testing.assert_allclose(units.unroot @ units.root, np.broadcast_to(np.eye(p), x.shape), atol=1e-10)
    np.testing.assert_allclose(units.precision(3.0 * x), np.broadcast_to(3.0 * np.eye(p), x.shape), atol=1e-9)
    np.testing.assert_array_equal(units.rows(np.array([4, 4])).root, units.root[[4, 4]])


def test_sums_by_index() -> None:
    values = np.arange(24.0).reshape(4, 3, 2)
    index = np.array([2, 0, 2, 2])
    found = sum_by(index, values, 4)
    np.testing.assert_array_equal(found[2], values[[0, 2, 3]].sum(axis=0))
    np.testing.assert_array_equal(found[[0, 1, 3]], [values[1], 0 * values[0], 0 * values[0]])
    np.testing.assert_array_equal(sum_by(index[:0], values[:0], 2), np.zeros((2, 3, 2)))
    np.testing.assert_array_equal(sum_by(index, np.ones(4), 3), [1.0, 0.0, 3.0])
