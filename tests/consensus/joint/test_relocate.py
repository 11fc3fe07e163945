"""Tables as quadratics: cubature points, the linearisation against least squares written out, arranged factors."""

from dataclasses import replace

import numpy as np
import pytest
from exact_periods import arranged, exact_period, factor_of, prior_of, table_value
from phi_worlds import changed, phi_world

from concal import metric
from concal.calibration.workers import Workers
from concal.consensus.analytic.forms import unite_forms
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.factors.linearise import cubature
from concal.consensus.joint.arrange import MOST_BINS, arrange, faded, group_layout
from concal.consensus.joint.relocate import relocate
from concal.response import make_model

LINKS = [(1.0, 0.0), (1.15, 0.25)]


def test_cubature_points_have_the_moments():
    rng = np.random.default_rng(1)
    for p in (2, 3, 5):
        root = rng.normal(size=(4, p, p))
        covariance, mean = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(p), rng.normal(size=(4, p))
        points = cubature(mean, covariance)
        assert points.shape == (2 * p, 4, p)
        np.testing.assert_allclose(points.mean(axis=0), mean, atol=1e-12)
        z = points - mean
        np.testing.assert_allclose(np.einsum("kja,kjb->jab", z, z) / (2 * p), covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "categories"), [("2pl", None), ("grm", 4), ("ordered_beta", None)])
def test_linearisation_is_least_squares_of_gradients(name, categories):
    model = make_model(name, categories)
    prior, sigma = prior_of(model)
    p = prior.size
    periods = [exact_period(model, prior, 60, [3, m], *LINKS[m]) for m in range(2)]
    factors = [factor_of(period) for period in periods]
    mean, covariance = prior + 0.1, 0.04 * np.diag(np.diag(sigma)) / 0.1 * 0.5
    link = np.array([[np.log(A), B] for A, B in LINKS])
    Q, h, _ = relocate(model, arranged(factors), mean[None], covariance[None], link, Workers(1))
    for m, (A, B) in enumerate(LINKS):
        points = metric.move_items(cubature(mean[None], covariance[None])[:, 0], 1.0 / A, -B / A)
        phi, step = metric.phi_of(points), 2e-3

        def value(phi, m=m):
            padded = np.concatenate([phi, np.repeat(phi[:1], -phi.shape[0] % 8, axis=0)])
            return table_value(periods[m].group, metric.xi_of(padded))[: phi.shape[0]]

        l = np.stack([(value(phi + step * e) - value(phi - step * e)) / (2 * step) for e in np.eye(p)], axis=1)
        z, y = phi - phi.mean(axis=0), l - l.mean(axis=0)
        slope = -np.linalg.solve(z.T @ z, z.T @ y)
        slope = 0.5 * (slope + slope.T)
        if np.linalg.eigvalsh(slope)[0] > 0:  # otherwise what is negative was set to zero
            np.testing.assert_allclose(Q[m], slope + factors[m].dQ, rtol=0.02, atol=0.02 * np.abs(slope).max())
            shift = l.mean(axis=0) + slope @ phi.mean(axis=0) + factors[m].dh
            np.testing.assert_allclose(h[m], shift, rtol=0.02, atol=0.02 * np.abs(shift).max())
        assert np.linalg.eigvalsh(Q[m])[0] > -1e-6


def test_blocks_and_factors_without_a_table(monkeypatch):
    model = make_model("2pl")
    factors = [factor_of(exact_period(model, prior_of(model)[0], 40, [4, m], *LINKS[m])) for m in range(2)]
    tables = arranged(factors)
    link = np.array([[np.log(A), B] for A, B in LINKS])
    at = np.zeros((1, 2)), 0.05 * np.eye(2)[None]
    whole = relocate(model, tables, *at, link, Workers(1))
    monkeypatch.setattr("concal.consensus.joint.relocate.BLOCK", 1)
    for a, b in zip(relocate(model, tables, *at, link, Workers(1)), whole, strict=True):
        np.testing.assert_array_equal(a, b)
    bins = np.array([0, tables.tables.bins[1]], np.int32)
    bare = replace(tables, tables=tables.tables._replace(bins=bins))
    Q, h, _ = relocate(model, bare, *at, link, Workers(1))
    np.testing.assert_array_equal(Q[0], tables.Q[0])
    np.testing.assert_array_equal(h[0], tables.h[0])
    np.testing.assert_array_equal(Q[1], whole[0][1])


def test_factors_are_arranged_by_item_and_period():
    world = phi_world(seed=3, n_items=12)
    quiet = world.placed[1].factors.groups["g"].n_responses.copy()
    quiet[2] = 0
    placed = [world.placed[0], changed(world.placed[1], n_responses=quiet), world.placed[2]]
    evidence = unite_forms(sum_periods(placed).forms("g"))
    whole = arrange(placed, evidence, {})
    tables = faded(whole, len(placed), 2.0)
    seen = [(item, m) for m, p in enumerate(placed) for item, n in zip(*answered(p), strict=True) if n]
    assert tables.n_factors == len(seen)
    for f in range(tables.n_factors):
        item, m = evidence.item_ids[tables.rows[tables.item[f]]], int(tables.period[f])
        group = placed[m].factors.groups["g"]
        weight = 0.5 ** ((2 - m) / 2.0)
        np.testing.assert_array_equal(whole.Q[f], group.Q[group.item_ids.index(item)])
        np.testing.assert_allclose(tables.Q[f], weight * whole.Q[f])
        np.testing.assert_allclose(tables.h[f], weight * whole.h[f])
        count, faint = whole.tables.cell_count[f], tables.tables.cell_count[f]
        np.testing.assert_allclose(faint, np.float32(weight) * count, rtol=1e-6)
        seen.remove((item, m))
    assert not seen
    for j in range(tables.rows.size):
        assert (tables.item[tables.start[j] : tables.start[j + 1]] == j).all()
        assert (np.diff(tables.period[tables.start[j] : tables.start[j + 1]]) > 0).all()
    assert tables.tables.bin_mean.shape == (tables.n_factors, MOST_BINS)
    assert not tables.tables.bins.any()
    g = group_layout(evidence, tables, 0)
    assert g.item_chunks == ((0, tables.rows.size),)
    summed = tables.sum_by_item(tables.h)
    np.testing.assert_allclose(summed[3], tables.h[tables.start[3] : tables.start[4]].sum(axis=0))


def answered(placed):
    group = placed.factors.groups["g"]
    return group.item_ids, group.n_responses
