"""Draws that stay where they are: some are taken at a time, and of one dimension only."""

from dataclasses import replace
from functools import partial

import numpy as np

from concal.linking import stored
from concal.linking.anchors import period_source
from concal.linking.criteria import Anchors
from concal.linking.period import link_sources
from concal.linking.stored import Chosen, StoredAnchors
from concal.response import make_model
from concal.spec import LinkingSpec


def test_some_at_a_time_is_all_at_once(monkeypatch):
    monkeypatch.setattr(stored, "ITEMS_AT_A_TIME", 4)
    rng, model = np.random.default_rng(1), make_model("2pl")
    xi = [rng.normal(size=(30, 20, 2)).astype(np.float32) for _ in range(2)]
    items = [rng.permutation(20)[:11] for _ in range(2)]
    draws = [rng.permutation(30)[:25] for _ in range(2)]
    sides = [x[np.ix_(d, i)] for x, d, i in zip(xi, draws, items, strict=True)]
    whole = Anchors(model, model, *sides, np.ones(11))
    kept = StoredAnchors(model, model, *map(Chosen, xi, draws, items), np.ones(11))
    assert kept.n_draws == whole.n_draws == 25
    for some in (slice(3, 9), np.array([7, 2, 24])):
        one, other = kept.take(some), whole.take(some)
        np.testing.assert_array_equal(one.ref, other.ref)
        np.testing.assert_array_equal(one.foc, other.foc)
    for k in range(2):
        np.testing.assert_array_equal(kept.ref_at(k), whole.ref_at(k))
        np.testing.assert_array_equal(kept.foc_at(k), whole.foc_at(k))
    np.testing.assert_allclose(kept.mean.ref, whole.mean.ref, rtol=1e-12)
    np.testing.assert_allclose(kept.mean.foc, whole.mean.foc, rtol=1e-12)


def test_a_link_reads_the_draws_of_a_group_once(make_calibration, make_items):
    items = {
        "words": ("reading", *make_items(20, prefix="w")),
        "sounds": ("listening", *make_items(20, prefix="s", seed=2)),
        "alone": ("listening", *make_items(5, prefix="only")),
    }
    read: list[str] = []

    def counted(source, leaves_out=()):
        def draws(g):
            read.append(f"{source.name}: {g.name}")
            return g.draws()

        groups = tuple(replace(g, draws=partial(draws, g)) for g in source.groups if g.name not in leaves_out)
        return replace(source, groups=groups)

    ref = counted(period_source(make_calibration("Q1", items)), leaves_out=("alone",))
    foc = counted(period_source(make_calibration("Q2", items, A=1.2, B=0.3, seed=3)))
    link_sources(foc, ref, spec=LinkingSpec(min_anchors=5))
    assert sorted(read) == ["Q1: sounds", "Q1: words", "Q2: sounds", "Q2: words"], "no group without anchors"
    assert {name.split(": ")[1] for name in read[:2]} in ({"words"}, {"sounds"}), "a dimension at a time"
