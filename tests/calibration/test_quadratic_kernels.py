"""Passes over quadratic factors seen through links, against phi written out: values, slopes, J'QJ."""

import numpy as np
import pytest

from concal import metric
from concal.calibration import kernels
from concal.calibration.kernels import LANES

PERIODS = 3


def some_factors(p, n_items=6, seed=1):
    """Factors (start, item, period, Q, h) of items with one to three periods each, and items and links of all lanes."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, PERIODS + 1, n_items)
    item = np.repeat(np.arange(n_items), counts).astype(np.int32)
    period = np.concatenate([np.sort(rng.choice(PERIODS, k, replace=False)) for k in counts]).astype(np.int32)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    root = rng.normal(size=(item.size, p, p))
    Q, h = root @ root.transpose(0, 2, 1) - 0.1 * np.eye(p), rng.normal(size=(item.size, p))
    x = np.concatenate([rng.normal(size=(n_items, 1, LANES)), 0.3 * rng.normal(size=(n_items, p - 1, LANES))], axis=1)
    links = np.stack([0.2 * rng.normal(size=(PERIODS, LANES)), 0.5 * rng.normal(size=(PERIODS, LANES))], axis=1)
    return start, item, period, Q, h, x, links


def constants(links):
    return (
        np.ascontiguousarray(np.exp(links[:, 0]), dtype=np.float32),
        np.ascontiguousarray(links[:, 1], dtype=np.float32),
    )


def parameters(x):
    return np.ascontiguousarray(np.stack([np.exp(x[:, 1]), x[:, 0]], axis=1), dtype=np.float32)


def phi_seen(xi, link):
    return metric.own_phi(metric.phi_of(xi), np.exp(link[0]), link[1])


def value(Q, h, phi):
    return h @ phi - 0.5 * phi @ Q @ phi


def jacobian(of, x, h=1e-5):
    return np.stack([(of(x + h * e) - of(x - h * e)) / (2 * h) for e in np.eye(x.size)], axis=-1)


@pytest.mark.parametrize("p", [2, 3, 5])
def test_items(p):
    start, item, period, Q, h, x, links = some_factors(p)
    n = x.shape[0]
    acc, value_alone = np.full((n, 1 + p + p * (p + 1) // 2, LANES), np.nan), np.full((n, LANES), np.nan)
    total, shift = np.full((n, p * (p + 1) // 2, LANES), np.nan), np.full((n, p, LANES), np.nan)
    for lo, hi in ((0, 2), (2, n)):
        kernels.sum_by_item(p, start, period, Q, h, *constants(links), total, shift, lo, hi)
    args = (p, total, shift, parameters(x), x)
    kernels.item_quadratics(*args, acc, 0, n)
    kernels.item_quadratics_value(*args, value_alone, 0, n)
    np.testing.assert_allclose(value_alone, acc[:, 0], rtol=1e-12)
    part = np.full((2, *acc.shape[1:]), np.nan)
    kernels.item_quadratics(*args, part, 3, 5)
    np.testing.assert_array_equal(part, acc[3:5])
    for j in range(n):
        for lane in (0, LANES - 1):
            expected, gradient, information = 0.0, np.zeros(p), np.zeros((p, p))
            for f in range(start[j], start[j + 1]):
                assert item[f] == j
                link = links[period[f], :, lane]
                phi = phi_seen(x[j, :, lane], link)
                J = jacobian(lambda xi, link=link: phi_seen(xi, link), x[j, :, lane])
                expected += value(Q[f], h[f], phi)
                gradient += J.T @ (h[f] - Q[f] @ phi)
                information += J.T @ Q[f] @ J
            size = 1.0 + np.abs(information).max()
            assert acc[j, 0, lane] == pytest.approx(expected, abs=1e-5 * size)
            np.testing.assert_allclose(acc[j, 1 : 1 + p, lane], gradient, atol=1e-5 * size)
            np.testing.assert_allclose(acc[j, 1 + p :, lane], information[np.tril_indices(p)], atol=1e-5 * size)


@pytest.mark.parametrize("p", [2, 3, 5])
def test_items_added_up_on_the_reference_metric(p):
    start, _, period, Q, h, x, links = some_factors(p, seed=4)
    n = x.shape[0]
    total, shift = np.full((n, p * (p + 1) // 2, LANES), np.nan), np.full((n, p, LANES), np.nan)
    kernels.sum_by_item(p, start, period, Q, h, *constants(links), total, shift, 0, n)
    lane = 5
    for j in range(n):
        of = slice(start[j], start[j + 1])
        log_A, B = links[period[of], :, lane].T
        moved, pull = metric.move_factor(Q[of], h[of], np.exp(log_A), B)
        np.testing.assert_allclose(total[j, :, lane], moved.sum(axis=0)[np.tril_indices(p)], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(shift[j, :, lane], pull.sum(axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("p", [2, 4])
def test_links(p):
    """All factors of a period are one quadratic in (A, B): the same differences as the factors themselves."""
    _, item, period, Q, h, x, links = some_factors(p, seed=2)
    weight = np.random.default_rng(3).uniform(0.0, 1.0, item.size)
    sums = np.zeros((PERIODS, 5, LANES))
    args = (p, item, period, weight, Q, h, parameters(x), x)
    half = item.size // 2
    kernels.sum_by_period(*args, sums, 0, half)
    kernels.sum_by_period(*args, sums, half, item.size)

    def factors(m, lane, link):
        mine = np.flatnonzero(period == m)
        return sum(weight[f] * value(Q[f], h[f], phi_seen(x[item[f], :, lane], link)) for f in mine)

    def quadratic(S, link):
        A, B = np.exp(link[0]), link[1]
        return -0.5 * (S[0] * A * A + 2 * S[1] * A * B + S[2] * B * B) + S[3] * A + S[4] * B

    for lane in (1, 6):
        for m in range(PERIODS):
            at = links[m, :, lane]
            for step in ([0.3, 0.0], [0.0, 0.7], [-0.4, 0.5], [0.2, -0.9]):
                other = at + np.array(step)
                expected = factors(m, lane, other) - factors(m, lane, at)
                got = quadratic(sums[m, :, lane], other) - quadratic(sums[m, :, lane], at)
                assert got == pytest.approx(expected, rel=1e-4, abs=1e-4)
