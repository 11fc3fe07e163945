"""Groups of examinees: read, ordered, refused where they contradict themselves."""

import numpy as np
import polars as pl
import pytest

from concal.data.check import check_period
from concal.data.pool import pool_periods
from concal.errors import DataError
from concal.spec import Spec


def spec_with(**data):
    return Spec.parse(
        {
            "bank": {"name": "t", "dimensions": ["x"]},
            "groups": {"g": {"model": "2pl", "dimension": "x"}},
            "data": {"few_responses": 1, **data},
        }
    )


ITEMS = pl.DataFrame({"item_id": ["a", "b", "c"], "group": ["g"] * 3})


def table(prefix="p", groups=("de", "fr", "fr", "it", "fr", "de")):
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "person_id": [f"{prefix}{i}" for i in range(6) for _ in range(3)],
            "item_id": ["a", "b", "c"] * 6,
            "score": rng.integers(0, 2, 18),
            "person_group": [g for g in groups for _ in range(3)],
        }
    )


def test_the_largest_group_sets_the_metric_unless_one_is_named():
    data = check_period(table(), ITEMS, spec_with()).data
    assert data.populations == ("fr", "de", "it")
    assert data.population.tolist() == [1, 0, 0, 2, 0, 1]
    named = check_period(table(), ITEMS, spec_with(reference_group="it")).data
    named_warnings = named.warnings
    assert named.populations == ("it", "fr", "de")
    absent = check_period(table(), ITEMS, spec_with(reference_group="en")).data
    assert absent.populations == data.populations
    told = [text for text in absent.warnings if "reference_group" in text]
    assert told == [
        "no examinee is in the group 'en' that is to set the metric (data.reference_group); the largest sets it, 'fr': "
        "there are 'fr' (3), 'de' (2), 'it' (1)"
    ]
    assert not any("reference_group" in text for text in named_warnings)
    without = check_period(table().drop("person_group"), ITEMS, spec_with(reference_group="en")).data
    assert any("no column person_group, so nobody is in the group 'en'" in text for text in without.warnings)
    assert any("3 examinee groups with fewer than 50" in text for text in data.warnings)


def test_labels_that_differ_by_spelling_are_told():
    groups = ("grade 3", "grade 3 ", "Grade 3", "grade 4", "grade 3", "grade 4")
    found = check_period(table(groups=groups), ITEMS, spec_with()).warnings
    (said,) = [text for text in found if "differ only" in text]
    assert said == (
        "2 pairs of groups of examinees (person_group) that differ only by surrounding blanks or case: 'Grade 3' and "
        "'grade 3', 'grade 3' and 'grade 3 '; each has abilities of its own: if they are the same, write them one way"
    )
    assert not any("differ only" in text for text in check_period(table(), ITEMS, spec_with()).warnings)


def test_a_small_group_that_sets_the_metric_is_told_the_larger_one():
    found = check_period(table(), ITEMS, spec_with(reference_group="it")).warnings
    assert (
        "the group 'it' sets the metric with 1 examinee: its mean and SD, hardly known, are the origin and unit of "
        "everything in the period; the largest group, 'fr' (3), would be better"
    ) in found
    assert not any("sets the metric with" in text for text in check_period(table(), ITEMS, spec_with()).warnings)


def test_wide_tables_other_names_and_none():
    wide = table().pivot(on="item_id", index=["person_id", "person_group"], values="score")
    wide = wide.rename({"person_group": "site"})
    data = check_period(wide, ITEMS, spec_with(person_group="site"), wide=True).data
    assert data.populations == ("fr", "de", "it")
    assert data.n_responses == 18
    plain = check_period(table().drop("person_group"), ITEMS, spec_with(), period="Q1").data
    assert plain.populations == ("Q1",)
    assert not plain.population.any()


@pytest.mark.parametrize(
    ("row", "value", "says"),
    [(4, "it", "1 examinee in several groups"), (4, None, "1 examinee without a person_group")],
)
def test_contradictions_are_refused(row, value, says):
    groups = table()["person_group"].to_list()
    groups[row] = value
    if value is None:
        groups[3:6] = [None] * 3
    with pytest.raises(DataError, match=says):
        check_period(table().with_columns(person_group=pl.Series(groups)), ITEMS, spec_with())


def blocks(**answered) -> pl.DataFrame:
    """Twelve examinees per group; each answers the group's items."""
    rows = [
        (f"{group}{k}", item, (k + j) % 2, group)
        for group, items in answered.items()
        for k in range(12)
        for j, item in enumerate(items)
    ]
    return pl.DataFrame(rows, schema=["person_id", "item_id", "score", "person_group"], orient="row")


def letters(**groups) -> pl.DataFrame:
    """Items of every group of items, one per letter."""
    return pl.DataFrame([(i, g) for g, ids in groups.items() for i in ids], schema=["item_id", "group"], orient="row")


def test_groups_without_common_items_are_refused():
    spec = spec_with(reference_group="three")
    with pytest.raises(DataError) as caught:
        check_period(blocks(three="abcd", four="efgh", five="ghij", six="da"), letters(g="abcdefghij"), spec)
    text = str(caught.value)
    assert "1 problem" in text
    assert (
        "2 groups of examinees (person_group) without an item of dimension 'x' in common with 'three', which sets the "
        "metric, or with groups that have one: 'five' (4 items; 2 with 'four'), 'four' (4 items; 2 with 'five'); "
        "nothing tells how able they are from how hard their items are: give them items in common, or a bank of their "
        "own; leave the column out only where chance has decided who is in which group"
    ) in text


def test_groups_may_hang_together_through_others():
    spec = spec_with(reference_group="three")
    chain = check_period(blocks(three="abcd", four="cdef", five="efgh"), letters(g="abcdefgh"), spec)
    assert chain.data.populations == ("three", "five", "four")
    said = [text for text in chain.warnings if "of examinees tied to" in text]
    assert said == [
        "dimension 'x': 2 groups of examinees tied to 'three', which sets the metric, by fewer than 10 items "
        "(linking.min_anchors): 'five' (2), 'four' (2); their means and SDs are hardly known: give the groups "
        "more items in common"
    ]
    whole = check_period(blocks(three="abcd", four="cd"), letters(g="abcd"), spec)
    assert not any("of examinees tied to" in text for text in whole.warnings), "all they answered is common"


def test_the_reference_group_answers_every_dimension():
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["x", "y"]},
            "groups": {"g": {"model": "2pl", "dimension": "x"}, "h": {"model": "2pl", "dimension": "y"}},
            "data": {"few_responses": 1, "reference_group": "de"},
        }
    )
    items = letters(g="abc", h="uvw")
    with pytest.raises(DataError) as caught:
        check_period(blocks(de="abc", fr="uvw", it="bcvw"), items, spec)
    assert (
        "nobody of 'de', the group of examinees (person_group) that sets the metric, answered an item of dimension "
        "'y': 'fr' (3 items), 'it' (2 items); nothing ties their abilities to it: give it such items, or let a group "
        "that has them set the metric (data.reference_group)"
    ) in str(caught.value)
    assert check_period(blocks(de="abcu", fr="uvwa", it="bcvw"), items, spec).data.populations[0] == "de"


def test_a_pooled_fit_has_a_population_per_period_and_group():
    one = check_period(table(), ITEMS, spec_with(), period="Q1").data
    two = check_period(table("q").drop("person_group"), ITEMS, spec_with(), period="Q2").data
    pooled = pool_periods({"Q1": one, "Q2": two}, "Q2")
    assert pooled.populations == ("Q2", "Q1/fr", "Q1/de", "Q1/it")
    assert pooled.population.tolist() == [0] * 6 + [2, 1, 1, 3, 1, 2]
