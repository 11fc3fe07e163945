"""Passes over quadratic factors seen through links, against phi written out: values, slopes, J'QJ."""

import numpy as np
import pytest

from concal import metric
from concal.calibrate import kernels
from concal.response.lanes import LANES

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
    acc, total = np.full((n, 1 + p + p * (p + 1) // 2, LANES), np.nan), np.full((n, LANES), np.nan)
    args = (p, start, period, Q, h, *constants(links), parameters(x), x)
    kernels.item_quadratics(*args, acc, 0, n)
    kernels.item_quadratics_value(*args, total, 0, n)
    np.testing.assert_allclose(total, acc[:, 0], rtol=1e-12)
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


@pytest.mark.parametrize("p", [2, 4])
def test_links(p):
    _, item, period, Q, h, x, links = some_factors(p, seed=2)
    weight = np.random.default_rng(3).uniform(0.0, 1.0, item.size)
    acc = np.zeros((PERIODS, 6, LANES))
    args = (p, item, period, weight, Q, h, *constants(links), parameters(x), x)
    half = item.size // 2
    kernels.link_quadratics(*args, acc, 0, half)
    kernels.link_quadratics(*args, acc, half, item.size)
    for lane in (1, 6):
        for m in range(PERIODS):
            expected, gradient, information = 0.0, np.zeros(2), np.zeros((2, 2))
            for f in np.flatnonzero(period == m):
                xi = x[item[f], :, lane]
                phi = phi_seen(xi, links[m, :, lane])
                J = jacobian(lambda link, xi=xi: phi_seen(xi, link), links[m, :, lane])
                expected += weight[f] * value(Q[f], h[f], phi)
                gradient += weight[f] * J.T @ (h[f] - Q[f] @ phi)
                information += weight[f] * J.T @ Q[f] @ J
            size = 1.0 + np.abs(information).max()
            assert acc[m, 0, lane] == pytest.approx(expected, abs=1e-5 * size)
            np.testing.assert_allclose(acc[m, 1:3, lane], gradient, atol=1e-5 * size)
            np.testing.assert_allclose(acc[m, 3:, lane], information[np.tril_indices(2)], atol=1e-5 * size)
