"""Numbers of categories belong to items: where they come from, and what is refused."""

import numpy as np
import polars as pl
import pytest

from concal.data.check import check_period
from concal.errors import DataError, SpecError
from concal.spec import Spec

IDS = ["a", "b", "c", "d", "e", "f"]


def spec_of(**group) -> Spec:
    group = {"model": "gpcm", "dimension": "t", **group}
    return Spec.parse({"bank": {"dimensions": ["t"]}, "groups": {"essay": group}, "data": {"few_responses": 0}})


def items(**columns) -> pl.DataFrame:
    return pl.DataFrame({"item_id": IDS, "group": "essay", **columns})


def answers(top) -> pl.DataFrame:
    """Every item answered with its lowest and highest score."""
    rows = [(f"p{k}", item, k * high) for item, high in zip(IDS, top, strict=True) for k in (0, 1)]
    return pl.DataFrame(rows, schema=["person_id", "item_id", "score"], orient="row")


def strata(checked) -> dict[str, tuple[str, ...]]:
    return {name: group.item_ids for name, group in checked.data.groups.items()}


EXPECTED = {"essay (2 categories)": ("a", "b"), "essay (3 categories)": ("c", "d"), "essay (5 categories)": ("e", "f")}


@pytest.mark.parametrize(
    "columns",
    [
        {"categories": [2, 2, 3, 3, 5, 5]},
        {"categories": ["2", "2", "3", "3", "5", "5"]},
        {"max_score": [1, 1, 2, 2, 4, 4]},
        {"categories": [None, None, 3, 3, None, 5], "max_score": [1, 1, 2, 2, 4, 40]},
    ],
)
def test_an_item_says_its_number(columns):
    top = [1, 1, 2, 2, 4, 40 if "categories" in columns and columns["categories"][0] is None else 4]
    checked = check_period(answers(top), items(**columns), spec_of())
    assert strata(checked) == EXPECTED
    assert [g.model.n_categories for g in checked.data.groups.values()] == [2, 3, 5]
    assert [g.score.max() for g in checked.data.groups.values()] == [1.0, 2.0, 4.0]


def test_the_groups_own_number_keeps_the_groups_name():
    checked = check_period(
        answers([2, 2, 2, 2, 4, 4]), items(categories=[None, 3, None, 3, 5, 5]), spec_of(categories=3)
    )
    assert strata(checked) == {"essay": ("a", "b", "c", "d"), "essay (5 categories)": ("e", "f")}


def test_a_stratum_may_be_written_as_the_group():
    table = items().with_columns(pl.Series("group", [f"essay ({k} categories)" for k in (2, 2, 3, 3, 5, 5)]))
    assert strata(check_period(answers([1, 1, 2, 2, 4, 4]), table, spec_of())) == EXPECTED


def test_features_are_coded_alike_in_all_strata():
    table = items(categories=[2, 2, 3, 3, 5, 5], kind=["x", "y", "x", "x", "z", "z"], length=[1.0, 2, 3, 4, 5, 6])
    checked = check_period(answers([1, 1, 2, 2, 4, 4]), table, spec_of(features="~ C(kind) + scale(length)"))
    groups = list(checked.data.groups.values())
    assert len({g.features for g in groups}) == 1
    assert len({g.coding for g in groups}) == 1
    X = np.concatenate([g.X for g in groups])
    np.testing.assert_allclose(X[:, -1].std(), np.std(X[:, -1]))
    assert X[:, -1].mean() == pytest.approx(0.0)  # scaled over the whole group
    later = check_period(
        answers([1, 1, 2, 2, 3, 3]),
        table.with_columns(pl.Series("categories", [2, 2, 3, 3, 4, 4])),
        spec_of(features="~ C(kind) + scale(length)"),
        design_states=checked.design_states,
    )
    assert later.data.groups["essay (4 categories)"].coding == groups[0].coding


@pytest.mark.parametrize(
    ("columns", "group", "message"),
    [
        ({}, {}, "6 items without a number of categories: 'a', 'b'"),
        ({"max_score": [1, 1, 2, 2, 2.5, 4]}, {}, "1 item without a number of categories: 'e'"),
        ({"categories": [2, 2, 3, 3, 1, 5]}, {}, "1 item whose categories is not a whole number from 2 to 64: 'e'"),
        ({"categories": [2, 2, 3, 3, "many", 5]}, {}, "1 item whose categories is not a whole number"),
        ({"categories": [2, 2, 3, 3, 5, 5]}, {"model": "2pl"}, "4 items with categories the model does not take: 'c'"),
        (
            {"max_score": [1, 1, 2, 2, 4, 4]},
            {"categories": 5},
            "4 items with a max_score that does not fit 5 categories",
        ),
    ],
)
def test_what_is_refused(columns, group, message):
    table = items(**{name: pl.Series(values, strict=False) for name, values in columns.items()})
    with pytest.raises(DataError, match=message.replace("(", r"\(")):
        check_period(answers([1, 1, 1, 1, 1, 1]), table, spec_of(**group))


def test_scores_are_judged_by_the_items_own_number():
    with pytest.raises(
        DataError, match=r"'essay \(3 categories\)' \(gpcm\): 1 score must be a whole number from 0 to 2"
    ):
        check_period(answers([1, 1, 2, 4, 4, 4]), items(categories=[2, 2, 3, 3, 5, 5]), spec_of())


def test_a_group_cannot_be_called_like_a_stratum():
    group = {"model": "gpcm", "dimension": "t", "categories": 3}
    with pytest.raises(SpecError, match="those come from the item table"):
        Spec.parse({"bank": {"dimensions": ["t"]}, "groups": {"essay (3 categories)": group}})


def test_a_small_stratum_is_doubted_for_its_steps_alone():
    """Its d and log a have the population of the whole group, and two categories have no steps."""
    table = items(categories=[2, 3, 3, 3, 3, 5], length=[1.0, 2, 3, 4, 5, 6])
    checked = check_period(answers([1, 2, 2, 2, 2, 4]), table, spec_of(features="~ length"))
    doubts = [text for text in checked.warnings if "priors" in text]
    assert len(doubts) == 1
    assert doubts[0].startswith("group 'essay': 1 item with 5 categories and steps for 2 coefficients")
    table = items(categories=[2, 2, 3, 3, 5, 5], kind=["x", "x", "y", "y", "z", "z"])
    checked = check_period(answers([1, 1, 2, 2, 4, 4]), table, spec_of(features="~ C(kind)"))
    assert not any("cannot be told apart" in text for text in checked.warnings)
