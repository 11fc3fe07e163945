"""Items judged by their tables beside items judged by quadratics: each against its factors written out."""

from types import SimpleNamespace

import numpy as np
import pytest
from exact_periods import arranged, exact_period, factor_of, prior_of

from concal import metric
from concal.calibration.kernels import LANES
from concal.calibration.workers import Workers
from concal.consensus.factors.remainder import Tables
from concal.consensus.joint import likelihood as module
from concal.consensus.joint.arrange import GroupTables
from concal.consensus.joint.likelihood import MOST_MISSED, Factors
from concal.consensus.joint.state import JointState
from concal.response import make_model

LINKS = [(1.0, 0.0), (1.15, 0.25)]
JUDGED = [1, 2, 4]


def several(model, n_items=5):
    """Items in two periods (the last item in one alone), by item, and their factors."""
    truth, sigma = prior_of(model)
    shift = np.linspace(-0.8, 0.8, n_items)
    seen = [[0, 1]] * (n_items - 1) + [[1]]
    factors = [
        [factor_of(exact_period(model, truth + shift[j] * np.sqrt(np.diag(sigma)), 40, [j, m], *LINKS[m])) for m in own]
        for j, own in enumerate(seen)
    ]
    parts = [vars(arranged(own)) for own in factors]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in ("Q", "h")}
    joined["tables"] = Tables(*map(np.concatenate, zip(*(part["tables"] for part in parts), strict=True)))
    item = np.repeat(np.arange(n_items, dtype=np.int32), [len(own) for own in seen])
    joined |= {"rows": np.arange(n_items), "item": item, "period": np.concatenate(seen).astype(np.int32)}
    joined["start"] = np.searchsorted(item, np.arange(n_items + 1)).astype(np.int64)
    return factors, GroupTables(**joined)


@pytest.mark.parametrize("name", ["2pl", "3pl", "ordered_beta"])
def test_every_item_is_judged_by_its_own_factors(name, monkeypatch):
    model = make_model(name)
    mean, sigma = prior_of(model)
    factors, tables = several(model)
    n, p = len(factors), mean.size
    g = SimpleNamespace(model=model, p=p, n_items=n, dim=0, item_chunks=((0, 2), (2, n)))
    likelihood, workers = Factors([g], [tables]), Workers(1)
    link = np.array([[np.log(A), B] for A, B in LINKS])
    likelihood.relocate(0, np.tile(mean, (n, 1)), np.tile(0.1 * sigma, (n, 1, 1)), link, workers)
    monkeypatch.setattr(module, "AFFORDED", 0)
    likelihood.missed[0] = np.where(np.isin(np.arange(n), JUDGED), 1.01, 0.99) * MOST_MISSED
    likelihood.judge()
    state = JointState(1, [], np.repeat(link[None, :, :, None], LANES, axis=3), [])
    state.refresh_links()
    likelihood.see_through(state, workers)
    x = mean[:, None] + 0.3 * np.sqrt(np.diag(sigma))[:, None] * np.random.default_rng(1).normal(size=(n, p, LANES))
    for lo, hi in ((0, n), (0, 2), (1, 4), (3, 4)):
        par = np.zeros((n, 1, LANES), np.float32)
        par[lo:hi] = likelihood.parameters(0, x, lo, hi)
        value, acc = np.empty((hi - lo, LANES)), np.empty((hi - lo, 1 + p + p * (p + 1) // 2, LANES))
        likelihood.log_likelihood(state, 0, x, par, value, lo, hi)
        likelihood.accumulate(state, 0, x, par, likelihood.jacobian(0, x, lo, hi), acc, lo, hi)
        np.testing.assert_array_equal(acc[:, 0], value)
        for j in range(lo, hi):
            phi = metric.phi_of(x[j].T)
            if j in JUDGED:
                wanted = sum(factor.table(phi) for factor in factors[j])
            else:
                wanted = np.zeros(LANES)
                for f in range(tables.start[j], tables.start[j + 1]):
                    own = metric.own_phi(phi, *LINKS[tables.period[f]])
                    Q, h = likelihood.Q[0][f], likelihood.h[0][f]
                    wanted += own @ h - 0.5 * np.einsum("na,ab,nb->n", own, Q, own)
            np.testing.assert_allclose(value[j - lo], wanted, rtol=2e-5, atol=2e-4)


def test_an_item_is_judged_by_its_tables_where_quadratics_miss_too_much(monkeypatch):
    monkeypatch.setattr(module, "AFFORDED", 0)
    model = make_model("3pl")
    mean, sigma = prior_of(model)
    _, tables = several(model)
    g = SimpleNamespace(model=model, p=mean.size, n_items=5, dim=0)
    likelihood = Factors([g], [tables])
    link = np.array([[np.log(A), B] for A, B in LINKS])
    narrow, wide = 1e-4 * sigma, sigma  # quadratics are as good as exact over the first, not over the second
    likelihood.relocate(0, np.tile(mean, (5, 1)), np.stack([narrow, wide, narrow, wide, narrow]), link, Workers(1))
    likelihood.judge()
    np.testing.assert_array_equal(likelihood.by_tables[0].items, [1, 3])
    assert likelihood.by_tables[0].tables.n_factors == 4


def test_as_many_tables_as_can_be_afforded_are_looked_at(monkeypatch):
    """Those missed most, over all groups; in a small bank all of them."""
    model = make_model("2pl")
    _, tables = several(model)
    g = SimpleNamespace(model=model, p=2, n_items=5, dim=0)
    likelihood = Factors([g, g], [tables, tables])
    likelihood.missed = [MOST_MISSED * np.array([0.1, 0.9, 0.2, 0.8, 0.0]), MOST_MISSED * np.array([0, 1.1, 0, 0.7, 0])]
    sizes = np.diff(tables.start)
    monkeypatch.setattr(module, "AFFORDED", int(sizes[1] + sizes[1] + sizes[3]))
    likelihood.judge()
    assert [part.items.tolist() for part in likelihood.by_tables.values()] == [[1, 3], [1]]
    monkeypatch.undo()
    likelihood.judge()
    assert [part.items.tolist() for part in likelihood.by_tables.values()] == [[0, 1, 2, 3, 4]] * 2
