"""Response tables against loops over responses."""

import numpy as np
import pytest
from programme import MODELS, simulate_period

from concal.calibration import tables
from concal.calibration.layout import lay_out, runs
from concal.calibration.others import Told
from concal.calibration.tables import BINS, response_table


def period_of(model, n_persons=60, n_items=9, per_person=6, seed=4):
    data, _, _ = simulate_period([("g", "reading", model, n_items, per_person)], n_persons, seed=seed)
    g = lay_out(data).groups[0]
    return data.groups["g"], g, told_of(g, n_persons)


def told_of(g, n_persons, seed=4):
    """Any abilities."""
    rng = np.random.default_rng(seed)
    mean, sd = rng.normal(size=n_persons)[g.item_person], rng.uniform(0.3, 0.6, g.item_person.size)
    return Told(mean.astype(np.float32), sd.astype(np.float32))


@pytest.mark.parametrize("model", MODELS, ids=[m[0] for m in MODELS])
@pytest.mark.parametrize("bins", [BINS, 3])
def test_tables_are_what_a_loop_counts(model, bins):
    group, g, told = period_of(model)
    table = response_table(g, told, bins)
    response = group.model
    atoms = response.encode_score(np.array(response.atoms)).astype(np.float32)
    assert table.cell_count.shape == (g.n_items, bins, atoms.size + response.levels)
    for j in range(g.n_items):
        mine = slice(g.item_start[j], g.item_start[j + 1])
        score, n = g.item_score[mine], mine.stop - mine.start
        m, s = (values[mine].astype(float) for values in told)
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
    _, g, told = period_of(MODELS[0])
    whole = response_table(g, told)
    monkeypatch.setattr(tables, "_TABLED", int(np.diff(g.item_start).max()) + 1)
    assert len(runs(g.item_start, tables._TABLED, g.n_items)) > 2
    for one, other in zip(whole, response_table(g, told), strict=True):
        np.testing.assert_array_equal(one, other)


def test_few_and_no_responses():
    """An item with three responses has three bins, one without none; bins in use come first."""
    data, _, _ = simulate_period([("g", "reading", ("2pl", None), 4, 4)], 30)
    group = data.groups["g"]
    keep = (group.item > 1) | ((group.item == 1) & (group.person < 3))
    small = type(group)(
        "g", "reading", group.model, group.item_ids, group.features, group.X,
        group.person[keep], group.item[keep], group.score[keep],
    )  # fmt: skip
    g = lay_out(type(data)("q", data.dimensions, data.person_ids, {"g": small}, ("q",), data.population)).groups[0]
    table = response_table(g, told_of(g, 30))
    used = (table.cell_count.sum(axis=2) > 0).sum(axis=1)
    np.testing.assert_array_equal(used, [0, 3, BINS, BINS])
    np.testing.assert_array_equal(table.cell_count[1, :3].sum(axis=1), 1.0)
    for values in table:
        assert np.isfinite(values).all()
    assert (np.diff(table.bin_mean[2]) > 0).all()
