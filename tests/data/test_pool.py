"""Pooling: items are shared, examinees are not, features must agree."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from concal.data.check import check_period
from concal.data.pool import pool_periods
from concal.errors import DataError


@pytest.fixture
def periods(two_group_spec, two_group_items, two_group_responses):
    first = check_period(
        two_group_responses.filter(~pl.col("item_id").is_in(["v6", "s2"])),
        two_group_items,
        two_group_spec,
        period="2026Q1",
    )
    second = check_period(
        two_group_responses.filter((pl.col("item_id") != "v1") & (pl.col("person_id") != "p4")),
        two_group_items,
        two_group_spec,
        period="2026Q2",
        design_states=first.design_states,
    )
    return {"2026Q1": first.data, "2026Q2": second.data}


def answers(data, period):
    """(person row within its period, item, score) of one population."""
    k = data.populations.index(period)
    start = int(np.flatnonzero(data.population == k)[0])
    return sorted(
        (int(p) - start, group.item_ids[i], float(s))
        for group in data.groups.values()
        for p, i, s in zip(group.person, group.item, group.score, strict=True)
        if data.population[p] == k
    )


@pytest.mark.parametrize("reference", ["2026Q1", "2026Q2"])
def test_every_response_is_kept_in_its_population(periods, reference):
    pooled = pool_periods(periods, reference)
    assert pooled.populations[0] == reference
    assert pooled.n_responses == sum(data.n_responses for data in periods.values())
    assert pooled.person_ids.len() == 7
    assert np.bincount(pooled.population).tolist() == [periods[p].person_ids.len() for p in pooled.populations]
    for period, data in periods.items():
        assert answers(pooled, period) == answers(data, period)


def test_items_are_united_with_their_features(periods):
    group = pool_periods(periods, "2026Q1").groups["vocabulary"]
    assert group.item_ids == ("v1", "v2", "v3", "v4", "v5", "v6")
    assert np.isfinite(group.X).all()
    second = periods["2026Q2"].groups["vocabulary"]
    np.testing.assert_array_equal(group.X[5], second.X[second.item_ids.index("v6")])


def test_different_features_of_one_item_are_refused(periods):
    second = periods["2026Q2"]
    group = second.groups["vocabulary"]
    X = group.X.copy()
    X[2, 1] += 1.0
    changed = {**second.groups, "vocabulary": dataclasses.replace(group, X=X)}
    periods["2026Q2"] = dataclasses.replace(second, groups=changed)
    with pytest.raises(DataError, match=f"features of 1 item differ.*'2026Q2'.*{group.item_ids[2]!r}"):
        pool_periods(periods, "2026Q1")


def test_different_columns_are_refused(periods):
    second = periods["2026Q2"]
    group = dataclasses.replace(second.groups["vocabulary"], features=("1", "a", "b"))
    periods["2026Q2"] = dataclasses.replace(second, groups={**second.groups, "vocabulary": group})
    with pytest.raises(DataError, match="features differs between periods"):
        pool_periods(periods, "2026Q1")


def test_unknown_reference(periods):
    with pytest.raises(DataError, match="reference '2027Q1' is not among the periods '2026Q1', '2026Q2'"):
        pool_periods(periods, "2027Q1")
