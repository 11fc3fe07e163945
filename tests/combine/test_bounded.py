"""Factors whose sum does not bound are cut; all others stay."""

import numpy as np

from concal.combine.bounded import bounded_factors
from concal.combine.factors import GroupFactors, sum_by_item


def two_items_two_periods(Q):
    """Item 0 in periods 0 and 1, item 1 in period 0."""
    rng = np.random.default_rng(3)
    pairs, p = 3, 2
    return GroupFactors(
        name="g", dimension=0, p=p, item_ids=("a", "b"), start=np.array([0, 2, 3]), period=np.array([0, 1, 0]),
        row=np.arange(pairs), Q=Q, h=rng.standard_normal((pairs, p)), weight=np.ones(pairs), age=np.ones(pairs),
        X=np.ones((2, 1)), own_prior=np.zeros(2, np.int64), prior_mean=np.zeros((0, p)),
        prior_precision=np.zeros((0, p, p)), hyperprior=np.eye(1), prior_sd=np.ones(p), active=np.ones(2, bool),
    )  # fmt: skip


def test_only_unbounded_items_are_cut_and_keep_what_they_can_stand_behind():
    good, bad = np.array([[3.0, 0.2], [0.2, 2.0]]), np.array([[2.0, 0.5], [0.5, -0.6]])
    group = two_items_two_periods(np.stack([bad, 0.1 * good, good]))
    L = np.linalg.cholesky(np.array([[1.0, 0.1], [0.1, 0.2]]))
    mean, u, B = np.array([[0.3, -0.1], [0.0, 0.1]]), np.array([0.0, 0.2]), np.array([0.0, 0.4])
    cut = bounded_factors(group, sum_by_item(group, group.Q), L, mean, u, B)
    np.testing.assert_array_equal(cut.Q[2], group.Q[2])  # item b was fine
    np.testing.assert_array_equal(cut.h[2], group.h[2])
    assert np.linalg.eigvalsh(cut.Q[0])[0] > -1e-12
    np.testing.assert_allclose(cut.Q[1], group.Q[1], atol=1e-12)  # a factor that bounds loses nothing
    np.testing.assert_allclose(cut.h[1], group.h[1], atol=1e-12)
    values, vectors = np.linalg.eigh(L.T @ group.Q[0] @ L)
    old = L.T @ (group.h[0] - group.Q[0] @ mean[0])
    new = L.T @ (cut.h[0] - cut.Q[0] @ mean[0])
    np.testing.assert_allclose(vectors[:, 1] @ new, vectors[:, 1] @ old)  # the informed direction keeps its pull
    np.testing.assert_allclose(vectors[:, 0] @ new, 0.0, atol=1e-12)  # the other is flat
    assert values[0] < 0 < values[1]


def test_nothing_to_cut_gives_the_same_object():
    group = two_items_two_periods(np.broadcast_to(np.eye(2), (3, 2, 2)).copy())
    assert (
        bounded_factors(group, sum_by_item(group, group.Q), np.eye(2), np.zeros((2, 2)), np.zeros(2), np.zeros(2))
        is group
    )
