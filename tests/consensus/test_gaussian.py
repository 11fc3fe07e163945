"""Small-matrix algebra written out over the batch, against LAPACK matrix by matrix."""

from __future__ import annotations

import numpy as np
import pytest

from concal.consensus.gaussian import all_positive, solve_positive


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
