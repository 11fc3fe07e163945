"""Factors whose sum does not bound are mended, without moving the item; all others stay."""

import numpy as np

from concal.combine.bounded import FLOOR, bounded_factors
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


def reference(group, u, B):
    """Summed factors on the reference metric, pair by pair: precision and precision times mean."""
    total, shift = np.zeros((2, 2, 2)), np.zeros((2, 2))
    for i, j in enumerate([0, 0, 1]):
        m = group.period[i]
        E, e = np.diag([np.exp(-u[m]), 1.0]), np.array([-B[m] * np.exp(-u[m]), u[m]])
        total[j] += E @ group.Q[i] @ E
        shift[j] += E @ (group.h[i] - group.Q[i] @ e)
    return total, shift


def test_only_unbounded_items_change_and_they_do_not_move():
    good, bad = np.array([[3.0, 0.2], [0.2, 2.0]]), np.array([[2.0, 0.5], [0.5, -0.6]])
    group = two_items_two_periods(np.stack([bad, 0.1 * good, good]))
    L = np.linalg.cholesky(np.array([[1.0, 0.1], [0.1, 0.2]]))
    mean, u, B = np.array([[0.3, -0.1], [0.0, 0.1]]), np.array([0.0, 0.2]), np.array([0.0, 0.4])
    total, shift = reference(group, u, B)
    mended = bounded_factors(group, total, shift, L, mean, u, B)
    np.testing.assert_array_equal(mended.Q[2], group.Q[2])  # item b was fine
    np.testing.assert_array_equal(mended.h[2], group.h[2])
    new_total, new_shift = reference(mended, u, B)
    before, vectors = np.linalg.eigh(L.T @ total[0] @ L)
    assert before[0] < 0 < before[1]
    Omega = np.linalg.inv(L @ L.T)
    old_mean = np.linalg.solve(total[0] + Omega, shift[0] + Omega @ mean[0])
    wanted = vectors @ np.diag([FLOOR, before[1]]) @ vectors.T  # the informed direction keeps its precision
    np.testing.assert_allclose(L.T @ new_total[0] @ L, wanted, atol=1e-12)
    np.testing.assert_allclose(new_total[0] @ old_mean - new_shift[0], total[0] @ old_mean - shift[0], atol=1e-12)


def test_an_item_without_a_proper_posterior_is_mended_around_its_prior_mean():
    group = two_items_two_periods(np.stack([np.diag([1.0, -9.0]), np.zeros((2, 2)), np.eye(2)]))
    u, B, mean = np.zeros(2), np.zeros(2), np.array([[0.3, -0.1], [0.0, 0.1]])
    total, shift = reference(group, u, B)
    mended = bounded_factors(group, total, shift, np.eye(2), mean, u, B)
    new_total, new_shift = reference(mended, u, B)
    np.testing.assert_allclose(np.linalg.eigvalsh(new_total[0])[0], FLOOR)
    np.testing.assert_allclose(new_total[0] @ mean[0] - new_shift[0], total[0] @ mean[0] - shift[0])


def test_a_hard_pull_with_hardly_any_precision_is_mended_where_a_ceiling_allows():
    Q = np.stack([np.diag([2.0, 0.05]), np.zeros((2, 2)), np.eye(2)])
    group = two_items_two_periods(Q)
    group.h[0], group.h[1] = (0.0, 0.4), 0.0
    u, B, mean = np.zeros(2), np.zeros(2), np.zeros((2, 2))
    total, shift = reference(group, u, B)
    assert bounded_factors(group, total, shift, np.eye(2), mean, u, B) is group
    mended = bounded_factors(group, total, shift, np.eye(2), mean, u, B, ceiling=0.3)
    new_total, new_shift = reference(mended, u, B)
    delta = 0.4 / 1.05
    np.testing.assert_allclose(new_total[0], np.diag([2.0, delta**2]), atol=1e-12)
    np.testing.assert_allclose(np.linalg.solve(new_total[0] + np.eye(2), new_shift[0]), [0.0, delta])


def test_nothing_to_mend_gives_the_same_object():
    group = two_items_two_periods(np.broadcast_to(np.eye(2), (3, 2, 2)).copy())
    group.h[:] *= 0.2
    total, shift = sum_by_item(group, group.Q), sum_by_item(group, group.h)
    assert bounded_factors(group, total, shift, np.eye(2), np.zeros((2, 2)), np.zeros(2), np.zeros(2)) is group
