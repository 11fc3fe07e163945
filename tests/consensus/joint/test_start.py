"""Where the chains start, also where a period's gradients are a pull without end."""

import numpy as np

from concal.consensus.item_posterior import item_posterior
from concal.consensus.joint.start import FARTHEST, usable_place


def test_a_factor_without_curvature_gives_a_place_to_start_at():
    """Of a period in which everybody answered one item: no information about the slope, and a gradient of 42."""
    Q = np.array([[[0.024, 0.0424], [0.0424, 0.0752]]])
    Q[0, 1, 1] = Q[0, 0, 1] ** 2 / Q[0, 0, 0] + 1e-9
    h = np.array([[-20.3, 42.4]])
    mean, covariance = np.array([[0.19, -1.28]]), np.array([[[0.495, -0.168], [-0.168, 0.863]]])
    found = item_posterior(Q, h, mean, covariance)
    assert np.linalg.eigvalsh(found[1][0]).min() < 1e-9
    place, spread = usable_place(*found, mean, covariance)
    assert (np.abs(place - mean) <= FARTHEST * np.sqrt(np.diag(covariance[0])) + 1e-12).all()
    np.linalg.cholesky(spread)


def test_other_places_are_left_alone():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(30, 3, 3))
    mean, covariance = rng.normal(size=(30, 3)), np.tile(np.diag([1.0, 0.1, 0.3]), (30, 1, 1))
    own = 1e-5 * root @ root.transpose(0, 2, 1) + 1e-6 * np.eye(3)
    found = usable_place(mean, own, np.zeros((30, 3)), covariance * 4.0)
    np.testing.assert_array_equal(found[0], mean)
    np.testing.assert_allclose(found[1], own, rtol=1e-12)
