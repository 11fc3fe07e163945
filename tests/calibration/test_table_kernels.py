"""Passes over response tables against sums written out with SciPy, for every response model."""

import numpy as np
import pytest
from programme import MODELS
from scipy import special

from concal import metric
from concal.calibration import kernels
from concal.calibration.kernels import LANES
from concal.consensus.factors.remainder import table_terms, used_bins
from concal.response import make_model
from concal.response.registry import kernels as model_kernels

NODES, WEIGHTS = np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0]), np.array([1.0, 4.0, 1.0]) / 6.0


@pytest.fixture(params=MODELS, ids=[m[0] for m in MODELS])
def model(request):
    return make_model(*request.param)


def some_tables(model, n=4, bins=5, seed=1):
    """Tables (bins in use, means, SDs, scores, counts) with empty cells and empty bins, float32 as stored."""
    rng = np.random.default_rng(seed)
    atoms = model.encode_score(np.array(model.atoms))
    cells = atoms.size + model.levels
    score = np.zeros((n, bins, cells))
    score[..., : atoms.size] = atoms
    score[..., atoms.size :] = rng.normal(0.0, 1.2, (n, bins, model.levels))
    count = rng.integers(0, 12, (n, bins, cells)).astype(float)
    used = rng.integers(1, bins + 1, n)
    used[0] = bins
    count[np.arange(bins)[None, :] >= used[:, None]] = 0.0
    count[:, 0, 0] = 3.0
    mean = np.sort(rng.normal(0.0, 1.0, (n, bins)), axis=1)
    sd = rng.uniform(0.2, 0.7, (n, bins))
    values = tuple(v.astype(np.float32) for v in (mean, sd, score, count))
    return used_bins(values[3]), *values


def some_items(model, n, seed=2):
    rng = np.random.default_rng(seed)
    prior = model.prior
    p = len(model.parameters)
    return np.array(prior.mean)[None, :, None] + np.array(prior.sd)[None, :, None] * rng.normal(size=(n, p, LANES))


def nodes_of(model, y, middle, spread, par):
    """Nodes in SDs of the bin and the logarithms of their weights, for a score in a bin N(middle, spread) of eta."""
    aim = model_kernels(model.tag).aim
    place, w = (0.0, 0.0) if aim is None else (float(v[0]) for v in aim(model.tag, np.array([y]), par))
    r2 = 1.0 / (1.0 + w * spread**2)
    x = r2 * spread * w * (place - middle) + np.sqrt(r2) * NODES
    return x, np.log(WEIGHTS) + 0.5 * (NODES**2 - x**2) + 0.5 * np.log(r2)


def cells(tables, j):
    """(bin mean, bin SD, score, count) of the cells in use."""
    bins, mean, sd, score, count = tables
    for b in range(bins[j]):
        for k in np.flatnonzero(count[j, b]):
            yield (float(v) for v in (mean[j, b], sd[j, b], score[j, b, k], count[j, b, k]))


def slow_value(model, tables, j, phi, nodes_at=None):
    """l_T(phi): cell by cell, the mean of the likelihood over the bin's nodes, in float64; nodes as for `nodes_at`."""
    xi, total = metric.xi_of(phi), 0.0
    par = np.moveaxis(model.kernel_parameters(xi[None]), -1, 0)
    aimed = par if nodes_at is None else np.moveaxis(model.kernel_parameters(metric.xi_of(nodes_at)[None]), -1, 0)
    for mu, sigma, y, n in cells(tables, j):
        x, weight = nodes_of(model, y, float(aimed[0, 0] * (mu - aimed[1, 0])), float(aimed[0, 0]) * sigma, aimed)
        at = [par[0] * (mu + sigma * z - par[1]) for z in x]
        ll = [model_kernels(model.tag).log_terms(model.tag, np.array([y]), eta, par)[0][0] for eta in at]
        total += n * special.logsumexp(np.array(ll) + weight)
    return total


def table_accumulators(model, tables, x):
    """What the kernels give at items x (tables, p, LANES)."""
    n, p = x.shape[:2]
    items = np.moveaxis(x, 1, 2)
    par = np.ascontiguousarray(np.moveaxis(model.kernel_parameters(items), 2, 1), dtype=np.float32)
    acc = np.full((n, 1 + p + p * (p + 1) // 2, LANES), np.nan)
    if model.extras:
        jacobian = np.ascontiguousarray(np.moveaxis(model.extras_jacobian(items), 1, 3))
        kernels.table_pass_extras(model.tag, *tables, par, jacobian, acc, 0, n)
    else:
        kernels.table_pass(model.tag, *tables, par, acc, 0, n)
    return acc


def test_value_and_gradient_are_those_of_a_plain_sum(model):
    tables = some_tables(model)
    n, p = 4, len(model.parameters)
    x = some_items(model, n)
    acc, gradient = table_accumulators(model, tables, x), table_terms(model, tables, x)[1]
    for j in range(n):
        size = 1.0 + float(tables[4][j].sum())
        for lane in (0, LANES - 1):
            phi = metric.phi_of(x[j, :, lane])
            assert acc[j, 0, lane] == pytest.approx(slow_value(model, tables, j, phi), abs=1e-5 * size)
            h = 1e-5
            for u in range(p):
                step = h * np.eye(p)[u]
                ahead, behind = (slow_value(model, tables, j, phi + way * step, phi) for way in (1, -1))
                slope = (ahead - behind) / (2 * h)
                assert gradient[j, u, lane] == pytest.approx(slope, rel=1e-3, abs=1e-4 * size)
                ahead, behind = (
                    slow_value(model, tables, j, metric.phi_of(x[j, :, lane] + way * step), phi) for way in (1, -1)
                )
                moved = (ahead - behind) / (2 * h)
                assert acc[j, 1 + u, lane] == pytest.approx(moved, rel=1e-3, abs=1e-4 * size)


def test_information_is_the_responses_expected_one_shared_among_the_nodes(model):
    """Each node's expected information, weighted by its share in the cell's likelihood."""
    tables = some_tables(model)
    count = tables[4]
    n, p = 4, len(model.parameters)
    x = some_items(model, n, seed=5)
    acc = table_accumulators(model, tables, x)
    from concal.response.base import _chain_rule, n_extra_outputs

    lane = 3
    for j in range(n):
        xi = x[j, :, lane]
        par = np.moveaxis(model.kernel_parameters(np.tile(xi, (3, 1))), -1, 0)
        expected = np.zeros((p, p))
        for mu, sigma, score, many in cells(tables, j):
            at, weight = nodes_of(
                model, score, float(par[0, 0] * (mu - par[1, 0])), float(par[0, 0]) * sigma, par[:, :1]
            )
            eta, y = par[0] * (mu + sigma * at - par[1]), np.full(3, score)
            out = np.zeros((n_extra_outputs(p - 2), 3))
            ll, g, w = model_kernels(model.tag).extra_terms(model.tag, y, eta, par, out)
            share = special.softmax(ll + weight)
            found = _chain_rule(par[0], eta, ll, g, w, out, model.extras_jacobian(np.tile(xi, (3, 1))))
            expected += many * np.einsum("n,nab->ab", share, found.xi_information)
        size = 1.0 + float(count[j].sum())
        got = acc[j, 1 + p :, lane]
        np.testing.assert_allclose(got, expected[np.tril_indices(p)], rtol=2e-3, atol=2e-4 * size)


def test_chunks_and_unused_bins_change_nothing(model):
    tables = some_tables(model)
    x = some_items(model, 4)
    whole = table_accumulators(model, tables, x)
    for j in range(4):
        one = tuple(column[j : j + 1] for column in tables)
        np.testing.assert_array_equal(table_accumulators(model, one, x[j : j + 1])[0], whole[j])
    wider = (
        tables[0],
        *(np.pad(t, [(0, 0), (0, 2), *[(0, 0)] * (t.ndim - 2)], constant_values=1.0) for t in tables[1:]),
    )
    np.testing.assert_array_equal(table_accumulators(model, wider, x), whole)


@pytest.mark.parametrize("log_phi", [0.0, 2.0, 4.0, 6.0])
@pytest.mark.parametrize("name", ["beta", "ordered_beta"])
def test_scores_more_precise_than_their_bin_are_integrated(name, log_phi):
    """Against sums over 4,001 abilities; nodes of the bin alone miss by tens where scores are precise."""
    model, rng = make_model(name), np.random.default_rng(3)
    n, bins, cells_ = 30, 3, len(make_model(name).atoms) + make_model(name).levels
    x = np.repeat(np.array(model.prior.mean)[None, :, None], n, axis=0) + np.zeros((n, 1, LANES))
    x[:, 1], x[:, 2] = np.log(2.0), log_phi
    mean, sd = rng.normal(0.0, 0.7, (n, bins)), rng.uniform(0.1, 0.6, (n, bins))
    ability = mean[:, :, None] + sd[:, :, None] * rng.normal(size=(n, bins, cells_))
    score = 2.0 * ability + rng.normal(0.0, 2.0 * np.exp(-0.5 * log_phi), ability.shape)
    score[..., : len(model.atoms)] = model.encode_score(np.array(model.atoms))
    tables = tuple(v.astype(np.float32) for v in (mean, sd, score, np.ones(score.shape)))
    got = table_accumulators(model, (used_bins(tables[3]), *tables), x)[:, 0, 0]
    z = np.linspace(-8.0, 8.0, 4001)
    par, exact = np.moveaxis(model.kernel_parameters(x[:1, :, 0]), -1, 0), np.zeros(n)
    for j in range(n):
        for mu, sigma, y, _ in cells((np.full(n, bins), *tables), j):
            eta = par[0] * (mu + sigma * z - par[1])
            at = model_kernels(model.tag).log_terms(model.tag, np.full(z.size, y), eta, np.tile(par, z.size))[0]
            exact[j] += special.logsumexp(at - 0.5 * z**2) + np.log((z[1] - z[0]) / np.sqrt(2.0 * np.pi))
    assert np.sqrt(((got - exact) ** 2).mean()) < 0.08
    assert np.abs(got - exact).max() < 0.4
