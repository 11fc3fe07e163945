"""Response tables against loops over responses, and what is left of an ability without one response."""

import numpy as np
import pytest
from programme import MODELS, simulate_period

from concal.calibration import tables
from concal.calibration.layout import lay_out
from concal.calibration.tables import BINS, MOST, NODES, WEIGHTS, response_table, without_own


def period_of(model, n_persons=60, n_items=9, per_person=6, seed=4):
    data, truth, theta = simulate_period([("g", "reading", model, n_items, per_person)], n_persons, seed=seed)
    rng = np.random.default_rng(seed)
    sd = rng.uniform(0.3, 0.6, n_persons)
    return data.groups["g"], lay_out(data).groups[0], truth["g"], theta[:, 0] + 0.3 * rng.normal(size=n_persons), sd


@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
def test_without_own_is_the_definition(model):
    """v- = 1 / (1/v - w), m- = v- (m/v - w m - g), g and -w the mean slope and curvature over the posterior."""
    group, g, xi, mean, sd = period_of(model)
    item = np.repeat(np.arange(g.n_items), np.diff(g.item_start))
    m, s = mean[g.item_person], sd[g.item_person]
    order = np.lexsort((group.person, group.item))
    slopes = [group.model.derivatives(group.score[order], m + s * z, xi[item]).theta_gradient for z in NODES]
    w = -sum(weight * z * slope for weight, z, slope in zip(WEIGHTS, NODES, slopes, strict=True)) / s
    w = np.clip(w, -MOST / s**2, MOST / s**2)
    left = 1.0 / (1.0 / s**2 - w)
    mean_slope = sum(weight * slope for weight, slope in zip(WEIGHTS, slopes, strict=True))
    got = without_own(g, xi[item], g.item_score.astype(float), m, s)
    np.testing.assert_allclose(got[0], left * (m / s**2 - w * m - mean_slope), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got[1], np.sqrt(left), rtol=1e-4)


WITHIN = {"2pl": 0.02, "3pl": 0.02, "gpcm": 0.03, "grm": 0.02, "beta": 0.1, "ordered_beta": 0.1}
"""RMS error in SDs of the ability; posteriors of five beta responses can be far from normal."""


@pytest.mark.parametrize("per_person", [5, 20])
@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
def test_without_own_takes_a_response_out_of_a_posterior(model, per_person):
    """The ability from the other items, by quadrature, is what comes back, in short tests too."""
    group, g, xi, _, _ = period_of(model, n_persons=120, n_items=20, per_person=per_person)
    nodes = np.linspace(-6, 6, 241)
    parts = np.stack(
        [
            group.model.log_likelihood(np.full(nodes.size, s), nodes, np.tile(xi[j], (nodes.size, 1)))
            for j, s in zip(group.item, group.score, strict=True)
        ]
    )

    def moments(log_density):
        weight = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        mean = weight @ nodes
        return mean, np.sqrt(weight @ nodes**2 - mean**2)

    whole = np.zeros((120, nodes.size)) - 0.5 * nodes**2
    np.add.at(whole, group.person, parts)
    mean, sd = moments(whole)
    order = np.lexsort((group.person, group.item))
    expected = moments((whole[group.person] - parts)[order])
    item = np.repeat(np.arange(g.n_items), np.diff(g.item_start))
    got = without_own(g, xi[item], g.item_score.astype(float), mean[g.item_person], sd[g.item_person])
    assert np.sqrt((((got[0] - expected[0]) / expected[1]) ** 2).mean()) < WITHIN[model[0]]
    assert (got[1] / expected[1]).mean() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
@pytest.mark.parametrize("bins", [BINS, 3])
def test_tables_are_what_a_loop_counts(model, bins):
    group, g, xi, mean, sd = period_of(model)
    table = response_table(g, xi, mean, sd, bins)
    response = group.model
    atoms = response.encode_score(np.array(response.atoms)).astype(np.float32)
    assert table.cell_count.shape == (g.n_items, bins, atoms.size + response.levels)
    for j in range(g.n_items):
        mine = slice(g.item_start[j], g.item_start[j + 1])
        person, score = g.item_person[mine], g.item_score[mine]
        n = len(person)
        m, s = without_own(g, np.tile(xi[j], (n, 1)), score.astype(float), mean[person], sd[person])
        order = np.argsort(m, kind="stable")
        used = min(n, bins)
        place = np.empty(n, int)
        place[order] = np.arange(n) * used // n
        for b in range(bins):
            here = place == b
            if b >= used:
                assert table.cell_count[j, b].sum() == 0
                continue
            assert table.bin_mean[j, b] == pytest.approx(m[here].mean())
            spread = (m[here] ** 2 + s[here] ** 2).mean() - m[here].mean() ** 2
            assert table.bin_sd[j, b] == pytest.approx(np.sqrt(spread))
            for k, atom in enumerate(atoms):
                assert table.cell_count[j, b, k] == (score[here] == atom).sum()
                assert table.cell_score[j, b, k] == atom
            inside = np.sort(score[here][~np.isin(score[here], atoms)]).astype(float)
            assert table.cell_count[j, b, atoms.size :].sum() == inside.size
            if inside.size:
                classes = np.arange(inside.size) * min(inside.size, response.levels) // inside.size
                for k in range(response.levels):
                    own = inside[classes == k]
                    assert table.cell_count[j, b, atoms.size + k] == own.size
                    if own.size:
                        assert table.cell_score[j, b, atoms.size + k] == pytest.approx(own.mean(), rel=1e-6)


def test_tables_made_some_items_at_a_time_are_the_same(monkeypatch):
    _, g, xi, mean, sd = period_of(MODELS[0])
    whole = response_table(g, xi, mean, sd)
    monkeypatch.setattr(tables, "_TABLED", int(np.diff(g.item_start).max()) + 1)
    assert len(tables._item_blocks(g)) > 2
    for one, other in zip(whole, response_table(g, xi, mean, sd), strict=True):
        np.testing.assert_array_equal(one, other)


def test_few_and_no_responses():
    """An item with three responses has three bins, one without none; bins in use come first."""
    data, truth, theta = simulate_period([("g", "reading", ("2pl", None), 4, 4)], 30)
    group = data.groups["g"]
    keep = (group.item > 1) | ((group.item == 1) & (group.person < 3))
    small = type(group)(
        "g", "reading", group.model, group.item_ids, group.features, group.X,
        group.person[keep], group.item[keep], group.score[keep],
    )  # fmt: skip
    g = lay_out(type(data)("q", data.dimensions, data.person_ids, {"g": small}, ("q",), data.population)).groups[0]
    table = response_table(g, truth["g"], theta[:, 0], np.full(30, 0.4))
    used = (table.cell_count.sum(axis=2) > 0).sum(axis=1)
    np.testing.assert_array_equal(used, [0, 3, BINS, BINS])
    np.testing.assert_array_equal(table.cell_count[1, :3].sum(axis=1), 1.0)
    for values in table:
        assert np.isfinite(values).all()
    assert (np.diff(table.bin_mean[2]) > 0).all()
