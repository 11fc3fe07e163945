"""Local dependence against loops; calibrated for independent items, and a doubled pair is found."""

import numpy as np
import pytest
from programme import simulate_period

from concal.calibration.fit.dependence import Residuals, dependent_pairs
from concal.calibration.fit.period_fit import fit_period
from concal.calibration.layout import lay_out
from concal.calibration.others import told_by_others


def test_pairs_are_those_of_a_loop():
    rng = np.random.default_rng(1)
    n_items, n_persons = 9, 60
    item, person = np.nonzero(rng.random((n_items, n_persons)) < np.array([0.7] * 8 + [0.2])[:, None])
    found = Residuals(item, person, rng.normal(size=item.size), rng.uniform(0.1, 0.4, item.size))
    got = dependent_pairs(found, n_items, n_persons, common=29, kept=100)
    by = {(i, p): k for k, (i, p) in enumerate(zip(item, person, strict=True))}
    expected = {}
    for i in range(n_items):
        for j in range(i + 1, n_items):
            both = [(by[i, p], by[j, p]) for p in range(n_persons) if (i, p) in by and (j, p) in by]
            if len(both) < 29:
                continue
            z = np.array([found.z[a] * found.z[b] for a, b in both])
            total = sum(z) + sum(found.b[a] * found.b[b] for a, b in both)
            expected[i, j] = (len(both), total / len(both), total / np.sqrt(np.sum(z**2)))
    assert got.tested == len(expected)
    assert 0 < got.tested < 36
    for k, pair in enumerate(zip(got.first, got.second, strict=True)):
        np.testing.assert_allclose((got.n_common[k], got.q3[k], got.t[k]), expected[pair], rtol=1e-9)
    assert np.all(np.diff(got.p_value) >= 0)
    few = dependent_pairs(found, n_items, n_persons, common=1000)
    assert few.tested == few.first.size == 0


def abilities_from(data, xi):
    """Posterior mean and SD of every examinee with known items, by quadrature."""
    nodes = np.linspace(-5, 5, 81)
    total = np.tile(-0.5 * nodes**2, (data.person_ids.len(), 1))
    for name, group in data.groups.items():
        for k, theta in enumerate(nodes):
            ll = group.model.log_likelihood(group.score, np.full(group.score.size, theta), xi[name][group.item])
            total[:, k] += np.bincount(group.person, ll, total.shape[0])
    weight = np.exp(total - total.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    mean = weight @ nodes
    return mean[:, None], np.sqrt(weight @ nodes**2 - mean**2)[:, None]


def fit_of(data, xi, mean, sd):
    layout = lay_out(data)
    told = told_by_others(layout, {name: values[None] for name, values in xi.items()}, mean, sd)
    return fit_period(data, layout, xi, told, sd)


@pytest.mark.parametrize("doubled", [False, True])
def test_independent_items_are_left_alone_and_a_doubled_pair_is_found(doubled):
    groups = [("a", "x", ("2pl", None), 20, 20), ("b", "x", ("gpcm", 4), 10, 10)]
    data, truth, _ = simulate_period(groups, 800, seed=3)
    a = data.groups["a"]
    if doubled:  # whoever solved the first item has solved the second
        own = {p: s for p, j, s in zip(a.person, a.item, a.score, strict=True) if j == 0}
        second = a.item == 1
        a.score[second] = [own[p] for p in a.person[second]]
    mean, sd = abilities_from(data, truth)
    fit = fit_of(data, truth, mean, sd)
    assert fit.n_pairs == 30 * 29 // 2
    t = fit.pairs["t"].to_numpy()
    if doubled:
        first = fit.pairs.row(0, named=True)
        assert {first["item_id"], first["other_id"]} == {"a-000", "a-001"}
        assert first["q3"] > 0.5
    else:
        assert (fit.pairs["q_value"] <= 0.05).sum() == 0
        assert (np.abs(t) > 1.96).sum() < 0.09 * fit.n_pairs  # the 200 largest of 435 are kept
        assert abs(np.median(fit.pairs["q3"].to_numpy())) < 0.03


def test_tables_of_a_period():
    groups = [("a", "x", ("2pl", None), 12, 8), ("b", "y", ("ordered_beta", None), 6, 4)]
    data, truth, theta = simulate_period(groups, 120, seed=5)
    fit = fit_of(data, truth, theta, np.full(theta.shape, 0.4))
    assert fit.items["item_id"].to_list() == [*data.groups["a"].item_ids, *data.groups["b"].item_ids]
    dimension = {item: g.dimension for g in data.groups.values() for item in g.item_ids}
    pairs = fit.pairs.select("item_id", "other_id", "dimension").rows()
    assert pairs
    assert all(dimension[one] == dimension[other] == own for one, other, own in pairs)  # never across dimensions
    assert fit.items["n_responses"].sum() == fit.bins["n_responses"].sum() == data.n_responses
    for group in data.groups.values():
        for j, item in enumerate(group.item_ids):
            own = group.score[group.item == j] / group.model.max_score
            row = fit.items.filter(item_id=item).row(0, named=True)
            assert row["mean_score"] == pytest.approx(own.mean())
            bins = fit.bins.filter(item_id=item)
            assert (bins["observed"] * bins["n_responses"]).sum() == pytest.approx(own.sum())
            assert np.all(np.diff(bins["theta"].to_numpy()) > 0)
