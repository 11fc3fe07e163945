"""Periods whose items lack a column of the formula: calibrated without the terms it feeds, and that is said."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from concal.data.check import check_period
from concal.data.pool import pool_periods
from concal.errors import DataError
from concal.formula import parse_formula
from concal.spec import Spec


def with_formula(spec: Spec, formula: str, **options) -> Spec:
    content = spec.model_dump(mode="json", exclude_none=True)
    content["groups"]["vocabulary"] |= {"features": formula, **options}
    return Spec.parse(content)


def said(checked) -> list[str]:
    return [w for w in checked.warnings if "are calibrated without it" in w]


def same_data(one, other) -> None:
    assert list(one.groups) == list(other.groups)
    for name, group in one.groups.items():
        also = other.groups[name]
        assert (group.features, group.coding) == (also.features, also.coding)
        for field in ("X", "person", "item", "score"):
            np.testing.assert_array_equal(getattr(group, field), getattr(also, field))


@pytest.mark.parametrize(
    ("formula", "rest"),
    [
        ("~ length + C(cefr)", "~ C(cefr)"),
        ("~ length * C(cefr)", "~ C(cefr)"),
        ("~ length:C(cefr)", "~ 1"),
        ("~ scale(length) + bs(length, df=4) + I(length ** 2)", "~ 1"),
        ("~ C(length) + cefr", "~ cefr"),
    ],
)
def test_an_empty_column_leaves_the_formula_of_the_period(
    formula, rest, two_group_spec, two_group_items, two_group_responses
):
    empty = two_group_items.with_columns(length=pl.lit(None, dtype=pl.Float64))
    found = check_period(two_group_responses, empty, with_formula(two_group_spec, formula))
    plain = check_period(two_group_responses, two_group_items, with_formula(two_group_spec, rest))
    same_data(found.data, plain.data)
    assert found.data.groups["vocabulary"].lacking == ("length",)
    assert plain.data.groups["vocabulary"].lacking == ()
    assert found.design_states["vocabulary"]["lacking"] == ["length"]
    (text,) = said(found)
    for part in (
        "groups.vocabulary.features: 'length' is empty for all 6 items",
        "'v1'",
        "and 1 more",
        "no period yet",
    ):
        assert part in text
    assert not said(plain)


def test_cells_that_are_no_number_are_empty(two_group_spec, two_group_items, two_group_responses):
    empty = two_group_items.with_columns(length=pl.lit(float("nan")))
    assert said(check_period(two_group_responses, empty, two_group_spec))


def test_a_column_that_is_not_there_must_be_known_from_an_earlier_period(
    two_group_spec, two_group_items, two_group_responses
):
    without = two_group_items.rename({"length": "Length"})
    with pytest.raises(DataError, match=r"no column 'length'; did you mean 'Length'"):
        check_period(two_group_responses, without, two_group_spec)
    first = check_period(two_group_responses, two_group_items, two_group_spec)
    second = check_period(two_group_responses, without, two_group_spec, design_states=first.design_states)
    (text,) = said(second)
    assert "'length' is not in the item table (did you mean 'Length'?)" in text
    assert "keep what other periods say" in text
    assert second.data.groups["vocabulary"].features == ("1", "C(cefr)[B1]")


def test_a_column_of_a_formula_before_the_last_is_known(two_group_spec, two_group_items, two_group_responses):
    """Formulas A, B, A: what period one coded is known in period three."""
    first = check_period(two_group_responses, two_group_items, two_group_spec)
    other = with_formula(two_group_spec, "~ C(cefr)")
    second = check_period(two_group_responses, two_group_items, other, design_states=first.design_states)
    features = {**first.design_states["vocabulary"]["features"], **second.design_states["vocabulary"]["features"]}
    states = {**second.design_states, "vocabulary": {**second.design_states["vocabulary"], "features": features}}
    without = two_group_items.drop("length")
    third = check_period(two_group_responses, without, two_group_spec, design_states=states)
    (text,) = said(third)
    assert "keep what other periods say" in text


def test_what_one_item_has_the_others_need(two_group_spec, two_group_items, two_group_responses):
    one = two_group_items.with_columns(length=pl.when(pl.col("item_id") == "v3").then(pl.col("length")))
    with pytest.raises(DataError, match=r"'length' is missing or not finite for 5 items: 'v1'"):
        check_period(two_group_responses, one, two_group_spec)
    answered = two_group_responses.filter(pl.col("item_id") != "v3")
    found = check_period(answered, one, two_group_spec)  # an item nobody answered tells nothing
    assert found.data.groups["vocabulary"].lacking == ("length",)


def test_the_coding_learned_before_goes_on(two_group_spec, two_group_items, two_group_responses):
    spec = with_formula(two_group_spec, "~ scale(length) + C(cefr)")
    first = check_period(two_group_responses, two_group_items, spec)
    empty = two_group_items.with_columns(length=pl.lit(None, dtype=pl.Float64))
    second = check_period(two_group_responses, empty, spec, design_states=first.design_states)
    longer = two_group_items.with_columns(pl.col("length") + 10.0)
    third = check_period(two_group_responses, longer, spec, design_states=second.design_states)
    assert third.data.groups["vocabulary"].coding == first.data.groups["vocabulary"].coding
    assert third.data.groups["vocabulary"].lacking == ()


def test_groups_with_equal_slopes_may_lack_it_too(two_group_spec, two_group_items, two_group_responses):
    empty = two_group_items.with_columns(length=pl.lit(None, dtype=pl.Float64))
    found = check_period(two_group_responses, empty, with_formula(two_group_spec, "~ length", model="1pl"))
    assert found.data.groups["vocabulary"].lacking == ("length",)
    assert len(said(found)) == 1


def test_strata_of_a_group_lack_together():
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["r"]},
            "groups": {"essay": {"model": "gpcm", "dimension": "r", "features": "~ length"}},
            "data": {"few_responses": 1},
        }
    )
    items = pl.DataFrame({"item_id": list("abcd"), "group": "essay", "categories": [3, 3, 4, 4], "length": [None] * 4})
    answers = pl.DataFrame(
        [(f"p{k}", item, float(k % 3)) for k in range(9) for item in "abcd"],
        schema=["person_id", "item_id", "score"],
        orient="row",
    )
    found = check_period(answers, items, spec)
    assert [g.features for g in found.data.groups.values()] == [("1",), ("1",)]
    assert len(said(found)) == 1
    known = items.with_columns(length=pl.when(pl.col("categories") == 3).then(2.0))
    with pytest.raises(DataError, match=r"missing or not finite for 2 items: 'c', 'd'"):
        check_period(answers, known, spec)


def test_a_pooled_fit_needs_every_feature(two_group_spec, two_group_items, two_group_responses):
    first = check_period(two_group_responses, two_group_items, two_group_spec)
    empty = two_group_items.with_columns(length=pl.lit(None, dtype=pl.Float64))
    second = check_period(two_group_responses, empty, two_group_spec, design_states=first.design_states)
    for order in (("Q1", "Q2"), ("Q2", "Q1")):
        both = dict(zip(order, (first.data, second.data), strict=True))
        with pytest.raises(DataError, match=r"'vocabulary': no item of some periods has 'length'.*fill it in"):
            pool_periods(both, "Q1")
    alike = {"Q1": second.data, "Q2": replace(second.data, period="Q2")}
    assert pool_periods(alike, "Q1").groups["vocabulary"].features == ("1", "C(cefr)[B1]")


@pytest.mark.parametrize(
    "text",
    ["~ `a b` * C(c) + log(x + 1)", "~ bs(x, df=5, degree=2):C(c) + poly(-x, 3)", "~ I(x ** 2 - y / 3):z + center(x)"],
)
def test_a_formula_without_some_columns_reads_back_as_itself(text):
    formula = parse_formula(text)
    assert parse_formula(formula.without(()).text).terms == formula.terms
    assert formula.without(formula.columns).text == "~ 1"
