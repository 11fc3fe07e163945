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


def slow_value(model, tables, j, phi):
    """l_T(phi): cell by cell, the mean of the likelihood over the three nodes of the bin, in float64."""
    bins, mean, sd, score, count = tables
    xi = metric.xi_of(phi)
    par = np.moveaxis(model.kernel_parameters(xi[None]), -1, 0)
    total = 0.0
    for b in range(bins[j]):
        for k in range(count.shape[2]):
            if count[j, b, k]:
                terms = []
                for z in NODES:
                    eta = par[0] * (float(mean[j, b]) + float(sd[j, b]) * z - par[1])
                    y = np.array([float(score[j, b, k])])
                    terms.append(model_kernels(model.tag).log_terms(model.tag, y, eta, par)[0][0])
                total += float(count[j, b, k]) * special.logsumexp(terms, b=WEIGHTS)
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
                slope = (slow_value(model, tables, j, phi + step) - slow_value(model, tables, j, phi - step)) / (2 * h)
                assert gradient[j, u, lane] == pytest.approx(slope, rel=1e-3, abs=1e-4 * size)
                moved = (
                    slow_value(model, tables, j, metric.phi_of(x[j, :, lane] + step))
                    - slow_value(model, tables, j, metric.phi_of(x[j, :, lane] - step))
                ) / (2 * h)
                assert acc[j, 1 + u, lane] == pytest.approx(moved, rel=1e-3, abs=1e-4 * size)


def test_information_is_the_responses_expected_one_shared_among_the_nodes(model):
    """Each node's expected information, weighted by its share in the cell's likelihood."""
    tables = some_tables(model)
    bins, mean, sd, score, count = tables
    n, p = 4, len(model.parameters)
    x = some_items(model, n, seed=5)
    acc = table_accumulators(model, tables, x)
    from concal.response.base import _chain_rule, n_extra_outputs

    lane = 3
    for j in range(n):
        xi = x[j, :, lane]
        par = np.moveaxis(model.kernel_parameters(np.tile(xi, (3, 1))), -1, 0)
        expected = np.zeros((p, p))
        for b in range(bins[j]):
            eta = par[0] * (float(mean[j, b]) + float(sd[j, b]) * NODES - par[1])
            for k in range(count.shape[2]):
                if not count[j, b, k]:
                    continue
                out = np.zeros((n_extra_outputs(p - 2), 3))
                y = np.full(3, float(score[j, b, k]))
                ll, g, w = model_kernels(model.tag).extra_terms(model.tag, y, eta, par, out)
                share = special.softmax(ll + np.log(WEIGHTS))
                found = _chain_rule(par[0], eta, ll, g, w, out, model.extras_jacobian(np.tile(xi, (3, 1))))
                expected += float(count[j, b, k]) * np.einsum("n,nab->ab", share, found.xi_information)
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
